//! Runs a kernel. The i are divided among elements and passes, and the j among blocks that hold the
//! same i. The results are read through the tree.

use crate::block::Block;
use crate::board::{Board, Shape, TreeOperation};
use crate::compile::{HALF, Kernel};
use crate::instruction::{
    BLOCKS, Code, Condition, ELEMENTS, Instruction, Operation, Place, Source, Target, VECTOR, steps,
};
use crate::timing::Timing;
use crate::trace::Trace;
use crate::word::Word;
use sprat_formula::{Column, Inputs, Output, Reduction, Type};

/// The number of i that a block holds.
pub const SLOTS: usize = ELEMENTS * VECTOR;

/// Number of vectors that broadcast memory can hold for every element of a block.
const VECTORS: usize = 2 * HALF / SLOTS;

/// A request to record how the results of one i are computed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceRequest {
    /// The index of the i whose results are recorded.
    pub i: usize,
    /// Limit on the instructions to record, from the first instruction for the element's results
    /// on.
    pub limit: usize,
}

/// The results and timing of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The outputs, in the order of the program's results.
    pub outputs: Vec<Output>,
    /// The machine's time.
    pub timing: Timing,
    /// If a trace was requested and the i exists: the element of the vector that holds the i, and
    /// the trace of its processing element. If several blocks hold the i, the trace is of the first
    /// one.
    pub watched: Option<(usize, Trace)>,
}

/// Runs a kernel on a simulated machine. Uses all processors, and returns when all results are
/// computed.
///
/// # Panics
/// The inputs do not have as many variables as the program.
#[must_use]
pub fn run(
    kernel: &Kernel,
    inputs: &Inputs<'_>,
    shape: Shape,
    watch: Option<TraceRequest>,
) -> RunResult {
    let program = kernel.program();
    assert_eq!(program.i().len(), inputs.i().len(), "inputs of another program");
    assert_eq!(program.j().len(), inputs.j().len(), "inputs of another program");
    let mut run = Runner::new(kernel, inputs, shape);
    let mut watched = None;
    let mut first = 0;
    while first < inputs.ni() {
        let division = Division::of(inputs.ni() - first, shape);
        let mine = watch.filter(|watch| (first..first + division.held).contains(&watch.i));
        let found = run.pass(first, division, mine);
        watched = watched.or(found);
        first += division.held;
    }
    RunResult { outputs: run.outputs(), timing: run.timing, watched }
}

/// How a pass divides i and j among the blocks.
#[derive(Clone, Copy, Debug)]
struct Division {
    /// The number of i in this pass.
    held: usize,
    /// The number of adjacent blocks that hold the same i and process different j. A power of two.
    copies: usize,
}

impl Division {
    fn of(ni: usize, shape: Shape) -> Self {
        let held = ni.min(shape.blocks() * SLOTS);
        let spare = shape.blocks() / held.div_ceil(SLOTS);
        // With a power of two, a group stays within one chip or fills whole chips.
        Self { held, copies: 1 << spare.ilog2() }
    }

    fn groups(self) -> usize {
        self.held.div_ceil(SLOTS)
    }
}

struct Runner<'a> {
    kernel: &'a Kernel,
    inputs: &'a Inputs<'a>,
    board: Board,
    /// The addresses, columns and types of the i variables. The next two fields are for constants,
    /// with their words, and for j variables.
    i: Vec<(Place, Column<'a>, Type)>,
    constants: Vec<(Place, Word)>,
    j: Vec<(Place, Column<'a>, Type)>,
    /// For each result, two words for each i: the value, and the index of its j.
    found: Vec<Vec<(Word, Word)>>,
    timing: Timing,
}

impl<'a> Runner<'a> {
    fn new(kernel: &'a Kernel, inputs: &'a Inputs<'a>, shape: Shape) -> Self {
        let (program, places) = (kernel.program(), kernel.places());
        let fields = |fields: &[sprat_formula::Field],
                      columns: &[Column<'a>],
                      places: &[Option<Place>]| {
            let all = fields.iter().zip(columns).zip(places);
            all.filter_map(|((field, &column), &place)| Some((place?, column, field.of))).collect()
        };
        let constants = program.constants().iter().zip(inputs.constants()).zip(&places.constants);
        Self {
            kernel,
            inputs,
            board: Board::new(shape),
            i: fields(program.i(), inputs.i(), &places.i),
            constants: constants
                .filter_map(|((c, &value), &place)| Some((place?, word(value, c.of))))
                .collect(),
            j: fields(program.j(), inputs.j(), &places.j),
            found: vec![Vec::with_capacity(inputs.ni()); program.results().len()],
            timing: Timing::default(),
        }
    }

    fn pass(
        &mut self,
        first: usize,
        division: Division,
        watch: Option<TraceRequest>,
    ) -> Option<(usize, Trace)> {
        let watch = watch.map(|watch| {
            let at = watch.i - first;
            (at / SLOTS * division.copies, at % SLOTS, watch.limit)
        });
        let (kernel, inputs) = (self.kernel, self.inputs);
        let (i, j, constants) = (&self.i, &self.j, &self.constants);
        let busy = division.groups() * division.copies;
        let cycles = |board: &Board| board.blocks()[0].cycles();
        let before = cycles(&self.board);
        self.board.for_each_block(|block| {
            if block.id() < busy {
                let from = first + block.id() / division.copies * SLOTS;
                load(block, i, constants, from..(from + SLOTS).min(first + division.held));
                if let Some((id, slot, limit)) = watch
                    && id == block.id()
                {
                    block.start_trace(Trace::new(slot / VECTOR, limit));
                }
                block.run(&kernel.listing().init, 0);
            }
        });
        let loaded = cycles(&self.board);
        self.board.for_each_block(|block| {
            if block.id() < busy {
                run_loop(
                    block,
                    kernel,
                    j,
                    block_j(block.id() % division.copies, division.copies, inputs.nj()),
                );
            }
        });
        let looped = cycles(&self.board);
        let trace = watch.and_then(|(id, slot, _)| {
            Some((slot % VECTOR, self.board.blocks_mut()[id].stop_trace()?))
        });
        self.store(division);
        self.timing.load_cycles += loaded - before;
        self.timing.loop_cycles += looped - loaded;
        self.timing.store_cycles += cycles(&self.board) - looped;
        self.timing.held_words += count(division.held * self.i.len() + self.constants.len());
        self.timing.broadcast_words += count(inputs.nj()) * u64::from(kernel.listing().stride);
        debug_assert!(
            looped - loaded
                == steps(&kernel.listing().body) * 4 * count(inputs.nj().div_ceil(division.copies))
        );
        trace
    }

    /// Reads the results, in groups that fit into broadcast memory.
    fn store(&mut self, division: Division) {
        let kernel = self.kernel;
        let results = kernel.program().results().iter().zip(&kernel.places().results);
        // Each vector with its result and reduction. The index of an extreme is read from each
        // block together with the extreme.
        let vectors: Vec<(usize, Place, Option<Place>, Option<TreeOperation>)> = results
            .enumerate()
            .map(|(at, (result, &(place, index)))| {
                (at, place, index, tree_operation(result.reduction))
            })
            .collect();
        for chunk in vectors.chunks(VECTORS / 2) {
            self.board.for_each_block(|block| {
                if block.id() < division.groups() * division.copies {
                    for (at, &(_, place, index, _)) in chunk.iter().enumerate() {
                        [Some(place), index].into_iter().enumerate().for_each(|(second, place)| {
                            place.into_iter().for_each(|place| {
                                write_out(block, place, (at * 2 + second) * SLOTS)
                            });
                        });
                    }
                }
            });
            for (at, &(result, _, index, tree)) in chunk.iter().enumerate() {
                for slot in 0..division.held {
                    let blocks =
                        slot / SLOTS * division.copies..(slot / SLOTS + 1) * division.copies;
                    let word = at * 2 * SLOTS + slot % SLOTS;
                    let found = match tree {
                        Some(tree) => (self.reduce(tree, blocks, word), Word::ZERO),
                        None => self.best(result, blocks, word),
                    };
                    self.found[result].push(found);
                }
                let each = if index.is_some() {
                    2 * division.copies
                } else {
                    division.copies.div_ceil(BLOCKS)
                };
                self.timing.read_words += count(division.held * each);
            }
        }
    }

    /// Reduces one word of some blocks with the tree of each chip. The host then reduces the words
    /// of several chips.
    fn reduce(&self, tree: TreeOperation, blocks: std::ops::Range<usize>, word: usize) -> Word {
        let chip = blocks.len().min(BLOCKS);
        tree.reduce(
            blocks
                .step_by(chip)
                .map(|first| self.board.reduce(tree, first..first + chip, word))
                .collect(),
        )
    }

    /// Returns the best extreme of all blocks, with its j. If several are equal, the one with the
    /// first j.
    fn best(&self, result: usize, blocks: std::ops::Range<usize>, word: usize) -> (Word, Word) {
        let least = self.kernel.program().results()[result].reduction == Reduction::ArgMin;
        let all = blocks.map(|block| &self.board.blocks()[block]);
        let found = all.map(|block| (block.broadcast(word), block.broadcast(word + SLOTS)));
        let found = found.filter(|(_, j)| !j.is_negative());
        let better = |a: (Word, Word), b: (Word, Word)| {
            let order = if least { a.0.compare(b.0) } else { b.0.compare(a.0) };
            match order {
                Some(std::cmp::Ordering::Greater) => b,
                Some(std::cmp::Ordering::Equal) if b.1.to_f64() < a.1.to_f64() => b,
                _ => a,
            }
        };
        found.reduce(better).unwrap_or((Word::ZERO, Word::from_f64(-1.0)))
    }

    fn outputs(&self) -> Vec<Output> {
        let program = self.kernel.program();
        let each = program.results().iter().zip(&self.found);
        each.map(|(result, found)| {
            let values = found.iter().map(|&(value, _)| value);
            match (result.reduction, program.type_of(result.contribution)) {
                (Reduction::And | Reduction::Or, _) => {
                    Output::Bool(values.map(|word| word != Word::ZERO).collect())
                }
                (Reduction::ArgMin | Reduction::ArgMax, _) =>
                {
                    #[expect(clippy::cast_possible_truncation, reason = "a count of particles")]
                    Output::Index(found.iter().map(|(_, j)| j.to_f64() as i64).collect())
                }
                (_, Type::F32) => Output::F32(values.map(Word::to_f32).collect()),
                _ => Output::F64(values.map(Word::to_f64).collect()),
            }
        })
        .collect()
    }
}

/// Returns the tree's operation for a reduction. `argmin` and `argmax` have none, because the host
/// reads the words of each block.
fn tree_operation(reduction: Reduction) -> Option<TreeOperation> {
    match reduction {
        Reduction::Sum => Some(TreeOperation::Sum),
        Reduction::Min => Some(TreeOperation::Min),
        Reduction::Max => Some(TreeOperation::Max),
        Reduction::And => Some(TreeOperation::And),
        Reduction::Or => Some(TreeOperation::Or),
        Reduction::ArgMin | Reduction::ArgMax => None,
    }
}

fn count(of: usize) -> u64 {
    u64::try_from(of).expect("no wider")
}

/// Converts a number to a word, as the host interface does.
fn word(number: f64, of: Type) -> Word {
    #[expect(clippy::cast_possible_truncation, reason = "rounded to its type")]
    let narrow = |number: f64| f64::from(number as f32);
    Word::from_f64(if of == Type::F32 { narrow(number) } else { number })
}

/// Returns every `copies`-th j, from `copy` on.
fn block_j(copy: usize, copies: usize, nj: usize) -> impl Iterator<Item = usize> + Clone {
    (copy..nj).step_by(copies)
}

fn pass(source: Source, target: Target, condition: Option<Condition>) -> Instruction {
    let operation =
        Operation { code: Code::Pass, sources: vec![source], targets: vec![target], condition };
    Instruction::new(vec![operation]).expect("one operation that the ports allow")
}

fn place(at: usize) -> u16 {
    u16::try_from(at).expect("within a memory")
}

/// Loads constants and a range of i into local memories through broadcast memory. Of the i, each
/// element stores only its own.
fn load(
    block: &mut Block,
    i: &[(Place, Column<'_>, Type)],
    constants: &[(Place, Word)],
    range: std::ops::Range<usize>,
) {
    for (at, &(to, word)) in constants.iter().enumerate() {
        block.set_broadcast(at, word);
        block.run(&[pass(Source::Broadcast(Place::one(place(at))), Target::Local(to), None)], 0);
    }
    let others = Condition { mask: 0, set: false };
    for chunk in i.chunks(VECTORS) {
        for (at, &(_, column, of)) in chunk.iter().enumerate() {
            for slot in 0..SLOTS {
                let i = range.start + slot;
                let number = if i < range.end { word(column.get(i), of) } else { Word::ZERO };
                block.set_broadcast(at * SLOTS + slot, number);
            }
        }
        for element in 0..ELEMENTS {
            let id = Source::Immediate(Word::from_bits(u128::from(place(element))));
            let differ = Operation {
                code: Code::Xor,
                sources: vec![Source::ElementId, id],
                targets: vec![Target::Mask(0)],
                condition: None,
            };
            block.run(
                &[Instruction::new(vec![differ]).expect("one operation that the ports allow")],
                0,
            );
            for (at, &(to, ..)) in chunk.iter().enumerate() {
                let from = Source::Broadcast(Place::four(place(at * SLOTS + element * VECTOR)));
                block.run(&[pass(from, Target::Local(to), Some(others))], 0);
            }
        }
    }
}

/// Runs the loop over these j. The j are in the two halves of broadcast memory alternately.
fn run_loop(
    block: &mut Block,
    kernel: &Kernel,
    columns: &[(Place, Column<'_>, Type)],
    mut j: impl Iterator<Item = usize> + Clone,
) {
    let stride = usize::from(kernel.listing().stride);
    let batch = HALF / stride.max(1);
    let mut half = 0;
    loop {
        let these = j.clone().take(batch);
        let mut filled = 0;
        for (at, j) in these.enumerate() {
            let base = half + at * stride;
            columns.iter().for_each(|(to, column, of)| {
                block.set_broadcast(base + usize::from(to.at), word(column.get(j), *of))
            });
            if let Some(to) = kernel.places().index {
                block.set_broadcast(
                    base + usize::from(to.at),
                    Word::from_f64(crate::timing::real(count(j))),
                );
            }
            filled += 1;
        }
        (0..filled).for_each(|at| block.run(&kernel.listing().body, half + at * stride));
        if filled < batch {
            return;
        }
        j.nth(batch - 1);
        half = HALF - half;
    }
}

/// Writes one vector of each element to broadcast memory.
fn write_out(block: &mut Block, from: Place, to: usize) {
    for element in 0..ELEMENTS {
        let at = Place::four(place(to + element * VECTOR));
        let target =
            Target::Broadcast { place: at, element: u8::try_from(element).expect("a few") };
        block.run(&[pass(Source::Local(from), target, None)], 0);
    }
}
