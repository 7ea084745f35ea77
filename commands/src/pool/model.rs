//! Loom models of the pool.
//!
//! A lost wake-up shows up as a deadlock, or as threads that never end. In the models, no thread spins: every thread
//! sleeps as soon as it can, which is the harder case.

use super::{Job, JobContext, Pool};
use crate::sync::explore;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;
use std::sync::Arc;

fn pool(workers: usize) -> Pool {
    let pool = Pool::new();
    pool.resize(workers);
    pool
}

fn marks(tasks: usize) -> Vec<AtomicUsize> {
    (0..tasks).map(|_| AtomicUsize::new(0)).collect()
}

/// Checks that each task ran once. `with_mut` needs exclusive access: loom objects if a task's access didn't happen
/// before it.
fn assert_once(mut marks: Vec<AtomicUsize>) {
    marks.iter_mut().for_each(|mark| mark.with_mut(|mark| assert_eq!(*mark, 1)));
}

/// Hand-over and completion: the caller sees what the tasks wrote.
#[test]
fn every_task_runs_once_and_before_the_caller_returns() {
    explore(|| {
        let pool = pool(2);
        let marks = marks(3);
        pool.fork_join(3, &|index| _ = marks[index].fetch_add(1, Relaxed));
        assert_once(marks);
    });
}

/// The second scope finds the worker busy, falling asleep or asleep. A late unpark from the first scope may still
/// arrive.
#[test]
fn scopes_follow_each_other() {
    explore(|| {
        let pool = pool(1);
        for _ in 0..2 {
            let marks = marks(2);
            pool.fork_join(2, &|index| _ = marks[index].fetch_add(1, Relaxed));
            assert_once(marks);
        }
    });
}

/// Only the job wakes the main thread, and only the pool runs the job.
#[test]
fn no_submitted_job_is_slept_over() {
    explore(|| {
        let pool = pool(2);
        for _ in 0..2 {
            run_one(&pool);
        }
        assert_eq!(pool.figures().panics, 0); // loom reports errors by panics, and the pool catches panics of a job
    });
}

/// The worker that was to take the job may be the one that leaves.
#[test]
fn no_job_is_slept_over_while_the_pool_shrinks() {
    explore(|| {
        let pool = pool(2);
        run_one(&pool);
        pool.resize(1);
        run_one(&pool);
        assert_eq!(pool.figures().panics, 0);
    });
}

fn run_one(pool: &Pool) {
    let (done, main) = (Arc::new(AtomicUsize::new(0)), thread::current());
    let job: Job = Box::new({
        let done = Arc::clone(&done);
        move |_| {
            done.fetch_add(1, Relaxed);
            main.unpark();
        }
    });
    assert!(pool.submit(job).is_ok());
    while done.load(Relaxed) == 0 {
        thread::park();
    }
}

/// When shutdown returns, a job that was accepted has run, and one that wasn't has been returned. After shutdown, all
/// jobs are returned.
#[test]
fn shutdown_runs_a_job_or_never_takes_it() {
    explore(|| {
        let pool = Arc::new(pool(1));
        assert!(pool.submit(Box::new(|_| ())).is_ok());
        let ran = Arc::new(AtomicUsize::new(0));
        let submitter = thread::spawn({
            let (pool, ran) = (Arc::clone(&pool), Arc::clone(&ran));
            move || {
                let job: Job = Box::new(move |_| _ = ran.fetch_add(1, Relaxed));
                pool.submit(job).is_ok()
            }
        });
        pool.shutdown();
        let figures = pool.figures();
        assert_eq!((figures.workers, figures.queued, figures.running), (0, 0, 0));
        let ran = ran.load(Relaxed);
        assert!(pool.submit(Box::new(|_| unreachable!())).is_err());
        assert_eq!(ran, usize::from(submitter.join().unwrap()));
    });
}

/// The worker and the thread that withdraws a job race for it: one of them gets it, and the worker can still end.
#[test]
fn a_withdrawn_job_runs_here_or_on_a_worker() {
    explore(|| {
        let pool = pool(1);
        let ran = Arc::new(AtomicUsize::new(0));
        let job = || -> Job {
            let ran = Arc::clone(&ran);
            Box::new(move |_| _ = ran.fetch_add(1, Relaxed))
        };
        let (Ok(first), Ok(second)) = (pool.submit(job()), pool.submit(job())) else { unreachable!() };
        // Withdrawn out of order, so that the worker may be running the other job.
        let withdrawn: Vec<Job> =
            [second, first].into_iter().filter_map(|ticket| pool.withdraw(ticket)).collect();
        assert!([first, second].into_iter().all(|ticket| pool.withdraw(ticket).is_none()));
        let given_back = withdrawn.len();
        pool.shutdown();
        assert_eq!((ran.load(Relaxed), pool.figures().queued), (2 - given_back, 0));
        withdrawn.into_iter().for_each(|job| job(&pool.job_context()));
        assert_eq!(ran.load(Relaxed), 2);
    });
}

/// The only worker is to leave when the queue is empty, and another thread empties it at that moment.
#[test]
fn workers_leave_when_the_last_job_is_withdrawn() {
    explore(|| {
        let pool = Arc::new(pool(1));
        let Ok(ticket) = pool.submit(Box::new(|_| ())) else { unreachable!() };
        let withdrawer = thread::spawn({
            let pool = Arc::clone(&pool);
            move || usize::from(pool.withdraw(ticket).is_some())
        });
        pool.resize(0);
        pool.shutdown();
        let withdrawn = withdrawer.join().unwrap();
        assert_eq!((pool.figures().workers, pool.figures().jobs), (0, 1 - withdrawn as u64));
    });
}

/// There are more jobs than may be paused, because a model allows only one paused job. The last job begins when another
/// has ended.
#[test]
fn more_jobs_than_may_be_paused() {
    explore(|| {
        let pool = pool(1);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let ran = Arc::clone(&ran);
            let job =
                move |context: &JobContext<'_>| context.fork_join(1, &|_| _ = ran.fetch_add(1, Relaxed));
            assert!(pool.submit(Box::new(job)).is_ok());
        }
        pool.shutdown();
        let figures = pool.figures();
        assert_eq!((figures.workers, figures.queued, figures.paused, figures.running), (0, 0, 0, 0));
        assert_eq!((ran.load(Relaxed), figures.panics), (3, 0));
    });
}

/// One worker, and jobs that end their turn after each task. All jobs end, even if one is withdrawn in the middle, and
/// no matter when the pool is shut down.
#[test]
fn jobs_take_turns() {
    for withdraws in [false, true] {
        explore(move || {
            let pool = pool(1);
            let ran = Arc::new(AtomicUsize::new(0));
            let job = |tasks: usize| -> Job {
                let ran = Arc::clone(&ran);
                Box::new(move |context| context.fork_join(tasks, &|_| _ = ran.fetch_add(1, Relaxed)))
            };
            let (Ok(first), Ok(_)) = (pool.submit(job(2)), pool.submit(job(1))) else { unreachable!() };
            if withdraws && let Some(job) = pool.withdraw(first) {
                job(&pool.job_context());
            }
            pool.shutdown();
            let figures = pool.figures();
            assert_eq!((figures.workers, figures.queued, figures.running), (0, 0, 0));
            assert_eq!((ran.load(Relaxed), figures.panics), (3, 0));
        });
    }
}
