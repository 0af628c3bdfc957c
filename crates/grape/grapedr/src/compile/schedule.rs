//! From operations to instructions: as many at a time as units and ports allow, those on the
//! longest way to the end first, and a place for each value from its first write to its last use.

use super::CompileError;
use super::micro::{Goal, Micro, Micros, Operand};
use super::places::{Spot, Spots};
use crate::instruction::{Code, Condition, Instruction, MASKS, Operation, Place, Source, Target};
use crate::ports::Ports;
use std::collections::HashMap;

/// Registers that are kept free for what brings others nearer to their end.
const RESERVE: usize = 1;

/// Schedules operations. `room`: vectors of local memory that values may use, by their first words.
///
/// # Errors
/// [`CompileError::Local`] where values need more of them.
pub(crate) fn schedule(micros: &Micros, room: &[u16]) -> Result<Vec<Instruction>, CompileError> {
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
    micros: &'a [Micro],
    /// What must be issued before each operation, and whether it may be in the same instruction.
    needs: Vec<Vec<(usize, bool)>>,
    /// Steps from each operation to the end.
    height: Vec<u64>,
    /// The instruction in which each was issued.
    issued: Vec<Option<usize>>,
    now: usize,
    left: usize,
    spots: Spots,
    /// Operations that have yet to read or write each value.
    pending: Vec<usize>,
    masks: HashMap<usize, u8>,
    mask_pending: Vec<usize>,
}

impl<'a> Scheduler<'a> {
    fn new(micros: &'a Micros, room: &[u16]) -> Self {
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
            spots: Spots::new(micros.values, room),
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

    /// Issues what fits into one instruction.
    fn fill(&mut self, pinned: Option<usize>) -> Vec<Operation> {
        let mut operations = Vec::new();
        let mut ports = Ports::default();
        // What an operation makes possible in the same instruction is looked for again.
        loop {
            let mut candidates = self.candidates(pinned);
            candidates.retain(|&at| operations.is_empty() || !self.tight(at));
            // If places keep the first from being issued, room is made for it, rather than that
            // others take what is left.
            if operations.is_empty() && self.spots.scarce(RESERVE) {
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

    /// What could be issued, best first: with registers nearly all taken, what began first is
    /// brought to its end first.
    fn candidates(&self, pinned: Option<usize>) -> Vec<usize> {
        let masked =
            |at: usize| matches!(self.micros[at].goal, Goal::Mask(_)) && self.masks.len() == MASKS;
        let ready = (0..self.micros.len()).filter(|&at| self.ready(at) && !masked(at));
        let scarce = self.spots.scarce(RESERVE);
        let far = |at: usize| if scarce { 0 } else { u64::MAX - self.height[at] };
        let mut candidates: Vec<usize> = ready.collect();
        candidates.sort_by_key(|&at| (Some(at) != pinned, self.tight(at), far(at), at));
        candidates
    }

    /// Whether an operation would begin a value without ending one while registers are nearly all
    /// taken.
    fn tight(&self, at: usize) -> bool {
        let micro = &self.micros[at];
        let begins = matches!(micro.goal, Goal::Value(value) if self.spots.of(value).is_none());
        let ends = sources(micro).any(|value| self.pending[value] == uses_in(micro, value));
        begins && !ends && self.spots.scarce(RESERVE)
    }

    /// Issues an operation if ports and places allow.
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
        let (operation, with, spot) = match micro.goal {
            Goal::Local(place) => {
                let operation = operation(Target::Local(place));
                let with = ports.with(&operation).ok()?;
                (operation, with, None)
            }
            Goal::Mask(_) => {
                let free = (0..MASKS).map(|mask| u8::try_from(mask).expect("a few"));
                let mask = { free }.find(|mask| !self.masks.values().any(|used| used == mask))?;
                let operation = operation(Target::Mask(mask));
                let with = ports.with(&operation).ok()?;
                (operation, with, None)
            }
            Goal::Value(value) => {
                let choices = match self.spots.of(value) {
                    Some(spot) => vec![spot],
                    None => self.spots.choices(self.ending(micro, value), self.pending[value] == 2),
                };
                choices.into_iter().find_map(|spot| {
                    let operation = operation(spot.target());
                    let with = ports.with(&operation).ok()?;
                    Some((operation, with, Some((value, spot))))
                })?
            }
        };
        self.issued[at] = Some(self.now);
        self.left -= 1;
        // What ends here frees its place for what begins here: operands are read before results are
        // written.
        let ended: Vec<usize> = values(micro).collect();
        ended.iter().for_each(|&value| self.pending[value] -= 1);
        for &value in &ended {
            if self.pending[value] == 0 {
                self.spots.free(value);
            }
        }
        if let Some((value, spot)) = spot
            && self.pending[value] > 0
        {
            self.spots.take(value, spot);
        }
        if let (Goal::Mask(mask), Some(Target::Mask(register))) =
            (micro.goal, operation.targets.first())
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

    /// Places of values that an operation is the last to read, but for the one it writes.
    fn ending(&self, micro: &Micro, written: usize) -> Vec<Spot> {
        sources(micro)
            .filter(|&value| value != written && self.pending[value] == uses_in(micro, value))
            .filter_map(|value| self.spots.of(value))
            .collect()
    }

    fn source(&self, operand: Operand) -> Source {
        match operand {
            Operand::Value(value) => {
                self.spots.of(value).expect("written before it is read").source()
            }
            Operand::Local(place) => Source::Local(place),
            Operand::Broadcast(place) => Source::Broadcast(place),
            Operand::Immediate(word) => Source::Immediate(word),
        }
    }

    /// For an operation that nothing but places keeps from being issued: moves one of its operands
    /// out of local memory, or another value there so that it can be.
    fn make_room(&mut self) -> Result<(usize, Operation), CompileError> {
        let at = *self.candidates(None).first().expect("what comes first is ready");
        let micro = &self.micros[at];
        let own: Vec<usize> = values(micro).collect();
        let spilled =
            own.iter().copied().find(|&value| matches!(self.spots.of(value), Some(Spot::Local(_))));
        let (value, to) = match (spilled, self.spots.fast()) {
            (Some(value), Some(spot)) => (value, spot),
            _ => {
                let evicted = self
                    .spots
                    .evictable(&own, |value| self.pending[value])
                    .ok_or(CompileError::Local)?;
                (evicted, self.spots.local().ok_or(CompileError::Local)?)
            }
        };
        let from = self.spots.of(value).expect("it has a place");
        self.spots.free(value);
        self.spots.take(value, to);
        let operation = Operation {
            code: Code::Pass,
            sources: vec![from.source()],
            targets: vec![to.target()],
            condition: None,
        };
        Ok((at, operation))
    }
}

/// Values that an operation reads or writes, each as often as it does.
fn values(micro: &Micro) -> impl Iterator<Item = usize> + '_ {
    let goal = if let Goal::Value(value) = micro.goal { Some(value) } else { None };
    sources(micro).chain(goal)
}

fn sources(micro: &Micro) -> impl Iterator<Item = usize> + '_ {
    micro
        .sources
        .iter()
        .filter_map(|operand| if let Operand::Value(value) = operand { Some(*value) } else { None })
}

fn uses_in(micro: &Micro, value: usize) -> usize {
    values(micro).filter(|&used| used == value).count()
}

/// What must come before each operation: of what it reads the last write, of what it writes the
/// last write and all reads since (these may be in the same instruction). What sets a mask waits
/// for all that those who use it wait for, so that no mask is held for long.
fn needs(micros: &Micros) -> Vec<Vec<(usize, bool)>> {
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
        let written = match micro.goal {
            Goal::Value(value) => Some(Resource::Value(value)),
            Goal::Local(place) => Some(Resource::Local(place)),
            Goal::Mask(mask) => {
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
