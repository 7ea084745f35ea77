//! The subcommands. Each module has a subcommand's options, and the function that runs it.

pub(crate) mod backup;
pub(crate) mod build;
pub(crate) mod completions;
pub(crate) mod exporter;
pub(crate) mod inspect;
pub(crate) mod load;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod plan;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod rebuild;
pub(crate) mod restore;
pub(crate) mod stats;
pub(crate) mod test;
pub(crate) mod top;
