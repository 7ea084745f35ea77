//! The module's sections of INFO. `INFO bf` shows all of them, and `INFO bf_filters`, for instance, shows one. The
//! server puts the module's name before every name in this file.

#![allow(unsafe_code)]

use super::server::{server, status};
use super::settings::tenants;
use super::tenants::are_being_counted;
use super::{guard, log, waiting, workers};
use bloomery_commands::info::{InfoField, SECTIONS};
use bloomery_commands::metrics::{self, ACROSS, FILTERS, SKETCHES};
use bloomery_commands::tenants::{FIGURES, PREFIX};
use bloomery_commands::{ABANDONED, MAX_UPLOADS};
use redis_module::raw;
use std::ffi::{CStr, CString, c_int};

/// The fields of the section `module`, which are text.
const ABOUT: [(&CStr, &CStr); 2] = [(c"version", VERSION), (c"implementation", c"bloomery")];

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

/// The value of a field. It only reads atomics, because the server also asks for it in a signal handler when it reports
/// a crash.
fn value(field: InfoField) -> u64 {
    use InfoField as F;
    let pool = workers::figures();
    match field {
        F::TotalMemoryBytes | F::CellBytes => bloomery::metrics::CELL_BYTES.get(),
        F::Objects => bloom_filters(),
        F::FiltersAcrossObjects => ACROSS.arrays.get(),
        F::ItemsAcrossObjects => ACROSS.items.get(),
        F::CapacityAcrossObjects => ACROSS.capacity.get(),
        F::FixedFilters => FILTERS.fixed.get(),
        F::ScalingFilters => FILTERS.scaling.get(),
        F::CountingFilters => FILTERS.counting.get(),
        F::WindowFilters => FILTERS.window.get(),
        F::CuckooFilters => FILTERS.cuckoo.get(),
        F::ForeignFilters => FILTERS.foreign.get(),
        F::CountMinSketches => SKETCHES.cms.get(),
        F::TopKs => SKETCHES.topk.get(),
        F::TDigests => SKETCHES.tdigest.get(),
        F::FreeingBytes => metrics::FREEING_BYTES.get(),
        F::EvictedFilters => metrics::FILTERS_EVICTED.get(),
        F::Loads => metrics::UPLOADS.get(),
        F::LoadBytes => metrics::UPLOAD_BYTES.get(),
        F::LoadHeldBytes => metrics::UPLOAD_HELD_BYTES.get(),
        F::LoadsDropped => metrics::UPLOADS_DROPPED.get(),
        F::LoadsMax => MAX_UPLOADS as u64,
        F::LoadIdleSecondsMax => ABANDONED.as_secs(),
        F::PoolThreads => pool.threads(),
        F::PoolForks => pool.forks,
        F::PoolJobs => pool.jobs,
        F::PoolJobsRunning => pool.running,
        F::PoolJobsQueued => pool.queued,
        F::PoolJobsPaused => pool.paused,
        F::OffloadedItems => metrics::OFFLOADED_ITEMS.get(),
        F::ClientsWaiting => metrics::CLIENTS_WAITING.get(),
        F::ClientsWaitingMax => waiting::MOST_WAITING,
        F::WaitingBytes => metrics::WAITING_BYTES.get().saturating_add(metrics::KEPT_BYTES.get()),
        F::WaitingBytesMax => waiting::most_bytes(),
        F::ClientsInPieces => metrics::CLIENTS_IN_PIECES.get(),
        F::PromisedBytes => metrics::PROMISED_BYTES.get(),
        F::WaitingRefused => metrics::OFFLOADS_REFUSED.get(),
        F::WaitingDropped => metrics::OFFLOADS_DROPPED.get(),
        F::PayloadsRefused => metrics::PAYLOADS_REFUSED.get(),
        F::CreationsRefused => metrics::CREATIONS_REFUSED.get(),
        F::SizesRefused => metrics::SIZES_REFUSED.get(),
        F::AddsRefusedFull => metrics::ADDS_REFUSED.full.get(),
        F::AddsRefusedLimit => metrics::ADDS_REFUSED.limit.get(),
        F::AddsRefusedMemory => metrics::ADDS_REFUSED.memory.get(),
        F::Panics => metrics::PANICS.get().saturating_add(pool.panics),
    }
}

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

/// Reports what each tenant has and may have. Not for a crash report, because it takes locks.
fn report_tenants(info: *mut raw::RedisModuleInfoCtx) {
    let quotas = tenants().quotas();
    if quotas.is_empty() {
        return;
    }
    // SAFETY: the context is the server's. The texts are NUL-terminated, and the server copies them.
    unsafe {
        if server!(RedisModule_InfoAddSection(info, c"tenants".as_ptr())) != status::OK {
            return;
        }
        let field =
            |name: &CStr, value: u64| server!(RedisModule_InfoAddFieldULongLong(info, name.as_ptr(), value));
        field(c"tenants_being_counted", are_being_counted().into());
        for (number, quota) in quotas.iter().enumerate() {
            let name = CString::new(format!("tenant_{number}")).unwrap_or_default();
            let prefix = CString::new(quota.tenant.prefix.as_str()).unwrap_or_default();
            server!(RedisModule_InfoBeginDictField(info, name.as_ptr()));
            server!(RedisModule_InfoAddFieldCString(info, PREFIX.as_ptr(), prefix.as_ptr()));
            for figure in &FIGURES {
                field(figure.name, (figure.value)(quota));
            }
            server!(RedisModule_InfoEndDictField(info));
        }
    }
}

unsafe extern "C" fn report(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
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
                for field in *fields {
                    server!(RedisModule_InfoAddFieldULongLong(info, field.name().as_ptr(), value(*field)));
                }
            }
        }
        if for_crash_report == 0 {
            report_tenants(info);
        }
    };
    guard::call("info", report, || ());
}
