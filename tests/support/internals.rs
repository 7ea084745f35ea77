//! Modules of the library that are not part of its public interface. Tests and fuzz targets import them from here.

#[allow(unused_imports, reason = "each crate uses its part")]
pub(crate) use bloomery::{command, config, pool};
