//! Determines which values of a kernel are computed once per run, once for each i, once for each j,
//! or for each pair. Also determines the memory layout of the values that pairs read.

use crate::ir::Kind;
use sprat_formula::{Program, Reduction, Scope, Type, Value};

/// A value that pairs use, but that is computed outside of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairInput {
    pub(crate) value: Value,
    /// The type of the value's numbers in memory. A bool is stored as 1 or 0.
    pub(crate) kind: Kind,
    /// For a value of j: its byte offset in a row. For a value of i: the bytes per lane of the
    /// fields before it. The reader multiplies them by the number of lanes.
    pub(crate) at: usize,
}

/// The accumulators of a result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Accumulator {
    pub(crate) kind: Kind,
    /// Where the accumulator is, counted as [`PairInput::at`] is for i.
    pub(crate) at: usize,
    /// Where the second accumulator is, which holds the index of the extreme. `None` if the result
    /// has no index.
    pub(crate) index: Option<usize>,
}

/// Where each value of a kernel is computed, and the layout of rows, tiles and accumulators.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) scopes: Vec<Scope>,
    /// Whether any number has 64 bits. If so, a vector has as many lanes as 64-bit numbers fit into
    /// it.
    pub(crate) wide: bool,
    pub(crate) i: Vec<PairInput>,
    pub(crate) j: Vec<PairInput>,
    /// The byte offsets at which a row holds its own index in the block, as a 32-bit and as a
    /// 64-bit number. `None` if no reduction needs it. Read it by [`Shape::row_index`].
    pub(crate) row_index: [Option<usize>; 2],
    /// Bytes of a row.
    pub(crate) row: usize,
    /// Bytes per lane of the values of i in a tile.
    pub(crate) lane: usize,
    pub(crate) accumulators: Vec<Accumulator>,
    /// Bytes per lane of the accumulators.
    pub(crate) sums: usize,
}

impl Shape {
    pub(crate) fn new(program: &Program) -> Self {
        let scopes = program.scopes();
        let wide = program.nodes().iter().any(|&(_, of)| of == Type::F64);
        let mut needed = vec![false; scopes.len()];
        for (value, node, _) in program.values() {
            if scopes[value.index()] == Scope::Pair {
                node.operands().for_each(|operand| needed[operand.index()] = true);
            }
        }
        program.results().iter().for_each(|result| needed[result.contribution.index()] = true);
        let input = |scope| {
            let all = program
                .values()
                .filter(|(value, ..)| needed[value.index()] && scopes[value.index()] == scope);
            all.map(|(value, _, of)| PairInput { value, kind: carrier(of, wide), at: 0 })
                .collect::<Vec<_>>()
        };
        let (mut i, mut j) = (input(Scope::I), input(Scope::J));
        let lane = lay_out(i.iter_mut().map(|input| (input.kind, &mut input.at)));
        let mut row_index = [None; 2];
        for result in program.results() {
            if matches!(result.reduction, Reduction::ArgMin | Reduction::ArgMax) {
                let of = carrier(program.type_of(result.contribution), wide);
                row_index[usize::from(of == Kind::F64)] = Some(0);
            }
        }
        let [narrow, broad] = &mut row_index;
        let places = narrow
            .iter_mut()
            .map(|at| (Kind::F32, at))
            .chain(broad.iter_mut().map(|at| (Kind::F64, at)));
        let row = lay_out(j.iter_mut().map(|input| (input.kind, &mut input.at)).chain(places));
        let row = if wide { row.next_multiple_of(8) } else { row };
        let mut accumulators: Vec<Accumulator> = Vec::new();
        for result in program.results() {
            let kind = carrier(program.type_of(result.contribution), wide);
            let arg = matches!(result.reduction, Reduction::ArgMin | Reduction::ArgMax);
            accumulators.push(Accumulator { kind, at: 0, index: arg.then_some(0) });
        }
        let sums = lay_out(accumulators.iter_mut().flat_map(|accumulator| {
            let kind = accumulator.kind;
            std::iter::once((kind, &mut accumulator.at))
                .chain(accumulator.index.iter_mut().map(move |at| (kind, at)))
        }));
        Self { scopes, wide, i, j, row_index, row, lane, accumulators, sums }
    }

    /// Returns the byte offset at which a row holds its own index, as a number of this type.
    pub(crate) fn row_index(&self, kind: Kind) -> Option<usize> {
        self.row_index[usize::from(kind == Kind::F64)]
    }
}

/// Returns the type of the numbers in which values of this type are stored in memory.
pub(crate) fn carrier(of: Type, wide: bool) -> Kind {
    match of {
        Type::F32 => Kind::F32,
        Type::F64 => Kind::F64,
        Type::Bool if wide => Kind::F64,
        Type::Bool => Kind::F32,
    }
}

/// Lays out fields one after the other, the 64-bit fields first. Returns the bytes of all fields.
fn lay_out<'a>(fields: impl Iterator<Item = (Kind, &'a mut usize)>) -> usize {
    let (broad, narrow): (Vec<_>, Vec<_>) = fields.partition(|(kind, _)| *kind == Kind::F64);
    let mut end = 0;
    for (kind, at) in broad.into_iter().chain(narrow) {
        *at = end;
        end += kind.bytes();
    }
    end
}
