//! Layers, and the layouts in which they store their items. Each layout has a folder here, with everything that it is:
//! the sizes for a capacity and an error rate and back, the cells of an item, and what tests, adds and deletes do to
//! them. The folder implements `Algorithm`. A new layout needs a folder, a line in `dispatch!`, and a variant of
//! [`Layout`](crate::params::Layout) with its word and number.
//!
//! BLOCKED, CLASSIC and PARTITIONED share `probes`: they only differ in where the probes of an item may fall.

mod algebra;
mod algorithm;
mod blocked;
mod built;
mod classic;
mod create;
mod fuse;
mod geometry;
mod items;
mod layer;
mod list;
mod packed;
mod partitioned;
pub mod probes;
pub(crate) mod quotient;
mod ribbon;
mod rounds;
mod shape;
mod sizing;

pub(crate) use layer::Census;
pub use layer::Layer;
pub use shape::{LayerSpec, Shape};
pub(crate) use sizing::{AUTO_PENALTY, AUTO_PENALTY_IN_CHAIN};

/// Evaluates an expression with `$A` as the [`Algorithm`](algorithm::Algorithm) of a layout. Nothing else matches on
/// all layouts.
macro_rules! dispatch {
    ($layout:expr, $A:ident => $value:expr) => {{
        use $crate::filter::layout::algorithm::Algorithm as _;
        match $layout {
            $crate::params::Layout::Blocked => {
                type $A = $crate::filter::layout::blocked::Blocked;
                $value
            }
            $crate::params::Layout::Classic => {
                type $A = $crate::filter::layout::classic::Classic;
                $value
            }
            $crate::params::Layout::Fuse => {
                type $A = $crate::filter::layout::fuse::Fuse;
                $value
            }
            $crate::params::Layout::List => {
                type $A = $crate::filter::layout::list::List;
                $value
            }
            $crate::params::Layout::Partitioned => {
                type $A = $crate::filter::layout::partitioned::Partitioned;
                $value
            }
            $crate::params::Layout::Quotient => {
                type $A = $crate::filter::layout::quotient::Quotients;
                $value
            }
            $crate::params::Layout::Ribbon => {
                type $A = $crate::filter::layout::ribbon::Ribbon;
                $value
            }
        }
    }};
}

use dispatch;
