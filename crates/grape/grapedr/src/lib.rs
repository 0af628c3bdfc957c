//! A simulator of the GRAPE-DR: its arithmetic, its blocks of processing elements, an assembler, a
//! compiler for kernels, and dense matrices.
//!
//! To run a kernel, compile a [`sprat_formula::Program`] with [`compile`], or read a listing with
//! [`Kernel::assemble`], and then call [`run`] with a [`Shape`]. [`run`] computes the results and
//! counts the cycles of the machine. [`Timing::seconds`] adds the time of the host's interface.

mod arithmetic;
mod assemble;
mod block;
mod board;
mod compile;
mod declare;
mod instruction;
mod lanes;
mod lu;
mod matrix;
mod ports;
mod print;
mod published;
mod run;
mod timing;
mod trace;
mod word;

pub use assemble::{AssembleError, AssembleProblem, MAX_INSTRUCTIONS, assemble};
pub use block::Block;
pub use board::{Board, MAX_CHIPS, Shape, ShapeError, TreeOperation};
pub use compile::{CompileError, HALF, Kernel, compile};
pub use declare::is_listing;
pub use instruction::{
    BLOCKS, BROADCAST_WORDS, Code, Condition, ELEMENTS, Instruction, LOCAL_WORDS, Listing, MASKS,
    Operation, PASS_CYCLES, Place, REGISTERS, Source, Target, Unit, VECTOR, steps,
};
pub use lu::{Lu, PANEL, lu};
pub use matrix::{DEPTH, MAX_SIDE, MatrixError, Sides, dgemm, gflops};
pub use ports::{MAX_TARGETS, PortError, REGISTER_READS};
pub use published::{PUBLISHED, Published, PublishedComparison, published, rate};
pub use run::{RunResult, SLOTS, TraceRequest, run};
pub use timing::{READ_RATE, Seconds, Timing, WORD_BYTES, WRITE_RATE};
pub use trace::{Entry, MAX_TRACE, Trace};
pub use word::{LONG_BITS, LONG_PRECISION, SHORT_PRECISION, Width, Word};
