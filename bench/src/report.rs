//! Collects the measurements, and saves them in a JSON file.

use crate::measure::Spread;
use crate::rows::{Bound, Row, row};
use anyhow::Result;
use serde_json::json;
use std::path::Path;

/// A row of the scoreboard, as measured.
pub struct Measured {
    /// The row.
    pub row: &'static Row,
    /// The measurement, or why there is none.
    pub figure: Result<Spread, String>,
}

/// The measurements so far, in chronological order.
#[derive(Default)]
pub struct Report {
    measured: Vec<Measured>,
}

impl Report {
    /// Records the measurement of a row.
    pub fn record(&mut self, id: &str, figure: Spread) {
        self.measured.push(Measured { row: row(id), figure: Ok(figure) });
    }

    /// Records that rows couldn't be measured.
    pub fn unavailable(&mut self, ids: &[&str], why: &str) {
        let measured = |id: &&str| Measured { row: row(id), figure: Err(why.to_owned()) };
        self.measured.extend(ids.iter().map(measured));
    }

    /// The measurements so far.
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }

    /// Writes all measurements to a JSON file.
    pub fn save(&self, path: &Path) -> Result<()> {
        let rows: Vec<_> = self
            .measured
            .iter()
            .map(|Measured { row, figure }| {
                let (kind, target) = match row.bound {
                    Bound::AtMost(value) => ("at most", value),
                    Bound::AtLeast(value) => ("at least", value),
                };
                json!({
                    "id": row.id,
                    "figure": row.figure,
                    "unit": row.unit,
                    "target": { kind: target },
                    "measured": figure.as_ref().ok(),
                    "unavailable": figure.as_ref().err(),
                    "holds": figure.as_ref().ok().map(|figure| row.bound.holds(figure.median)),
                })
            })
            .collect();
        Ok(std::fs::write(path, serde_json::to_string_pretty(&rows)? + "\n")?)
    }
}
