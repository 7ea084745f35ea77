//! The parts of the library that tests see in addition to its public interface.

#[allow(unused_imports, reason = "each crate uses its part")]
pub(crate) use bloomery::internals::{ParallelFor, Stop, alone, command, config, pool};
