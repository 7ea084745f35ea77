//! The header of Bloom filters: kinds 1 fixed, 2 chain, 3 window.

use super::DecodeError;
use super::decode::Filled;
use super::head::{Header, read, write};
use crate::filter::{Bloom, Body, Chain, Filter, Layer, Schedule, Window};
use crate::hash::{HashKind, Seed};
use crate::params::{Cell, Family, LayoutChoice, Overflow, Spec, Tightening, limits};
use crate::sizing::{Layout, Shape};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The filter's parameters. Fields that its kind does not use are 0.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct FilterHeader {
    capacity: u64,
    error_rate: f64,
    seed: [u64; 2],
    hash: u8,
    layout: u8,
    cell: u8,
    overflow: u8,
    shards: u32,
    expansion: u32,
    generations: u32,
    tightening: f64,
    every_ms: u64,
    since_ms: u64,
    rotations: u64,
    newest: u64,
    layers: u32,
    reserved: u32,
}

/// One layer. Cell width, shards and hash are the filter's.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct LayerHeader {
    capacity: u64,
    error_rate: f64,
    cells: u64,
    items: u64,
    probes: u32,
    layout: u32,
}

/// What a header says, validated: everything that is needed to build the filter but its cells.
#[derive(Debug)]
pub(super) struct Description {
    spec: Spec,
    schedule: Schedule,
    newest: u64,
    layers: Vec<LayerDescription>,
    /// Identifies head and chunks of one dump, see [`stamp`].
    pub(super) stamp: u32,
}

/// One layer of a [`Description`].
#[derive(Clone, Copy, Debug)]
struct LayerDescription {
    shape: Shape,
    items: u64,
}

impl Description {
    /// When its generations change, and the number of the newest, of a window.
    pub(super) fn schedule(&self) -> Option<(Schedule, u64)> {
        let is_window = matches!(self.spec.family, Family::Window { .. });
        is_window.then_some((self.schedule, self.newest))
    }

    /// Whether its cells are counters.
    pub(super) fn counts(&self) -> bool {
        self.spec.cell.counts()
    }

    /// Bytes of the cells of each layer.
    pub(super) fn arrays(&self) -> impl Iterator<Item = u64> {
        self.layers.iter().map(|layer| layer.shape.bytes())
    }

    /// The filter, from the cells of all its layers.
    pub(super) fn build(self, arrays: Vec<Filled>) -> Result<Filter, DecodeError> {
        let layers =
            self.layers.into_iter().zip(arrays).map(|(LayerDescription { shape, items }, filled)| {
                Layer::from_words(shape, filled.words, items, filled.ones)
                    .map(Arc::new)
                    .map_err(DecodeError::from)
            });
        let body = match self.spec.family {
            Family::Fixed(_) => Body::Fixed(layers.last().ok_or(DecodeError::Length("body"))??),
            Family::Scaling { .. } => Body::Chain(Chain::from_layers(layers.collect::<Result<_, _>>()?)),
            Family::Window { .. } => {
                let ring = layers.collect::<Result<_, _>>()?;
                Body::Window(Box::new(Window::from_parts(ring, self.newest, self.schedule)))
            }
        };
        Ok(Filter::Bloom(Bloom::from_parts(self.spec, body)))
    }
}

/// CRC-32C of the header with the numbers of items taken as 0: it changes with growth and rotation, but not with an
/// add, so that a dump over several commands notices when its chunks no longer fit together.
fn stamp(filter: &FilterHeader, layers: &[LayerHeader]) -> u32 {
    let mut bytes = Vec::new();
    write(&mut bytes, filter);
    for layer in layers {
        write(&mut bytes, &LayerHeader { items: 0, ..*layer });
    }
    crc32c::crc32c(&bytes)
}

fn headers(filter: &Bloom) -> (u8, FilterHeader, Vec<LayerHeader>) {
    let spec = filter.spec();
    let mut header = FilterHeader {
        capacity: spec.capacity,
        error_rate: spec.error_rate,
        seed: [spec.seed.low, spec.seed.high],
        hash: spec.hash as u8,
        layout: spec.layout as u8,
        cell: spec.cell as u8,
        shards: spec.shards,
        layers: u32::try_from(filter.layers().len()).unwrap_or(u32::MAX),
        ..FilterHeader::default()
    };
    match spec.family {
        Family::Fixed(overflow) => header.overflow = overflow as u8,
        Family::Scaling { expansion, tightening } => {
            header.expansion = expansion;
            header.tightening = tightening.ratio().unwrap_or(0.0);
        }
        Family::Window { generations, overflow, .. } => {
            header.generations = generations.into();
            header.overflow = overflow as u8;
        }
    }
    let kind = match filter.body() {
        Body::Fixed(_) => 1,
        Body::Chain(_) => 2,
        Body::Window(window) => {
            let Schedule { every_ms, since_ms, rotations } = window.schedule();
            (header.every_ms, header.since_ms, header.rotations) = (every_ms, since_ms, rotations);
            header.newest = window.newest();
            3
        }
    };
    let layers = filter.layers().iter().map(|layer| LayerHeader {
        capacity: layer.capacity(),
        error_rate: layer.error_rate(),
        cells: layer.cells(),
        // A count that was loaded at the bound goes no further.
        items: layer.items().min(limits::MAX_CAPACITY),
        probes: layer.probes(),
        layout: layer.shape().layout as u32,
    });
    (kind, header, layers.collect())
}

/// The header of `filter`.
pub(super) fn encode(filter: &Bloom) -> Header {
    let (kind, header, layers) = headers(filter);
    let mut bytes = Vec::new();
    write(&mut bytes, &header);
    for layer in &layers {
        write(&mut bytes, layer);
    }
    Header { kind, bytes, stamp: stamp(&header, &layers) }
}

/// Reads and validates a header.
pub(super) fn decode(kind: u8, mut rest: &[u8]) -> Result<Description, DecodeError> {
    let header: FilterHeader = read(&mut rest)?;
    let layers = read_layers(&mut rest, header.layers)?;
    describe(kind, &header, &layers)
}

fn read_layers(rest: &mut &[u8], count: u32) -> Result<Vec<LayerHeader>, DecodeError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count == 0 || count > limits::MAX_LAYERS {
        return Err(DecodeError::Field("layers"));
    }
    let layers = (0..count).map(|_| read(rest)).collect::<Result<_, _>>()?;
    if rest.is_empty() { Ok(layers) } else { Err(DecodeError::Length("header")) }
}

/// Turns the header into parameters, refusing every value that no command could have made.
fn describe(kind: u8, header: &FilterHeader, layers: &[LayerHeader]) -> Result<Description, DecodeError> {
    let field = DecodeError::Field;
    let hash = HashKind::from_number(header.hash).ok_or(field("hash"))?;
    let seed = Seed { low: header.seed[0], high: header.seed[1] };
    if seed.narrow(hash) != seed {
        return Err(field("seed"));
    }
    let layout = match header.layout {
        0 => LayoutChoice::Auto,
        1 => LayoutChoice::Classic,
        2 => LayoutChoice::Blocked,
        _ => return Err(field("layout")),
    };
    let cell = match header.cell {
        1 => Cell::Bit,
        4 => Cell::Counter4,
        8 => Cell::Counter8,
        16 => Cell::Counter16,
        _ => return Err(field("cell")),
    };
    let overflow = match header.overflow {
        0 => Overflow::Error,
        1 => Overflow::Saturate,
        _ => return Err(field("overflow")),
    };
    let tightening = match header.tightening {
        // By its bits: −0 is no other encoding of it.
        ratio if ratio.to_bits() == 0 => Tightening::INVERSE_SQUARE,
        ratio => Tightening::geometric(ratio).map_err(|_| field("tightening"))?,
    };
    let (family, expected_layers) = match kind {
        1 => (Family::Fixed(overflow), 1),
        2 => (Family::Scaling { expansion: header.expansion, tightening }, header.layers),
        3 => {
            let generations = u8::try_from(header.generations).map_err(|_| field("generations"))?;
            (Family::Window { generations, overflow, every_ms: header.every_ms }, header.generations)
        }
        _ => return Err(field("kind")),
    };
    let spec = Spec {
        capacity: header.capacity,
        error_rate: header.error_rate,
        seed,
        shards: header.shards,
        hash,
        layout,
        cell,
        family,
    };
    spec.validate().map_err(|_| field("parameters"))?;
    if header.layers != expected_layers {
        return Err(field("layers"));
    }
    // What a kind does not use is 0, so that there is one encoding of each filter.
    let canonical = FilterHeader {
        overflow: if kind == 2 { 0 } else { header.overflow },
        expansion: if kind == 2 { header.expansion } else { 0 },
        tightening: if kind == 2 { header.tightening } else { 0.0 },
        generations: if kind == 3 { header.generations } else { 0 },
        every_ms: if kind == 3 { header.every_ms } else { 0 },
        since_ms: if kind == 3 { header.since_ms } else { 0 },
        rotations: if kind == 3 { header.rotations } else { 0 },
        newest: if kind == 3 { header.newest } else { 0 },
        reserved: 0,
        ..*header
    };
    if stamp(&canonical, &[]) != stamp(header, &[]) {
        return Err(field("reserved"));
    }
    if header.newest > limits::MAX_GENERATION
        || header.rotations > limits::MAX_GENERATION
        || header.since_ms > limits::MAX_TIME_MS
    {
        return Err(field("schedule"));
    }
    // Not always the first: those that a merge took into a chain of one layer stand before that.
    if !layers.iter().any(|layer| layer.capacity == header.capacity) {
        return Err(field("layer"));
    }
    let mut described = Vec::with_capacity(layers.len());
    for layer in layers {
        let shape = Shape {
            capacity: layer.capacity,
            error_rate: layer.error_rate,
            cells: layer.cells,
            probes: layer.probes,
            shards: header.shards,
            layout: match layer.layout {
                1 => Layout::Classic,
                2 => Layout::Blocked,
                _ => return Err(field("layer layout")),
            },
            cell,
        };
        shape.check().map_err(field)?;
        let first = described.first().map_or(shape, |first: &LayerDescription| first.shape);
        if kind == 3 && shape != first {
            return Err(field("layer"));
        }
        if layer.items > limits::MAX_CAPACITY {
            return Err(field("items"));
        }
        described.push(LayerDescription { shape, items: layer.items });
    }
    let schedule =
        Schedule { every_ms: header.every_ms, since_ms: header.since_ms, rotations: header.rotations };
    let stamp = stamp(header, layers);
    Ok(Description { spec, schedule, newest: header.newest, layers: described, stamp })
}
