//! Long messages being received.

use std::collections::HashMap;
use std::time::Duration;

use sprat_net::Nanos;
use sprat_wire::MAX_MESSAGE;

use crate::config::{
    GRANT_WINDOW, MAX_ASSEMBLIES, MAX_RESEND_RANGES, MAX_RTO, STALLED_TRIES, UNSCHEDULED_BYTES,
};
use crate::grants::{self, Candidate};
use crate::message::Owner;
use crate::slab::Slab;
use crate::timer::Timers;

/// The largest number of buffers kept for later messages; others are freed.
const SPARE_BUFFERS: usize = 8;

/// The largest buffer kept, in bytes: servers send each other pieces of 2 MB with an operation's
/// header.
const SPARE_BYTES: usize = (2 << 20) + 1024;

/// A receiver sends a grant when it adds at least this many bytes, or all that are missing.
const GRANT_STEP: usize = GRANT_WINDOW / 4;

/// Returns whether a packet with `payload` bytes at `offset` can be part of a message of `total`
/// bytes cut into fragments of `fragment` bytes.
pub(crate) fn plausible(offset: usize, total: usize, payload: usize, fragment: usize) -> bool {
    if total <= fragment {
        return offset == 0 && payload == total;
    }
    total <= MAX_MESSAGE
        && offset < total
        && offset.is_multiple_of(fragment)
        && payload == fragment.min(total - offset)
}

#[derive(Debug)]
struct Assembly {
    owner: Owner,
    total: usize,
    fragment: usize,
    /// Bytes that have arrived.
    received: usize,
    /// Offset up to which the receiver has permitted the sender to send.
    granted: usize,
    /// A bit for each fragment that has arrived.
    seen: Vec<u64>,
    /// The message's bytes up to the last that arrived; gaps hold zeros.
    bytes: Vec<u8>,
    /// When a fragment last arrived, or the sender last reported that it is sending.
    progress_at: Nanos,
    /// How long to wait before the first request for missing ranges.
    patience: Duration,
    /// Number of requests for missing ranges since a fragment last arrived, or the sender last
    /// reported that it is sending.
    tries: u32,
    order: u64,
}

impl Assembly {
    /// Replaces the contents of `out` by the ranges that were granted and have not arrived, at most
    /// [`MAX_RESEND_RANGES`]. Each range is an offset and a length.
    fn missing(&self, out: &mut Vec<(usize, usize)>) {
        out.clear();
        for number in 0..self.granted.div_ceil(self.fragment) {
            if self.seen[number / 64] >> (number % 64) & 1 == 1 {
                continue;
            }
            let start = number * self.fragment;
            let end = (start + self.fragment).min(self.total);
            if let Some((first, len)) = out.last_mut()
                && *first + *len == start
            {
                *len = end - *first;
            } else if out.len() < MAX_RESEND_RANGES {
                out.push((start, end - start));
            } else {
                return;
            }
        }
    }

    fn wait(&self) -> Duration {
        (self.patience * (1 << self.tries.min(10))).min(MAX_RTO)
    }
}

/// The effect of a fragment.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Arrival {
    /// None: the fragment arrived before, or belongs to another message.
    Duplicate,
    /// Part of the message has arrived.
    Partial,
    /// The message is complete.
    Whole,
}

/// A message whose next bytes are late.
pub(crate) struct Overdue<'a> {
    /// The message's number.
    pub(crate) message: u32,
    pub(crate) owner: Owner,
    /// Requests for missing ranges since a fragment last arrived or the sender last reported that
    /// it is sending, including this request.
    pub(crate) tries: u32,
    /// The missing ranges, offset and length.
    pub(crate) missing: &'a [(usize, usize)],
}

/// The long messages that one role of an endpoint is receiving.
#[derive(Debug)]
pub(crate) struct Incoming {
    assemblies: Slab<Assembly>,
    timers: Timers,
    /// Bytes reserved: the sum of the lengths of all messages in reassembly.
    reserved: usize,
    limit: usize,
    begun: u64,
    /// Whether a grant may have to be sent.
    changed: bool,
    spare: Vec<Vec<u8>>,
    missing: Vec<(usize, usize)>,
}

impl Incoming {
    /// Makes room for messages of up to `limit` bytes in all.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            assemblies: Slab::new(MAX_ASSEMBLIES),
            timers: Timers::default(),
            reserved: 0,
            limit,
            begun: 0,
            changed: false,
            spare: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Begins a message of more than one packet; `None` if there is no memory for it or too many
    /// messages are in reassembly.
    pub(crate) fn begin(
        &mut self,
        now: Nanos,
        owner: Owner,
        total: usize,
        fragment: usize,
        patience: Duration,
    ) -> Option<u32> {
        debug_assert!(total > fragment && total <= MAX_MESSAGE);
        if self.reserved + total > self.limit {
            return None;
        }
        let bytes = self.take_buffer();
        let index = self.assemblies.insert(Assembly {
            owner,
            total,
            fragment,
            received: 0,
            granted: total.min(UNSCHEDULED_BYTES),
            seen: vec![0; total.div_ceil(fragment).div_ceil(64)],
            bytes,
            progress_at: now,
            patience,
            tries: 0,
            order: self.begun,
        })?;
        self.begun += 1;
        self.reserved += total;
        self.changed = true;
        self.timers.set(index, now + patience);
        Some(index)
    }

    /// Chooses the message that loses its memory to a message of `total` bytes of `session`, when
    /// no memory is left. The candidates are the messages whose senders are silent; if there are
    /// none, the messages of the session that uses the most memory, if it uses more than `session`
    /// would then use. Of the candidates, the message that made no progress for longest is
    /// returned. So all sessions get equal parts of the memory, whatever the order of their
    /// messages.
    pub(crate) fn choose_victim(&self, session: u32, total: usize) -> Option<(u32, Owner)> {
        let oldest = |of: &dyn Fn(&Assembly) -> bool| {
            let candidates = self.assemblies.iter().filter(|(_, assembly)| of(assembly));
            let oldest =
                candidates.min_by_key(|(_, assembly)| (assembly.progress_at, assembly.order))?;
            Some((oldest.0, oldest.1.owner))
        };
        oldest(&|assembly| assembly.tries >= STALLED_TRIES).or_else(|| {
            let mut sums: HashMap<u32, usize> = HashMap::new();
            for (_, assembly) in self.assemblies.iter() {
                *sums.entry(assembly.owner.session).or_default() += assembly.total;
            }
            let own = sums.get(&session).copied().unwrap_or(0) + total;
            let (&largest, _) = sums
                .iter()
                .filter(|&(_, &sum)| sum > own)
                .max_by_key(|&(&other, &sum)| (sum, other))?;
            oldest(&|assembly| assembly.owner.session == largest)
        })
    }

    /// Adds a fragment, which must be [`plausible`]. Returns its effect.
    pub(crate) fn add(
        &mut self,
        now: Nanos,
        index: u32,
        offset: usize,
        total: usize,
        payload: &[u8],
    ) -> Arrival {
        let Some(assembly) = self.assemblies.get_mut(index) else { return Arrival::Duplicate };
        let number = offset / assembly.fragment;
        let bit = 1u64 << (number % 64);
        if assembly.total != total || assembly.seen[number / 64] & bit != 0 {
            return Arrival::Duplicate;
        }
        assembly.seen[number / 64] |= bit;
        let bytes = &mut assembly.bytes;
        let end = offset + payload.len();
        if bytes.len() <= offset {
            if bytes.is_empty() {
                bytes.reserve_exact(total);
            }
            bytes.resize(offset, 0);
            bytes.extend_from_slice(payload);
        } else {
            bytes[offset..end].copy_from_slice(payload);
        }
        assembly.received += payload.len();
        assembly.progress_at = now;
        assembly.tries = 0;
        self.changed |= assembly.granted < total;
        if assembly.received == total { Arrival::Whole } else { Arrival::Partial }
    }

    /// Notes that the sender of a message has shown that it is still sending.
    pub(crate) fn note_heard(&mut self, now: Nanos, index: u32) {
        if let Some(assembly) = self.assemblies.get_mut(index) {
            assembly.progress_at = now;
            assembly.tries = 0;
        }
    }

    /// Removes a message and returns its bytes, which the caller may give back.
    pub(crate) fn take(&mut self, index: u32) -> Vec<u8> {
        let Some(assembly) = self.assemblies.remove(index) else { return Vec::new() };
        self.reserved -= assembly.total;
        self.changed = true;
        self.timers.remove(index);
        assembly.bytes
    }

    /// Returns an empty buffer: one that was given back, with its memory, or a new one.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps a buffer for later messages to use, or frees it if [`SPARE_BUFFERS`] are kept or it is
    /// larger than [`SPARE_BYTES`].
    pub(crate) fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS && (1..=SPARE_BYTES).contains(&buffer.capacity()) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Removes a message, and [gives back](Self::give_back) its buffer.
    pub(crate) fn drop(&mut self, index: u32) {
        let buffer = self.take(index);
        self.give_back(buffer);
    }

    /// Calls `send(owner, granted_end, total)` for each message whose sender may send more.
    pub(crate) fn grant(&mut self, mut send: impl FnMut(Owner, usize, usize)) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let waiting =
            self.assemblies.iter().filter(|(_, assembly)| assembly.granted < assembly.total);
        let candidates = waiting.map(|(index, assembly)| Candidate {
            index,
            remaining: assembly.total - assembly.received,
            order: assembly.order,
        });
        for chosen in grants::choose(candidates).into_iter().flatten() {
            let assembly = self.assemblies.get_mut(chosen.index).expect("just seen");
            let granted = assembly.total.min(assembly.received + GRANT_WINDOW);
            if granted >= assembly.granted + GRANT_STEP
                || (granted == assembly.total && granted > assembly.granted)
            {
                assembly.granted = granted;
                send(assembly.owner, granted, assembly.total);
            }
        }
    }

    /// Returns a message whose next bytes are overdue. Skips messages of which all granted bytes
    /// have arrived, and looks at them again later.
    pub(crate) fn overdue(&mut self, now: Nanos) -> Option<Overdue<'_>> {
        loop {
            let index = self.timers.pop_due(now)?;
            let assembly = self.assemblies.get_mut(index).expect("timers go with their messages");
            let due = assembly.progress_at + assembly.wait();
            if due > now {
                self.timers.set(index, due);
                continue;
            }
            assembly.missing(&mut self.missing);
            if !self.missing.is_empty() {
                assembly.tries += 1;
            }
            self.timers.set(index, now + assembly.wait());
            if !self.missing.is_empty() {
                let (owner, tries) = (assembly.owner, assembly.tries);
                return Some(Overdue { message: index, owner, tries, missing: &self.missing });
            }
        }
    }

    /// Returns the time at which this role's next poll has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        if self.changed { Some(Nanos(0)) } else { self.timers.earliest() }
    }

    /// Returns the largest number of bytes that may be reserved.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of messages in reassembly, and the number of bytes reserved for them.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.assemblies.len(), self.reserved)
    }
}
