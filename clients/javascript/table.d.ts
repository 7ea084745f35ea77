// The options of filters. tests/library/options.rs writes this file.

export interface BloomTable {
    /** 0 to 32768 */
    expansion?: number;
    nonscaling?: boolean;
    /** a ratio between 0 and 1, both excluded */
    tightening?: number;
    /** 2 to 64 generations, with LAYOUT QUOTIENT 2 to 1000 */
    window?: number;
    /** milliseconds */
    every?: number;
    /** a Unix time in milliseconds */
    since?: number | Date;
    /** milliseconds */
    ttl?: number;
    /** 1 to 999 steps of a TTL */
    steps?: number;
    onfull?: "ERROR" | "SATURATE" | "SCALE" | "FORGET";
    /** 4, 8 or 16 bits per counter */
    counting?: true | 4 | 8 | 16;
    /** a power of two from 1 to 1024 */
    shards?: number;
    layout?: "AUTO" | "BLOCKED" | "CLASSIC" | "PARTITIONED" | "QUOTIENT";
    hash?: "XXH3" | "SIPHASH";
    /** a number from 0 to 65535 */
    sizes?: number;
    /** hexadecimal digits */
    seed?: string;
}

export interface CuckooTable {
    bucketsize?: number;
    maxiterations?: number;
    /** 0 to 32768 */
    expansion?: number;
    hash?: "XXH3" | "SIPHASH";
    /** hexadecimal digits */
    seed?: string;
}
