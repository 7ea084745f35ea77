// What the server says about a filter. docs/commands/bf.stats.md and cf.stats.md explain the names.
// tests/library/statistics.rs compares the fields with the server's table.

/** How many items a filter refused, by reason. */
export interface Refused {
    full: number;
    limit: number;
    memory: number;
}

/** What was reported in a span of time. */
export interface Feedback {
    checked: number;
    false: number;
    shareFalse: number | null;
    observedErrorRate: number | null;
}

/** What was reported in the last minute, in the last hour, and since the server loaded the filter. */
export interface Feedbacks {
    minute: Feedback;
    hour: Feedback;
    life: Feedback;
}

/** A layer of a filter, or a generation of a window. */
export interface Layer {
    age?: number;
    layout?: string;
    capacity: number;
    numberOfItemsInserted: number;
    errorRate: number;
    errorRateNow: number;
    cells: number;
    probes: number;
    fill: number;
}

/** A rebuild that is running. All fields but the first describe the new filter. */
export interface Rebuild {
    status: string;
    kind: string;
    capacity: number;
    errorRate: number;
    errorRateNow: number;
    numberOfItemsInserted: number;
    approximateNumberOfItems: number;
    numberOfFilters: number;
    fill: number;
    size: number;
    deletesMissed: number;
    identity: string;
}

/** Statistics of a Bloom filter. */
export interface BloomStats {
    kind: string;
    origin: string;
    itemsAre?: string;
    layout?: string;
    hash?: string;
    shards?: number;
    bitsPerCell?: number;
    onFull?: string;
    errorRate: number | null;
    errorRateNow: number;
    capacity: number;
    capacityReserved?: number;
    numberOfItemsInserted: number;
    approximateNumberOfItems?: number;
    numberOfFilters: number;
    cells: number;
    cellsSet: number;
    fill: number;
    size: number;
    memory?: number;
    expansionRate?: number | null;
    tighteningRatio?: number | null;
    generations?: number;
    generation?: number;
    rotatesEveryMs?: number | null;
    nextRotationInMs?: number | null;
    itemsForgottenEarly?: number;
    saturatedCounters?: number;
    testsAnsweredYes?: number;
    testsAnsweredNo?: number;
    adds?: number;
    deletes?: number;
    addsRefused?: Refused;
    feedback?: Feedbacks;
    advice: string[];
    layers: Layer[];
    rebuild: Rebuild | null;
    identity: string | null;
}

/** Statistics of a cuckoo filter. */
export interface CuckooStats {
    origin: string;
    hash?: string;
    errorRate: number;
    errorRateNow: number;
    capacity: number;
    capacityReserved?: number;
    numberOfItemsInserted: number;
    numberOfFilters: number;
    numberOfBuckets?: number;
    numberOfItemsDeleted?: number;
    bucketSize?: number;
    maxIterations?: number;
    fill: number;
    fillWhenFull?: number;
    size: number;
    expansionRate: number;
    addsRefused?: Refused;
    advice: string[];
    identity: string | null;
}
