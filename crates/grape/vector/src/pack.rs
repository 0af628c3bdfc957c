//! Converts columns of any stride and type to rows of j and tiles of i. Also computes the values
//! that depend on one particle alone.

use crate::buffer::{put_f32, put_f64};
use crate::ir::Kind;
use crate::lanes::{LANES, Lane, Lanes};
use crate::shape::{PairInput, Shape};
use sprat_formula::{Column, Inputs, Node, Program, Scope, Value};
use std::ops::Range;

/// The values that are computed outside of pairs, in the order of the program.
#[derive(Debug)]
pub(crate) struct Pack {
    run: Vec<(Value, Node)>,
    i: Vec<(Value, Node)>,
    j: Vec<(Value, Node)>,
}

impl Pack {
    pub(crate) fn new(program: &Program, shape: &Shape) -> Self {
        let of = |scope| {
            let all = program.values().filter(|(value, ..)| shape.scopes[value.index()] == scope);
            all.map(|(value, node, _)| (value, node)).collect()
        };
        Self { run: of(Scope::Run), i: of(Scope::I), j: of(Scope::J) }
    }

    /// Computes the values that are the same for all particles.
    pub(crate) fn run(&self, inputs: &Inputs<'_>, values: &mut Lanes) {
        for &(value, node) in &self.run {
            match node {
                Node::Constant(at) => values.fill(value, inputs.constants()[usize::from(at)]),
                Node::Number(bits) => values.fill(value, f64::from_bits(bits)),
                _ => values.compute(value, node),
            }
        }
    }

    /// Writes a range of i as tiles of `width` particles. The last tile is padded with the last
    /// particle.
    pub(crate) fn tiles(
        &self,
        shape: &Shape,
        inputs: &Inputs<'_>,
        particles: Range<usize>,
        width: usize,
        values: &mut Lanes,
        tiles: &mut [u8],
    ) {
        let all = particles.len().next_multiple_of(width);
        for first in (0..all).step_by(LANES) {
            let from = (particles.start + first)..particles.end;
            load(&self.i, inputs.i(), from, values);
            for input in &shape.i {
                // The numbers of one field of a tile are contiguous.
                let (bytes, size) = (input.kind.bytes(), shape.lane * width);
                let tiles = tiles.chunks_exact_mut(size).skip(first / width);
                let fields = tiles.map(|tile| &mut tile[input.at * width..][..bytes * width]);
                let destinations =
                    fields.flat_map(|field| field.chunks_exact_mut(bytes)).skip(first % width);
                spread(values.get(input.value), input, destinations);
            }
        }
    }

    /// Writes a range of j as rows.
    pub(crate) fn rows(
        &self,
        shape: &Shape,
        inputs: &Inputs<'_>,
        particles: Range<usize>,
        values: &mut Lanes,
        rows: &mut [u8],
    ) {
        let count = particles.len();
        for first in (0..count).step_by(LANES) {
            load(&self.j, inputs.j(), (particles.start + first)..particles.end, values);
            let end = LANES.min(count - first);
            for input in &shape.j {
                let rows = &mut rows[first * shape.row..(first + end) * shape.row];
                let destinations = rows.chunks_exact_mut(shape.row).map(|row| &mut row[input.at..]);
                spread(values.get(input.value), input, destinations);
            }
        }
    }
}

/// Writes the index of each row within its block, which is the same for all blocks.
pub(crate) fn write_row_indices(shape: &Shape, count: usize, rows: &mut [u8]) {
    for row in 0..u16::try_from(count).expect("blocks are short") {
        if let Some(at) = shape.row_index(Kind::F32) {
            put_f32(rows, usize::from(row) * shape.row + at, f32::from(row));
        }
        if let Some(at) = shape.row_index(Kind::F64) {
            put_f64(rows, usize::from(row) * shape.row + at, f64::from(row));
        }
    }
}

/// Computes the values of a range of particles. If the range is shorter than the lanes, its last
/// particle is repeated.
fn load(
    nodes: &[(Value, Node)],
    columns: &[Column<'_>],
    particles: Range<usize>,
    values: &mut Lanes,
) {
    for &(value, node) in nodes {
        match node {
            Node::I(at) | Node::J(at) => {
                values.load(value, &columns[usize::from(at)], particles.clone())
            }
            _ => values.compute(value, node),
        }
    }
}

/// Writes the lanes of a value, one lane to the beginning of each destination, until the
/// destinations end.
fn spread<'a>(lane: &Lane, input: &PairInput, destinations: impl Iterator<Item = &'a mut [u8]>) {
    let bit = |&bool: &bool| u8::from(bool);
    match (lane, input.kind) {
        (Lane::F32(lanes), Kind::F32) => {
            destinations.zip(lanes.iter()).for_each(|(to, &x)| put_f32(to, 0, x))
        }
        (Lane::F64(lanes), Kind::F64) => {
            destinations.zip(lanes.iter()).for_each(|(to, &x)| put_f64(to, 0, x))
        }
        (Lane::Bool(lanes), Kind::F32) => {
            destinations.zip(lanes.iter()).for_each(|(to, x)| put_f32(to, 0, bit(x).into()))
        }
        (Lane::Bool(lanes), Kind::F64) => {
            destinations.zip(lanes.iter()).for_each(|(to, x)| put_f64(to, 0, bit(x).into()))
        }
        _ => unreachable!("{input:?}: of another type"),
    }
}
