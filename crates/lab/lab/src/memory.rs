//! Packet memory: a fixed number of cells, allocated and touched at the start. A packet is a chain
//! of cells.
//!
//! A running box takes cells from a free list and returns them to it. So it allocates nothing, and
//! packets may leave in any order. The owner of a cell's `Box` owns the cell, so this needs no
//! `unsafe` code.

use std::io::{IoSlice, IoSliceMut};

/// Bytes that a cell holds. Together with its link, a cell takes 2 KiB.
pub const CELL_BYTES: usize = 2032;

/// Bytes kept free before a received packet. They are for a VLAN tag, which the kernel delivers
/// separately from the frame.
pub const HEADROOM: u16 = 8;

/// Number of cells into which one packet is read: enough for 64 KB, the largest packet that a port
/// delivers, and its headers.
pub const RECEIVE_CELLS: usize = 33;

/// Number of cells of the longest packet: the cells into which it is read, and those that a split
/// adds.
pub const MAX_CELLS: usize = RECEIVE_CELLS + 3;

/// Limit on the memory of one worker, in bytes. [`Memory::new`] reduces a larger value to it.
pub const MAX_MEMORY: u64 = 16 << 30;

/// The smallest memory of one worker, in bytes: enough for a burst of packets. [`Memory::new`]
/// raises a smaller value to it.
pub const MIN_MEMORY: u64 = 4 << 20;

/// A part of a packet, with a link to the next part.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) next: Option<Box<Cell>>,
    start: u16,
    end: u16,
    bytes: [u8; CELL_BYTES],
}

impl Cell {
    fn new() -> Box<Self> {
        Box::new(Self { next: None, start: 0, end: 0, bytes: [0; CELL_BYTES] })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..usize::from(self.end)]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[usize::from(self.start)..usize::from(self.end)]
    }

    /// Returns the number of free bytes behind the content.
    pub(crate) fn room(&self) -> usize {
        CELL_BYTES - usize::from(self.end)
    }

    /// Appends `bytes`, for which there must be room.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let at = usize::from(self.end);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.end = cell_offset(at + bytes.len());
    }

    /// Keeps only the first `len` bytes.
    pub(crate) fn keep(&mut self, len: usize) {
        self.end = self.start + cell_offset(len.min(self.bytes().len()));
    }

    /// Opens a gap of `gap` bytes at `at`, and lets `fill` write it. `gap` must not exceed the
    /// headroom that is left.
    pub(crate) fn open_gap(&mut self, at: usize, gap: u16, fill: impl FnOnce(&mut [u8])) {
        assert!(gap <= self.start, "the headroom is spent");
        let (old, new) = (usize::from(self.start), usize::from(self.start - gap));
        self.bytes.copy_within(old..old + at, new);
        self.start -= gap;
        fill(&mut self.bytes[new + at..old + at]);
    }
}

fn cell_offset(offset: usize) -> u16 {
    u16::try_from(offset).expect("a cell is smaller than 64 KB")
}

/// The free cells of one worker.
#[derive(Debug)]
pub struct Memory {
    #[expect(
        clippy::vec_box,
        reason = "cells go from here into chains, box and all, and come back"
    )]
    free: Vec<Box<Cell>>,
    total: usize,
    least_free: usize,
}

impl Memory {
    /// Makes memory of about `bytes`, at least [`MIN_MEMORY`] and at most [`MAX_MEMORY`]. Touches
    /// the memory once, so that no packet waits for a page fault.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let bytes = bytes.clamp(MIN_MEMORY, MAX_MEMORY);
        Self::of_cells(usize::try_from(bytes / size_of::<Cell>() as u64).unwrap_or(usize::MAX))
    }

    /// Makes memory of exactly this many cells.
    #[must_use]
    pub fn of_cells(cells: usize) -> Self {
        // Making a cell writes it, and so touches its page.
        let free: Vec<_> = std::iter::repeat_with(Cell::new).take(cells).collect();
        Self { free, total: cells, least_free: cells }
    }

    /// Returns the number of cells, used or free.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the size of all cells in bytes, including their links.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.total * size_of::<Cell>()) as u64
    }

    /// Returns the number of free cells.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the smallest number of cells that were ever free; zero if a packet was lost because
    /// too few cells were free.
    #[must_use]
    pub fn least_free(&self) -> usize {
        self.least_free
    }

    pub(crate) fn take(&mut self) -> Option<Box<Cell>> {
        let cell = self.free.pop();
        self.least_free = self.least_free.min(self.free.len());
        cell
    }

    /// Returns a cell, and all cells that are linked to it, to the free list.
    pub(crate) fn release(&mut self, cell: Box<Cell>) {
        let mut next = Some(cell);
        while let Some(mut cell) = next {
            next = cell.next.take();
            (cell.start, cell.end) = (0, 0);
            self.free.push(cell);
        }
    }
}

/// The cells into which the next packet is read.
#[derive(Debug)]
pub struct ReceiveBuffer {
    cells: [Box<Cell>; RECEIVE_CELLS],
}

/// The result of [`ReceiveBuffer::read`].
#[derive(Debug)]
pub(crate) enum ReadOutcome {
    /// A packet, with its length in bytes.
    Packet(Box<Cell>, usize),
    /// A packet was read and lost: there were too few free cells to replace the cells that it
    /// filled.
    Exhausted,
}

impl ReceiveBuffer {
    /// Makes a buffer with cells of its own.
    #[must_use]
    pub fn new() -> Self {
        Self { cells: std::array::from_fn(|_| Cell::new()) }
    }

    /// Lets `read` fill the cells in order, and turns the filled cells into a chain. Cells of
    /// `memory` replace them.
    pub(crate) fn read<E>(
        &mut self,
        memory: &mut Memory,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<ReadOutcome, E> {
        let mut first = usize::from(HEADROOM);
        let mut parts = self
            .cells
            .each_mut()
            .map(|cell| IoSliceMut::new(&mut cell.bytes[std::mem::take(&mut first)..]));
        let room = parts.iter().map(|part| part.len()).sum();
        let len = read(&mut parts)?.min(room);
        let used = (len + usize::from(HEADROOM)).div_ceil(CELL_BYTES).max(1);
        if memory.free.len() < used {
            memory.least_free = 0;
            return Ok(ReadOutcome::Exhausted);
        }
        let mut chain = None;
        for at in (0..used).rev() {
            let fresh = memory.take().expect("counted above");
            let mut cell = std::mem::replace(&mut self.cells[at], fresh);
            cell.start = if at == 0 { HEADROOM } else { 0 };
            cell.end = cell_offset((len + usize::from(HEADROOM) - at * CELL_BYTES).min(CELL_BYTES));
            cell.next = chain;
            chain = Some(cell);
        }
        Ok(ReadOutcome::Packet(chain.expect("at least one"), len))
    }
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the bytes of each cell of a chain, in order.
pub(crate) fn parts(head: &Cell) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(head), |cell| cell.next.as_deref()).map(Cell::bytes)
}

/// Passes the bytes of a chain, except the first `skip`, to `write`. The skipped bytes must be in
/// the first cell.
pub(crate) fn gather<R>(head: &Cell, skip: usize, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
    let mut slices = [IoSlice::new(&[]); MAX_CELLS];
    let (mut count, mut skip) = (0, skip);
    for part in parts(head) {
        slices[count] = IoSlice::new(&part[std::mem::take(&mut skip)..]);
        count += 1;
    }
    write(&slices[..count])
}
