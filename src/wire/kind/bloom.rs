//! The header of Bloom filters: the kinds fixed, chain and window. In a head, its structs have a fixed length; the
//! [packed](pack) form is shorter.

use super::Whole;
use crate::filter::layout::quotient::{END, Loading};
use crate::filter::layout::{LayerSpec, Shape};
use crate::filter::{Bloom, Body, Census, Chain, Layer, Schedule, Window};
use crate::hash::{HashKind, Seed};
use crate::mem::{Words, crc32c};
use crate::params::{Cell, Family, Layout, Overflow, SIZES, Spec, Tightening, limits};
use crate::wire::arrival::Place;
use crate::wire::codec::{
    Kind, headers, put_fields, put_number, read, take, take_fields, take_number, write, written,
};
use crate::wire::error::DecodeError;
use crate::wire::format::MOST_PACKED;
use alloc::{boxed::Box, vec::Vec};
use smallvec::SmallVec;

headers! {
    /// The filter's parameters. Fields that its kind doesn't use are 0. The error rate and the tightening are the bits
    /// of an `f64`. `sizes` is the number of the formulas, see [`SIZES`].
    struct FilterHeader {
        capacity: u64,
        error_rate: u64,
        seed_low: u64,
        seed_high: u64,
        hash: u8,
        layout: u8,
        cell: u8,
        overflow: u8,
        shards: u16,
        sizes: u16,
        expansion: u32,
        generations: u32,
        tightening: u64,
        every_ms: u64,
        since_ms: u64,
        rotations: u64,
        newest: u64,
        layers: u64,
    }

    /// One layer. Its cell width, shard count and hash are those of the filter. The error rate is the bits of an `f64`.
    /// For a table, `cells` is the number of leaves, and `probes` is log2 of the number of quotients in a leaf. The
    /// header of a table with generations is followed by the number of items in each, as `u64`; generation n is at n
    /// modulo their number.
    struct LayerHeader {
        capacity: u64,
        error_rate: u64,
        cells: u64,
        items: u64,
        probes: u32,
        layout: u32,
    }
}

/// Gives a header its `fields` as numbers, in the order in which they are packed, and the inverse `from_fields`.
macro_rules! packed {
    ($header:ident, $count:literal: $($field:ident),+) => {
        impl $header {
            fn fields(&self) -> [u64; $count] {
                [$(self.$field.into()),+]
            }

            fn from_fields([$($field),+]: [u64; $count]) -> Option<$header> {
                Some($header { $($field: $field.try_into().ok()?),+ })
            }
        }
    };
}

// Fields that few filters use come last.
packed!(FilterHeader, 18: capacity, error_rate, seed_low, hash, cell, shards, layers, expansion, overflow, layout,
    generations, every_ms, since_ms, rotations, newest, seed_high, tightening, sizes);

packed!(LayerHeader, 6: cells, probes, layout, items, capacity, error_rate);

/// The headers of all layers. Most filters have one layer, and a server may save and load a million such filters.
type LayerHeaders = SmallVec<[LayerHeader; 1]>;

/// The validated content of a header: everything that is needed to build the filter, except its cells.
#[derive(Debug)]
pub(in crate::wire) struct BloomHead {
    spec: Spec,
    schedule: Schedule,
    newest: u64,
    layers: Vec<LayerHead>,
    /// Identifies the head and the chunks of one dump, see [`stamp`]; 0 for a packed filter, which has no chunks.
    pub(super) stamp: u32,
    /// For a table with generations: the number of items in each.
    counts: Vec<u64>,
}

/// One layer of a [`BloomHead`].
#[derive(Clone, Copy, Debug)]
struct LayerHead {
    shape: Shape,
    items: u64,
    /// Number of leaves of a table, and log2 of the number of quotients in a leaf.
    leaves: u64,
    log2_quotients: u32,
}

impl LayerHead {
    fn is_table(&self) -> bool {
        self.shape.layout == Layout::Quotient
    }
}

impl BloomHead {
    /// For a window: when its generations rotate, and the number of the newest generation.
    pub(super) fn schedule(&self) -> Option<(Schedule, u64)> {
        let is_window = matches!(self.spec.family, Family::Window { .. });
        is_window.then_some((self.schedule, self.newest))
    }

    /// The filter's parameters, and the shape and the number of items of its only layer; `None` if it can grow or
    /// rotate, or if its cells aren't bits.
    pub(in crate::wire) fn only_layer_of_bits(&self) -> Option<(Spec, Shape, u64)> {
        match (&self.layers[..], self.spec.family, self.spec.cell) {
            ([layer], Family::Fixed(_), Cell::Bit) if !layer.is_table() => {
                Some((self.spec, layer.shape, layer.items))
            }
            _ => None,
        }
    }

    /// Refuses a list of items for a static filter. Such a list can't answer queries, so it can only be a shadow.
    pub(super) fn live(self) -> Result<BloomHead, DecodeError> {
        if self.spec.is_list() { Err(DecodeError::Field("kind")) } else { Ok(self) }
    }

    /// Whether items can be deleted: either the cells are counters, or generations share the cells.
    pub(super) fn can_delete(&self) -> bool {
        self.spec.cell.counts() || self.spec.next_layer(&[]).generations > 0
    }

    /// How parts of layer `index` are written into its words.
    pub(super) fn place(&self, index: usize) -> Place {
        debug_assert!(index < self.layers.len());
        place_cells(self.spec.cell)
    }

    /// What loads layer `index`, if it is a table.
    pub(super) fn loading(&self, index: usize) -> Option<Loading> {
        let LayerHead { shape, leaves, log2_quotients, .. } = self.layers.get(index)?;
        (shape.layout == Layout::Quotient).then(|| Loading::new(shape, *leaves, *log2_quotients))
    }

    /// Length of layer `index`: the size of its cells in bytes or, for a table, the number of its positions.
    pub(super) fn array(&self, index: usize) -> Option<u64> {
        let shape = self.layers.get(index)?.shape;
        Some(if shape.layout == Layout::Quotient { END } else { shape.bytes() })
    }

    /// Number of layers.
    pub(super) fn count(&self) -> usize {
        self.layers.len()
    }

    /// Builds the filter from the cells of all its layers.
    pub(super) fn build(self, arrays: Vec<Whole>) -> Result<Bloom, DecodeError> {
        let grows = self.spec.grows();
        let generations = (self.newest, &self.counts[..]);
        let layers = self.layers.into_iter().zip(arrays).map(|(LayerHead { shape, items, .. }, whole)| {
            Ok::<_, DecodeError>(match whole {
                Whole::Cells(filled) => Layer::from_words(shape, filled.words, items, filled.census)?,
                Whole::Table(loading) => {
                    Layer::from_table(&shape, loading.finish(items, generations)?, grows)?
                }
            })
        });
        let body = match self.spec.family {
            Family::Fixed(_) => Body::Fixed(layers.last().ok_or(DecodeError::Length("body"))??),
            Family::Scaling { .. } => Body::Chain(Chain::from_layers(layers.collect::<Result<_, _>>()?)),
            Family::Window { .. } => {
                let ring = layers.collect::<Result<_, _>>()?;
                Body::Window(Box::new(Window::from_parts(ring, self.newest, self.schedule)))
            }
        };
        Ok(Bloom::from_parts(self.spec, body))
    }
}

/// How bits or counters are written into zeroed words.
pub(super) fn place_cells(cell: Cell) -> Place {
    #[inline(always)]
    fn place(cell: Cell, words: &Words, offset: u64, bytes: &[u8]) -> Census {
        words.write_bytes(offset, bytes);
        Census::of(cell, Words::around(words, offset, bytes.len()))
    }
    Place::By(match cell {
        Cell::Bit => |words, offset, bytes| place(Cell::Bit, words, offset, bytes),
        Cell::Counter4 => |words, offset, bytes| place(Cell::Counter4, words, offset, bytes),
        Cell::Counter8 => |words, offset, bytes| place(Cell::Counter8, words, offset, bytes),
        Cell::Counter16 => |words, offset, bytes| place(Cell::Counter16, words, offset, bytes),
    })
}

/// CRC-32C of the header with every number of items set to 0. It changes when the filter grows by a layer or rotates,
/// but not when an item is added. So a load detects when the chunks of a dump over several commands don't fit together.
/// It doesn't change when a table grows or shrinks, because the pieces of tables of different sizes fit together.
fn stamp(header: &FilterHeader, layers: &[LayerHeader]) -> u32 {
    let mut bytes = written(header);
    for layer in layers {
        let (cells, probes) = if is_table(layer.layout) { (0, 0) } else { (layer.cells, layer.probes) };
        write(&mut bytes, &LayerHeader { items: 0, cells, probes, ..*layer });
    }
    crc32c(&bytes)
}

fn is_table(layout: u32) -> bool {
    layout == u32::from(Layout::Quotient.number())
}

fn headers(filter: &Bloom) -> (Kind, FilterHeader, LayerHeaders) {
    let spec = filter.spec();
    let mut header = FilterHeader {
        capacity: spec.capacity,
        error_rate: spec.error_rate.to_bits(),
        seed_low: spec.seed.low,
        seed_high: spec.seed.high,
        hash: spec.hash as u8,
        layout: spec.layout.map_or(0, Layout::number),
        cell: spec.cell as u8,
        shards: spec.shards.try_into().unwrap_or(0), // at most `limits::MAX_SHARDS`
        sizes: SIZES,
        layers: filter.layers().len() as u64,
        ..FilterHeader::default()
    };
    match spec.family {
        Family::Fixed(overflow) => header.overflow = overflow as u8,
        Family::Scaling { expansion, tightening } => {
            header.expansion = expansion;
            header.tightening = tightening.ratio().unwrap_or(0.0).to_bits();
        }
        Family::Window { generations, overflow, .. } => {
            header.generations = generations.into();
            header.overflow = overflow as u8;
        }
    }
    let kind = match filter.body() {
        Body::Fixed(_) => Kind::Fixed,
        Body::Chain(_) => Kind::Chain,
        Body::Window(window) => {
            let Schedule { every_ms, since_ms, rotations } = window.schedule();
            (header.every_ms, header.since_ms, header.rotations) = (every_ms, since_ms, rotations);
            header.newest = window.newest();
            Kind::Window
        }
    };
    let items = |layer: &Layer| match layer.tags() {
        Some(tags) => tags.saved_items().into_iter().fold(0, u64::saturating_add),
        None => layer.items(),
    };
    let layers = filter.layers().iter().map(|layer| {
        let (cells, probes) = match layer.leaves_and_quotients() {
            Some((leaves, log2_quotients)) => (leaves, log2_quotients),
            None => (layer.cells(), layer.probes()),
        };
        LayerHeader {
            capacity: layer.capacity(),
            error_rate: layer.error_rate().to_bits(),
            cells,
            // Readers accept no larger count. A count that was at the limit when it was loaded may have grown since.
            items: items(layer).min(limits::MAX_CAPACITY),
            probes,
            layout: layer.shape().layout.number().into(),
        }
    });
    (kind, header, layers.collect())
}

/// The number of items in each generation of a table; none if there are no generations in a table.
fn counts(filter: &Bloom) -> Vec<u64> {
    filter.newest_layer().tags().map_or_else(Vec::new, |tags| tags.saved_items())
}

/// Appends the header of `filter`, and returns its kind.
pub(super) fn encode(filter: &Bloom, to: &mut Vec<u8>) -> Kind {
    let (kind, header, layers) = headers(filter);
    write(to, &header);
    layers.iter().for_each(|layer| write(to, layer));
    counts(filter).iter().for_each(|count| to.extend_from_slice(&count.to_le_bytes()));
    kind
}

/// The stamp of `filter`.
pub(super) fn stamp_of(filter: &Bloom) -> u32 {
    let (_, header, layers) = headers(filter);
    stamp(&header, &layers)
}

/// The capacity and the error rate of the layer that follows layers of these capacities.
fn planned(spec: &Spec, capacities: &[u64]) -> (u64, u64) {
    let layer = spec.next_layer(capacities);
    (layer.capacity, layer.error_rate.to_bits())
}

/// The header of `filter` in its shortest form. A layer's capacity and error rate are omitted if they can be derived
/// from the filter's, which is the case unless filters were merged.
pub(super) fn pack(filter: &Bloom) -> (Kind, Vec<u8>) {
    let (kind, header, layers) = headers(filter);
    let (spec, mut so_far) = (filter.spec(), SmallVec::<[u64; 4]>::new());
    let mut packed = Vec::with_capacity(64);
    put_fields(&mut packed, header.fields());
    for mut layer in layers {
        let planned = planned(&spec, &so_far);
        so_far.push(layer.capacity);
        if (layer.capacity, layer.error_rate) == planned {
            (layer.capacity, layer.error_rate) = (0, 0);
        }
        put_fields(&mut packed, layer.fields());
    }
    counts(filter).into_iter().for_each(|count| put_number(&mut packed, count));
    (kind, packed)
}

/// Reads and validates a packed header.
pub(super) fn unpack(kind: Kind, mut rest: &[u8]) -> Result<BloomHead, DecodeError> {
    let (short, field) = (DecodeError::Length("header"), DecodeError::Field);
    let header =
        FilterHeader::from_fields(take_fields(&mut rest).ok_or(short)?).ok_or(field("parameters"))?;
    let spec = parameters(kind, &header)?;
    // Each layer of a packed filter has at least one word, which limits the number of layers.
    let count = usize::try_from(header.layers).ok().filter(|count| *count <= MOST_PACKED / 8);
    let count = count.ok_or(field("layers"))?;
    let (mut layers, mut so_far) = (LayerHeaders::new(), SmallVec::<[u64; 4]>::new());
    for _ in 0..count {
        let mut layer =
            LayerHeader::from_fields(take_fields(&mut rest).ok_or(short)?).ok_or(field("layer"))?;
        let planned = planned(&spec, &so_far);
        if (layer.capacity, layer.error_rate) == planned {
            return Err(field("layer"));
        }
        if (layer.capacity, layer.error_rate) == (0, 0) {
            (layer.capacity, layer.error_rate) = planned;
        }
        so_far.push(layer.capacity);
        layers.push(layer);
    }
    let counts = (0..spec.table_generations()).map(|_| take_number(&mut rest)).collect::<Option<Vec<u64>>>();
    let counts = counts.ok_or(short)?;
    if rest.is_empty() { validate(kind, &header, spec, &layers, (0, counts)) } else { Err(short) }
}

/// Reads and validates a header.
pub(super) fn decode(kind: Kind, mut rest: &[u8]) -> Result<BloomHead, DecodeError> {
    let header: FilterHeader = read(&mut rest)?;
    let layers = read_layers(&mut rest, header.layers)?;
    let spec = parameters(kind, &header)?;
    let short = DecodeError::Length("header");
    let counts = (0..spec.table_generations()).map(|_| take(&mut rest).map(u64::from_le_bytes));
    let counts = counts.collect::<Option<Vec<u64>>>().ok_or(short)?;
    if !rest.is_empty() {
        return Err(short);
    }
    validate(kind, &header, spec, &layers, (stamp(&header, &layers), counts))
}

fn read_layers(rest: &mut &[u8], count: u64) -> Result<LayerHeaders, DecodeError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count == 0 || count > limits::MAX_LAYERS {
        return Err(DecodeError::Field("layers"));
    }
    (0..count).map(|_| read(rest)).collect()
}

/// Turns the header into parameters, and refuses every value that no command could have produced.
fn parameters(kind: Kind, header: &FilterHeader) -> Result<Spec, DecodeError> {
    let field = DecodeError::Field;
    if header.sizes != SIZES {
        return Err(DecodeError::Sizes(header.sizes));
    }
    let hash = HashKind::from_number(header.hash).ok_or(field("hash"))?;
    let seed = Seed { low: header.seed_low, high: header.seed_high };
    if seed.narrow(hash) != seed {
        return Err(field("seed"));
    }
    let layout = match header.layout {
        0 => None,
        number => {
            let known = Layout::from_number(number).filter(|layout| *layout != Layout::List);
            Some(known.ok_or(field("layout"))?)
        }
    };
    let cell = Cell::from_number(header.cell).ok_or(field("cell"))?;
    let overflow = Overflow::from_number(header.overflow).ok_or(field("overflow"))?;
    let tightening = match header.tightening {
        0 => Tightening::INVERSE_SQUARE,
        ratio => Tightening::geometric(f64::from_bits(ratio)).map_err(|_| field("tightening"))?,
    };
    let (family, expected_layers) = match kind {
        Kind::Fixed => (Family::Fixed(overflow), 1),
        Kind::Chain => {
            // A table grows by itself.
            let layers = if layout == Some(Layout::Quotient) { 1 } else { header.layers };
            (Family::Scaling { expansion: header.expansion, tightening }, layers)
        }
        Kind::Window => {
            let generations = u16::try_from(header.generations).map_err(|_| field("generations"))?;
            // All generations share one table.
            let layers = if layout == Some(Layout::Quotient) { 1 } else { header.generations.into() };
            (Family::Window { generations, overflow, every_ms: header.every_ms }, layers)
        }
        Kind::Cuckoo | Kind::Foreign | Kind::Rebuild => return Err(field("kind")),
    };
    let spec = Spec {
        capacity: header.capacity,
        error_rate: f64::from_bits(header.error_rate),
        seed,
        shards: header.shards.into(),
        hash,
        layout,
        cell,
        family,
    };
    spec.validate().map_err(|_| field("parameters"))?;
    if header.layers != expected_layers {
        return Err(field("layers"));
    }
    if !is_canonical(kind, header) {
        return Err(field("reserved"));
    }
    if header.newest > limits::MAX_GENERATION
        || header.rotations > limits::MAX_GENERATION
        || header.since_ms > limits::MAX_TIME_MS
    {
        return Err(field("schedule"));
    }
    Ok(spec)
}

/// Whether the fields that a kind doesn't use are 0, so that every filter has one encoding.
fn is_canonical(kind: Kind, header: &FilterHeader) -> bool {
    let mut canonical = *header;
    match kind {
        Kind::Chain => canonical.overflow = 0,
        _ => (canonical.expansion, canonical.tightening) = (0, 0),
    }
    if kind != Kind::Window {
        canonical =
            FilterHeader { generations: 0, every_ms: 0, since_ms: 0, rotations: 0, newest: 0, ..canonical };
    }
    canonical.fields() == header.fields()
}

/// Checks the layers against the filter's parameters, and refuses every value that no command could have produced.
fn validate(
    kind: Kind,
    header: &FilterHeader,
    spec: Spec,
    layers: &[LayerHeader],
    (stamp, counts): (u32, Vec<u64>),
) -> Result<BloomHead, DecodeError> {
    let field = DecodeError::Field;
    // One of the layers must have the capacity that the parameters require of a first layer. It isn't always the first
    // one: a merge into a chain of one layer inserts the other chain's layers before that layer.
    let LayerSpec { capacity, generations, .. } = spec.next_layer(&[]);
    if !layers.iter().any(|layer| layer.capacity == capacity) {
        return Err(field("layer"));
    }
    let mut heads = Vec::with_capacity(layers.len());
    for layer in layers {
        let is_table = is_table(layer.layout);
        let (cells, probes) = if is_table { (layer.capacity, 1) } else { (layer.cells, layer.probes) };
        let shape = Shape {
            capacity: layer.capacity,
            error_rate: f64::from_bits(layer.error_rate),
            cells,
            probes,
            shards: header.shards.into(),
            layout: u8::try_from(layer.layout)
                .ok()
                .and_then(Layout::from_number)
                .ok_or(field("layer layout"))?,
            cell: spec.cell,
            generations,
        };
        shape.check().map_err(field)?;
        if is_table && !Loading::is_possible(&shape, layer.cells, layer.probes) {
            return Err(field("cells"));
        }
        // AUTO never chooses these layouts for the first layer.
        let is_expected = match shape.layout {
            Layout::List => spec.is_list(),
            Layout::Quotient if kind == Kind::Chain && !spec.is_table() => {
                !spec.is_list() && layers.len() > 1 && heads.iter().all(|head: &LayerHead| !head.is_table())
            }
            Layout::Quotient | Layout::Fuse | Layout::Ribbon => {
                spec.layout == Some(shape.layout) && !spec.is_list()
            }
            _ => spec.layout.is_none_or(Layout::has_probes),
        };
        if !is_expected || shape.is_static() && layer.items > layer.capacity {
            return Err(field("layer layout"));
        }
        let first = heads.first().map_or(shape, |first: &LayerHead| first.shape);
        if kind == Kind::Window && shape != first {
            return Err(field("layer"));
        }
        if layer.items > limits::MAX_CAPACITY {
            return Err(field("items"));
        }
        let (leaves, log2_quotients) = (layer.cells, layer.probes);
        heads.push(LayerHead { shape, items: layer.items, leaves, log2_quotients });
    }
    let schedule =
        Schedule { every_ms: header.every_ms, since_ms: header.since_ms, rotations: header.rotations };
    let newest = header.newest;
    Ok(BloomHead { spec, schedule, newest, layers: heads, stamp, counts })
}
