//! The method of measurement. In every round, all sides of a comparison run in turn on the same server. What counts is
//! the server's CPU time per item. A ratio is the median over the rounds, shown with the smallest and the largest
//! value.

use crate::server::Server;
use crate::wire::{Batch, Connection, Tally};
use anyhow::{Result, bail};
use serde::Serialize;

/// A measurement, with its spread over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The median of the rounds.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of these values, one for each round.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            (values[middle - 1] + values[middle]) / 2.0
        } else {
            values[middle]
        };
        Spread { median, min: values[0], max: values[values.len() - 1] }
    }

    /// A value that doesn't vary.
    pub fn exact(value: f64) -> Spread {
        Spread { median: value, min: value, max: value }
    }
}

/// Values of one side, in the order of the rounds.
#[derive(Clone, Debug)]
pub struct Series(pub Vec<f64>);

impl Series {
    /// The spread over the rounds.
    pub fn spread(&self) -> Spread {
        Spread::of(self.0.iter().copied())
    }

    /// This series divided by the other, round by round.
    pub fn over(&self, other: &Series) -> Spread {
        Spread::of(self.0.iter().zip(&other.0).map(|(mine, theirs)| mine / theirs))
    }
}

/// A function that returns whether the replies to a batch are correct.
type Check<'a> = Box<dyn Fn(&Batch, &Tally) -> bool + 'a>;

/// One side of a comparison.
pub struct Side<'a> {
    /// The name in tables.
    pub name: String,
    batch: Box<dyn FnMut(u64) -> Batch + 'a>,
    check: Check<'a>,
}

impl<'a> Side<'a> {
    /// A side that sends `batch(round)` in each round.
    pub fn new(name: impl Into<String>, batch: impl FnMut(u64) -> Batch + 'a) -> Side<'a> {
        Side { name: name.into(), batch: Box::new(batch), check: Box::new(|_, _| true) }
    }

    /// Sets the check that the replies must pass. If they don't, the measurement means nothing.
    pub fn expect(self, check: impl Fn(&Batch, &Tally) -> bool + 'a) -> Side<'a> {
        Side { check: Box::new(check), ..self }
    }
}

/// Runs all sides in each of `rounds` rounds, after a warm-up round that is not counted. Returns nanoseconds of server
/// CPU time per item, for each side in the order of `sides`.
pub fn alternate(server: &Server, rounds: u64, sides: &mut [Side<'_>]) -> Result<Vec<Series>> {
    let mut connection = server.connect()?;
    let mut series = vec![Series(Vec::new()); sides.len()];
    for round in 0..=rounds {
        for index in order(round as usize, sides.len()) {
            let side = &mut sides[index];
            let batch = (side.batch)(round);
            let (ns, tally) = cost(server, &mut connection, &batch)?;
            if let Some(error) = tally.error {
                bail!("{}: {error}", side.name);
            }
            if !(side.check)(&batch, &tally) {
                bail!("{}: {} of {} answers are yes, which cannot be", side.name, tally.yes, batch.items);
            }
            if round > 0 {
                series[index].0.push(ns / batch.items as f64);
            }
        }
    }
    Ok(series)
}

/// The order in which the sides run in a round: odd rounds reverse the order of the round before, and every two rounds
/// the next side begins.
fn order(round: usize, sides: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |turn| {
        let step = if round.is_multiple_of(2) { turn } else { sides - 1 - turn };
        (step + round / 2) % sides
    })
}

/// Sends a batch. Returns the nanoseconds of server CPU time that it costs, and the tally of its replies.
pub fn cost(server: &Server, connection: &mut Connection, batch: &Batch) -> Result<(f64, Tally)> {
    let before = server.cpu_ns()?;
    let tally = connection.run(batch)?;
    Ok(((server.cpu_ns()? - before) as f64, tally))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_begins_equally_often() {
        for sides in 2..6 {
            let firsts: Vec<usize> = (0..2 * sides).filter_map(|round| order(round, sides).next()).collect();
            for side in 0..sides {
                assert_eq!(firsts.iter().filter(|first| **first == side).count(), 2, "{firsts:?}");
            }
            assert!(order(0, sides).eq(0..sides) && order(1, sides).eq((0..sides).rev()));
        }
    }

    #[test]
    fn ratios_are_of_the_rounds() {
        let (mine, theirs) = (Series(vec![2.0, 9.0, 4.0]), Series(vec![1.0, 3.0, 4.0]));
        let ratio = mine.over(&theirs);
        assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0]).median, 2.5);
    }
}
