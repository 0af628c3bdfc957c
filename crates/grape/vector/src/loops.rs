//! The loops of a kernel as machine code: a quick loop that is right for ordinary numbers, and a
//! careful loop that is right for all numbers.

use crate::bare::bare;
use crate::buffer::{Buffer, get_f32, get_f64};
use crate::code::{Code, Extent};
use crate::error::Error;
use crate::facts::{Facts, MAX_CODE};
use crate::ir::{Body, Kind, PoolConstant};
use crate::lanes::Lanes;
use crate::lower::lower;
use crate::machine::{self, Emitted, pool_bytes};
use crate::shape::Shape;
use crate::target::Target;
use sprat_formula::{Program, Reduction};
use std::ops::Range;

/// Limit on the vectors of i that one loop works on.
const MAX_UNROLL: usize = 4;

/// The smallest factor by which sums may be multiplied after the loop. A smaller factor would leave
/// too little of the numbers' range for the computation itself.
const LEAST_SCALE: f64 = 1.0 / (1u64 << 32) as f64;

/// The loops of a kernel.
#[derive(Debug)]
pub(crate) struct Loops {
    target: Target,
    /// The loop that is right for all numbers.
    careful: Loop,
    /// A loop whose sums are right if they are finite. If a sum is not finite, the careful loop
    /// computes all sums again. `None` if the quick loop would save nothing, or if its sums would
    /// need a factor below [`LEAST_SCALE`].
    quick: Option<Loop>,
    /// The byte ranges of the sums among the accumulators.
    sums: Vec<(Kind, Range<usize>)>,
}

/// A loop and its constants.
#[derive(Debug)]
struct Loop {
    code: Code,
    pool: Vec<PoolConstant>,
    spills: usize,
}

/// What a thread needs for calls: the constants of both loops, and the memory for spilled values.
#[derive(Default)]
pub(crate) struct Scratch {
    careful: Buffer,
    quick: Buffer,
    spills: Buffer,
}

impl Loops {
    /// Compiles a kernel. The returned figures are those of the quick loop if there is one.
    pub(crate) fn new(
        program: &Program,
        shape: &Shape,
        target: Target,
    ) -> Result<(Self, Facts), Error> {
        let body = |unroll, bare| lower(program, shape, target, unroll, bare);
        let none = vec![false; program.nodes().len()];
        let bare = Some(bare(program))
            .filter(|bare| is_quick(&body(1, bare.clone()), &body(1, none.clone())));
        let build = |unroll| (body(unroll, bare.as_ref().unwrap_or(&none).clone()), unroll);
        let mut unrolled = (2..=MAX_UNROLL).rev().map(build);
        let (one, unroll) =
            unrolled.find(|(one, _)| machine::fits(one, target)).unwrap_or_else(|| build(1));
        let width = target.lanes(shape.wide) * unroll;
        let (one, emitted) = Loop::new(one, shape, target, width)?;
        // Both loops must work on tiles of the same width.
        let (careful, quick) = match bare {
            Some(_) => (Loop::new(body(unroll, none), shape, target, width)?.0, Some(one)),
            None => (one, None),
        };
        let facts = Facts {
            target,
            lanes: target.lanes(shape.wide),
            unroll,
            code: emitted.code.len(),
            instructions: emitted.instructions,
            registers: emitted.registers,
            spills: emitted.spills,
            row: shape.row,
        };
        let sums = program
            .results()
            .iter()
            .zip(&shape.accumulators)
            .filter(|(result, _)| result.reduction == Reduction::Sum);
        let place = |at: usize, kind: Kind| (kind, at * width..(at + kind.bytes()) * width);
        let sums = sums.map(|(_, accumulator)| place(accumulator.at, accumulator.kind)).collect();
        Ok((Self { target, careful, quick, sums }, facts))
    }

    /// Makes what a thread needs for calls, from the values that are the same for all particles.
    pub(crate) fn scratch(&self, values: &Lanes) -> Scratch {
        let quick = self.quick.as_ref();
        let spills = self.careful.spills.max(quick.map_or(0, |quick| quick.spills));
        Scratch {
            careful: self.careful.constants(self.target, values),
            quick: quick.map_or_else(Buffer::default, |quick| quick.constants(self.target, values)),
            spills: Buffer::new(spills),
        }
    }

    /// Runs the quick loop over the rows. If there is no quick loop, or if one of its sums is not
    /// finite, runs the careful loop over them. Leaves the accumulators in `sums`.
    pub(crate) fn call(
        &self,
        rows: &[u8],
        count: usize,
        tile: &[u8],
        sums: &mut [u8],
        scratch: &mut Scratch,
    ) {
        let Scratch { careful, quick, spills } = scratch;
        if let Some(loop_) = &self.quick {
            loop_.code.call(rows, count, tile, sums, quick.bytes(), spills.bytes_mut());
            if self.finite(sums) {
                return;
            }
        }
        self.careful.code.call(rows, count, tile, sums, careful.bytes(), spills.bytes_mut());
    }

    fn finite(&self, sums: &[u8]) -> bool {
        self.sums.iter().all(|(kind, place)| {
            let bytes = &sums[place.clone()];
            match kind {
                Kind::F64 => bytes
                    .chunks_exact(8)
                    .fold(true, |all, number| all & get_f64(number, 0).is_finite()),
                _ => bytes
                    .chunks_exact(4)
                    .fold(true, |all, number| all & get_f32(number, 0).is_finite()),
            }
        })
    }
}

impl Loop {
    fn new(
        body: Body,
        shape: &Shape,
        target: Target,
        width: usize,
    ) -> Result<(Self, Emitted), Error> {
        let encoding =
            |error: iced_x86::IcedError| Error::Encoding { target, why: error.to_string() };
        let emitted = machine::emit(&body, target, shape.wide, shape.row).map_err(encoding)?;
        let bytes = emitted.code.len();
        if bytes > MAX_CODE {
            return Err(Error::TooLarge { bytes, limit: MAX_CODE });
        }
        let extent = Extent {
            row: shape.row,
            tile: shape.lane * width,
            sums: shape.sums * width,
            pool: body.pool.len() * pool_bytes(target),
            spills: emitted.spills * crate::ir::SPILL,
        };
        let code = Code::new(&emitted, extent).map_err(|error| Error::Memory(error.into()))?;
        Ok((Self { code, pool: body.pool, spills: extent.spills }, emitted))
    }

    /// Returns the constants in the layout that the loop reads.
    fn constants(&self, target: Target, values: &Lanes) -> Buffer {
        let step = pool_bytes(target);
        let mut pool = Buffer::new(self.pool.len() * step);
        for (&pooled, place) in self.pool.iter().zip(pool.bytes_mut().chunks_exact_mut(step)) {
            let bits = match pooled {
                PoolConstant::Bits(_, bits) => bits,
                #[expect(clippy::cast_possible_truncation, reason = "a number of this kind")]
                PoolConstant::Run(Kind::F32, value) => {
                    u64::from((values.get(value).number(0) as f32).to_bits())
                }
                PoolConstant::Run(_, value) => values.get(value).number(0).to_bits(),
            };
            let bits = if pooled.kind() == Kind::F32 { bits << 32 | bits } else { bits };
            place.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&bits.to_ne_bytes()));
        }
        pool
    }
}

/// Returns whether a body is worth a loop of its own: it has fewer instructions than the careful
/// body, and its factors leave enough of the numbers' range.
fn is_quick(body: &Body, careful: &Body) -> bool {
    let mut scales = body.sums.iter().filter_map(|sum| sum.scale);
    body.insts.len() < careful.insts.len() && scales.all(|(scale, _)| scale >= LEAST_SCALE)
}
