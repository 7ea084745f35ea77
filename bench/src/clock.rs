//! CPU time of the calling thread. Other programs on the machine don't affect it.

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};

/// Runs `work`. Returns the nanoseconds of CPU time that it costs, and its result.
pub fn cpu_ns<R>(work: impl FnOnce() -> R) -> Result<(f64, R)> {
    let now = || -> Result<f64> {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
        Ok(time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64)
    };
    let before = now()?;
    let result = std::hint::black_box(work());
    Ok((now()? - before, result))
}
