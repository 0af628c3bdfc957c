//! A kernel run on arrays: i in chunks, j in runs, and of each pair of these a job for a thread.
//! Within a job j go by in blocks that stay in the nearest cache, and over each block goes tile
//! after tile of i.
//!
//! How pairs are divided depends on their number alone, and what jobs come to is added in order:
//! results are the same whatever threads do.

use crate::buffer::Buffer;
use crate::compiled::{Compiled, Engine};
use crate::lanes::Lanes;
use crate::pack;
use crate::totals::Total;
use rayon::prelude::*;
use sprat_formula::{Inputs, Output};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};

/// j of a block, at most: so many are summed in the kernel's own numbers before these are added in
/// 64 bits.
pub const BLOCK: usize = 1024;

/// Bytes of a block's rows, at most, where that leaves [`LEAST`] j: a part of the nearest cache.
const BLOCK_BYTES: usize = 16 << 10;

/// j of a block, at least.
const LEAST: usize = 64;

/// i of a chunk: enough that packing j for it does not count, and few enough that their tiles and
/// results stay in the cache behind.
const CHUNK: Range<usize> = 512..8192;

/// Chunks that i are divided into, if they are enough.
const CHUNKS: usize = 64;

/// Blocks of a run of j, at least, where j are divided because i are few.
const RUN: usize = 8;

/// Told after each block how many pairs it had; can end a run.
pub type Hook<'h> = &'h (dyn Fn(u64) -> ControlFlow<()> + Sync);

impl Compiled {
    /// Runs the kernel. The results are in the order of the program's, for each i.
    ///
    /// # Panics
    /// Inputs that were checked against another program.
    #[must_use]
    pub fn run(&self, inputs: &Inputs<'_>) -> Vec<Output> {
        self.run_part(inputs, 0..inputs.ni())
    }

    /// The results of some i, bit for bit what [`Compiled::run`] has of them.
    ///
    /// # Panics
    /// i that there are not, or inputs that were checked against another program.
    #[must_use]
    pub fn run_part(&self, inputs: &Inputs<'_>, i: Range<usize>) -> Vec<Output> {
        self.run_some(inputs, i, &|_| ControlFlow::Continue(())).expect("nobody ends it")
    }

    /// Runs the kernel, and tells `hook` how it goes; `None` where that ends the run.
    ///
    /// # Panics
    /// Inputs that were checked against another program.
    pub fn run_with(&self, inputs: &Inputs<'_>, hook: Hook<'_>) -> Option<Vec<Output>> {
        self.run_some(inputs, 0..inputs.ni(), hook)
    }

    fn run_some(
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
            // Without a pool of ours rayon would start one of its own.
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

    /// j of a block.
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
        let mut room = match &self.engine {
            Engine::Code(loops) => loops.room(&values),
            Engine::Portable(_) => crate::loops::Room::default(),
        };
        let tile = shape.lane * width;
        let count = i.len().div_ceil(width);
        let mut tiles = Buffer::new(tile * count);
        if !i.is_empty() {
            self.pack.tiles(shape, inputs, i.clone(), width, &mut values, tiles.bytes_mut());
        }
        let mut rows = Buffer::new(shape.row * block);
        pack::places(shape, block, rows.bytes_mut());
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
                    Engine::Code(loops) => loops.call(rows, some.len(), tile, sums, &mut room),
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
    /// Of which i.
    i: Range<usize>,
    nj: usize,
    /// i of a chunk, and how many of those there are: one at least.
    chunk: usize,
    chunks: usize,
    /// j of a run, and how many of those there are.
    run: usize,
    runs: usize,
}

impl Grid {
    /// Runs of j, of which sums are added, are those of all i, so that a part of these has the same
    /// results.
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

    /// The particles of a job: runs of one chunk follow each other.
    fn job(&self, at: usize) -> (Range<usize>, Range<usize>) {
        let (chunk, run) = (at / self.runs, at % self.runs);
        let of =
            |at: usize, step: usize, all: usize| (at * step).min(all)..((at + 1) * step).min(all);
        let i = of(chunk, self.chunk, self.i.len());
        (self.i.start + i.start..self.i.start + i.end, of(run, self.run, self.nj))
    }
}
