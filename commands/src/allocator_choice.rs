//! Decides once which allocator is used. `module`'s allocator asks for the decision at every allocation. The rule is in
//! a file of its own so that it can be tested without a server.

use crate::sync::AtomicU8;
use crate::sync::Ordering::Relaxed;

const UNDECIDED: u8 = 0;
const SYSTEM: u8 = 1;
const SERVER: u8 = 2;

/// The decision. A call of [`server_serves`](AllocatorChoice::server_serves) decides for the system's allocator, and a
/// call of [`bind`](AllocatorChoice::bind) for the server's. Only the first call counts.
///
/// Relaxed ordering is enough: no other data depends on this byte. What the server's allocator needs was set up before
/// `bind`.
#[derive(Default)]
pub struct AllocatorChoice(AtomicU8);

impl AllocatorChoice {
    /// Undecided.
    #[cfg(not(all(loom, test)))]
    pub const fn new() -> AllocatorChoice {
        AllocatorChoice(AtomicU8::new(UNDECIDED))
    }

    /// loom's atomics have no constant constructor.
    #[cfg(all(loom, test))]
    pub fn new() -> AllocatorChoice {
        AllocatorChoice(AtomicU8::new(UNDECIDED))
    }

    /// Decides for the server's allocator. Can be called again: if a server loads the module twice, the file is mapped
    /// only once, and both loads share this decision.
    ///
    /// # Errors
    /// Why the module must not load: memory has already been allocated, and the server's memory limit wouldn't include
    /// it.
    pub fn bind(&self) -> Result<(), &'static str> {
        match self.0.compare_exchange(UNDECIDED, SERVER, Relaxed, Relaxed) {
            Ok(_) | Err(SERVER) => Ok(()),
            Err(_) => Err("memory was allocated before the server's allocator was bound"),
        }
    }

    /// Whether the server's allocator is used. Every call gives the same answer.
    #[inline(always)]
    pub fn server_serves(&self) -> bool {
        match self.0.load(Relaxed) {
            SERVER => true,
            SYSTEM => false,
            _ => self.0.compare_exchange(UNDECIDED, SYSTEM, Relaxed, Relaxed) == Err(SERVER),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_decides() {
        let choice = AllocatorChoice::new();
        assert_eq!(choice.bind(), Ok(()));
        assert!(choice.server_serves());
        assert_eq!(choice.bind(), Ok(()));
        assert!(choice.server_serves());
        let choice = AllocatorChoice::new();
        assert!(!choice.server_serves());
        assert!(choice.bind().unwrap_err().starts_with("memory was allocated before"));
        assert!(!choice.server_serves());
    }
}

#[cfg(all(loom, test))]
mod model {
    use super::*;
    use crate::sync::{explore, thread};
    use std::sync::Arc;

    /// Threads that allocate while the module is being loaded always get the same answer. Loading succeeds only if the
    /// answer is the server. So memory is never returned to the wrong allocator.
    #[test]
    fn all_get_the_same_answer() {
        explore(|| {
            let choice = Arc::new(AllocatorChoice::new());
            let askers = [(); 2].map(|()| {
                let choice = Arc::clone(&choice);
                thread::spawn(move || [choice.server_serves(), choice.server_serves()])
            });
            let bound = choice.bind().is_ok();
            assert_eq!(choice.server_serves(), bound);
            askers.into_iter().for_each(|asker| assert_eq!(asker.join().unwrap(), [bound; 2]));
            assert_eq!(choice.bind().is_ok(), bound);
        });
    }
}
