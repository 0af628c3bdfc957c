//! Failures, as C gets them: a code that the call returns, and a message that the thread can
//! request.

use sprat_grape::{DataError, Error, MAX_PARTICLES, VectorError};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use thiserror::Error;

/// Limit on the characters of a name that a message repeats.
const SHOWN: usize = 64;

/// The return code of a call, as defined in the header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i32)]
pub(crate) enum Code {
    Ok = 0,
    Argument = 1,
    Kernel = 2,
    Engine = 3,
    Name = 4,
    Count = 5,
    Type = 6,
    Missing = 7,
    Memory = 8,
    Panic = 9,
    Forked = 10,
}

/// Why a call had no effect.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("{0} is NULL")]
    Null(&'static str),
    #[error("{what} is not UTF-8, from byte {at} on")]
    NotText { what: &'static str, at: usize },
    #[error("{what} is {given}; want {want}")]
    Choice { what: &'static str, given: i64, want: String },
    #[error(
        "a stride of {stride} bytes is less than a number's {size}: give at least as many, or 0 \
         if there are no gaps"
    )]
    Stride { stride: usize, size: usize },
    #[error(transparent)]
    Kernel(#[from] Error),
    #[error("there is no {kind} {}; there are {known:?}", shown(.name))]
    Name { kind: &'static str, name: String, known: Vec<String> },
    #[error(
        "{count} numbers: {MAX_PARTICLES} are the limit, and all of them, gaps too, must fit into \
         memory"
    )]
    TooMany { count: usize },
    #[error("room for {room} results of {name}; the kernel was run for {count} i")]
    Room { name: String, room: usize, count: usize },
    #[error("result {name} is of type {of}, not {asked}: call sprat_grape_get_result_{of}")]
    Type { name: String, of: &'static str, asked: &'static str },
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(
        "{kind} variable {name} was not sent: sprat_grape_send_{kind}_f32 or _f64 before \
         sprat_grape_run"
    )]
    NotSent { kind: &'static str, name: String },
    #[error("there are no results: sprat_grape_run has not been called, or failed")]
    NotRun,
    #[error("no memory for {count} numbers")]
    Memory { count: usize },
    #[error("internal error: {0}")]
    Panic(String),
    #[error("an earlier call ended by an internal error; call sprat_grape_free, then start again")]
    Broken,
    #[error(
        "another thread was in a call with this calculator when its process forked, and is not in \
         this one; make another calculator with sprat_grape_init"
    )]
    Forked,
}

impl Failure {
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Null(_) | Self::NotText { .. } | Self::Choice { .. } | Self::Stride { .. } => {
                Code::Argument
            }
            Self::Data(DataError::Beyond { .. }) => Code::Argument,
            Self::Kernel(Error::Syntax(_)) => Code::Kernel,
            Self::Kernel(Error::Vector(VectorError::TooManyThreads { .. })) => Code::Argument,
            // All other errors of compiling are errors of an engine.
            Self::Kernel(_) => Code::Engine,
            Self::Name { .. } => Code::Name,
            Self::Data(DataError::Missing { .. }) | Self::NotSent { .. } | Self::NotRun => {
                Code::Missing
            }
            Self::Data(_) | Self::TooMany { .. } | Self::Room { .. } => Code::Count,
            Self::Type { .. } => Code::Type,
            Self::Memory { .. } => Code::Memory,
            Self::Panic(_) | Self::Broken => Code::Panic,
            Self::Forked => Code::Forked,
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the work of a call, and returns the call's code. A failure sets the thread's message. A
/// panic is caught here and becomes a failure.
pub(crate) fn answer(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // Data that a panic leaves half changed is behind a lock that the panic has poisoned.
    let done = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Failure::Panic(said(&*panic))));
    let Err(failure) = done else { return Code::Ok as c_int };
    let text = failure.to_string().replace('\0', "\u{fffd}");
    let text = CString::new(text).expect("its zeros were replaced");
    // A thread that is ending no longer has a message.
    let _ = LAST.try_with(|last| last.replace(text));
    failure.code() as c_int
}

/// Returns the message of this thread's last failure, or an empty one if there was none. It is
/// valid until the thread's next failure.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without words").to_owned()
}

/// Formats a name for a message: quoted, and cut after [`SHOWN`] characters.
fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(SHOWN).collect::<String>())
}
