//! One fork-join: a task that is run for each index, by the caller and by whoever comes to help. The task is borrowed
//! from the caller's stack; that a helper never touches it after the caller has returned is the one unsafe part.

use super::{lock, spin};
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicUsize, Mutex, thread};
use std::any::Any;
use std::hint::spin_loop;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Shared, because a helper may look at `next` when the caller has long returned. The task it may not look at then.
pub(super) struct Fork {
    task: *const (dyn Fn(usize) + Sync),
    tasks: usize,
    /// The next index to claim; never more than `tasks`.
    next: AtomicUsize,
    /// How many tasks have ended.
    ended: AtomicUsize,
    /// What the first task that panicked panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    caller: thread::Thread,
}

// SAFETY: of the fields only `task` is not Send. It points at a Sync, so it may be called from any thread, as long as
// it is there: see `run`.
unsafe impl Send for Fork {}
// SAFETY: as above.
unsafe impl Sync for Fork {}

impl Fork {
    /// Runs `task(0..tasks)`, each index once, and returns when all have ended, or resumes the first panic then.
    /// `post` shows the fork to those who may help.
    pub(super) fn join(tasks: usize, task: &(dyn Fn(usize) + Sync), post: impl FnOnce(&Arc<Fork>)) {
        let task: *const (dyn Fn(usize) + Sync + '_) = task;
        // SAFETY: pointers that differ in nothing but the lifetime of what they point at.
        let task = unsafe {
            mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync)>(task)
        };
        let fork = Arc::new(Fork {
            task,
            tasks,
            next: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            panic: Mutex::new(None),
            caller: thread::current(),
        });
        let joined = Joined(&fork);
        post(&fork);
        drop(joined);
        let panic = lock(&fork.panic).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Whether there are tasks left to claim.
    pub(super) fn is_open(&self) -> bool {
        self.next.load(Relaxed) < self.tasks
    }

    /// Runs tasks until none is left to claim, and wakes the caller if the last one to end was among them.
    pub(super) fn help(&self) {
        if self.run() {
            self.caller.unpark();
        }
    }

    /// Runs tasks until none is left to claim, and says whether the last one to end was among them.
    fn run(&self) -> bool {
        let mut ran = 0;
        while let Some(index) = self.claim() {
            // SAFETY: the caller is still in `join`, which borrows the task: it leaves (`Joined`) only when `tasks`
            // tasks have ended. Each index is claimed once, and counted as ended below, after the call. So the count
            // stays short by one at least while this one, claimed and not yet counted, runs.
            let task = unsafe { &*self.task };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(index))) {
                lock(&self.panic).get_or_insert(panic);
            }
            ran += 1;
        }
        // Release: the caller acquires the count (`wait`), and with it what the tasks wrote.
        ran > 0 && self.ended.fetch_add(ran, Release) + ran == self.tasks
    }

    /// Not an unconditional addition, which could wrap and hand out an index twice. Relaxed: what a task reads was
    /// handed over with the fork, by a lock.
    fn claim(&self) -> Option<usize> {
        self.next.fetch_update(Relaxed, Relaxed, |next| (next < self.tasks).then_some(next + 1)).ok()
    }

    /// Waits until all tasks have ended. Those that have not are being run at this moment.
    fn wait(&self) {
        let ended = || self.ended.load(Acquire) == self.tasks;
        if !spin(ended, spin_loop) {
            while !ended() {
                thread::park(); // may return early: an earlier fork's last helper may unpark late
            }
        }
    }
}

/// The caller's duty to stay until all tasks have ended, also when it unwinds.
struct Joined<'a>(&'a Fork);

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.0.run();
        self.0.wait();
    }
}
