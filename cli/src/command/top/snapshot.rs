//! The filters at one time, and their order.

use crate::output::Name;
use bloomery::Summary;
use clap::ValueEnum;
use serde::Serialize;

/// The order of the filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// Most memory first
    Memory,
    /// Fullest first
    Full,
    /// Error rate furthest above its promise first
    Error,
    /// Most tests per second first
    Tests,
    /// Most adds per second first
    Adds,
    /// By name
    Key,
}

impl Sort {
    /// The order that follows this one when the user presses `s`.
    pub(super) fn next(self) -> Sort {
        let all = Sort::value_variants();
        let index = all.iter().position(|sort| *sort == self).unwrap_or(0);
        all[(index + 1) % all.len()]
    }

    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A [`Sort`], or its reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) by: Sort,
    pub(super) reversed: bool,
}

/// All filters at one time.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Snapshot {
    /// Addresses of the nodes, such as `127.0.0.1:6379`.
    pub(super) servers: Vec<String>,
    pub(super) filters: Vec<Row>,
    /// Number of filters that could not be read, mostly for lack of permission.
    pub(super) hidden: u64,
    /// The error for the last filter that could not be read.
    pub(super) hidden_by: Option<String>,
}

/// One filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// The node that has the filter.
    pub(super) server: String,
    pub(super) key: Name,
    /// Tests per second; `None` in the first snapshot that has the filter, and if its server doesn't count tests.
    pub(super) tests_per_second: Option<f64>,
    pub(super) adds_per_second: Option<f64>,
    pub(super) info: Summary,
}

impl Row {
    /// Items divided by capacity.
    pub(super) fn full(&self) -> f64 {
        self.info.full()
    }

    /// The error rate at the present fill divided by the promised one.
    pub(super) fn error_ratio(&self) -> f64 {
        match self.info.error_rate {
            Some(promised) if promised > 0.0 => self.info.error_rate_now / promised,
            _ => 0.0,
        }
    }

    /// Whether there is advice for the filter.
    pub(super) fn is_in_trouble(&self) -> bool {
        !self.info.advice.is_empty()
    }

    /// The observed error rate over the shortest period that has one.
    pub(super) fn observed(&self) -> Option<f64> {
        let feedback = self.info.feedback.as_ref()?;
        feedback.spans().into_iter().find_map(|(_, span)| span.observed_error_rate)
    }
}

impl Snapshot {
    /// Number of filters for which there is advice.
    pub(super) fn in_trouble(&self) -> usize {
        self.filters.iter().filter(|row| row.is_in_trouble()).count()
    }

    /// Sorts the filters. Those in trouble come first, also in reversed order, so that they are on the screen. Filters
    /// that compare equal are sorted by name, so that rows don't jump.
    pub(super) fn sort(&mut self, Order { by, reversed }: Order) {
        let measure = |row: &Row| match by {
            Sort::Memory => row.info.bytes() as f64,
            Sort::Full => row.full(),
            Sort::Error => row.error_ratio(),
            Sort::Tests => row.tests_per_second.unwrap_or(0.0),
            Sort::Adds => row.adds_per_second.unwrap_or(0.0),
            Sort::Key => 0.0,
        };
        self.filters.sort_by(|a, b| {
            let by_name = (&a.key, &a.server).cmp(&(&b.key, &b.server));
            let order = if by == Sort::Key { by_name } else { measure(b).total_cmp(&measure(a)) };
            let order = if reversed { order.reverse() } else { order };
            b.is_in_trouble().cmp(&a.is_in_trouble()).then(order).then(by_name)
        });
    }
}
