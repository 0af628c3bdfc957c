//! What a kernel is between its program and the machine: operations of units on values that have no
//! place yet.

use crate::instruction::{Code, Place};
use crate::word::Word;

/// A vector of words that the scheduler finds a place for. It may be written more than once: wholly
/// at first, then under masks.
pub(crate) type Value = usize;

/// A mask that the scheduler finds a register for.
pub(crate) type Mask = usize;

/// Where an operand comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Operand {
    Value(Value),
    Local(Place),
    Broadcast(Place),
    Immediate(Word),
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Goal {
    Value(Value),
    Local(Place),
    Mask(Mask),
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Micro {
    pub(crate) code: Code,
    pub(crate) sources: Vec<Operand>,
    pub(crate) goal: Goal,
    /// Where this mask is set, and only there.
    pub(crate) condition: Option<Mask>,
}

/// Operations in an order in which they could be done.
#[derive(Debug, Default)]
pub(crate) struct Micros {
    pub(crate) all: Vec<Micro>,
    pub(crate) values: usize,
    pub(crate) masks: usize,
}

impl Micros {
    /// An operation on these; what it gives.
    pub(crate) fn compute(&mut self, code: Code, a: Operand, b: Operand) -> Operand {
        let sources = self.apart(a, b);
        let value = self.fresh();
        self.push(code, sources, Goal::Value(value), None);
        Operand::Value(value)
    }

    /// A new value that is `operand` now, and may be written again.
    pub(crate) fn copy(&mut self, operand: Operand) -> Value {
        let value = self.fresh();
        self.push(Code::Pass, vec![operand], Goal::Value(value), None);
        value
    }

    /// Copies to a place of local memory, which gives and takes one word at a time: what is there
    /// already goes by way of a value.
    pub(crate) fn keep(&mut self, place: Place, operand: Operand) {
        let operand = if let Operand::Local(_) = operand {
            Operand::Value(self.copy(operand))
        } else {
            operand
        };
        self.push(Code::Pass, vec![operand], Goal::Local(place), None);
    }

    /// A mask that is set where an operation gives any bit.
    pub(crate) fn mask(&mut self, code: Code, a: Operand, b: Operand) -> Mask {
        let sources = if code == Code::Pass { vec![a] } else { self.apart(a, b) };
        let mask = self.masks;
        self.masks += 1;
        self.push(code, sources, Goal::Mask(mask), None);
        mask
    }

    /// Writes `operand` over what is there, where a mask is set.
    pub(crate) fn replace(&mut self, mask: Mask, goal: Goal, operand: Operand) {
        self.push(Code::Pass, vec![operand], goal, Some(mask));
    }

    /// The same with an operation of two operands.
    pub(crate) fn replace_by(
        &mut self,
        mask: Mask,
        goal: Goal,
        code: Code,
        a: Operand,
        b: Operand,
    ) {
        let sources = self.apart(a, b);
        self.push(code, sources, goal, Some(mask));
    }

    fn push(&mut self, code: Code, sources: Vec<Operand>, goal: Goal, condition: Option<Mask>) {
        self.all.push(Micro { code, sources, goal, condition });
    }

    fn fresh(&mut self) -> Value {
        self.values += 1;
        self.values - 1
    }

    /// Two operands that one instruction can read: of two that come through one port the first is
    /// copied before.
    fn apart(&mut self, a: Operand, b: Operand) -> Vec<Operand> {
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
