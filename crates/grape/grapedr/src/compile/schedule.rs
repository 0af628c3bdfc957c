//! Schedules operations as instructions. Each instruction takes as many operations as units and
//! ports allow. Operations with the longest path to the end come first. A value has a location from
//! its first write to its last use.

use super::CompileError;
use super::micro::{Destination, MicroOperation, MicroProgram, Operand};
use super::places::{Location, Locations};
use crate::instruction::{Code, Condition, Instruction, MASKS, Operation, Place, Source, Target};
use crate::ports::Ports;
use std::collections::HashMap;

/// Number of registers that are reserved for operations that start a value and end another one.
const RESERVE: usize = 1;

/// Schedules operations. `room` lists the vectors of local memory that values may use, by the
/// addresses of their first words.
///
/// # Errors
/// [`CompileError::Local`] if the values need more vectors than that.
pub(crate) fn schedule(
    micros: &MicroProgram,
    room: &[u16],
) -> Result<Vec<Instruction>, CompileError> {
    let mut scheduler = Scheduler::new(micros, room);
    let mut instructions = Vec::new();
    let mut pinned = None;
    while scheduler.left > 0 {
        let operations = scheduler.fill(pinned);
        pinned = None;
        let operations = if operations.is_empty() {
            let (blocked, mover) = scheduler.make_room()?;
            pinned = Some(blocked);
            vec![mover]
        } else {
            operations
        };
        instructions
            .push(Instruction::new(operations).expect("ports were asked for each operation"));
        scheduler.step();
    }
    Ok(instructions)
}

struct Scheduler<'a> {
    micros: &'a [MicroOperation],
    /// For each operation, the operations that must be issued before it, and whether each of them
    /// may be in the same instruction.
    needs: Vec<Vec<(usize, bool)>>,
    /// For each operation, the number of steps from it to the end.
    height: Vec<u64>,
    /// For each operation, the instruction that contains it; `None` until it is issued.
    issued: Vec<Option<usize>>,
    now: usize,
    left: usize,
    locations: Locations,
    /// For each value, the number of operations that still have to read or write it.
    pending: Vec<usize>,
    masks: HashMap<usize, u8>,
    mask_pending: Vec<usize>,
}

impl<'a> Scheduler<'a> {
    fn new(micros: &'a MicroProgram, room: &[u16]) -> Self {
        let all = &micros.all;
        let needs = needs(micros);
        let mut height = vec![0; all.len()];
        for at in (0..all.len()).rev() {
            height[at] += all[at].code.passes();
            for &(before, together) in &needs[at] {
                let least = if together { height[at] - 1 } else { height[at] };
                height[before] = height[before].max(least);
            }
        }
        let mut pending = vec![0; micros.values];
        let mut mask_pending = vec![0; micros.masks];
        for micro in all {
            values(micro).for_each(|value| pending[value] += 1);
            micro.condition.into_iter().for_each(|mask| mask_pending[mask] += 1);
        }
        Self {
            micros: all,
            needs,
            height,
            issued: vec![None; all.len()],
            now: 0,
            left: all.len(),
            locations: Locations::new(micros.values, room),
            pending,
            masks: HashMap::new(),
            mask_pending,
        }
    }

    fn step(&mut self) {
        self.now += 1;
    }

    fn ready(&self, at: usize) -> bool {
        let done = |&(before, together): &(usize, bool)| {
            self.issued[before].is_some_and(|issued| together || issued < self.now)
        };
        self.issued[at].is_none() && self.needs[at].iter().all(done)
    }

    /// Issues as many operations as fit into one instruction.
    fn fill(&mut self, pinned: Option<usize>) -> Vec<Operation> {
        let mut operations = Vec::new();
        let mut ports = Ports::default();
        // An issued operation can make other operations ready for the same instruction, so the
        // candidates are computed again each time.
        loop {
            let mut candidates = self.candidates(pinned);
            candidates.retain(|&at| operations.is_empty() || !self.tight(at));
            // If the first candidate lacks a location, make room for it. Otherwise other candidates
            // would take the remaining locations.
            if operations.is_empty() && self.locations.scarce(RESERVE) {
                candidates.truncate(1);
            }
            let issued = candidates.into_iter().find_map(|at| {
                let (operation, with) = self.issue(at, &ports)?;
                ports = with;
                Some(operation)
            });
            let Some(operation) = issued else { return operations };
            operations.push(operation);
        }
    }

    /// Returns the operations that could be issued, best first. If registers are scarce, operations
    /// that come earlier in the program are preferred, so that their values end soon.
    fn candidates(&self, pinned: Option<usize>) -> Vec<usize> {
        let masked = |at: usize| {
            matches!(self.micros[at].destination, Destination::Mask(_)) && self.masks.len() == MASKS
        };
        let ready = (0..self.micros.len()).filter(|&at| self.ready(at) && !masked(at));
        let scarce = self.locations.scarce(RESERVE);
        let far = |at: usize| if scarce { 0 } else { u64::MAX - self.height[at] };
        let mut candidates: Vec<usize> = ready.collect();
        candidates.sort_by_key(|&at| (Some(at) != pinned, self.tight(at), far(at), at));
        candidates
    }

    /// Returns whether registers are scarce and an operation would start a value without ending
    /// another.
    fn tight(&self, at: usize) -> bool {
        let micro = &self.micros[at];
        let begins = match micro.destination {
            Destination::Value(value) => self.locations.of(value).is_none(),
            Destination::Local(_) | Destination::Mask(_) => false,
        };
        let ends = sources(micro).any(|value| self.pending[value] == uses_in(micro, value));
        begins && !ends && self.locations.scarce(RESERVE)
    }

    /// Issues an operation if ports and locations allow it.
    fn issue(&mut self, at: usize, ports: &Ports) -> Option<(Operation, Ports)> {
        let micro = &self.micros[at];
        let sources: Vec<Source> =
            micro.sources.iter().map(|&operand| self.source(operand)).collect();
        let condition =
            micro.condition.map(|mask| Condition { mask: self.masks[&mask], set: true });
        let operation = |target| Operation {
            code: micro.code,
            sources: sources.clone(),
            targets: vec![target],
            condition,
        };
        let (operation, with, location) = match micro.destination {
            Destination::Local(place) => {
                let operation = operation(Target::Local(place));
                let with = ports.with(&operation).ok()?;
                (operation, with, None)
            }
            Destination::Mask(_) => {
                let free = (0..MASKS).map(|mask| u8::try_from(mask).expect("a few"));
                let mask = { free }.find(|mask| !self.masks.values().any(|used| used == mask))?;
                let operation = operation(Target::Mask(mask));
                let with = ports.with(&operation).ok()?;
                (operation, with, None)
            }
            Destination::Value(value) => {
                let choices = match self.locations.of(value) {
                    Some(location) => vec![location],
                    None => {
                        self.locations.choices(self.ending(micro, value), self.pending[value] == 2)
                    }
                };
                choices.into_iter().find_map(|location| {
                    let operation = operation(location.target());
                    let with = ports.with(&operation).ok()?;
                    Some((operation, with, Some((value, location))))
                })?
            }
        };
        self.issued[at] = Some(self.now);
        self.left -= 1;
        // Operands are read before results are written. So a value that ends here can give its
        // location to the value that starts here.
        let ended: Vec<usize> = values(micro).collect();
        ended.iter().for_each(|&value| self.pending[value] -= 1);
        for &value in &ended {
            if self.pending[value] == 0 {
                self.locations.free(value);
            }
        }
        if let Some((value, location)) = location
            && self.pending[value] > 0
        {
            self.locations.take(value, location);
        }
        if let (Destination::Mask(mask), Some(Target::Mask(register))) =
            (micro.destination, operation.targets.first())
            && self.mask_pending[mask] > 0
        {
            self.masks.insert(mask, *register);
        }
        if let Some(mask) = micro.condition {
            self.mask_pending[mask] -= 1;
            if self.mask_pending[mask] == 0 {
                self.masks.remove(&mask);
            }
        }
        Some((operation, with))
    }

    /// Returns the locations of the values for which this operation is the last reader, except the
    /// value that it writes.
    fn ending(&self, micro: &MicroOperation, written: usize) -> Vec<Location> {
        sources(micro)
            .filter(|&value| value != written && self.pending[value] == uses_in(micro, value))
            .filter_map(|value| self.locations.of(value))
            .collect()
    }

    fn source(&self, operand: Operand) -> Source {
        match operand {
            Operand::Value(value) => {
                self.locations.of(value).expect("written before it is read").source()
            }
            Operand::Local(place) => Source::Local(place),
            Operand::Broadcast(place) => Source::Broadcast(place),
            Operand::Immediate(word) => Source::Immediate(word),
        }
    }

    /// Makes room for an operation that lacks only a location. Moves one of its operands out of
    /// local memory, or another value into local memory. Returns the operation and the move.
    fn make_room(&mut self) -> Result<(usize, Operation), CompileError> {
        let at = *self.candidates(None).first().expect("what comes first is ready");
        let micro = &self.micros[at];
        let own: Vec<usize> = values(micro).collect();
        let spilled = own
            .iter()
            .copied()
            .find(|&value| matches!(self.locations.of(value), Some(Location::Local(_))));
        let (value, to) = match (spilled, self.locations.fast()) {
            (Some(value), Some(location)) => (value, location),
            _ => {
                let evicted = self
                    .locations
                    .evictable(&own, |value| self.pending[value])
                    .ok_or(CompileError::Local)?;
                (evicted, self.locations.local().ok_or(CompileError::Local)?)
            }
        };
        let from = self.locations.of(value).expect("it has a place");
        self.locations.free(value);
        self.locations.take(value, to);
        let operation = Operation {
            code: Code::Pass,
            sources: vec![from.source()],
            targets: vec![to.target()],
            condition: None,
        };
        Ok((at, operation))
    }
}

/// Returns the values that an operation reads or writes. A value may occur more than once.
fn values(micro: &MicroOperation) -> impl Iterator<Item = usize> + '_ {
    let destination =
        if let Destination::Value(value) = micro.destination { Some(value) } else { None };
    sources(micro).chain(destination)
}

fn sources(micro: &MicroOperation) -> impl Iterator<Item = usize> + '_ {
    micro
        .sources
        .iter()
        .filter_map(|operand| if let Operand::Value(value) = operand { Some(*value) } else { None })
}

fn uses_in(micro: &MicroOperation, value: usize) -> usize {
    values(micro).filter(|&used| used == value).count()
}

/// Computes for each operation the operations that must precede it. They are the last write of
/// everything that the operation reads, and the last write and all later reads of what it writes.
/// Such a read may be in the same instruction. An operation that sets a mask also waits for
/// everything for which the mask's users wait, so that no mask is occupied for long.
fn needs(micros: &MicroProgram) -> Vec<Vec<(usize, bool)>> {
    let mut places: HashMap<Resource, (Option<usize>, Vec<usize>)> = HashMap::new();
    let mut needs: Vec<Vec<(usize, bool)>> = Vec::with_capacity(micros.all.len());
    let mut setters = HashMap::new();
    for (at, micro) in micros.all.iter().enumerate() {
        let mut own: Vec<(usize, bool)> = Vec::new();
        for &operand in &micro.sources {
            let resource = match operand {
                Operand::Value(value) => Resource::Value(value),
                Operand::Local(place) => Resource::Local(place),
                Operand::Broadcast(_) | Operand::Immediate(_) => continue,
            };
            let (written, read) = places.entry(resource).or_default();
            own.extend(written.map(|written| (written, false)));
            read.push(at);
        }
        let written = match micro.destination {
            Destination::Value(value) => Some(Resource::Value(value)),
            Destination::Local(place) => Some(Resource::Local(place)),
            Destination::Mask(mask) => {
                setters.insert(mask, at);
                None
            }
        };
        if let Some(resource) = written {
            let (written, read) = places.entry(resource).or_default();
            own.extend(written.map(|written| (written, false)));
            own.extend(read.iter().filter(|&&read| read != at).map(|&read| (read, true)));
            *written = Some(at);
            read.clear();
        }
        if let Some(mask) = micro.condition {
            let setter: usize = setters[&mask];
            let before = own.iter().copied().filter(|&(before, _)| before < setter);
            let earlier: Vec<(usize, bool)> = before.collect();
            needs[setter].extend(earlier);

            own.push((setter, false));
        }
        needs.push(own);
    }
    needs
}

#[derive(Clone, Copy, Eq, Hash, PartialEq)]
enum Resource {
    Value(usize),
    Local(Place),
}
