//! The compiler from kernels to the machine's programs.

mod functions;
mod lower;
mod micro;
mod places;
mod schedule;

use crate::instruction::{BROADCAST_WORDS, LOCAL_WORDS, Listing, Place, VECTOR, steps};
pub(crate) use lower::Places;
use lower::{Lowering, computed};
use sprat_formula::{Node, Program, Reduction};
use thiserror::Error;

/// Number of words of broadcast memory that the loop reads. The host fills the other half in the
/// meantime.
pub const HALF: usize = BROADCAST_WORDS / 2;

/// A kernel that is compiled for the machine, or assembled from a listing.
///
/// [`compile`] makes a kernel from a program, and `Kernel::assemble` makes one from text.
/// [`crate::run`] executes it on a simulated machine. Its `Display` prints the text that
/// `Kernel::assemble` reads.
#[derive(Debug)]
pub struct Kernel {
    program: Program,
    places: Places,
    listing: Listing,
}

/// Why a kernel does not fit into the machine.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum CompileError {
    /// The kernel needs too much local memory.
    #[error(
        "local memory ran out: variables of i, constants, results and values of a kernel have \
         {LOCAL_WORDS} words, \
         {VECTOR} for each but constants; compute less in one kernel"
    )]
    Local,
    /// The kernel has too many j variables: its j have this many words.
    #[error(
        "broadcast memory ran out: a j has {0} words, and {HALF} is the most; give the kernel \
         fewer j variables"
    )]
    Broadcast(usize),
}

/// Compiles a kernel. `f32` numbers become short words, and `f64` numbers become long words. Sums
/// are accumulated in long words.
///
/// # Errors
/// [`CompileError`] says which memory is too small.
pub fn compile(program: &Program) -> Result<Kernel, CompileError> {
    let (places, room) = place(program)?;
    let init = schedule::schedule(&Lowering::new(program, &places).init(), &room)?;
    let body = schedule::schedule(&Lowering::new(program, &places).body(), &room)?;
    let words = places.j.iter().flatten().count() + usize::from(places.index.is_some());
    let stride = u16::try_from(words).expect("checked when places were found");
    Ok(Kernel { program: program.clone(), places, listing: Listing { stride, init, body } })
}

impl Kernel {
    pub(crate) fn of_parts(program: Program, places: Places, listing: Listing) -> Self {
        Self { program, places, listing }
    }

    /// Returns the program that was compiled. For an assembled listing, this program has the
    /// declared variables, constants and results, but computes nothing.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the instructions that the machine executes.
    #[must_use]
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// Returns the number of steps for each j. A step takes one cycle for each element of the
    /// vector.
    #[must_use]
    pub fn steps(&self) -> u64 {
        steps(&self.listing.body)
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }
}

/// Assigns addresses to a program's inputs, precomputed values and results. Also returns the
/// vectors of local memory that are left for other values.
fn place(program: &Program) -> Result<(Places, Vec<u16>), CompileError> {
    let mut next = 0;
    let mut take = |words: usize| {
        let at = next;
        next += words;
        if next > LOCAL_WORDS {
            Err(CompileError::Local)
        } else {
            Ok(u16::try_from(at).expect("below LOCAL_WORDS"))
        }
    };
    let used = |node: Node| program.nodes().iter().any(|&(other, _)| other == node);
    let numbers =
        |count: usize| (0..count).map(|at| u8::try_from(at).expect("bounded by MAX_FIELDS"));
    let mut places = Places::default();
    for at in numbers(program.i().len()) {
        let place = if used(Node::I(at)) { Some(Place::four(take(VECTOR)?)) } else { None };
        places.i.push(place);
    }
    for result in program.results() {
        let best = Place::four(take(VECTOR)?);
        let arg = matches!(result.reduction, Reduction::ArgMin | Reduction::ArgMax);
        places.results.push((best, if arg { Some(Place::four(take(VECTOR)?)) } else { None }));
    }
    for ((node, _), keep) in program.nodes().iter().zip(Lowering::to_precompute(program)) {
        debug_assert!(!keep || computed(*node), "what is given has a place");
        places.precomputed.push(if keep { Some(Place::four(take(VECTOR)?)) } else { None });
    }
    for at in numbers(program.constants().len()) {
        let place = if used(Node::Constant(at)) { Some(Place::one(take(1)?)) } else { None };
        places.constants.push(place);
    }
    let mut words = 0..;
    let mut word = || Place::one(words.next().expect("without end"));
    places.j = numbers(program.j().len()).map(|at| used(Node::J(at)).then(&mut word)).collect();
    places.index = places.results.iter().any(|(_, index)| index.is_some()).then(word);
    let count = usize::from(words.start);
    if count > HALF {
        return Err(CompileError::Broadcast(count));
    }
    let vectors = next.div_ceil(VECTOR)..LOCAL_WORDS / VECTOR;
    let room = vectors.map(|at| u16::try_from(at * VECTOR).expect("below LOCAL_WORDS")).collect();
    Ok((places, room))
}
