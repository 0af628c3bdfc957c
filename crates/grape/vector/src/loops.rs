//! The loops of a kernel as machine code: one that is quick where numbers are as they usually are,
//! and one that is right for all.

use crate::bare::bare;
use crate::buffer::{Buffer, get_f32, get_f64};
use crate::code::{Code, Extent};
use crate::error::Error;
use crate::facts::{Facts, MAX_CODE};
use crate::ir::{Body, Kind, Pooled};
use crate::lanes::Lanes;
use crate::lower::lower;
use crate::machine::{self, Emitted, pool_bytes};
use crate::shape::Shape;
use crate::target::Target;
use sprat_formula::{Program, Reduction};
use std::ops::Range;

/// Vectors of i that share a loop, at most.
const MAX_UNROLL: usize = 4;

/// The least that sums may be multiplied by in the end: what is left of the numbers' range must do
/// for the rest.
const LEAST_SCALE: f64 = 1.0 / (1u64 << 32) as f64;

/// The loops of a kernel.
#[derive(Debug)]
pub(crate) struct Loops {
    target: Target,
    /// Right for all numbers.
    careful: Loop,
    /// Right where sums are finite: where that is not the case for all numbers, the other one
    /// computes them again.
    quick: Option<Loop>,
    /// Where sums lie among the accumulators.
    sums: Vec<(Kind, Range<usize>)>,
}

/// A loop and its constants.
#[derive(Debug)]
struct Loop {
    code: Code,
    pool: Vec<Pooled>,
    spills: usize,
}

/// What a thread needs for calls: the constants of both loops, and memory for values without a
/// register.
#[derive(Default)]
pub(crate) struct Room {
    careful: Buffer,
    quick: Buffer,
    spills: Buffer,
}

impl Loops {
    /// Compiles a kernel. Facts are those of the loop that comes first.
    pub(crate) fn new(
        program: &Program,
        shape: &Shape,
        target: Target,
    ) -> Result<(Self, Facts), Error> {
        let body = |unroll, bare| lower(program, shape, target, unroll, bare);
        let none = vec![false; program.nodes().len()];
        let bare = Some(bare(program))
            .filter(|bare| is_quick(&body(1, bare.clone()), &body(1, none.clone())));
        let first = |unroll| (body(unroll, bare.as_ref().unwrap_or(&none).clone()), unroll);
        let mut unrolled = (2..=MAX_UNROLL).rev().map(first);
        let (one, unroll) =
            unrolled.find(|(one, _)| machine::fits(one, target)).unwrap_or_else(|| first(1));
        let width = target.lanes(shape.wide) * unroll;
        let (one, emitted) = Loop::new(one, shape, target, width)?;
        // Both loops work on the same tiles.
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
            .zip(&shape.gathered)
            .filter(|(result, _)| result.reduction == Reduction::Sum);
        let place = |at: usize, kind: Kind| (kind, at * width..(at + kind.bytes()) * width);
        let sums = sums.map(|(_, gathered)| place(gathered.at, gathered.kind)).collect();
        Ok((Self { target, careful, quick, sums }, facts))
    }

    /// What a thread needs for calls, with what is the same for all particles.
    pub(crate) fn room(&self, values: &Lanes) -> Room {
        let quick = self.quick.as_ref();
        let spills = self.careful.spills.max(quick.map_or(0, |quick| quick.spills));
        Room {
            careful: self.careful.constants(self.target, values),
            quick: quick.map_or_else(Buffer::default, |quick| quick.constants(self.target, values)),
            spills: Buffer::new(spills),
        }
    }

    /// Runs over the rows, and leaves the accumulators in `sums`.
    pub(crate) fn call(
        &self,
        rows: &[u8],
        count: usize,
        tile: &[u8],
        sums: &mut [u8],
        room: &mut Room,
    ) {
        let Room { careful, quick, spills } = room;
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

    /// The constants as the loop reads them.
    fn constants(&self, target: Target, values: &Lanes) -> Buffer {
        let step = pool_bytes(target);
        let mut pool = Buffer::new(self.pool.len() * step);
        for (&pooled, place) in self.pool.iter().zip(pool.bytes_mut().chunks_exact_mut(step)) {
            let bits = match pooled {
                Pooled::Bits(_, bits) => bits,
                #[expect(clippy::cast_possible_truncation, reason = "a number of this kind")]
                Pooled::Run(Kind::F32, value) => {
                    u64::from((values.get(value).number(0) as f32).to_bits())
                }
                Pooled::Run(_, value) => values.get(value).number(0).to_bits(),
            };
            let bits = if pooled.kind() == Kind::F32 { bits << 32 | bits } else { bits };
            place.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&bits.to_ne_bytes()));
        }
        pool
    }
}

/// Whether a body has less to do than the careful one, and what its sums are multiplied by in the
/// end leaves the numbers' range as good as it is.
fn is_quick(body: &Body, careful: &Body) -> bool {
    let mut scales = body.sums.iter().filter_map(|sum| sum.scale);
    body.insts.len() < careful.insts.len() && scales.all(|(scale, _)| scale >= LEAST_SCALE)
}
