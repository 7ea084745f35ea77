//! The fields of INFO: their sections, names and metrics. The module computes their values, and the program's exporter
//! makes metrics of them.

use std::ffi::CStr;

/// Declares the fields: their sections, names, and whether they rise and fall (`gauge`) or only rise (`counter`). A
/// field without a help text isn't exported.
macro_rules! fields {
    ($($section:literal { $($field:ident $name:literal $($kind:ident $help:literal)?,)* })*) => {
        /// A field of INFO. The server puts the module's name before the names of fields and sections.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "docs/commands/in-common.md describes the fields")]
        pub enum InfoField {
            $($($field,)*)*
        }

        /// The sections and their fields, in order.
        pub const SECTIONS: &[(&CStr, &[InfoField])] = &[$(($section, &[$(InfoField::$field),*])),*];

        impl InfoField {
            /// The field's name.
            pub fn name(self) -> &'static CStr {
                match self {
                    $($(InfoField::$field => $name,)*)*
                }
            }

            /// Whether the field's metric is a counter, and what it means; `None` if it isn't exported by itself.
            pub fn metric(self) -> Option<(bool, &'static str)> {
                match self {
                    $($($(InfoField::$field => Some((fields!($kind), $help)),)?)*)*
                    #[allow(unreachable_patterns, reason = "if all fields are exported")]
                    _ => None,
                }
            }
        }
    };
    (gauge) => { false };
    (counter) => { true };
}

fields! {
    // This section has valkey-bloom's names, for tools that expect them.
    c"bloom_core_metrics" {
        TotalMemoryBytes c"bloom_total_memory_bytes",
        Objects c"bloom_num_objects",
        FiltersAcrossObjects c"bloom_num_filters_across_objects",
        ItemsAcrossObjects c"bloom_num_items_across_objects",
        CapacityAcrossObjects c"bloom_capacity_across_objects",
    }
    // The exporter has one metric for this section, in which the kind is a label.
    c"filters" {
        FixedFilters c"fixed_filters",
        ScalingFilters c"scaling_filters",
        CountingFilters c"counting_filters",
        WindowFilters c"window_filters",
        CuckooFilters c"cuckoo_filters",
        ForeignFilters c"foreign_filters",
    }
    c"sketches" {
        CountMinSketches c"count_min_sketches" gauge "Count-min sketches, including those that are being freed.",
        TopKs c"top_ks" gauge "Top-K sketches, including those that are being freed.",
        TDigests c"t_digests" gauge "t-digests, including those that are being freed.",
    }
    c"memory" {
        CellBytes c"cell_bytes" gauge "Bytes of the cells of all filters, including those being loaded or freed.",
        FreeingBytes c"freeing_bytes" gauge "Part of the cell bytes that another thread is freeing.",
        EvictedFilters c"evicted_filters" counter "Filters that the server evicted, with all their items.",
        Loads c"loads" gauge "LOADCHUNK loads that are waiting for their next piece.",
        LoadBytes c"load_bytes" gauge "Bytes of cells that these loads will have when complete.",
        LoadHeldBytes c"load_held_bytes" gauge "Bytes of memory that these loads hold now.",
        LoadsDropped c"loads_dropped" counter "Loads dropped because they made no progress, or because memory was short.",
        LoadsMax c"loads_max" gauge "Maximum number of loads that can wait.",
        LoadIdleSecondsMax c"load_idle_seconds_max" gauge "Maximum time that a load can wait for its next piece, in seconds.",
    }
    c"pool" {
        PoolThreads c"pool_threads" gauge "Worker threads, including those of paused jobs.",
        PoolForks c"pool_forks" counter "Commands that ran in parallel on workers and the main thread.",
        PoolJobs c"pool_jobs" counter "Commands that ran on workers while the server served others.",
        PoolJobsRunning c"pool_jobs_running" gauge "Jobs in progress on workers.",
        PoolJobsQueued c"pool_jobs_queued" gauge "Jobs that are waiting for a worker.",
        PoolJobsPaused c"pool_jobs_paused" gauge "Jobs that have begun and are waiting for their next turn, each with a thread.",
        OffloadedItems c"offloaded_items" counter "Items of BF.BULKTEST that workers tested while the server served others.",
        ClientsWaiting c"clients_waiting" gauge
            "Clients that are waiting for workers: for a BF.BULKTEST, or for a command that works in the background.",
        ClientsWaitingMax c"clients_waiting_max" gauge "Maximum number of clients that can wait for workers.",
        WaitingBytes c"waiting_bytes" gauge "Bytes of the arguments of clients that are waiting for workers.",
        WaitingBytesMax c"waiting_bytes_max" gauge "Maximum number of bytes of these arguments.",
        ClientsInPieces c"clients_in_pieces" gauge "Clients whose command continues in pieces.",
        PromisedBytes c"promised_bytes" gauge "Bytes of memory that are reserved for commands that work in the background.",
        WaitingRefused c"waiting_refused" counter "Commands refused because too many were waiting for workers.",
        WaitingDropped c"waiting_dropped" counter
            "Commands abandoned because their client had disconnected or their filter had left its key.",
    }
    c"errors" {
        PayloadsRefused c"payloads_refused" counter
            "Payloads refused by RESTORE, RDB loading, LOADCHUNK, BF.IMPORT, BF.LOAD and BF.MERGE.",
        CreationsRefused c"creations_refused" counter "Adds to missing keys refused because auto-create is no.",
        SizesRefused c"sizes_refused" counter
            "Filters of a primary or an append-only file refused because another version computed their size.",
        AddsRefusedFull c"adds_refused_full" counter "Items refused by filters without room that do not grow.",
        AddsRefusedLimit c"adds_refused_limit" counter "Items refused by filters with the maximum number of layers or sub-filters.",
        AddsRefusedMemory c"adds_refused_memory" counter "Items refused because growing needed more memory than allowed.",
        Panics c"panics" counter "Panics of the module that were caught. Each is in the server's log.",
    }
}
