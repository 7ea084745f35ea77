//! Chance in a Top-K sketch: how a bucket's count decays when other items meet it.
//!
//! RedisBloom asks the C library for random numbers, so its replicas diverge. Here they come from a generator whose
//! state belongs to the sketch, and is saved with it. So replicas, and servers that read an append-only file, draw the
//! same numbers. Nothing is computed with the C library, because each rounds in its own way.

use bloomery::power;

/// Number of counts whose chance is in the table.
const LEN: usize = 256;

/// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014). Every state is valid.
#[derive(Clone, Copy)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number in [0, 1).
    fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        const UNIT: f64 = 1.0 / (1u64 << f64::MANTISSA_DIGITS) as f64;
        ((mixed ^ mixed >> 31) >> (u64::BITS - f64::MANTISSA_DIGITS)) as f64 * UNIT
    }
}

/// The chances that counts decay: the decay of the sketch to the power of the count.
pub(super) struct Decay {
    decay: f64,
    table: [f64; LEN],
}

impl Decay {
    pub(super) fn new(decay: f64) -> Decay {
        let mut table = [1.0; LEN];
        table.iter_mut().skip(1).fold(1.0, |before, chance| {
            *chance = before * decay;
            *chance
        });
        Decay { decay, table }
    }

    /// The chance that a count falls by 1 when another item meets it.
    fn chance(&self, count: u32) -> f64 {
        self.table.get(count as usize).copied().unwrap_or_else(|| power(self.decay, count))
    }

    /// Lets another item meet a count `times` times. Returns the count that remains or, if it has reached 0, the number
    /// of meetings from that one on, as `Err`.
    pub(super) fn meet(&self, dice: &mut Dice, mut count: u32, mut times: u32) -> Result<u32, u32> {
        if times == 1 && count as usize >= LEN {
            // The chance is rarely needed, because it is less than the last one in the table.
            let (draw, [.., last]) = (dice.draw(), self.table);
            let falls = draw < last && draw < self.chance(count);
            return Ok(count.saturating_sub(falls.into()));
        }
        let mut chance = self.chance(count);
        while times > 0 {
            times = times.saturating_sub(misses(dice, chance, times));
            if times == 0 {
                break;
            }
            count = count.saturating_sub(1);
            if count == 0 {
                return Err(times);
            }
            times = times.saturating_sub(1);
            // A power would take ten times as long as drawing.
            chance = self.table.get(count as usize).copied().unwrap_or(chance / self.decay);
        }
        Ok(count)
    }
}

/// Number of meetings before the first that lowers a count, or `most > 0` if that is less. If the first is near, draws
/// one by one. Otherwise jumps there with one draw, because the number has a geometric distribution.
fn misses(dice: &mut Dice, chance: f64, most: u32) -> u32 {
    /// From this chance on, the draws cost less than a logarithm.
    const NEAR: f64 = 0.125;
    if chance >= 1.0 {
        return 0;
    }
    if chance >= NEAR || most == 1 {
        return (0..most).find(|_| dice.draw() < chance).unwrap_or(most);
    }
    let misses = libm::log1p(-dice.draw()) / libm::log1p(-chance);
    // The divisor is 0 if there is no chance, and `misses` might be NaN.
    #[allow(clippy::cast_possible_truncation, reason = "it is less than `most`")]
    if misses < f64::from(most) { misses as u32 } else { most }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_beyond_the_table_have_powers_as_chances() {
        let decay = Decay::new(0.999);
        for count in [0, 1, 255, 256, 1000, 65_535] {
            let expected = 0.999f64.powi(count as i32);
            assert!((decay.chance(count) / expected - 1.0).abs() < 1e-9, "{count}");
        }
        assert_eq!(Decay::new(1.0).chance(u32::MAX), 1.0);
        assert_eq!(Decay::new(1e-300).chance(2), 0.0);
    }

    #[test]
    fn without_chance_there_is_no_change() {
        let mut dice = Dice(0);
        assert_eq!(Decay::new(1.0).meet(&mut dice, 10, 4), Ok(6));
        assert_eq!(Decay::new(1.0).meet(&mut dice, 10, 14), Err(5));
        assert_eq!(dice.0, 0);
        for _ in 0..1000 {
            assert_eq!(Decay::new(1e-300).meet(&mut dice, 2, 100_000), Ok(2));
        }
    }

    /// A jump has the distribution of single draws: the number of meetings until a count of 25 has fallen has the mean
    /// 1/p, where p is 0.9^25, and is above 13, which is less than the mean, with probability (1 - p)^13.
    #[test]
    fn a_jump_has_the_distribution_of_draws() {
        let (decay, mut dice, rounds) = (Decay::new(0.9), Dice(1), 100_000);
        let chance = decay.chance(25);
        let jumps = |dice: &mut Dice| misses(dice, chance, u32::MAX) + 1;
        let draws = |dice: &mut Dice| (1..).find(|_| misses(dice, chance, 1) == 0).unwrap_or(0);
        let methods: [&dyn Fn(&mut Dice) -> u32; 2] = [&jumps, &draws];
        for method in methods {
            let found: Vec<f64> = (0..rounds).map(|_| method(&mut dice).into()).collect();
            let mean = found.iter().sum::<f64>() / f64::from(rounds);
            let above = found.iter().filter(|found| **found > 13.0).count() as f64 / f64::from(rounds);
            assert!((mean * chance - 1.0).abs() < 0.02, "{mean}");
            assert!((above - (1.0 - chance).powi(13)).abs() < 0.01, "{above}");
        }
    }
}
