//! One block: its broadcast memory and the state of its processing elements.

use crate::instruction::{
    BLOCKS, BROADCAST_WORDS, Condition, ELEMENTS, Instruction, LOCAL_WORDS, MASKS, REGISTERS,
    Source, Target, VECTOR,
};
use crate::lanes::Lanes;
use crate::trace::Trace;
use crate::word::Word;

/// A block of [`ELEMENTS`] processing elements, all of which execute the same instruction.
#[derive(Clone, Debug)]
pub struct Block {
    id: usize,
    registers: Vec<Lanes>,
    auxiliary: Vec<Lanes>,
    local: Vec<Lanes>,
    broadcast: Vec<Word>,
    /// The masks, by mask and element of the vector. Each word has one bit for each processing
    /// element.
    masks: [[u32; VECTOR]; MASKS],
    ids: Lanes,
    /// The results of an instruction's operations before they are stored.
    results: Vec<[Lanes; VECTOR]>,
    cycles: u64,
    trace: Option<Trace>,
}

impl Block {
    pub(crate) fn new(id: usize) -> Self {
        let zeros = |count| vec![Lanes::all(Word::ZERO); count];
        let mut ids = Lanes::all(Word::ZERO);
        (0..ELEMENTS).for_each(|element| ids.set(element, integer(element)));
        Self {
            id,
            registers: zeros(REGISTERS),
            auxiliary: zeros(VECTOR),
            local: zeros(LOCAL_WORDS),
            broadcast: vec![Word::ZERO; BROADCAST_WORDS],
            masks: [[0; VECTOR]; MASKS],
            ids,
            results: vec![std::array::from_fn(|_| Lanes::all(Word::ZERO)); 3],
            cycles: 0,
            trace: None,
        }
    }

    /// Returns the block's number on its board, counted from 0 across all chips.
    #[must_use]
    pub fn id(&self) -> usize {
        self.id
    }

    /// Returns the number of cycles that the block's instructions have taken so far.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Starts to record in `trace` what one element computes.
    pub fn start_trace(&mut self, trace: Trace) {
        self.trace = Some(trace);
    }

    /// Stops recording and returns the trace.
    pub fn stop_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    /// Returns a word of an element's local memory.
    ///
    /// # Panics
    /// There is no such word or element. The other accessors panic for the same reasons.
    #[must_use]
    pub fn local(&self, at: usize, element: usize) -> Word {
        self.local[at].get(element)
    }

    /// Returns a word of an element's register file.
    #[must_use]
    pub fn register(&self, at: usize, element: usize) -> Word {
        self.registers[at].get(element)
    }

    /// Returns a word of the broadcast memory.
    #[must_use]
    pub fn broadcast(&self, at: usize) -> Word {
        self.broadcast[at]
    }

    /// Writes a word of the broadcast memory, as the host does.
    pub fn set_broadcast(&mut self, at: usize, word: Word) {
        self.broadcast[at] = word;
    }

    /// Executes instructions. Addresses in broadcast memory are relative to `base`.
    ///
    /// # Panics
    /// An address is beyond the broadcast memory.
    pub fn run(&mut self, instructions: &[Instruction], base: usize) {
        for instruction in instructions {
            self.execute(instruction, base);
        }
    }

    fn execute(&mut self, instruction: &Instruction, base: usize) {
        let operations = instruction.operations();
        let mut results = std::mem::take(&mut self.results);
        for (operation, result) in operations.iter().zip(&mut results) {
            let (mut a, mut b) = (Lanes::all(Word::ZERO), Lanes::all(Word::ZERO));
            for (lane, result) in result.iter_mut().enumerate() {
                let left = self.operand(operation.sources[0], lane, base, &mut a);
                let right = operation
                    .sources
                    .get(1)
                    .map_or(left, |&source| self.operand(source, lane, base, &mut b));
                result.compute(operation.code, left, right);
            }
        }
        let masks = self.masks;
        for (operation, result) in operations.iter().zip(&results) {
            for (lane, result) in result.iter().enumerate() {
                let bits = operation
                    .condition
                    .map_or(u32::MAX, |condition| active(&masks, condition, lane));
                operation
                    .targets
                    .iter()
                    .for_each(|&target| self.store(target, lane, base, result, bits));
            }
        }
        self.results = results;
        if let Some(trace) = &mut self.trace {
            let element = trace.element();
            let values =
                |at: usize| std::array::from_fn(|lane| self.results[at][lane].get(element));
            trace.record(self.cycles, instruction, base, || {
                (0..operations.len()).map(values).collect()
            });
        }
        self.cycles += instruction.cycles();
    }

    fn operand<'a>(
        &'a self,
        source: Source,
        lane: usize,
        base: usize,
        buffer: &'a mut Lanes,
    ) -> &'a Lanes {
        match source {
            Source::Register(place) => &self.registers[place.of(lane)],
            Source::Auxiliary => &self.auxiliary[lane],
            Source::Local(place) => &self.local[place.of(lane)],
            Source::ElementId => &self.ids,
            Source::Broadcast(place) => {
                buffer.fill(self.broadcast[base + place.of(lane)]);
                buffer
            }
            Source::Immediate(word) => {
                buffer.fill(word);
                buffer
            }
            Source::BlockId => {
                buffer.fill(integer(self.id % BLOCKS));
                buffer
            }
        }
    }

    fn store(&mut self, target: Target, lane: usize, base: usize, result: &Lanes, bits: u32) {
        match target {
            Target::Register(place) => self.registers[place.of(lane)].store(result, bits),
            Target::Auxiliary => self.auxiliary[lane].store(result, bits),
            Target::Local(place) => self.local[place.of(lane)].store(result, bits),
            Target::Mask(mask) => {
                let mask = &mut self.masks[usize::from(mask)][lane];
                *mask = *mask & !bits | result.any() & bits;
            }
            Target::Broadcast { place, element } => {
                if bits >> element & 1 == 1 {
                    self.broadcast[base + place.of(lane)] = result.get(usize::from(element));
                }
            }
        }
    }
}

fn active(masks: &[[u32; VECTOR]; MASKS], condition: Condition, lane: usize) -> u32 {
    let bits = masks[usize::from(condition.mask)][lane];
    if condition.set { bits } else { !bits }
}

fn integer(number: usize) -> Word {
    Word::from_bits(u128::try_from(number).expect("no wider"))
}

const _: () = assert!(ELEMENTS == 32, "a mask has a bit for each element");
