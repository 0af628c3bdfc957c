//! From columns of any stride and type to rows of j and tiles of i, with what depends on one
//! particle alone computed on the way.

use crate::buffer::{put_f32, put_f64};
use crate::ir::Kind;
use crate::lanes::{LANES, Lane, Lanes};
use crate::shape::{Given, Shape};
use sprat_formula::{Column, Inputs, Node, Program, Scope, Value};
use std::ops::Range;

/// What is computed outside of pairs, in order.
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

    /// Computes what is the same for all particles.
    pub(crate) fn run(&self, inputs: &Inputs<'_>, values: &mut Lanes) {
        for &(value, node) in &self.run {
            match node {
                Node::Constant(at) => values.fill(value, inputs.constants()[usize::from(at)]),
                Node::Number(bits) => values.fill(value, f64::from_bits(bits)),
                _ => values.compute(value, node),
            }
        }
    }

    /// Some i as tiles of `width` particles, the last one filled with its last particle.
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
            for given in &shape.i {
                // Particles of a field of a tile lie side by side.
                let (bytes, size) = (given.kind.bytes(), shape.lane * width);
                let tiles = tiles.chunks_exact_mut(size).skip(first / width);
                let fields = tiles.map(|tile| &mut tile[given.at * width..][..bytes * width]);
                let places =
                    fields.flat_map(|field| field.chunks_exact_mut(bytes)).skip(first % width);
                spread(values.get(given.value), given, places);
            }
        }
    }

    /// Some j as rows.
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
            for given in &shape.j {
                let rows = &mut rows[first * shape.row..(first + end) * shape.row];
                let places = rows.chunks_exact_mut(shape.row).map(|row| &mut row[given.at..]);
                spread(values.get(given.value), given, places);
            }
        }
    }
}

/// Writes where each row is in its block, which is the same for all blocks.
pub(crate) fn places(shape: &Shape, count: usize, rows: &mut [u8]) {
    for row in 0..u16::try_from(count).expect("blocks are short") {
        if let Some(at) = shape.place(Kind::F32) {
            put_f32(rows, usize::from(row) * shape.row + at, f32::from(row));
        }
        if let Some(at) = shape.place(Kind::F64) {
            put_f64(rows, usize::from(row) * shape.row + at, f64::from(row));
        }
    }
}

/// The values of a run of particles, of the last one where there are no more.
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

/// Writes lanes of a value, each to the beginning of a place, as far as there are places.
fn spread<'a>(lane: &Lane, given: &Given, places: impl Iterator<Item = &'a mut [u8]>) {
    let bit = |&bool: &bool| u8::from(bool);
    match (lane, given.kind) {
        (Lane::F32(lanes), Kind::F32) => {
            places.zip(lanes.iter()).for_each(|(to, &x)| put_f32(to, 0, x))
        }
        (Lane::F64(lanes), Kind::F64) => {
            places.zip(lanes.iter()).for_each(|(to, &x)| put_f64(to, 0, x))
        }
        (Lane::Bool(lanes), Kind::F32) => {
            places.zip(lanes.iter()).for_each(|(to, x)| put_f32(to, 0, bit(x).into()))
        }
        (Lane::Bool(lanes), Kind::F64) => {
            places.zip(lanes.iter()).for_each(|(to, x)| put_f64(to, 0, bit(x).into()))
        }
        _ => unreachable!("{given:?}: of another type"),
    }
}
