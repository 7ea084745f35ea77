//! The worker pool: it runs every task and every job exactly once, whatever the workers do, and leaves no thread
//! running after shutdown. The models in commands/src/pool try what no test can: every interleaving. All atomics here
//! are relaxed, because the pool itself must make their values visible in time.

use bloomery_commands::pool::{Figures, Job, MAX_WORKERS, Pool};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

fn pool(workers: usize) -> Pool {
    let pool = Pool::new();
    pool.resize(workers);
    pool
}

fn counts(tasks: usize) -> Vec<AtomicU32> {
    (0..tasks).map(|_| AtomicU32::new(0)).collect()
}

fn assert_each(counts: &[AtomicU32], times: u32) {
    for (index, count) in counts.iter().enumerate() {
        assert_eq!(count.load(Relaxed), times, "task {index} of {}", counts.len());
    }
}

/// Waits at most 30 s until other threads have made `holds` return true.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "still not: {what}");
        thread::yield_now();
    }
}

fn submit(pool: &Pool, job: impl FnOnce() + Send + 'static) {
    assert!(pool.submit(Box::new(|_| job())).is_ok());
}

/// Occupies a worker until the returned sender is dropped. Returns as soon as a worker is occupied.
fn occupy(pool: &Pool) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    submit(pool, move || {
        begin.send(()).unwrap();
        _ = released.recv();
    });
    begun.recv().unwrap();
    release
}

#[test]
fn every_index_runs_exactly_once() {
    for workers in 0..=4 {
        let pool = pool(workers);
        for tasks in [0, 1, 7, 10_000] {
            for _ in 0..20 {
                let counts = counts(tasks);
                pool.fork_join(tasks, &|index| _ = counts[index].fetch_add(1, Relaxed));
                assert_each(&counts, 1);
            }
        }
    }
}

/// The pool works as a static, and threads start when it is first used.
#[test]
fn a_static_pool_starts_at_first_use() {
    static POOL: Pool = Pool::new();
    assert_eq!(POOL.figures(), Figures::default());
    POOL.resize(100);
    assert_eq!(POOL.figures().workers, 0);
    POOL.fork_join(2, &|_| ());
    assert_eq!(POOL.figures().workers, MAX_WORKERS as u64);
    POOL.shutdown();
    assert_eq!(POOL.figures().workers, 0);
}

/// Tasks that all wait for each other end only if workers take some of them.
#[test]
fn workers_help() {
    let pool = pool(3);
    for _ in 0..1000 {
        let all = Barrier::new(4);
        pool.fork_join(4, &|_| _ = all.wait());
        // Now and then, the workers get time to fall asleep.
        if rand::random_ratio(1, 20) {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn nested_forks_end() {
    let pool = pool(2);
    let counts = counts(6 * 6 * 6);
    for _ in 0..200 {
        pool.fork_join(6, &|i| {
            pool.fork_join(6, &|j| {
                pool.fork_join(6, &|k| _ = counts[(i * 6 + j) * 6 + k].fetch_add(1, Relaxed))
            });
        });
    }
    assert_each(&counts, 200);
}

#[test]
fn a_caller_does_not_wait_for_a_busy_worker() {
    let pool = pool(1);
    let busy = occupy(&pool);
    let counts = counts(100);
    pool.fork_join(100, &|index| _ = counts[index].fetch_add(1, Relaxed));
    assert_each(&counts, 1);
    assert_eq!(pool.figures().running, 1);
    drop(busy);
}

/// A caller waits for its fork-join, so the worker takes one of its tasks before the job that was queued earlier.
#[test]
fn forks_go_before_jobs() {
    let pool = pool(1);
    let busy = occupy(&pool);
    let job_ran = Arc::new(AtomicBool::new(false));
    submit(&pool, {
        let job_ran = Arc::clone(&job_ran);
        move || job_ran.store(true, Relaxed)
    });
    let (busy, both) = (std::sync::Mutex::new(Some(busy)), Barrier::new(2));
    pool.fork_join(2, &|_| {
        drop(busy.lock().unwrap().take());
        both.wait(); // the worker runs the other task
        assert!(!job_ran.load(Relaxed));
        both.wait();
    });
    eventually("the job ran", || job_ran.load(Relaxed));
}

#[test]
fn a_panic_in_a_task_is_the_callers_when_all_others_have_ended() {
    for workers in 0..=2 {
        let pool = pool(workers);
        for guilty in [0, 50, 99] {
            let counts = counts(100);
            let panic = catch_unwind(AssertUnwindSafe(|| {
                pool.fork_join(100, &|index| {
                    thread::sleep(Duration::from_micros(10));
                    counts[index].fetch_add(1, Relaxed);
                    assert!(index != guilty, "on purpose");
                });
            }));
            assert!(panic.unwrap_err().downcast_ref::<&str>().unwrap().contains("on purpose"));
            assert_each(&counts, 1);
        }
        assert_eq!(pool.figures().panics, 0);
        assert_eq!(pool.figures().workers, workers as u64);
    }
}

#[test]
fn a_panic_in_a_job_is_counted_and_the_worker_lives_on() {
    let pool = pool(1);
    let (send, receive) = mpsc::channel();
    for i in 0..10 {
        let send = send.clone();
        submit(&pool, move || {
            assert!(i % 2 == 0, "on purpose");
            send.send((i, thread::current().id())).unwrap();
        });
    }
    drop(send);
    let ran: Vec<_> = receive.into_iter().collect();
    assert_eq!(ran.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
    assert!(ran.iter().all(|(_, worker)| *worker == ran[0].1));
    pool.shutdown();
    assert_eq!(pool.figures(), Figures { jobs: 10, panics: 5, ..Figures::default() });
}

#[test]
fn without_workers_jobs_come_back_and_run_here() {
    for pool in [pool(0), {
        let shut = pool(2);
        shut.shutdown();
        shut.resize(2);
        shut
    }] {
        let ran = Arc::new(AtomicUsize::new(0));
        let job: Job = Box::new({
            let ran = Arc::clone(&ran);
            move |_| _ = ran.fetch_add(1, Relaxed)
        });
        pool.submit(job).expect_err("no worker")(&pool.job_context());
        assert_eq!(ran.load(Relaxed), 1);
        let here = thread::current().id();
        pool.fork_join(10, &|_| assert_eq!(thread::current().id(), here));
        assert_eq!(pool.figures(), Figures::default());
    }
}

/// When shutdown returns, every accepted job has run. Every refused job was given back.
#[test]
fn jobs_submitted_during_shutdown_run_or_come_back() {
    for round in 0..200 {
        let pool = pool(1 + round % 3);
        let (ran, refused) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let job = || -> Job {
            let ran = Arc::clone(&ran);
            Box::new(move |_| _ = ran.fetch_add(1, Relaxed))
        };
        let start = Barrier::new(3);
        thread::scope(|scope| {
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        (0..100)
                            .for_each(|_| _ = pool.submit(job()).map_err(|_| refused.fetch_add(1, Relaxed)));
                    })
                })
                .collect();
            start.wait();
            (0..round).for_each(|_| std::hint::spin_loop());
            pool.shutdown();
            assert_eq!(pool.figures().workers, 0);
            assert_eq!(
                pool.figures().jobs,
                ran.load(Relaxed) as u64,
                "a job ran after shutdown or not at all"
            );
            submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
        });
        assert_eq!(ran.load(Relaxed) + refused.load(Relaxed), 200);
    }
}

/// The workers run queued jobs before they end. A second shutdown has nothing to do.
#[test]
fn shutdown_runs_what_is_queued_and_may_be_repeated() {
    let pool = pool(2);
    let ran = Arc::new(AtomicUsize::new(0));
    let busy = [occupy(&pool), occupy(&pool)];
    for _ in 0..100 {
        let ran = Arc::clone(&ran);
        submit(&pool, move || _ = ran.fetch_add(1, Relaxed));
    }
    assert_eq!(pool.figures(), Figures { workers: 2, queued: 100, running: 2, ..Figures::default() });
    drop(busy);
    pool.shutdown();
    assert_eq!(ran.load(Relaxed), 100);
    pool.shutdown();
    assert_eq!(pool.figures(), Figures { jobs: 102, ..Figures::default() });
}

#[test]
fn many_forks_from_two_threads_at_once() {
    let pool = pool(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..10_000 {
                    let tasks = 2 + round % 9;
                    let counts = counts(tasks);
                    pool.fork_join(tasks, &|index| {
                        counts[index].fetch_add(1, Relaxed);
                        (0..20).for_each(|_| std::hint::spin_loop()); // time for the workers to take a share
                    });
                    assert_each(&counts, 1);
                }
            });
        }
    });
    assert_eq!(pool.figures(), Figures { workers: 2, forks: 20_000, ..Figures::default() });
}

/// Jobs, forks and changes of the pool's size at the same time: no job is lost, not even if all workers sleep.
#[test]
fn sizes_change_under_load() {
    let pool = pool(1);
    let (ran, run_here) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| (0..2000).for_each(|round| pool.resize(round % 5)));
        scope.spawn(|| (0..2000).for_each(|_| pool.fork_join(4, &|_| std::hint::spin_loop())));
        for _ in 0..5000 {
            let ran = Arc::clone(&ran);
            if let Err(job) = pool.submit(Box::new(move |_| _ = ran.fetch_add(1, Relaxed))) {
                run_here.fetch_add(1, Relaxed);
                job(&pool.job_context());
            }
        }
    });
    eventually("all jobs ran", || ran.load(Relaxed) == 5000);
    pool.resize(3);
    pool.fork_join(2, &|_| ());
    thread::sleep(Duration::from_millis(5)); // workers fall asleep, and have to be woken
    pool.resize(1);
    eventually("the others left", || pool.figures().workers == 1);
    pool.shutdown();
    assert_eq!(pool.figures().jobs, 5000 - run_here.load(Relaxed) as u64);
}

/// A job of tasks that last a millisecond each. At its end, it increments `ended`.
fn long(tasks: usize, ended: &Arc<AtomicUsize>) -> Job {
    let ended = Arc::clone(ended);
    Box::new(move |context| {
        context.fork_join(tasks, &|_| thread::sleep(Duration::from_millis(1)));
        ended.fetch_add(1, Relaxed);
    })
}

/// However many long jobs there are, a short one soon gets its turn, and so does each long one. Threads that were
/// started for this purpose end again.
#[test]
fn a_short_job_does_not_wait_for_long_ones() {
    for (workers, jobs) in [(1, 1), (1, 4), (2, 1), (2, 6)] {
        let pool = pool(workers);
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..jobs {
            assert!(pool.submit(long(3000, &ended)).is_ok());
        }
        for _ in 0..20 {
            let (send, receive) = mpsc::channel();
            submit(&pool, move || send.send(()).unwrap());
            receive.recv().unwrap();
            let now = pool.figures();
            assert!(now.workers <= workers as u64 && now.running <= workers as u64, "{now:?}");
        }
        assert_eq!(ended.load(Relaxed), 0, "{workers} workers, {jobs} long jobs");
        eventually("all ended", || ended.load(Relaxed) == jobs);
        pool.shutdown();
        assert_eq!(
            pool.figures(),
            Figures { jobs: jobs as u64 + 20, forks: jobs as u64, ..Figures::default() }
        );
    }
}

/// A paused job keeps its thread. So if there are very many jobs, not all begin at once: the last ones get their turn
/// when others have ended.
#[test]
fn the_threads_of_paused_jobs_are_bounded() {
    const JOBS: usize = 100;
    for workers in [1, 3] {
        let pool = pool(workers);
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..JOBS {
            assert!(pool.submit(long(12, &ended)).is_ok());
        }
        let mut most = 0;
        eventually("all ended", || {
            most = most.max(pool.figures().paused);
            ended.load(Relaxed) == JOBS
        });
        // On a busy machine, the largest number may not be seen.
        assert!((8..=32).contains(&most), "{workers} workers: {most}");
        eventually("no more than the workers are left", || pool.figures().workers == workers as u64);
        assert_eq!((pool.figures().paused, pool.figures().queued), (0, 0));
    }
}

/// If a job is withdrawn after it has begun, its submitter waits for it, so other jobs no longer take turns with it.
#[test]
fn a_job_that_is_withdrawn_too_late_goes_on_to_its_end() {
    let pool = pool(1);
    let (mine, others) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let ticket = pool.submit(long(200, &mine)).unwrap_or_else(|_| panic!());
    for _ in 0..20 {
        assert!(pool.submit(long(200, &others)).is_ok());
    }
    eventually("it waits for its next turn", || pool.figures().queued == 20);
    assert!(pool.withdraw(ticket).is_none());
    eventually("it ended", || mine.load(Relaxed) == 1);
    assert_eq!(others.load(Relaxed), 0);
    eventually("the others ended", || others.load(Relaxed) == 20);
    eventually("one worker is left", || pool.figures().workers == 1);
}

/// Every job runs to its end, short or long, while others are withdrawn, forks run, and the number of workers keeps
/// changing.
#[test]
fn turns_under_load() {
    let pool = pool(2);
    let (ended, shorts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..150 {
                    let job = if round % 3 == 0 { long(12, &ended) } else { long(1, &shorts) };
                    match pool.submit(job) {
                        Err(job) => job(&pool.job_context()),
                        Ok(ticket) => {
                            thread::sleep(Duration::from_millis(rand::random_range(0..4)));
                            if let Some(job) =
                                rand::random_ratio(1, 3).then(|| pool.withdraw(ticket)).flatten()
                            {
                                job(&pool.job_context());
                            }
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            (0..300).for_each(|round| {
                pool.resize(round % 4);
                thread::sleep(Duration::from_millis(1));
                pool.fork_join(4, &|_| ());
            })
        });
    });
    pool.resize(2);
    pool.fork_join(2, &|_| ());
    eventually("all ended", || ended.load(Relaxed) == 150 && shorts.load(Relaxed) == 300);
    eventually("two workers are left", || pool.figures().workers == 2);
    pool.shutdown();
    assert_eq!(pool.figures().workers, 0);
}

/// A job that no worker has started can be withdrawn, wherever it is in the queue. A job that has been started can't.
#[test]
fn a_job_is_withdrawn_until_a_worker_begins_it() {
    let pool = pool(1);
    let busy = occupy(&pool);
    let ran = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tickets: Vec<_> = (0..10)
        .map(|number| {
            let ran = Arc::clone(&ran);
            pool.submit(Box::new(move |_| ran.lock().unwrap().push(number))).unwrap_or_else(|_| panic!())
        })
        .collect();
    for number in [3, 0, 9] {
        pool.withdraw(tickets[number]).expect("it is queued")(&pool.job_context());
        assert!(pool.withdraw(tickets[number]).is_none(), "twice");
    }
    assert_eq!(pool.figures().queued, 7);
    drop(busy);
    eventually("the others ran", || pool.figures().jobs == 8);
    assert!(tickets.iter().all(|ticket| pool.withdraw(*ticket).is_none()));
    assert_eq!(*ran.lock().unwrap(), [3, 0, 9, 1, 2, 4, 5, 6, 7, 8]);
}

/// Threads submit jobs and withdraw some at random, while the number of workers changes. Each job runs once, in the
/// pool or in the thread that submitted it.
#[test]
fn jobs_are_withdrawn_under_load() {
    let pool = pool(2);
    let counts = Arc::new(counts(3 * 3000));
    let withdrawn = AtomicUsize::new(0);
    thread::scope(|scope| {
        for submitter in 0..3 {
            let (pool, withdrawn, counts) = (&pool, &withdrawn, &counts);
            scope.spawn(move || {
                for index in submitter * 3000..(submitter + 1) * 3000 {
                    let counts = Arc::clone(counts);
                    let job: Job = Box::new(move |_| _ = counts[index].fetch_add(1, Relaxed));
                    let ticket = match pool.submit(job) {
                        Ok(ticket) => ticket,
                        Err(job) => {
                            job(&pool.job_context());
                            continue;
                        }
                    };
                    if rand::random_ratio(1, 2) {
                        thread::yield_now();
                    }
                    if let Some(job) = rand::random_ratio(2, 3).then(|| pool.withdraw(ticket)).flatten() {
                        withdrawn.fetch_add(1, Relaxed);
                        job(&pool.job_context());
                    }
                }
            });
        }
        scope.spawn(|| (0..500).for_each(|round| pool.resize(round % 4)));
    });
    pool.shutdown();
    assert_each(&counts, 1);
    assert!(withdrawn.load(Relaxed) > 0);
}

/// Even if the number of workers is reduced to zero, the queued jobs still run.
#[test]
fn the_last_workers_empty_the_queue() {
    let pool = pool(1);
    let busy = occupy(&pool);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let ran = Arc::clone(&ran);
        submit(&pool, move || _ = ran.fetch_add(1, Relaxed));
    }
    pool.resize(0);
    assert!(pool.submit(Box::new(|_| ())).is_err());
    drop(busy);
    eventually("the worker left", || pool.figures().workers == 0);
    pool.shutdown();
    assert_eq!(ran.load(Relaxed), 10);
}

/// Pools start and stop, each after some work. BLOOMERY_POOLS sets their number; scripts/tsan runs 10,000.
#[test]
fn pools_start_and_stop() {
    let rounds = std::env::var("BLOOMERY_POOLS").map_or(300, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let (pool, ran) = (pool(1 + round % MAX_WORKERS), Arc::new(AtomicUsize::new(0)));
        submit(&pool, {
            let ran = Arc::clone(&ran);
            move || _ = ran.fetch_add(1, Relaxed)
        });
        pool.fork_join(4, &|_| _ = ran.fetch_add(1, Relaxed));
        // Every other pool is dropped without a shutdown.
        if round % 2 == 0 {
            pool.shutdown();
            assert_eq!(pool.figures().workers, 0);
        }
        drop(pool);
        assert_eq!(ran.load(Relaxed), 5, "round {round}");
    }
}

/// Workers block signals, so that the server's signal handlers run on its own threads. They don't block faults, so the
/// server still reports a fault in a worker.
#[cfg(target_os = "linux")]
#[test]
fn workers_are_named_block_signals_use_no_cpu_and_end() {
    /// The signals that a thread blocks, as a bit mask, without `SIGKILL`, `SIGSTOP` and those that glibc uses.
    fn blocked(status: &str) -> u64 {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 0x7fff_ffff & !(1 << 8 | 1 << 18)
    }
    let (send, receive) = mpsc::channel();
    let (pool, here) = (pool(1), blocked(&std::fs::read_to_string("/proc/thread-self/status").unwrap()));
    submit(&pool, move || send.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap());
    let worker = std::path::Path::new("/proc").join(receive.recv().unwrap());
    let read = |file| std::fs::read_to_string(worker.join(file)).unwrap();
    assert_eq!(read("comm"), "bloomery-1\n");
    // SEGV 11, BUS 7, FPE 8, ILL 4, TRAP 5, ABRT 6
    let faults = [11, 7, 8, 4, 5, 6].map(|signal: u32| 1 << (signal - 1)).iter().sum::<u64>();
    assert_eq!(blocked(&read("status")), 0x7fff_ffff & !(1 << 8 | 1 << 18) & !faults);
    assert_eq!(
        blocked(&std::fs::read_to_string("/proc/thread-self/status").unwrap()),
        here,
        "the caller's mask"
    );

    // A worker without work spins only for microseconds. Then it sleeps, and isn't even scheduled.
    eventually("it sleeps", || read("status").contains("State:\tS"));
    let before = read("schedstat");
    let spent: u64 = before.split(' ').next().unwrap().parse().unwrap();
    assert!(spent < 20_000_000, "{spent} ns for one job");
    thread::sleep(Duration::from_millis(50));
    assert_eq!(read("schedstat"), before);

    pool.shutdown();
    // The thread has ended, and the kernel will soon remove it.
    eventually("it is gone", || !worker.exists());
}
