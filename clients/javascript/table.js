// The options of filters. tests/library/options.rs writes this file.

import { between, hexadecimal, oneOf, powerOfTwo, ratio } from "./checks.js";

export const BLOOM = {
    expansion: between(0, 32768),
    nonscaling: oneOf(true),
    tightening: ratio(),
    window: between(2, 1000),
    every: between(1, 2 ** 53 - 1),
    since: between(0, 2 ** 53 - 1),
    ttl: between(1, 2 ** 53 - 1),
    steps: between(1, 999),
    onfull: oneOf("ERROR", "SATURATE", "SCALE", "FORGET"),
    counting: oneOf(true, 4, 8, 16),
    shards: powerOfTwo(1024),
    layout: oneOf("AUTO", "BLOCKED", "CLASSIC", "PARTITIONED", "QUOTIENT"),
    hash: oneOf("XXH3", "SIPHASH"),
    sizes: between(0, 65535),
    seed: hexadecimal(32),
};

export const CUCKOO = {
    bucketsize: between(1, 255),
    maxiterations: between(1, 65535),
    expansion: between(0, 32768),
    hash: oneOf("XXH3", "SIPHASH"),
    seed: hexadecimal(32),
};
