//! The locations of values: the auxiliary register, vectors of the register file, or local memory.

use crate::instruction::{Place, REGISTERS, Source, Target, VECTOR};

/// A location of a vector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Location {
    Auxiliary,
    Register(u16),
    Local(u16),
}

impl Location {
    pub(crate) fn source(self) -> Source {
        match self {
            Self::Auxiliary => Source::Auxiliary,
            Self::Register(at) => Source::Register(Place::four(at)),
            Self::Local(at) => Source::Local(Place::four(at)),
        }
    }

    pub(crate) fn target(self) -> Target {
        match self {
            Self::Auxiliary => Target::Auxiliary,
            Self::Register(at) => Target::Register(Place::four(at)),
            Self::Local(at) => Target::Local(Place::four(at)),
        }
    }
}

/// The locations of all values, and the free locations.
#[derive(Debug)]
pub(crate) struct Locations {
    of: Vec<Option<Location>>,
    auxiliary: bool,
    registers: Vec<u16>,
    local: Vec<u16>,
    /// The number of vectors of local memory for values, used or free.
    room: usize,
}

impl Locations {
    /// Creates the state in which all locations are free. `room` lists the vectors of local memory.
    pub(crate) fn new(values: usize, room: &[u16]) -> Self {
        let registers =
            (0..REGISTERS / VECTOR).rev().map(|at| u16::try_from(at * VECTOR).expect("a few"));
        let local: Vec<u16> = room.iter().rev().copied().collect();
        Self {
            of: vec![None; values],
            auxiliary: true,
            registers: registers.collect(),
            local,
            room: room.len(),
        }
    }

    pub(crate) fn of(&self, value: usize) -> Option<Location> {
        self.of[value]
    }

    /// Returns whether at most `few` registers would be free if the values in local memory were
    /// moved to registers.
    pub(crate) fn scarce(&self, few: usize) -> bool {
        let spilled = self.room - self.local.len();
        self.registers.len() <= few + spilled
    }

    /// Returns the locations to which a value may be written, best first. `ending` lists locations
    /// that become free in the same instruction. `once` says that the value is read once: the
    /// auxiliary register is then the best location.
    pub(crate) fn choices(&self, ending: Vec<Location>, once: bool) -> Vec<Location> {
        let auxiliary = (self.auxiliary || ending.contains(&Location::Auxiliary))
            .then_some(Location::Auxiliary);
        let ended =
            ending.iter().copied().find(|location| matches!(location, Location::Register(_)));
        let register = ended.or(self.registers.last().map(|&at| Location::Register(at)));
        let mut choices: Vec<Location> =
            if once { [auxiliary, register] } else { [register, auxiliary] }
                .into_iter()
                .flatten()
                .collect();
        if register.is_none() {
            choices.extend(self.local());
        }
        choices
    }

    /// Returns a free location that is not in local memory.
    pub(crate) fn fast(&self) -> Option<Location> {
        self.registers
            .last()
            .map(|&at| Location::Register(at))
            .or(self.auxiliary.then_some(Location::Auxiliary))
    }

    /// Returns a free location in local memory.
    pub(crate) fn local(&self) -> Option<Location> {
        self.local.last().map(|&at| Location::Local(at))
    }

    /// Returns the value that is best moved to local memory. It is not in local memory and not in
    /// `own`, and fewer operations wait for it than for any other such value.
    pub(crate) fn evictable(
        &self,
        own: &[usize],
        pending: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let elsewhere = |&value: &usize| {
            matches!(self.of[value], Some(Location::Auxiliary | Location::Register(_)))
        };
        (0..self.of.len())
            .filter(elsewhere)
            .filter(|value| !own.contains(value))
            .min_by_key(|&value| pending(value))
    }

    pub(crate) fn take(&mut self, value: usize, location: Location) {
        self.of[value] = Some(location);
        match location {
            Location::Auxiliary => self.auxiliary = false,
            Location::Register(at) => self.registers.retain(|&free| free != at),
            Location::Local(at) => self.local.retain(|&free| free != at),
        }
    }

    pub(crate) fn free(&mut self, value: usize) {
        match self.of[value].take() {
            Some(Location::Auxiliary) => self.auxiliary = true,
            Some(Location::Register(at)) => self.registers.push(at),
            Some(Location::Local(at)) => self.local.push(at),
            None => {}
        }
    }
}
