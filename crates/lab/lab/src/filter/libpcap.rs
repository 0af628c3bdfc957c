//! libpcap's compiler, loaded when it is first needed. The only file of this crate that loads a C
//! library.
#![allow(unsafe_code)] // ARCHITECTURE.md says why

use super::{Instruction, Program, Unverified};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

/// Limit on the length of an expression, in bytes. A longer expression is rejected.
pub const MAX_EXPRESSION: usize = 4_096;

/// File names of the library. Debian installs the first one with the package libpcap0.8.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];

/// libpcap's number for Ethernet.
const DLT_EN10MB: c_int = 1;

/// The value that a program returns on a match. It is larger than the length of any packet.
const SNAP_LENGTH: c_int = 262_144;

/// States that no netmask is known. `ip broadcast` is then an error instead of a wrong match.
const NETMASK_UNKNOWN: c_uint = u32::MAX;

/// Why an expression could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// libpcap cannot be loaded, or lacks a function.
    #[error(
        "filters are compiled by libpcap, which cannot be loaded ({0}): install it (Debian: \
         apt-get install libpcap0.8; scripts/setup does)"
    )]
    Missing(libloading::Error),
    /// libpcap is out of memory.
    #[error("libpcap has no memory for a compiler")]
    Exhausted,
    /// The expression is too long or contains a zero byte.
    #[error(
        "a filter of {0} bytes, or with a zero byte in it; {MAX_EXPRESSION} bytes are the limit"
    )]
    Length(usize),
    /// libpcap does not understand the expression.
    #[error("filter {expression:?}: {why} (man 7 pcap-filter has the language)")]
    Expression {
        /// The expression.
        expression: String,
        /// libpcap's message.
        why: String,
    },
    /// libpcap's program does not pass verification.
    #[error("filter {expression:?}: libpcap's program is refused: {error}")]
    Unverified {
        /// The expression.
        expression: String,
        /// The reason.
        error: Unverified,
    },
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawInstruction {
    code: u16,
    on_true: u8,
    on_false: u8,
    k: u32,
}

/// `struct bpf_program`.
#[repr(C)]
struct RawProgram {
    length: c_uint,
    instructions: *mut RawInstruction,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile =
    unsafe extern "C" fn(*mut c_void, *mut RawProgram, *const c_char, c_int, c_uint) -> c_int;
type GetError = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type FreeCode = unsafe extern "C" fn(*mut RawProgram);
type Close = unsafe extern "C" fn(*mut c_void);
type Run = unsafe extern "C" fn(*const RawInstruction, *const u8, c_uint, c_uint) -> c_uint;

/// libpcap's compiler for expressions about Ethernet frames.
#[derive(Debug)]
pub struct Compiler {
    open_dead: OpenDead,
    compile: Compile,
    get_error: GetError,
    free_code: FreeCode,
    close: Close,
    run: Run,
    /// Keeps the library loaded.
    _library: Library,
}

impl Compiler {
    /// Loads libpcap.
    ///
    /// # Errors
    /// libpcap is not installed or lacks a function.
    pub fn load() -> Result<Self, CompileError> {
        // SAFETY: libpcap has no initialisers that depend on this process.
        let [first, second] = NAMES.map(|name| unsafe { Library::new(name) });
        let library =
            first.or_else(|error| second.map_err(|_| error)).map_err(CompileError::Missing)?;
        fn function<T: Copy>(library: &Library, name: &str) -> Result<T, CompileError> {
            // SAFETY: `T` is, in each call below, the type that pcap.h declares for the name.
            let symbol = unsafe { library.get::<T>(name) };
            symbol.map(|symbol| *symbol).map_err(CompileError::Missing)
        }
        Ok(Self {
            open_dead: function(&library, "pcap_open_dead")?,
            compile: function(&library, "pcap_compile")?,
            get_error: function(&library, "pcap_geterr")?,
            free_code: function(&library, "pcap_freecode")?,
            close: function(&library, "pcap_close")?,
            run: function(&library, "bpf_filter")?,
            _library: library,
        })
    }

    /// Compiles an expression. Looks up the host names in it, which may take long.
    ///
    /// # Errors
    /// The expression is invalid, is too long or contains a zero byte, libpcap is out of memory, or
    /// the program does not pass verification.
    pub fn compile(&self, expression: &str) -> Result<Program, CompileError> {
        let length = CompileError::Length(expression.len());
        let Some(text) =
            CString::new(expression).ok().filter(|text| text.count_bytes() <= MAX_EXPRESSION)
        else {
            return Err(length);
        };
        // SAFETY: the function takes two numbers.
        let handle = NonNull::new(unsafe { (self.open_dead)(DLT_EN10MB, SNAP_LENGTH) });
        let handle = handle.ok_or(CompileError::Exhausted)?.as_ptr();
        let mut raw = RawProgram { length: 0, instructions: std::ptr::null_mut() };
        // SAFETY: the handle is open, the text ends with a zero, and `raw` is valid for writing.
        let compiled =
            unsafe { (self.compile)(handle, &raw mut raw, text.as_ptr(), 1, NETMASK_UNKNOWN) };
        let result = if compiled == 0 {
            let verified = Program::verify(&instructions(&raw));
            // SAFETY: `compile` filled `raw` in, and `raw` is not used after this.
            unsafe { (self.free_code)(&raw mut raw) };
            verified.map_err(|error| CompileError::Unverified {
                expression: expression.to_owned(),
                error,
            })
        } else {
            // SAFETY: the handle is open.
            let why = unsafe { (self.get_error)(handle) };
            // SAFETY: `why` points to text in the handle that ends with a zero. The text is copied
            // before the handle is closed.
            let why = unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned();
            Err(CompileError::Expression { expression: expression.to_owned(), why })
        };
        // SAFETY: the handle is open, and it is not used after this.
        unsafe { (self.close)(handle) };
        result
    }

    /// Runs libpcap's own interpreter on a packet, for tests that compare it with [`Program::run`].
    #[must_use]
    pub fn reference(&self, program: &Program, bytes: &[u8], length: u32) -> u32 {
        let raw = |instruction: &Instruction| {
            let Instruction { code, on_true, on_false, k } = *instruction;
            RawInstruction { code, on_true, on_false, k }
        };
        let raw: Vec<_> = program.instructions().iter().map(raw).collect();
        let count = c_uint::try_from(bytes.len()).unwrap_or(c_uint::MAX);
        // SAFETY: the program was verified: it ends, and reads only its own memory and the `count`
        // bytes of the packet.
        unsafe { (self.run)(raw.as_ptr(), bytes.as_ptr(), length, count) }
    }
}

fn instructions(raw: &RawProgram) -> Vec<Instruction> {
    let length = usize::try_from(raw.length).expect("32 bits fit");
    if length == 0 || raw.instructions.is_null() {
        return Vec::new();
    }
    // SAFETY: libpcap guarantees that there are `length` instructions, which stay until they are
    // freed.
    let raw = unsafe { std::slice::from_raw_parts(raw.instructions, length) };
    raw.iter()
        .map(|&RawInstruction { code, on_true, on_false, k }| Instruction {
            code,
            on_true,
            on_false,
            k,
        })
        .collect()
}
