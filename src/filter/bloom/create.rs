//! Creates filters, and empties them.

use super::parameters::Parameters;
use super::{Bloom, Body, Chain, Schedule, Window, first_capacity};
use crate::error::Error;
use crate::filter::dump_number;
use crate::filter::layout::{Layer, Shape};
use crate::params::{Family, Spec, limits};
use alloc::{boxed::Box, vec::Vec};

impl Bloom {
    /// An empty filter that needs no capacity, with a random seed: it grows with its items, and its error rate stays
    /// below `error_rate`. It is a table of layout [`Quotient`](crate::Layout::Quotient).
    ///
    /// ```
    /// let mut seen = bloomery::Bloom::growing(0.01)?;
    /// for number in 0..100_000u32 {
    ///     seen.insert(number.to_le_bytes())?;
    /// }
    /// assert!(seen.contains(7u32.to_le_bytes()) && seen.rate_now() < 0.01);
    /// # Ok::<(), bloomery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`fixed`](Bloom::fixed).
    pub fn growing(error_rate: f64) -> Result<Bloom, Error> {
        Bloom::new(Spec::growing(error_rate).with_random_seed()?)
    }

    /// An empty filter for `capacity` items, with a random seed. When it is full, it refuses new items.
    ///
    /// # Errors
    /// [`Error::ErrorRate`], [`Error::Capacity`], [`Error::Unreachable`], [`Error::OutOfMemory`],
    /// [`Error::NoRandomness`].
    pub fn fixed(capacity: u64, error_rate: f64) -> Result<Bloom, Error> {
        Bloom::new(Spec::fixed(capacity, error_rate).with_random_seed()?)
    }

    /// An empty filter that grows when it is full, with a random seed. The error rate holds for the whole filter,
    /// however large it grows.
    pub fn scaling(capacity: u64, error_rate: f64) -> Result<Bloom, Error> {
        Bloom::new(Spec::scaling(capacity, error_rate).with_random_seed()?)
    }

    /// An empty filter with 4-bit counters and a random seed. Items can be deleted from it.
    pub fn counting(capacity: u64, error_rate: f64) -> Result<Bloom, Error> {
        Bloom::new(Spec::counting(capacity, error_rate).with_random_seed()?)
    }

    /// An empty window of `generations` generations for `capacity` items each, with a random seed. Each
    /// [`rotate`](Bloom::rotate) drops the oldest generation. To forget items after a time, use an
    /// [`ExpiringBloom`](crate::ExpiringBloom).
    ///
    /// # Errors
    /// Same as [`fixed`](Bloom::fixed), and [`Error::Generations`].
    pub fn windowed(capacity: u64, error_rate: f64, generations: u16) -> Result<Bloom, Error> {
        Bloom::new(Spec::window(capacity, error_rate, generations).with_random_seed()?)
    }

    /// An empty filter with this spec. A window's first generation begins at Unix time 0. A static filter created this
    /// way stays empty; use [`StaticBuilder`](crate::StaticBuilder) to build one.
    ///
    /// # Errors
    /// The errors of [`Spec::validate`]; [`Error::Exclusive`] for a static filter that grows; [`Error::Unreachable`],
    /// [`Error::OutOfMemory`].
    pub fn new(spec: Spec) -> Result<Bloom, Error> {
        Bloom::new_since(spec, 0)
    }

    /// An empty filter. If it is a window, its generation 0 begins at Unix time `since_ms` in milliseconds, or at
    /// [`limits::MAX_TIME_MS`] if that is earlier.
    pub fn new_since(spec: Spec, since_ms: u64) -> Result<Bloom, Error> {
        if spec.is_list() {
            return Err(Error::Exclusive("a static filter does not grow; StaticBuilder builds it"));
        }
        Bloom::new_admitted(spec, since_ms, |_| Ok(()))
    }

    /// Like [`new_since`](Bloom::new_since), but also creates lists. First calls `admit` with the number of bytes that
    /// the cells need. If `admit` refuses, returns its error.
    #[doc(hidden)]
    pub fn new_admitted<E: From<Error>>(
        spec: Spec,
        since_ms: u64,
        admit: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<Bloom, E> {
        let (shape, layers) = match Bloom::plan(&spec) {
            Ok(plan) => plan,
            // No filter can have this size. `admit` is asked all the same, because its error names the caller's limit.
            Err(Error::OutOfMemory { bytes }) => {
                admit(bytes)?;
                return Err(Error::OutOfMemory { bytes }.into());
            }
            Err(error) => return Err(error.into()),
        };
        admit(shape.bytes().saturating_mul(layers))?;
        let since_ms = since_ms.min(limits::MAX_TIME_MS);
        let spec = Spec { seed: spec.seed.narrow(spec.hash), ..spec };
        let body = match spec.family {
            Family::Fixed(_) => Body::Fixed(Layer::new(shape)?),
            Family::Scaling { .. } => Body::Chain(Chain::new(shape)?),
            Family::Window { every_ms, .. } => {
                let schedule = Schedule { every_ms, since_ms, rotations: 0 };
                Body::Window(Box::new(Window::new(shape, layers, schedule)?))
            }
        };
        if spec.is_table() && spec.grows() {
            body.layers().iter().for_each(Layer::grow_table);
        }
        Ok(Bloom::from_parts(spec, body))
    }

    /// The shape and the number of layers of a new filter with this spec.
    fn plan(spec: &Spec) -> Result<(Shape, u64), Error> {
        spec.validate()?;
        let layers = match spec.family {
            Family::Window { generations, .. } if !spec.is_table() => generations.into(),
            _ => 1,
        };
        Ok((spec.next_shape(&[])?, layers))
    }

    /// Number of bytes that the cells of a new filter with this spec need.
    ///
    /// # Errors
    /// The errors of [`Spec::validate`]; [`Error::Unreachable`]; [`Error::OutOfMemory`] above [`limits::MAX_BYTES`].
    pub fn bytes_for(spec: &Spec) -> Result<u64, Error> {
        let (shape, layers) = Bloom::plan(spec)?;
        Ok(shape.bytes().saturating_mul(layers))
    }

    /// A filter made of these parts, which must be valid: [`wire`](crate::wire) validates what it reads.
    pub(crate) fn from_parts(spec: Spec, body: Body) -> Bloom {
        let parameters = Parameters::new(&spec, first_capacity(&body));
        Bloom { parameters, body, dump_number: dump_number::next(), adds: 0 }
    }

    /// Empties the filter, but keeps its parameters, seed and schedule. Returns the dropped layers.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; then nothing has changed.
    pub fn clear(&mut self) -> Result<Vec<Layer>, Error> {
        let body = match &self.body {
            Body::Chain(_) if !self.is_table() => Body::Chain(Chain::new(self.spec().next_shape(&[])?)?),
            body => body.map(Layer::emptied)?,
        };
        self.dump_number = dump_number::next();
        let dropped = self.change_body(|old| core::mem::replace(old, body));
        Ok(dropped.layers().iter().map(Layer::share).collect())
    }
}
