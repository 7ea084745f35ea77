//! One fork-join: a task that runs once for each index, on the caller and on helpers. The task is borrowed from the
//! caller's stack. That is why there is unsafe code: no helper may use the task after the caller has returned.

#![allow(unsafe_code)]

use super::wait::{lock, spin};
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicUsize, Mutex, thread};
use std::any::Any;
use std::hint::spin_loop;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// The state of one fork-join. It is in an `Arc`, because a helper may read `next` long after the caller has returned.
/// The helper must not use the task after that return.
pub(super) struct Scope {
    task: *const (dyn Fn(usize) + Sync),
    tasks: usize,
    /// The next index to claim; never more than `tasks`.
    next: AtomicUsize,
    /// The number of tasks that have ended.
    ended: AtomicUsize,
    /// Whether the caller is a job, which gives other jobs their turns.
    is_of_job: bool,
    /// The first panic of a task.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    caller: thread::Thread,
}

// SAFETY: only the field `task` isn't Send. It points at a `Sync` value, so any thread may call it while it exists; see
// `run`.
unsafe impl Send for Scope {}
// SAFETY: as above.
unsafe impl Sync for Scope {}

impl Scope {
    /// Runs `task(0..tasks)`, each index once. When all have ended, returns or resumes the first panic. `post` passes
    /// the scope to the threads that may help. If the caller is a job, it calls `pause` after each task that it runs,
    /// to give other jobs a turn.
    pub(super) fn join(
        tasks: usize,
        task: &(dyn Fn(usize) + Sync),
        pause: Option<&dyn Fn()>,
        post: impl FnOnce(&Arc<Scope>),
    ) {
        let task: *const (dyn Fn(usize) + Sync + '_) = task;
        // SAFETY: the types differ only in the lifetime of what the pointer points at.
        let task = unsafe {
            mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync)>(task)
        };
        let scope = Arc::new(Scope {
            task,
            tasks,
            next: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            is_of_job: pause.is_some(),
            panic: Mutex::new(None),
            caller: thread::current(),
        });
        let joined = Joined(&scope, pause);
        post(&scope);
        drop(joined);
        let panic = lock(&scope.panic).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Whether there are tasks left to claim.
    pub(super) fn is_open(&self) -> bool {
        self.next.load(Relaxed) < self.tasks
    }

    pub(super) fn is_of_job(&self) -> bool {
        self.is_of_job
    }

    /// Runs tasks until none is left to claim. If the caller is a job, stops once `news` returns true. Wakes the caller
    /// if the last task to end was one of these tasks.
    pub(super) fn help(&self, news: impl Fn() -> bool) {
        if self.run(|| !(self.is_of_job && news())) {
            self.caller.unpark();
        }
    }

    /// Runs tasks until none is left to claim, or `go_on` returns false. Returns whether the last task to end was one
    /// of these tasks.
    fn run(&self, go_on: impl Fn() -> bool) -> bool {
        let mut ran = 0;
        while let Some(index) = self.claim() {
            // SAFETY: the caller is still in `join`, which borrows the task: it leaves (`Joined`) only when `tasks`
            // tasks have ended. Each index is claimed once, and counted as ended below, after the call. So while this
            // one is claimed and not yet counted, the count is at least one short.
            let task = unsafe { &*self.task };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(index))) {
                lock(&self.panic).get_or_insert(panic);
            }
            ran += 1;
            if !go_on() {
                break;
            }
        }
        // Release: the caller acquires the count in `wait`, and with it what the tasks wrote.
        ran > 0 && self.ended.fetch_add(ran, Release) + ran == self.tasks
    }

    /// Claims the next index; `None` if there is none left. An unconditional addition could wrap, and give out an index
    /// twice. Relaxed: the lock under which the scope was posted has published what a task reads.
    fn claim(&self) -> Option<usize> {
        self.next.fetch_update(Relaxed, Relaxed, |next| (next < self.tasks).then_some(next + 1)).ok()
    }

    /// Waits until all tasks have ended. Those that haven't are running now.
    fn wait(&self) {
        let ended = || self.ended.load(Acquire) == self.tasks;
        if !spin(ended, spin_loop) {
            while !ended() {
                thread::park(); // may return early: the last helper of an earlier scope may unpark late
            }
        }
    }
}

/// When dropped, runs tasks on the caller, and waits until all tasks have ended, even if the caller unwinds.
struct Joined<'a>(&'a Scope, Option<&'a dyn Fn()>);

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.0.run(|| {
            self.1.iter().for_each(|pause| pause());
            true
        });
        self.0.wait();
    }
}
