import type { BloomTable, CuckooTable } from "./table.js";
import type { BloomStats, CuckooStats } from "./stats.js";

export type { BloomStats, CuckooStats };

/** A client, pool or cluster of node-redis (4 or later), or a client or cluster of ioredis (5 or later). */
export type Client =
    | { sendCommand(...words: any[]): Promise<any> }
    | { createBuiltinCommand(name: string): { buffer: any } };

export type Key = string | Uint8Array;

/** Strings become UTF-8; numbers, which must be safe integers, and bigints become decimal digits. */
export type Item = string | Uint8Array | number | bigint;

/** Read in pieces of 64 KiB. The next piece is read when the server has answered the previous one. */
export type Items = Iterable<Item> | AsyncIterable<Item>;

/** Options of BF.RESERVE and BF.REBUILD BEGIN, in lower case. undefined and false leave an option out. */
export interface BloomOptions extends BloomTable {
    /** Another filter, which must have the same error rate and capacity. Filters that are merged need it. */
    like?: Key | Bloom;
}

/** Options of CF.RESERVE, in lower case. */
export interface CuckooOptions extends CuckooTable {}

/** Keeps a filter that exists already. */
export interface ExistOk {
    existOk?: boolean;
}

declare class Filter {
    constructor(client: Client, key: Key);
    readonly client: Client;
    readonly key: Key;

    /** True if the item was added, or by chance. False if it is certainly absent; a filter that is missing contains
     * nothing. Rejects with WRONGTYPE if the key holds another type. */
    has(item: Item): Promise<boolean>;
    hasMany(items: Items): Promise<boolean[]>;

    /** Deletes one occurrence of an item from a counting or cuckoo filter. False: it was absent. Delete only what was
     * added; otherwise the filter may lose other items. */
    delete(item: Item): Promise<boolean>;

    /** How many times an item was added to a counting or cuckoo filter, minus how many times it was deleted; sometimes
     * more. */
    count(item: Item): Promise<number>;
}

/** A Bloom filter at one key: fixed, scaling, counting, or a window. */
export class Bloom extends Filter {
    /** Creates the filter, empty, and returns this object. Rejects with a RangeError for an invalid value, and with the
     * server's error if options exclude each other, if there isn't enough memory, or if the key exists. */
    reserve(errorRate: number, capacity: number, options?: BloomOptions & ExistOk): Promise<this>;

    /** True: the item was certainly absent. Rejects with the server's error if the filter is missing or full. */
    add(item: Item): Promise<boolean>;

    /** How many items were certainly absent. If it fails, the earlier pieces have been added. */
    addMany(items: Items): Promise<number>;

    deleteMany(items: Items): Promise<boolean[]>;

    /** Opens a new generation of a window, and drops the oldest. With `every` or `ttl`, the server does this. */
    rotate(): Promise<void>;

    /** How many generations ago an item was last added to a window, or by chance fewer. null: the item is absent. */
    age(item: Item): Promise<number | null>;

    /** Number of items; 0 if there is no filter. */
    card(): Promise<number>;

    /** Empties the filter. Its parameters and its seed stay. */
    clear(): Promise<void>;

    /** Builds a new filter from `items` while this one serves, and then replaces it in one step. If reading the items
     * fails, the old filter stays. In the meantime, `add` and `addMany` add to both. Options that aren't given stay. */
    rebuild(items: Items, options?: BloomOptions & { capacity?: number; errorRate?: number }): Promise<void>;

    info(): Promise<Pick<BloomStats, "capacity" | "size" | "numberOfFilters" | "numberOfItemsInserted" | "expansionRate">>;

    /** Every field of BF.STATS. */
    stats(): Promise<BloomStats>;
}

/** A cuckoo filter at one key: an item needs about one byte, and can be deleted. */
export class Cuckoo extends Filter {
    /** As in Bloom. The error rate follows from `bucketsize`. */
    reserve(capacity: number, options?: CuckooOptions & ExistOk): Promise<this>;

    /** Adds an item, even if it is already there; with `ifAbsent`, only if it isn't. True: it was added. Rejects with
     * FilterFull if there is no room, and with the server's error if the filter is missing. */
    add(item: Item, options?: { ifAbsent?: boolean }): Promise<boolean>;

    /** How many items were added. If it fails, the earlier pieces have been added. */
    addMany(items: Items, options?: { ifAbsent?: boolean }): Promise<number>;

    info(): Promise<Pick<CuckooStats, "size" | "numberOfBuckets" | "numberOfFilters" | "numberOfItemsInserted"
        | "numberOfItemsDeleted" | "bucketSize" | "expansionRate" | "maxIterations">>;

    /** Every field of CF.STATS. */
    stats(): Promise<CuckooStats>;
}

/** A cuckoo filter has no room for some items. */
export class FilterFull extends Error {}
