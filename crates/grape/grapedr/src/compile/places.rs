//! Where values are: in the auxiliary register, in vectors of the register file, or in local
//! memory.

use crate::instruction::{Place, REGISTERS, Source, Target, VECTOR};

/// A place for a vector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Spot {
    Auxiliary,
    Register(u16),
    Local(u16),
}

impl Spot {
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

/// Which value is where.
#[derive(Debug)]
pub(crate) struct Spots {
    of: Vec<Option<Spot>>,
    auxiliary: bool,
    registers: Vec<u16>,
    local: Vec<u16>,
    /// Places of local memory, free or not.
    room: usize,
}

impl Spots {
    /// All places free: those of local memory are given.
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

    pub(crate) fn of(&self, value: usize) -> Option<Spot> {
        self.of[value]
    }

    /// Whether registers for all values, those in local memory too, would leave no more than a few.
    pub(crate) fn scarce(&self, few: usize) -> bool {
        let spilled = self.room - self.local.len();
        self.registers.len() <= few + spilled
    }

    /// Where a value may begin, best first; `ending` are places that are free then. The auxiliary
    /// register is best for what is read once.
    pub(crate) fn choices(&self, ending: Vec<Spot>, once: bool) -> Vec<Spot> {
        let auxiliary =
            (self.auxiliary || ending.contains(&Spot::Auxiliary)).then_some(Spot::Auxiliary);
        let ended = ending.iter().copied().find(|spot| matches!(spot, Spot::Register(_)));
        let register = ended.or(self.registers.last().map(|&at| Spot::Register(at)));
        let mut choices: Vec<Spot> =
            if once { [auxiliary, register] } else { [register, auxiliary] }
                .into_iter()
                .flatten()
                .collect();
        if register.is_none() {
            choices.extend(self.local());
        }
        choices
    }

    /// A free place outside local memory.
    pub(crate) fn fast(&self) -> Option<Spot> {
        self.registers
            .last()
            .map(|&at| Spot::Register(at))
            .or(self.auxiliary.then_some(Spot::Auxiliary))
    }

    /// A free place in local memory.
    pub(crate) fn local(&self) -> Option<Spot> {
        self.local.last().map(|&at| Spot::Local(at))
    }

    /// A value outside local memory, none of `own`, that the fewest operations wait for.
    pub(crate) fn evictable(
        &self,
        own: &[usize],
        pending: impl Fn(usize) -> usize,
    ) -> Option<usize> {
        let elsewhere =
            |&value: &usize| matches!(self.of[value], Some(Spot::Auxiliary | Spot::Register(_)));
        (0..self.of.len())
            .filter(elsewhere)
            .filter(|value| !own.contains(value))
            .min_by_key(|&value| pending(value))
    }

    pub(crate) fn take(&mut self, value: usize, spot: Spot) {
        self.of[value] = Some(spot);
        match spot {
            Spot::Auxiliary => self.auxiliary = false,
            Spot::Register(at) => self.registers.retain(|&free| free != at),
            Spot::Local(at) => self.local.retain(|&free| free != at),
        }
    }

    pub(crate) fn free(&mut self, value: usize) {
        match self.of[value].take() {
            Some(Spot::Auxiliary) => self.auxiliary = true,
            Some(Spot::Register(at)) => self.registers.push(at),
            Some(Spot::Local(at)) => self.local.push(at),
            None => {}
        }
    }
}
