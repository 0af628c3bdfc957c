//! The form of a kernel between its program and the machine's instructions: operations of units on
//! values that do not have locations yet.

use crate::instruction::{Code, Place};
use crate::word::Word;

/// A vector of words to which the scheduler assigns a location. It may be written more than once:
/// first completely, then under masks.
pub(crate) type Value = usize;

/// A mask to which the scheduler assigns a register.
pub(crate) type Mask = usize;

/// The source of an operand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Operand {
    Value(Value),
    Local(Place),
    Broadcast(Place),
    Immediate(Word),
}

/// The destination of a result.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Destination {
    Value(Value),
    Local(Place),
    Mask(Mask),
}

/// One operation of a unit.
#[derive(Clone, Debug)]
pub(crate) struct MicroOperation {
    pub(crate) code: Code,
    pub(crate) sources: Vec<Operand>,
    pub(crate) destination: Destination,
    /// The mask that must be set so that the result is stored. With `None` the result is always
    /// stored.
    pub(crate) condition: Option<Mask>,
}

/// Operations in an order that respects their dependences.
#[derive(Debug, Default)]
pub(crate) struct MicroProgram {
    pub(crate) all: Vec<MicroOperation>,
    pub(crate) values: usize,
    pub(crate) masks: usize,
}

impl MicroProgram {
    /// Adds an operation on two operands and returns its result.
    pub(crate) fn compute(&mut self, code: Code, a: Operand, b: Operand) -> Operand {
        let sources = self.separate_ports(a, b);
        let value = self.new_value();
        self.push(code, sources, Destination::Value(value), None);
        Operand::Value(value)
    }

    /// Copies an operand to a new value that may be overwritten.
    pub(crate) fn copy(&mut self, operand: Operand) -> Value {
        let value = self.new_value();
        self.push(Code::Pass, vec![operand], Destination::Value(value), None);
        value
    }

    /// Stores an operand to local memory. An instruction can only read or write local memory once,
    /// so an operand in local memory is first copied to a value.
    pub(crate) fn store(&mut self, place: Place, operand: Operand) {
        let operand = if let Operand::Local(_) = operand {
            Operand::Value(self.copy(operand))
        } else {
            operand
        };
        self.push(Code::Pass, vec![operand], Destination::Local(place), None);
    }

    /// Adds an operation that sets a mask if any bit of its result is set.
    pub(crate) fn mask(&mut self, code: Code, a: Operand, b: Operand) -> Mask {
        let sources = if code == Code::Pass { vec![a] } else { self.separate_ports(a, b) };
        let mask = self.masks;
        self.masks += 1;
        self.push(code, sources, Destination::Mask(mask), None);
        mask
    }

    /// Overwrites a destination with `operand` if a mask is set.
    pub(crate) fn replace(&mut self, mask: Mask, destination: Destination, operand: Operand) {
        self.push(Code::Pass, vec![operand], destination, Some(mask));
    }

    /// Overwrites a destination with the result of an operation if a mask is set.
    pub(crate) fn replace_by(
        &mut self,
        mask: Mask,
        destination: Destination,
        code: Code,
        a: Operand,
        b: Operand,
    ) {
        let sources = self.separate_ports(a, b);
        self.push(code, sources, destination, Some(mask));
    }

    fn push(
        &mut self,
        code: Code,
        sources: Vec<Operand>,
        destination: Destination,
        condition: Option<Mask>,
    ) {
        self.all.push(MicroOperation { code, sources, destination, condition });
    }

    fn new_value(&mut self) -> Value {
        self.values += 1;
        self.values - 1
    }

    /// Returns two operands that one instruction can read. If they differ and need the same port,
    /// the first is copied to a value.
    fn separate_ports(&mut self, a: Operand, b: Operand) -> Vec<Operand> {
        let one_port = matches!(
            (a, b),
            (Operand::Local(_), Operand::Local(_))
                | (Operand::Broadcast(_), Operand::Broadcast(_))
                | (Operand::Immediate(_), Operand::Immediate(_))
        );
        let a = if one_port && a != b { Operand::Value(self.copy(a)) } else { a };
        vec![a, b]
    }
}
