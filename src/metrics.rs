//! The memory of all filters, as a sum that any thread may read.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of the cells of all filters: those in keys, those that are being loaded or copied, and those that are deleted
/// but not freed yet.
#[cfg_attr(all(loom, test), allow(dead_code, reason = "the words of models are not counted"))]
pub static CELL_BYTES: Sum = Sum::new();

/// A gauge to which the main thread adds nearly all amounts. The main thread needs no locked instruction, which would
/// take 20 cycles. That matters because deleting a small filter changes five sums.
#[derive(Debug, Default)]
pub struct Sum {
    by_main: AtomicU64,
    by_others: AtomicU64,
}

#[cfg(feature = "std")]
std::thread_local!(static IS_MAIN: core::cell::Cell<bool> = const { core::cell::Cell::new(false) });

/// Makes the calling thread the main thread. A caller of [`Sum::change`] on another thread must make sure that the main
/// thread isn't running at that time.
#[cfg(feature = "std")]
pub fn this_is_the_main_thread() {
    IS_MAIN.set(true);
}

/// Whether the calling thread is the main thread. Without `std`, every thread is another one.
#[inline(always)]
fn is_main() -> bool {
    #[cfg(feature = "std")]
    return IS_MAIN.get();
    #[cfg(not(feature = "std"))]
    false
}

impl Sum {
    /// 0.
    pub const fn new() -> Sum {
        Sum { by_main: AtomicU64::new(0), by_others: AtomicU64::new(0) }
    }

    /// Subtracts `before` and adds `now`. For the main thread, and for threads that run while the main thread waits.
    #[inline(always)]
    pub fn change(&self, before: u64, now: u64) {
        let sum = self.by_main.load(Relaxed);
        self.by_main.store(sum.wrapping_add(now).wrapping_sub(before), Relaxed);
    }

    /// Adds an amount, on any thread.
    #[inline]
    pub fn add(&self, amount: u64) {
        if is_main() { self.change(0, amount) } else { _ = self.by_others.fetch_add(amount, Relaxed) }
    }

    /// Subtracts an amount, on any thread.
    #[inline]
    pub fn sub(&self, amount: u64) {
        if is_main() { self.change(amount, 0) } else { _ = self.by_others.fetch_sub(amount, Relaxed) }
    }

    /// The sum of the two parts. One part alone may be below 0, but the sum isn't.
    pub fn get(&self) -> u64 {
        self.by_main.load(Relaxed).wrapping_add(self.by_others.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_counts_what_all_threads_add_and_take_away() {
        static SUM: Sum = Sum::new();
        let work = |is_main: bool| {
            move || {
                IS_MAIN.set(is_main);
                for amount in 0..10_000 {
                    SUM.add(amount + 1);
                    SUM.sub(amount);
                }
            }
        };
        std::thread::scope(|scope| {
            for is_main in [true, false, false] {
                scope.spawn(work(is_main));
            }
        });
        assert_eq!(SUM.get(), 30_000);
    }
}
