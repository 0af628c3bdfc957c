//! Runs a kernel on arrays. The i are divided into chunks, and the j into runs. Each pair of a
//! chunk and a run is a job for a thread. A job goes through its j in blocks that stay in the
//! first-level cache, and computes all its tiles of i with each block.
//!
//! The division into jobs depends only on the numbers of i and j, and the results of jobs are added
//! in order. So the results do not depend on the number of threads.

use crate::buffer::Buffer;
use crate::compiled::{Compiled, Engine};
use crate::lanes::Lanes;
use crate::pack;
use crate::totals::Total;
use rayon::prelude::*;
use sprat_formula::{Inputs, Output};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};

/// Limit on the number of j in a block. The contributions of one block are summed in the kernel's
/// own type. The sums of blocks are added in 64 bits.
pub const BLOCK: usize = 1024;

/// Limit on the bytes of a block's rows: a part of the first-level cache. A block of [`LEAST`] j
/// may exceed this limit.
const BLOCK_BYTES: usize = 16 << 10;

/// The smallest number of j in a block, except in the last block.
const LEAST: usize = 64;

/// Limits on the number of i in a chunk, which is then rounded up to whole tiles. The lower limit
/// makes the cost of packing j small in comparison. Below the upper limit, the tiles and results of
/// a chunk stay in the second-level cache.
const CHUNK: Range<usize> = 512..8192;

/// The number of chunks into which the i are divided, if chunks are then within [`CHUNK`].
const CHUNKS: usize = 64;

/// The smallest number of blocks in a run of j, except in the last run. The j are divided into runs
/// if there are few i.
const RUN: usize = 8;

/// A function that any of the threads calls after each block, with the number of the block's pairs.
/// It can end the run by returning [`ControlFlow::Break`].
pub type Hook<'h> = &'h (dyn Fn(u64) -> ControlFlow<()> + Sync);

impl Compiled {
    /// Runs the kernel on all i and j, and blocks until the results are complete. The outputs are
    /// in the order of the program's results. Each output has one entry for every i.
    ///
    /// # Panics
    /// The inputs do not have as many variables and constants as the program.
    #[must_use]
    pub fn run(&self, inputs: &Inputs<'_>) -> Vec<Output> {
        self.run_part(inputs, 0..inputs.ni())
    }

    /// Computes the results of a range of i. They equal those of [`Compiled::run`] bit for bit.
    ///
    /// # Panics
    /// `i` is out of range, or the inputs do not have as many variables and constants as the
    /// program.
    #[must_use]
    pub fn run_part(&self, inputs: &Inputs<'_>, i: Range<usize>) -> Vec<Output> {
        self.run_range(inputs, i, &|_| ControlFlow::Continue(())).expect("nobody ends it")
    }

    /// Runs the kernel, and calls `hook` after each block. Returns `None` if the hook ends the run.
    ///
    /// # Panics
    /// The inputs do not have as many variables and constants as the program.
    pub fn run_with(&self, inputs: &Inputs<'_>, hook: Hook<'_>) -> Option<Vec<Output>> {
        self.run_range(inputs, 0..inputs.ni(), hook)
    }

    fn run_range(
        &self,
        inputs: &Inputs<'_>,
        i: Range<usize>,
        hook: Hook<'_>,
    ) -> Option<Vec<Output>> {
        assert!(i.start <= i.end && i.end <= inputs.ni(), "i that there are not");
        let program = &self.program;
        assert_eq!(inputs.i().len(), program.i().len(), "inputs of another program");
        assert_eq!(inputs.j().len(), program.j().len(), "inputs of another program");
        assert_eq!(
            inputs.constants().len(),
            program.constants().len(),
            "inputs of another program"
        );
        let grid = Grid::new(inputs, i, self.width(), self.block());
        let ended = AtomicBool::new(false);
        let job = |at| self.job(inputs, &grid, at, hook, &ended);
        let totals: Vec<Vec<Total>> = self.threads.run(|parallel| match parallel {
            true => (0..grid.jobs()).into_par_iter().map(job).collect(),
            // Without a pool of its own, rayon would start its global pool.
            false => (0..grid.jobs()).map(job).collect(),
        });
        if ended.into_inner() {
            return None;
        }
        let mut results: Vec<Vec<Total>> = program.results().iter().map(|_| Vec::new()).collect();
        for (at, totals) in totals.into_iter().enumerate() {
            for (runs, total) in results.iter_mut().zip(totals) {
                match runs.last_mut() {
                    Some(last) if at % grid.runs > 0 => last.add_run(&total),
                    _ => runs.push(total),
                }
            }
        }
        Some(results.iter().map(|runs| Total::output(runs)).collect())
    }

    /// Returns the number of j in a block: as many as [`BLOCK_BYTES`] hold, but at least [`LEAST`]
    /// and at most [`BLOCK`].
    fn block(&self) -> usize {
        (BLOCK_BYTES / self.shape.row.max(1)).clamp(LEAST, BLOCK)
    }

    fn job(
        &self,
        inputs: &Inputs<'_>,
        grid: &Grid,
        at: usize,
        hook: Hook<'_>,
        ended: &AtomicBool,
    ) -> Vec<Total> {
        let (shape, width) = (&self.shape, self.width());
        let (i, j) = grid.job(at);
        let mut totals = Total::all(&self.program, shape, i.len());
        let block = self.block();
        let mut values = Lanes::new(&self.program);
        self.pack.run(inputs, &mut values);
        #[cfg(all(target_arch = "x86_64", unix))]
        let mut scratch = match &self.engine {
            Engine::Code(loops) => loops.scratch(&values),
            Engine::Portable(_) => crate::loops::Scratch::default(),
        };
        let tile = shape.lane * width;
        let count = i.len().div_ceil(width);
        let mut tiles = Buffer::new(tile * count);
        if !i.is_empty() {
            self.pack.tiles(shape, inputs, i.clone(), width, &mut values, tiles.bytes_mut());
        }
        let mut rows = Buffer::new(shape.row * block);
        pack::write_row_indices(shape, block, rows.bytes_mut());
        let mut sums = Buffer::new(shape.sums * width);
        for first in j.clone().step_by(block) {
            if ended.load(Ordering::Relaxed) {
                break;
            }
            let some = first..j.end.min(first + block);
            self.pack.rows(shape, inputs, some.clone(), &mut values, rows.bytes_mut());
            for at in 0..count {
                let tile = &tiles.bytes()[at * tile..(at + 1) * tile];
                let (rows, sums) = (rows.bytes(), sums.bytes_mut());
                match &self.engine {
                    #[cfg(all(target_arch = "x86_64", unix))]
                    Engine::Code(loops) => loops.call(rows, some.len(), tile, sums, &mut scratch),
                    Engine::Portable(portable) => {
                        portable.call(shape, &mut values, rows, some.len(), tile, sums)
                    }
                }
                totals.iter_mut().for_each(|total| total.add_tile(sums, width, at * width, first));
            }
            let pairs = i.len() as u64 * some.len() as u64;
            if hook(pairs).is_break() {
                ended.store(true, Ordering::Relaxed);
            }
        }
        totals
    }
}

/// How pairs are divided into jobs.
#[derive(Debug)]
struct Grid {
    /// The range of i that is computed.
    i: Range<usize>,
    nj: usize,
    /// The number of i in a chunk.
    chunk: usize,
    chunks: usize,
    /// The number of j in a run.
    run: usize,
    runs: usize,
}

impl Grid {
    /// Divides pairs into jobs. Even if `i` is only a part of all i, the j are divided into the
    /// runs that they have for all i. So the sums of a part have the same bits.
    fn new(inputs: &Inputs<'_>, i: Range<usize>, width: usize, block: usize) -> Self {
        let chunk =
            |ni: usize| ni.div_ceil(CHUNKS).clamp(CHUNK.start, CHUNK.end).next_multiple_of(width);
        let chunks = |ni: usize| ni.div_ceil(chunk(ni)).max(1);
        let nj = inputs.nj();
        let wanted = CHUNKS.div_ceil(chunks(inputs.ni()));
        let run = nj.div_ceil(wanted).next_multiple_of(block).max(RUN * block);
        Self {
            chunk: chunk(i.len()),
            chunks: chunks(i.len()),
            i,
            nj,
            run,
            runs: nj.div_ceil(run).max(1),
        }
    }

    fn jobs(&self) -> usize {
        self.chunks * self.runs
    }

    /// Returns the ranges of i and j of a job. The runs of one chunk are consecutive jobs.
    fn job(&self, at: usize) -> (Range<usize>, Range<usize>) {
        let (chunk, run) = (at / self.runs, at % self.runs);
        let of =
            |at: usize, step: usize, all: usize| (at * step).min(all)..((at + 1) * step).min(all);
        let i = of(chunk, self.chunk, self.i.len());
        (self.i.start + i.start..self.i.start + i.end, of(run, self.run, self.nj))
    }
}
