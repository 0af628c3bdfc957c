//! What of a kernel is computed where: once a run, once for each i, once for each j, or for each
//! pair; and how what crosses over lies in memory.

use crate::ir::Kind;
use sprat_formula::{Program, Reduction, Scope, Type, Value};

/// A value that pairs need and that is computed outside of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) value: Value,
    /// As what it lies in memory: a bool is 1 or 0.
    pub(crate) kind: Kind,
    /// Bytes from the beginning of a row, of j; of i the sum of the sizes of those before it, to
    /// be multiplied by lanes.
    pub(crate) at: usize,
}

/// What is accumulated for a result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Gathered {
    pub(crate) kind: Kind,
    /// As in [`Given::at`] of i, of the accumulator.
    pub(crate) at: usize,
    /// The same of the second accumulator, which tells places, where there is one.
    pub(crate) places: Option<usize>,
}

/// What of a kernel is computed where.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) scopes: Vec<Scope>,
    /// Whether any number has 64 bits: then vectors have as many lanes as there is room for those.
    pub(crate) wide: bool,
    pub(crate) i: Vec<Given>,
    pub(crate) j: Vec<Given>,
    /// Where rows of j tell their place in the block, as [`Shape::place`] says: where a reduction
    /// asks.
    pub(crate) place: [Option<usize>; 2],
    /// Bytes of a row.
    pub(crate) row: usize,
    /// Bytes of an i, of one lane.
    pub(crate) lane: usize,
    pub(crate) gathered: Vec<Gathered>,
    /// Bytes of the accumulators of one lane.
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
        let given = |scope| {
            let all = program
                .values()
                .filter(|(value, ..)| needed[value.index()] && scopes[value.index()] == scope);
            all.map(|(value, _, of)| Given { value, kind: carrier(of, wide), at: 0 })
                .collect::<Vec<_>>()
        };
        let (mut i, mut j) = (given(Scope::I), given(Scope::J));
        let lane = lay(i.iter_mut().map(|given| (given.kind, &mut given.at)));
        let mut place = [None; 2];
        for result in program.results() {
            if matches!(result.reduction, Reduction::ArgMin | Reduction::ArgMax) {
                let of = carrier(program.type_of(result.contribution), wide);
                place[usize::from(of == Kind::F64)] = Some(0);
            }
        }
        let [narrow, broad] = &mut place;
        let places = narrow
            .iter_mut()
            .map(|at| (Kind::F32, at))
            .chain(broad.iter_mut().map(|at| (Kind::F64, at)));
        let row = lay(j.iter_mut().map(|given| (given.kind, &mut given.at)).chain(places));
        let row = if wide { row.next_multiple_of(8) } else { row };
        let mut gathered: Vec<Gathered> = Vec::new();
        for result in program.results() {
            let kind = carrier(program.type_of(result.contribution), wide);
            let arg = matches!(result.reduction, Reduction::ArgMin | Reduction::ArgMax);
            gathered.push(Gathered { kind, at: 0, places: arg.then_some(0) });
        }
        let sums = lay(gathered.iter_mut().flat_map(|gathered| {
            let kind = gathered.kind;
            std::iter::once((kind, &mut gathered.at))
                .chain(gathered.places.iter_mut().map(move |at| (kind, at)))
        }));
        Self { scopes, wide, i, j, place, row, lane, gathered, sums }
    }

    /// Where rows tell their place as a number of this kind.
    pub(crate) fn place(&self, kind: Kind) -> Option<usize> {
        self.place[usize::from(kind == Kind::F64)]
    }
}

/// As what a value of this type lies in memory.
pub(crate) fn carrier(of: Type, wide: bool) -> Kind {
    match of {
        Type::F32 => Kind::F32,
        Type::F64 => Kind::F64,
        Type::Bool if wide => Kind::F64,
        Type::Bool => Kind::F32,
    }
}

/// Lays fields one after the other, those of 64 bits first; returns the bytes of all.
fn lay<'a>(fields: impl Iterator<Item = (Kind, &'a mut usize)>) -> usize {
    let (broad, narrow): (Vec<_>, Vec<_>) = fields.partition(|(kind, _)| *kind == Kind::F64);
    let mut end = 0;
    for (kind, at) in broad.into_iter().chain(narrow) {
        *at = end;
        end += kind.bytes();
    }
    end
}
