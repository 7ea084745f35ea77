//! Every law for every kind of filter: a table of kinds and the groups of laws that each has to keep.
//!
//! PROPTEST_CASES sets the number of cases per law (1000), PROPTEST_RNG_SEED repeats a run.

mod battery;

battery::battery! {
    bits_auto: every, bits, unordered;
    bits_classic: every, bits, unordered;
    bits_blocked: every, bits, unordered;
    bits_classic_sharded: every, bits, unordered;
    bits_blocked_sharded: every, bits, unordered;
    bits_classic_siphash: every, bits, unordered;
    bits_blocked_siphash: every, bits, unordered;
    bits_refusing: every, full;
    counter4_classic: every, counting;
    counter4_blocked: every, counting;
    counter8_classic: every, counting;
    counter8_blocked: every, counting;
    counter16_classic: every, counting;
    counter16_blocked: every, counting;
    counter4_classic_sharded: every, counting;
    counter8_blocked_sharded: every, counting;
    counter4_refusing: every, full;
    scaling_classic: every, bits, scaling;
    scaling_blocked: every, bits, scaling;
    scaling_by_1: every, bits, scaling;
    scaling_by_4: every, bits, scaling;
    scaling_from_1: every, bits, scaling;
    scaling_tightening: every, bits, scaling;
    scaling_tightening_blocked: every, bits, scaling;
    scaling_sharded_siphash: every, bits, scaling;
    window_classic: every, bits, window;
    window_blocked: every, bits, window;
    window_sharded: every, bits, window;
    window_siphash: every, bits, window;
    window_timed: every, bits, window;
    window_refusing: every, full;
}
