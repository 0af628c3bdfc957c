//! The functions of the header. Each unsafe block relies on what the header requires of a caller.
//! An address is NULL, or points to what the header states, for the time of the call. A
//! calculator's address is valid until the calculator is freed.

#![allow(unsafe_code)]

use crate::calculator::{Calculator, Element, Kind, Numbers};
use crate::failure::{Failure, answer, last};
use sprat_grape::{MAX_PARTICLES, READY};
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, TryLockError};

/// The header's `sprat_grape`. The lock is for threads that share a calculator, and it remembers
/// panics.
pub(crate) struct Grape {
    calculator: Mutex<Calculator>,
    /// The process that made the calculator, or the last process that took the lock after it. A
    /// child of `fork` has another id; threads of the parent that hold the lock do not exist in the
    /// child.
    process: AtomicU32,
}

/// Limit on the attempts to take a lock that may be held by a thread that does not exist after a
/// `fork`. A thread that exists sets `process` right after it takes the lock.
const ATTEMPTS: usize = 1000;

impl Grape {
    fn new(calculator: Calculator) -> Self {
        Self { calculator: Mutex::new(calculator), process: AtomicU32::new(std::process::id()) }
    }

    fn lock(&self) -> Result<MutexGuard<'_, Calculator>, Failure> {
        for _ in 0..ATTEMPTS {
            if self.process.load(Ordering::Relaxed) == std::process::id() {
                return self.calculator.lock().map_err(|_| Failure::Broken);
            }
            match self.calculator.try_lock() {
                Ok(locked) => {
                    self.process.store(std::process::id(), Ordering::Relaxed);
                    return Ok(locked);
                }
                Err(TryLockError::Poisoned(_)) => return Err(Failure::Broken),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        Err(Failure::Forked)
    }
}

/// Checks at compile time that any thread may call with any calculator.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Grape>();
};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sprat_grape_init(
    text: *const c_char,
    precision: c_int,
    engine: c_int,
    threads: c_uint,
    grape: *mut *mut Grape,
) -> c_int {
    answer(|| {
        if grape.is_null() {
            return Err(Failure::Null("grape"));
        }
        // SAFETY: `grape` points to room for an address.
        unsafe { grape.write(ptr::null_mut()) };
        // SAFETY: `text` is NULL, or a string.
        let text = unsafe { string("text", text) }?;
        let made = Calculator::new(text, precision, engine, threads)?;
        // SAFETY: `grape` points to room for an address.
        unsafe { grape.write(Box::into_raw(Box::new(Grape::new(made)))) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sprat_grape_free(grape: *mut Grape) {
    answer(|| {
        if !grape.is_null() {
            // SAFETY: `grape` is from `sprat_grape_init`, and no call uses it any more.
            drop(unsafe { Box::from_raw(grape) });
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn sprat_grape_error() -> *const c_char {
    last()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sprat_grape_ready(name: *const c_char) -> *const c_char {
    static TEXTS: LazyLock<Vec<CString>> = LazyLock::new(|| {
        READY
            .iter()
            .map(|ready| CString::new(ready.text).expect("kernels are text, without zeros"))
            .collect()
    });
    let mut text = ptr::null();
    answer(|| {
        // SAFETY: `name` is NULL, or a string.
        let name = unsafe { string("name", name) }?;
        let found = READY.iter().position(|ready| ready.name == name);
        let known = || READY.iter().map(|ready| ready.name.to_owned()).collect();
        let unknown = || Failure::Name { kind: "kernel", name: name.to_owned(), known: known() };
        text = TEXTS[found.ok_or_else(unknown)?].as_ptr();
        Ok(())
    });
    text
}

/// Defines a function of the header that sends numbers of one type.
macro_rules! sends {
    ($name:ident, $kind:expr, $of:ty) => {
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            grape: *mut Grape,
            name: *const c_char,
            numbers: *const $of,
            count: usize,
            stride: usize,
        ) -> c_int {
            // SAFETY: the caller keeps the header's requirements.
            unsafe { send(grape, $kind, name, numbers, count, stride) }
        }
    };
}

sends!(sprat_grape_send_i_f32, Kind::I, f32);
sends!(sprat_grape_send_i_f64, Kind::I, f64);
sends!(sprat_grape_send_j_f32, Kind::J, f32);
sends!(sprat_grape_send_j_f64, Kind::J, f64);

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sprat_grape_set(
    grape: *mut Grape,
    name: *const c_char,
    value: f64,
) -> c_int {
    answer(|| {
        // SAFETY: `name` is NULL, or a string.
        let name = unsafe { string("name", name) }?;
        // SAFETY: `grape` is NULL, or a calculator.
        unsafe { with(grape, |calculator| calculator.set(name, value)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sprat_grape_run(grape: *mut Grape) -> c_int {
    // SAFETY: `grape` is NULL, or a calculator.
    answer(|| unsafe { with(grape, Calculator::run) })
}

/// Defines a function of the header that gets results of one type.
macro_rules! gets {
    ($name:ident, $of:ty) => {
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            grape: *mut Grape,
            name: *const c_char,
            results: *mut $of,
            count: usize,
            stride: usize,
        ) -> c_int {
            // SAFETY: the caller keeps the header's requirements.
            unsafe { get_result(grape, name, results, count, stride) }
        }
    };
}

gets!(sprat_grape_get_result_f32, f32);
gets!(sprat_grape_get_result_f64, f64);
gets!(sprat_grape_get_result_bool, bool);
gets!(sprat_grape_get_result_index, i64);

/// # Safety
/// The arguments are as the header requires for `sprat_grape_send_i_f32` and similar functions.
unsafe fn send<T: Copy>(
    grape: *mut Grape,
    kind: Kind,
    name: *const c_char,
    numbers: *const T,
    count: usize,
    stride: usize,
) -> c_int
where
    Numbers: From<Vec<T>>,
{
    answer(|| {
        // SAFETY: NULL, or a string.
        let name = unsafe { string("name", name) }?;
        let step = step::<T>(count, stride)?;
        if numbers.is_null() && count > 0 {
            return Err(Failure::Null("numbers"));
        }
        let mut copied = Vec::new();
        copied.try_reserve_exact(count).map_err(|_| Failure::Memory { count })?;
        // SAFETY: the caller's array has `count` numbers, each `step` bytes after the previous one;
        // they need not be aligned.
        copied.extend(
            (0..count).map(|at| unsafe { numbers.wrapping_byte_add(at * step).read_unaligned() }),
        );
        // SAFETY: NULL, or a calculator.
        unsafe { with(grape, |calculator| calculator.send(kind, name, copied.into())) }
    })
}

/// # Safety
/// The arguments are as the header requires for `sprat_grape_get_result_f32` and similar functions.
unsafe fn get_result<T: Element>(
    grape: *mut Grape,
    name: *const c_char,
    results: *mut T,
    count: usize,
    stride: usize,
) -> c_int {
    answer(|| {
        // SAFETY: NULL, or a string.
        let name = unsafe { string("name", name) }?;
        let step = step::<T>(count, stride)?;
        if results.is_null() && count > 0 {
            return Err(Failure::Null("results"));
        }
        let copy = |calculator: &mut Calculator| {
            for (at, &result) in calculator.result::<T>(name, count)?.iter().enumerate() {
                // SAFETY: the caller's array has room for `count` results, each `step` bytes after
                // the previous one; they need not be aligned.
                unsafe { results.wrapping_byte_add(at * step).write_unaligned(result) };
            }
            Ok(())
        };
        // SAFETY: NULL, or a calculator.
        unsafe { with(grape, copy) }
    })
}

/// Returns the bytes from one of `count` numbers to the next. Fails if the stride is too short, or
/// the array is too large.
fn step<T>(count: usize, stride: usize) -> Result<usize, Failure> {
    let size = size_of::<T>();
    if stride > 0 && stride < size {
        return Err(Failure::Stride { stride, size });
    }
    let step = if stride == 0 { size } else { stride };
    let fits = count.checked_mul(step).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if count > MAX_PARTICLES || !fits { Err(Failure::TooMany { count }) } else { Ok(step) }
}

/// Runs `work` with exclusive access to a calculator.
///
/// # Safety
/// `grape` is NULL, or a calculator that is not freed before this function returns.
unsafe fn with(
    grape: *const Grape,
    work: impl FnOnce(&mut Calculator) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: `grape` is NULL, or from `sprat_grape_init`.
    let grape = unsafe { grape.as_ref() }.ok_or(Failure::Null("grape"))?;
    work(&mut *grape.lock()?)
}

/// # Safety
/// `string` is NULL, or a string that ends with a zero byte and lives for at least `'a`.
unsafe fn string<'a>(what: &'static str, string: *const c_char) -> Result<&'a str, Failure> {
    if string.is_null() {
        return Err(Failure::Null(what));
    }
    // SAFETY: `string` is a string, as the caller promises.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().map_err(|error| Failure::NotText { what, at: error.valid_up_to() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    fn said() -> String {
        // SAFETY: a string, until the next failure.
        unsafe { CStr::from_ptr(last()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_code_and_breaks_its_calculator_alone() {
        let made =
            || Calculator::new(sprat_grape::ready("nearest").unwrap().text, 1, 5, 1).unwrap();
        let (broken, whole) = (Grape::new(made()), Grape::new(made()));
        // SAFETY: it lives as long as this test.
        let panics = || unsafe { with(&raw const broken, |_| panic!("a test's {}", "panic")) };
        assert_eq!(answer(panics), Code::Panic as c_int);
        assert!(said().ends_with("internal error: a test's panic"), "{}", said());
        // SAFETY: they live as long as this test.
        let run = |grape: &Grape| answer(|| unsafe { with(grape, Calculator::run) });
        assert_eq!(run(&broken), Code::Panic as c_int);
        assert!(said().contains("start again"), "{}", said());
        assert_eq!(run(&whole), Code::Missing as c_int);
        assert!(said().contains("xi was not sent"), "{}", said());
    }
}
