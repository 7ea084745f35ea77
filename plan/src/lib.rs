//! Computes what a filter would cost, and the command that creates it. The sizes come from the library, so they are the
//! same as on a server.
//!
//! `bloomery plan` prints a [`Plan`]. The calculator of the documentation shows the same plan: its script calls
//! [`page`], compiled to WebAssembly.

mod arguments;
mod chart;
mod cost;
mod growth;
mod numbers;
mod options;
pub mod page;
mod plan;
mod redisbloom;
mod refused;
mod wanted;
mod words;

pub use arguments::{duration, parse_count};
pub use cost::{Cost, cuckoo_rate};
pub use growth::Growth;
pub use numbers::{bytes, count, percent};
pub use options::{Reserve, Static};
pub use plan::{Plan, PlanOptions};
pub use refused::Refused;
pub use wanted::{Wanted, command};
pub use words::{Rows, Words};
