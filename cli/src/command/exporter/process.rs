//! The resources that the exporter itself uses, as metrics with the names that Prometheus's own programs use.

/// A metric: its name, its help text, and its value.
pub(super) type Figure = (&'static str, &'static str, f64);

/// The metrics of this process. Empty on systems other than Linux, and if /proc can't be read.
pub(super) fn figures() -> Vec<Figure> {
    #[cfg(target_os = "linux")]
    return read().unwrap_or_default();
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

#[cfg(target_os = "linux")]
fn read() -> procfs::ProcResult<Vec<Figure>> {
    use procfs::WithCurrentSystemInfo;
    use procfs::process::{LimitValue, Process};

    let own = Process::myself()?;
    let stat = own.stat()?;
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    let mut figures = vec![
        ("process_cpu_seconds_total", "Processor time of the exporter.", seconds(stat.utime + stat.stime)),
        ("process_resident_memory_bytes", "Its resident memory.", stat.rss_bytes().get() as f64),
        ("process_virtual_memory_bytes", "Its virtual memory.", stat.vsize as f64),
        (
            "process_start_time_seconds",
            "When it was started, in Unix time.",
            procfs::boot_time_secs()? as f64 + seconds(stat.starttime),
        ),
        ("process_threads", "Its threads.", stat.num_threads as f64),
        ("process_open_fds", "Its open file descriptors.", own.fd_count()? as f64),
    ];
    if let LimitValue::Value(most) = own.limits()?.max_open_files.soft_limit {
        figures.push(("process_max_fds", "How many file descriptors it may open.", most as f64));
    }
    Ok(figures)
}
