//! The limits of one instruction: units, ports and memories.

use crate::instruction::{
    BROADCAST_WORDS, ELEMENTS, LOCAL_WORDS, MASKS, Operation, Place, REGISTERS, Source, Target,
    Unit,
};
use crate::word::Word;
use thiserror::Error;

/// Limit on the places in the register file, words or vectors, that an instruction reads. The
/// register file has three ports, two of which are for reading.
pub const REGISTER_READS: usize = 2;

/// Limit on the destinations of one operation.
pub const MAX_TARGETS: usize = 4;

/// Why operations cannot be combined into one instruction.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum PortError {
    /// Two operations use the same unit.
    #[error("two operations for the {0:?}: it takes one in each instruction")]
    Unit(Unit),
    /// An operation has too few or too many operands.
    #[error("{given} operands where {wanted} belong")]
    Operands {
        /// The number of operands that the operation has.
        given: usize,
        /// The number of operands that the operation needs.
        wanted: usize,
    },
    /// An operation has no destination, or too many.
    #[error("{0} targets: an operation has 1 to {MAX_TARGETS}")]
    Targets(usize),
    /// An address is out of range.
    #[error("{what} {at} does not exist: there are {limit}")]
    Place {
        /// The name of the memory or register set.
        what: &'static str,
        /// The address. For a vector, that of its last word.
        at: usize,
        /// The size of the memory.
        limit: usize,
    },
    /// A port would be used twice.
    #[error("{0}: use another instruction")]
    Busy(&'static str),
    /// Two results have the same destination.
    #[error("two results for one place: {0:?}")]
    Twice(Target),
}

/// The units, ports and memories that the operations of an instruction use so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports {
    units: Vec<Unit>,
    registers: Vec<Place>,
    register_written: bool,
    local: Option<Access>,
    broadcast: Option<Access>,
    immediate: Option<Word>,
    targets: Vec<Target>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Access {
    Read(Place),
    Write(Place),
}

impl Ports {
    /// Returns the ports after `operation` is added.
    pub(crate) fn with(&self, operation: &Operation) -> Result<Self, PortError> {
        let mut ports = self.clone();
        ports.add(operation)?;
        Ok(ports)
    }

    fn add(&mut self, operation: &Operation) -> Result<(), PortError> {
        let unit = operation.code.unit();
        if self.units.contains(&unit) {
            return Err(PortError::Unit(unit));
        }
        self.units.push(unit);
        let (given, wanted) = (operation.sources.len(), operation.code.operands());
        if given != wanted {
            return Err(PortError::Operands { given, wanted });
        }
        if operation.targets.is_empty() || operation.targets.len() > MAX_TARGETS {
            return Err(PortError::Targets(operation.targets.len()));
        }
        if let Some(condition) = operation.condition {
            inside("mask", usize::from(condition.mask) + 1, MASKS)?;
        }
        operation.sources.iter().try_for_each(|&source| self.read(source))?;
        operation.targets.iter().try_for_each(|&target| self.write(target))
    }

    fn read(&mut self, source: Source) -> Result<(), PortError> {
        match source {
            Source::Register(place) => {
                inside("register", place.end(), REGISTERS)?;
                if !self.registers.contains(&place) {
                    self.registers.push(place);
                }
                if self.registers.len() > REGISTER_READS {
                    return Err(PortError::Busy(
                        "the register file gives two operands in an instruction",
                    ));
                }
            }
            Source::Local(place) => {
                inside("word of local memory", place.end(), LOCAL_WORDS)?;
                share(&mut self.local, Access::Read(place), "local memory has one port")?;
            }
            Source::Broadcast(place) => {
                inside("word of broadcast memory", place.end(), BROADCAST_WORDS)?;
                share(&mut self.broadcast, Access::Read(place), "broadcast memory has one port")?;
            }
            Source::Immediate(word) => {
                if *self.immediate.get_or_insert(word) != word {
                    return Err(PortError::Busy("an instruction holds one immediate word"));
                }
            }
            Source::Auxiliary | Source::ElementId | Source::BlockId => {}
        }
        Ok(())
    }

    fn write(&mut self, target: Target) -> Result<(), PortError> {
        if self.targets.contains(&target) {
            return Err(PortError::Twice(target));
        }
        self.targets.push(target);
        match target {
            Target::Register(place) => {
                inside("register", place.end(), REGISTERS)?;
                once(
                    &mut self.register_written,
                    "the register file takes one result in an instruction",
                )
            }
            Target::Auxiliary => Ok(()),
            Target::Local(place) => {
                inside("word of local memory", place.end(), LOCAL_WORDS)?;
                share(&mut self.local, Access::Write(place), "local memory has one port")
            }
            Target::Mask(mask) => inside("mask", usize::from(mask) + 1, MASKS),
            Target::Broadcast { place, element } => {
                inside("word of broadcast memory", place.end(), BROADCAST_WORDS)?;
                inside("element", usize::from(element) + 1, ELEMENTS)?;
                share(&mut self.broadcast, Access::Write(place), "broadcast memory has one port")
            }
        }
    }
}

fn inside(what: &'static str, end: usize, limit: usize) -> Result<(), PortError> {
    if end > limit { Err(PortError::Place { what, at: end - 1, limit }) } else { Ok(()) }
}

fn once(written: &mut bool, busy: &'static str) -> Result<(), PortError> {
    if std::mem::replace(written, true) { Err(PortError::Busy(busy)) } else { Ok(()) }
}

/// Marks a port as used. Several operations may share a port if they read the same address.
fn share(port: &mut Option<Access>, access: Access, busy: &'static str) -> Result<(), PortError> {
    match port {
        Some(other) if *other != access || matches!(access, Access::Write(_)) => {
            Err(PortError::Busy(busy))
        }
        _ => {
            *port = Some(access);
            Ok(())
        }
    }
}
