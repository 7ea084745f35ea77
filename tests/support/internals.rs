//! What tests see of the library beside its public interface.

#[allow(unused_imports, reason = "each crate uses its part")]
pub(crate) use bloomery::internals::{ParallelFor, Stop, alone, command, config, pool};
