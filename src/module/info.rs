//! The module's sections of INFO. `INFO bf` shows all of them, and `INFO bf_filters`, for instance, shows one. The
//! server puts the module's name before every name in this file.

use super::server::{server, status};
use super::{guard, log, waiting, workers};
use crate::command::{ABANDONED, MAX_UPLOADS};
use crate::metrics::{self, ACROSS, FILTERS};
use redis_module::raw;
use std::ffi::{CStr, c_int};

type Field = (&'static CStr, fn() -> u64);

/// The fields of the section `module`, which are text.
const ABOUT: [(&CStr, &CStr); 2] = [(c"version", VERSION), (c"implementation", c"bloomery")];

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

/// The other sections and their fields. The functions only read atomics, because the server also calls them from a
/// signal handler when it reports a crash.
const SECTIONS: [(&CStr, &[Field]); 5] = [
    // This section has valkey-bloom's names, for tools that expect them.
    (
        c"bloom_core_metrics",
        &[
            (c"bloom_total_memory_bytes", || metrics::CELL_BYTES.get()),
            (c"bloom_num_objects", bloom_filters),
            (c"bloom_num_filters_across_objects", || ACROSS.arrays.get()),
            (c"bloom_num_items_across_objects", || ACROSS.items.get()),
            (c"bloom_capacity_across_objects", || ACROSS.capacity.get()),
        ],
    ),
    (
        c"filters",
        &[
            (c"fixed_filters", || FILTERS.fixed.get()),
            (c"scaling_filters", || FILTERS.scaling.get()),
            (c"counting_filters", || FILTERS.counting.get()),
            (c"window_filters", || FILTERS.window.get()),
            (c"cuckoo_filters", || FILTERS.cuckoo.get()),
            (c"foreign_filters", || FILTERS.foreign.get()),
        ],
    ),
    (
        c"memory",
        &[
            (c"cell_bytes", || metrics::CELL_BYTES.get()),
            (c"freeing_bytes", || metrics::FREEING_BYTES.get()),
            (c"loads", || metrics::UPLOADS.get()),
            (c"load_bytes", || metrics::UPLOAD_BYTES.get()),
            (c"load_held_bytes", || metrics::UPLOAD_HELD_BYTES.get()),
            (c"loads_dropped", || metrics::UPLOADS_DROPPED.get()),
            (c"loads_max", || MAX_UPLOADS as u64),
            (c"load_idle_seconds_max", || ABANDONED.as_secs()),
        ],
    ),
    (
        c"pool",
        &[
            (c"pool_threads", || workers::figures().threads()),
            (c"pool_forks", || workers::figures().forks),
            (c"pool_jobs", || workers::figures().jobs),
            (c"pool_jobs_running", || workers::figures().running),
            (c"pool_jobs_queued", || workers::figures().queued),
            (c"pool_jobs_paused", || workers::figures().paused),
            (c"offloaded_items", || metrics::OFFLOADED_ITEMS.get()),
            (c"clients_waiting", || metrics::CLIENTS_WAITING.get()),
            (c"clients_waiting_max", || waiting::MOST_WAITING),
            (c"waiting_bytes", || metrics::WAITING_BYTES.get().saturating_add(metrics::KEPT_BYTES.get())),
            (c"waiting_bytes_max", || waiting::most_bytes()),
            (c"clients_in_pieces", || metrics::CLIENTS_IN_PIECES.get()),
            (c"promised_bytes", || metrics::PROMISED_BYTES.get()),
            (c"waiting_refused", || metrics::OFFLOADS_REFUSED.get()),
            (c"waiting_dropped", || metrics::OFFLOADS_DROPPED.get()),
        ],
    ),
    (
        c"errors",
        &[
            (c"payloads_refused", || metrics::PAYLOADS_REFUSED.get()),
            (c"panics", || metrics::PANICS.get().saturating_add(workers::figures().panics)),
        ],
    ),
];

/// Number of filters, except cuckoo filters, that are in keys or are still to be freed.
fn bloom_filters() -> u64 {
    let kinds = [&FILTERS.fixed, &FILTERS.scaling, &FILTERS.counting, &FILTERS.window, &FILTERS.foreign];
    kinds.iter().map(|kind| kind.get()).sum()
}

/// Registers the sections with the server.
///
/// # Safety
/// `ctx` is the context of a running `RedisModule_OnLoad`.
pub(super) unsafe fn register(ctx: *mut raw::RedisModuleCtx) {
    // SAFETY: the context is the caller's, and the callback lives as long as the module, which is never unloaded.
    if unsafe { server!(RedisModule_RegisterInfoFunc(ctx, Some(report))) } != status::OK {
        log::warning("the server accepts no section of INFO");
    }
}

unsafe extern "C" fn report(info: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    let report = || {
        // SAFETY: the context is the server's. The texts are NUL-terminated, and the server copies them.
        unsafe {
            if server!(RedisModule_InfoAddSection(info, c"module".as_ptr())) == status::OK {
                for (name, value) in ABOUT {
                    server!(RedisModule_InfoAddFieldCString(info, name.as_ptr(), value.as_ptr()));
                }
            }
        }
        for (section, fields) in SECTIONS {
            // SAFETY: as above. Fields go into the section that was added last. A section that nobody asked for is
            // refused.
            unsafe {
                if server!(RedisModule_InfoAddSection(info, section.as_ptr())) != status::OK {
                    continue;
                }
                for (name, value) in fields {
                    server!(RedisModule_InfoAddFieldULongLong(info, name.as_ptr(), value()));
                }
            }
        }
    };
    guard::call("info", report, || ());
}
