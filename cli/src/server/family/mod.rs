//! The families of filters: the names of their commands, the types of their keys, and what differs between them. A
//! family is a file here, and an entry of [`FAMILIES`].

mod bloom;
mod cuckoo;
mod definition;
mod sketch;

pub(crate) use bloom::REBUILD;
pub(crate) use definition::{Adding, Family};
pub(crate) use sketch::{SKETCHES, Sketch, TOP_K};

use bloomery::{Filter, Summary};
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// All families.
pub(crate) static FAMILIES: [&Family; 2] = [&bloom::FAMILY, &cuckoo::FAMILY];

impl Family {
    /// The family of a filter.
    pub(crate) fn of(summary: &Summary) -> &'static Family {
        let is_its = |family: &&&Family| family.kinds.contains(&&*summary.kind);
        FAMILIES.iter().find(is_its).unwrap_or(&FAMILIES[0])
    }

    /// The family of a filter in memory.
    pub(crate) fn of_filter(filter: &Filter) -> &'static Family {
        Family::of(&filter.summary(0))
    }

    /// The family of the filters in keys of this type.
    pub(crate) fn of_type(key_type: &str) -> Option<&'static Family> {
        FAMILIES.into_iter().find(|family| family.types.contains(&key_type))
    }

    /// Parses the name of a family.
    pub(crate) fn parser() -> impl TypedValueParser<Value = &'static Family> {
        PossibleValuesParser::new(FAMILIES.map(|family| family.name))
            .map(|name| FAMILIES.into_iter().find(|family| family.name == name).unwrap_or(FAMILIES[0]))
    }
}

/// The types of all keys that hold filters or sketches.
pub(crate) fn value_types() -> Vec<&'static str> {
    key_types().into_iter().chain(SKETCHES.iter().map(|sketch| sketch.key_type)).collect()
}

/// The types of all keys that hold filters.
pub(crate) fn key_types() -> Vec<&'static str> {
    FAMILIES.iter().flat_map(|family| family.types).copied().collect()
}
