//! Records: structs whose fields are the rows of a table. Everything that shows statistics reads the table: BF.STATS
//! and CF.STATS, the program, the exporter, the Python client and the documents. So a statistic is declared once.

use alloc::borrow::Cow;
use alloc::{string::String, vec::Vec};

/// A word of a fixed set, or a short text.
pub type Word = Cow<'static, str>;

/// The value of a field, in a form that all records share.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Value {
    Null,
    Word(Word),
    Count(u64),
    Ratio(f64),
    List(Vec<Value>),
    /// The fields of a record, with their names, in the record's order.
    Map(Vec<(&'static str, Value)>),
}

/// What a field measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Unit {
    Word,
    Count,
    Bytes,
    Milliseconds,
    /// A fraction, such as an error rate.
    Ratio,
    /// Lines of text.
    Lines,
    /// One or several records.
    Record,
}

/// The type of a field.
pub trait Field: Sized + Default {
    /// What such a field measures, unless its row says otherwise.
    const UNIT: Unit;

    /// The field's value.
    fn value(&self) -> Value;

    /// The field with this value; the default if the value has another type.
    fn from_value(value: Value) -> Self;
}

/// A struct that `record!` declares.
pub trait Record: Sized + Default + 'static {
    /// The fields, in the order in which commands reply with them.
    const ROWS: &'static [Row<Self>];

    /// The names and values of the fields in the replies of `family`. Fields without a value are left out or null, as
    /// their rows say.
    fn fields(&self, family: Replies) -> impl Iterator<Item = (&'static str, Value)> {
        Self::ROWS.iter().filter(move |row| row.replies.includes(family)).filter_map(|row| {
            let value = (row.get)(self);
            (value != Value::Null || (row.null)(self)).then_some((row.name, value))
        })
    }

    /// The record in a reply: a list of names and values by turns. Other names than those of the fields are ignored.
    /// `None` if the value isn't a list.
    fn read(value: Value) -> Option<Self> {
        let Value::List(list) = value else { return None };
        let mut record = Self::default();
        let mut list = list.into_iter();
        while let (Some(name), Some(value)) = (list.next(), list.next()) {
            if let Some(row) =
                Self::ROWS.iter().find(|row| matches!(&name, Value::Word(name) if name == row.name))
            {
                (row.set)(&mut record, value);
            }
        }
        Some(record)
    }
}

/// The commands that reply with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// BF.STATS.
    Bloom,
    /// CF.STATS.
    Cuckoo,
    /// Both.
    Both,
}

impl Replies {
    /// Whether `one` of the commands is among these.
    pub fn includes(self, one: Replies) -> bool {
        self == one || self == Replies::Both
    }
}

/// A field of the record `R`.
pub struct Row<R: 'static> {
    /// Name in replies.
    pub name: &'static str,
    /// What the field means, in Markdown.
    pub docs: &'static str,
    /// What the field measures.
    pub unit: Unit,
    /// Reads the field.
    pub get: fn(&R) -> Value,
    /// Writes the field.
    pub set: fn(&mut R, Value),
    /// The commands that reply with the field.
    pub replies: Replies,
    /// If the field has no value: whether the reply says null instead of leaving the field out.
    pub null: fn(&R) -> bool,
    /// Name in the program's text for people, which has a line for each named field.
    pub line: Option<&'static str>,
    /// The metrics that the exporter makes of the field.
    pub metrics: &'static [Metric<R>],
}

impl<R> Row<R> {
    /// A row without optional properties.
    pub(super) const fn new(
        name: &'static str,
        docs: &'static str,
        unit: Unit,
        get: fn(&R) -> Value,
        set: fn(&mut R, Value),
    ) -> Row<R> {
        Row { name, docs, unit, get, set, replies: Replies::Both, null: |_| false, line: None, metrics: &[] }
    }
}

/// A metric of a filter, for Prometheus.
pub struct Metric<R: 'static> {
    /// The name, without the `_total` of a counter.
    pub name: &'static str,
    /// Whether the metric only rises, while the filter stays in memory.
    pub is_counter: bool,
    /// What the metric means, in one line.
    pub help: &'static str,
    /// Computes the samples. `None` if the only sample is the field's value.
    pub samples: Option<fn(&R) -> Vec<Sample>>,
}

/// A value, with a label if the metric has several. `None` if the filter doesn't have the value, because 0 would be
/// wrong.
pub type Sample = (Option<(&'static str, &'static str)>, Option<f64>);

/// A metric that rises and falls.
pub(super) const fn gauge<R>(name: &'static str, help: &'static str) -> Metric<R> {
    Metric { name, is_counter: false, help, samples: None }
}

/// A metric that only rises.
pub(super) const fn counter<R>(name: &'static str, help: &'static str) -> Metric<R> {
    Metric { is_counter: true, ..gauge(name, help) }
}

impl<R> Metric<R> {
    /// The metric with samples of its own.
    pub(super) const fn of(self, samples: fn(&R) -> Vec<Sample>) -> Metric<R> {
        Metric { samples: Some(samples), ..self }
    }
}

impl<R> Row<R> {
    /// The samples of a metric of this row. Times are in seconds.
    pub fn samples(&self, metric: &Metric<R>, record: &R) -> Vec<Sample> {
        if let Some(samples) = metric.samples {
            return samples(record);
        }
        let value = match ((self.get)(record), self.unit) {
            (Value::Count(ms), Unit::Milliseconds) => Some(ms as f64 / 1000.0),
            (Value::Count(count), _) => Some(count as f64),
            (Value::Ratio(ratio), _) => Some(ratio),
            (Value::List(list), _) => Some(list.len() as f64),
            _ => None,
        };
        vec![(None, value)]
    }
}

impl Field for u64 {
    const UNIT: Unit = Unit::Count;

    fn value(&self) -> Value {
        Value::Count(*self)
    }

    fn from_value(value: Value) -> u64 {
        Option::from_value(value).unwrap_or_default()
    }
}

impl Field for Option<u64> {
    const UNIT: Unit = Unit::Count;

    fn value(&self) -> Value {
        self.map_or(Value::Null, Value::Count)
    }

    fn from_value(value: Value) -> Option<u64> {
        match value {
            Value::Count(count) => Some(count),
            Value::Word(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl Field for f64 {
    const UNIT: Unit = Unit::Ratio;

    fn value(&self) -> Value {
        Value::Ratio(*self)
    }

    fn from_value(value: Value) -> f64 {
        Option::from_value(value).unwrap_or_default()
    }
}

impl Field for Option<f64> {
    const UNIT: Unit = Unit::Ratio;

    fn value(&self) -> Value {
        self.map_or(Value::Null, Value::Ratio)
    }

    /// In RESP2, numbers that aren't whole are text.
    fn from_value(value: Value) -> Option<f64> {
        match value {
            Value::Ratio(ratio) => Some(ratio),
            Value::Count(count) => Some(count as f64),
            Value::Word(text) => text.parse().ok(),
            _ => None,
        }
    }
}

impl Field for Word {
    const UNIT: Unit = Unit::Word;

    fn value(&self) -> Value {
        Value::Word(self.clone())
    }

    fn from_value(value: Value) -> Word {
        Option::from_value(value).unwrap_or_default()
    }
}

impl Field for Option<Word> {
    const UNIT: Unit = Unit::Word;

    fn value(&self) -> Value {
        self.clone().map_or(Value::Null, Value::Word)
    }

    fn from_value(value: Value) -> Option<Word> {
        if let Value::Word(word) = value { Some(word) } else { None }
    }
}

impl Field for Vec<String> {
    const UNIT: Unit = Unit::Lines;

    fn value(&self) -> Value {
        Value::List(self.iter().map(|line| Value::Word(line.clone().into())).collect())
    }

    fn from_value(value: Value) -> Vec<String> {
        let Value::List(list) = value else { return Vec::new() };
        list.into_iter().filter_map(Option::<Word>::from_value).map(Word::into_owned).collect()
    }
}

/// Declares a record: a struct, and its table of rows. Each field has its documentation, its type, its name in replies,
/// and other properties of its [`Row`].
macro_rules! record {
    ($(#[$meta:meta])* pub struct $record:ident {
        $($(#[doc = $docs:literal])+ $field:ident: $type:ty = $name:literal $({ $($property:ident: $value:expr),* $(,)? })?,)*
    }) => {
        #[non_exhaustive]
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        pub struct $record {
            $($(#[doc = $docs])+ pub $field: $type,)*
        }

        impl Record for $record {
            const ROWS: &'static [Row<$record>] = &[$(
                Row {
                    $($($property: $value,)*)?
                    ..Row::new(
                        $name,
                        concat!($($docs),+),
                        <$type as Field>::UNIT,
                        |record| record.$field.value(),
                        |record, value| record.$field = Field::from_value(value),
                    )
                },
            )*];
        }

        impl Field for $record {
            const UNIT: Unit = Unit::Record;

            fn value(&self) -> Value {
                Value::Map(self.fields(Replies::Both).collect())
            }

            fn from_value(value: Value) -> $record {
                $record::read(value).unwrap_or_default()
            }
        }

        impl Field for Option<$record> {
            const UNIT: Unit = Unit::Record;

            fn value(&self) -> Value {
                self.as_ref().map_or(Value::Null, Field::value)
            }

            fn from_value(value: Value) -> Option<$record> {
                $record::read(value)
            }
        }

        impl Field for Vec<$record> {
            const UNIT: Unit = Unit::Record;

            fn value(&self) -> Value {
                Value::List(self.iter().map(Field::value).collect())
            }

            fn from_value(value: Value) -> Vec<$record> {
                let Value::List(list) = value else { return Vec::new() };
                list.into_iter().filter_map($record::read).collect()
            }
        }
    };
}
pub(super) use record;
