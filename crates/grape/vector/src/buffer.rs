//! Memory for vectors, aligned to cache lines.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// A cache line.
#[derive(Clone, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory that is aligned to a cache line.
#[derive(Default)]
pub(crate) struct Buffer {
    lines: Vec<Line>,
}

impl Buffer {
    /// Allocates at least `bytes` bytes, all zero.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { lines: vec![Line::new_zeroed(); bytes.div_ceil(size_of::<Line>())] }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.lines.as_slice().as_bytes()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.lines.as_mut_slice().as_mut_bytes()
    }
}

/// Stores a number in the byte order of this machine.
pub(crate) fn put_f32(bytes: &mut [u8], at: usize, number: f32) {
    bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
}

pub(crate) fn put_f64(bytes: &mut [u8], at: usize, number: f64) {
    bytes[at..at + 8].copy_from_slice(&number.to_ne_bytes());
}

pub(crate) fn get_f32(bytes: &[u8], at: usize) -> f32 {
    f32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn get_f64(bytes: &[u8], at: usize) -> f64 {
    f64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
