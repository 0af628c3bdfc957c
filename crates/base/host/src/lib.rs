//! Small services of the operating system that all crates use.
//!
//! - [`replace`] replaces a file atomically, and [`read_text`] reads a small one.
//! - [`memory`] reads a line of `/proc/meminfo`.
//! - [`lock`] takes a mutex even if it is poisoned.
//! - [`random`] draws an unpredictable number.
//! - [`name`] returns the machine's name.
//! - [`wait_until`] and [`retry`] poll for conditions that send no notification.

mod file;
mod wait;

pub use file::{read_text, replace};
pub use wait::{retry, wait_until};

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns the value of a line of `/proc/meminfo`, such as `MemAvailable`. The value is in bytes if
/// the kernel states it in kB, and otherwise the bare number. `None` if the file cannot be read,
/// there is no such line, or its value is not a number that fits a `u64`.
#[must_use]
pub fn memory(name: &str) -> Option<u64> {
    memory_in(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

fn memory_in(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut words = line.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        Some("kB") => number.checked_mul(1024),
        _ => Some(number),
    }
}

/// Returns the name of this machine; empty if the kernel does not show it.
#[must_use]
pub fn name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Locks the mutex even if a thread has panicked while it held it. Only for data that is consistent
/// after every statement under the lock. The first panic is reported where it happened; a second
/// panic here would hide the first.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an unpredictable number from the kernel's generator (getrandom(2)). Never blocks once
/// the machine has started.
///
/// # Panics
/// If the call fails, as on kernels before Linux 3.17, which lack it.
#[must_use]
pub fn random() -> u64 {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("getrandom: {error}"),
        }
    }
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_meminfo_are_read_with_their_units() {
        let text = "MemTotal:       24552856 kB\nMemAvailable:    1024 kB\n\
                    HugePages_Free:       12\nBad: x kB\n";
        assert_eq!(memory_in(text, "MemAvailable"), Some(1 << 20));
        assert_eq!(memory_in(text, "HugePages_Free"), Some(12));
        assert_eq!(memory_in(text, "Mem"), None);
        assert_eq!(memory_in(text, "Bad"), None);
        assert_eq!(memory_in("MemTotal: 18446744073709551615 kB", "MemTotal"), None);
    }
}
