//! Tests the machine: units on all elements together, masks, ports, the tree, and traces.

use proptest::prelude::*;
use sprat_grapedr::{
    AssembleError, AssembleProblem, Board, Code, ELEMENTS, Instruction, PortError, Shape, Trace,
    TreeOperation, VECTOR, Width, Word, assemble,
};
use std::cmp::Ordering;

fn body(text: &str) -> Vec<Instruction> {
    assemble(&format!("loop\n{text}")).expect("a listing").body
}

/// Random words of all kinds, most of them with similar exponents and half of them short.
fn word() -> impl Strategy<Value = Word> {
    let exponent = prop_oneof![4 => 1000u128..1050, 1 => 0u128..2048, 1 => 505u128..520];
    (any::<bool>(), exponent, any::<u64>(), 0u8..4).prop_map(|(sign, exponent, fraction, kind)| {
        let word =
            Word::from_bits(u128::from(sign) << 71 | exponent << 60 | u128::from(fraction >> 4));
        match kind {
            0 => word,
            1 => Word::from_bits(word.bits() >> 60 << 60),
            _ => word.short(),
        }
    })
}

fn bits(holds: bool) -> Word {
    if holds { Word::ONES } else { Word::ZERO }
}

/// Returns the result that an operation should have for two words.
fn meaning(code: Code, a: Word, b: Word) -> Word {
    let shift = |left: bool| match u32::try_from(b.bits()) {
        Ok(by) if by < 72 => Word::from_bits(if left { a.bits() << by } else { a.bits() >> by }),
        _ => Word::ZERO,
    };
    match code {
        Code::Add(width) => a.add(b, width),
        Code::Sub(width) => a.sub(b, width),
        Code::Less => bits(a.compare(b) == Some(Ordering::Less)),
        Code::LessEqual => bits(matches!(a.compare(b), Some(Ordering::Less | Ordering::Equal))),
        Code::Equal => bits(a.compare(b) == Some(Ordering::Equal)),
        Code::NotEqual => bits(a.compare(b) != Some(Ordering::Equal)),
        Code::Mul(Width::Short) => a.short().mul(b.short(), Width::Short),
        Code::Mul(Width::Long) => a.mul(b, Width::Long),
        Code::IntegerAdd => Word::from_bits(a.bits().wrapping_add(b.bits())),
        Code::IntegerSub => Word::from_bits(a.bits().wrapping_sub(b.bits())),
        Code::And => Word::from_bits(a.bits() & b.bits()),
        Code::Or => Word::from_bits(a.bits() | b.bits()),
        Code::Xor => Word::from_bits(a.bits() ^ b.bits()),
        Code::ShiftLeft => shift(true),
        Code::ShiftRight => shift(false),
        Code::Pass => a,
    }
}

const NAMES: [&str; 18] = [
    "fadds", "faddl", "fsubs", "fsubl", "flt", "fle", "feq", "fne", "fmuls", "fmull", "iadd",
    "isub", "and", "or", "xor", "shl", "shr", "pass",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// The fast operations on a whole block give the same results as the operations on single
    /// words.
    #[test]
    fn units_compute_the_same_on_all_elements(
        words in prop::collection::vec((word(), word()), VECTOR),
        short: bool,
        shift in 0u128..90,
    ) {
        let mut board = Board::new(Shape::DESIGN);
        let block = &mut board.blocks_mut()[0];
        for (at, &(a, b)) in words.iter().enumerate() {
            block.set_broadcast(at, if short { a.short() } else { a });
            block.set_broadcast(at + 4, if short { b.short() } else { b });
        }
        block.set_broadcast(8, Word::from_bits(shift));
        block.run(&body("pass $bm0v -> $r0v\npass $bm4v -> $r4v\npass $bm8 -> $r8"), 0);
        for name in NAMES {
            let second = if name.starts_with("sh") {
                " $r8"
            } else if name == "pass" {
                ""
            } else {
                " $r4v"
            };
            let program = body(&format!("{name} $r0v{second} -> $lm0v"));
            block.run(&program, 0);
            for lane in 0..VECTOR {
                let b = if name.starts_with("sh") {
                    block.broadcast(8)
                } else {
                    block.broadcast(lane + 4)
                };
                let expected = meaning(program[0].operations()[0].code, block.broadcast(lane), b);
                for element in [0, 7, ELEMENTS - 1] {
                    prop_assert_eq!(
                        block.local(lane, element),
                        expected,
                        "{} of {:?} and {:?}",
                        name,
                        block.broadcast(lane),
                        b
                    );
                }
            }
        }
    }

    #[test]
    fn the_tree_reduces_all(words in prop::collection::vec(-1e6..1e6, 16)) {
        let mut board = Board::new(Shape::DESIGN);
        for (block, &word) in board.blocks_mut().iter_mut().zip(&words) {
            block.set_broadcast(5, Word::from_f64(word));
        }
        let reduced = |tree| board.reduce(tree, 0..16, 5).to_f64();
        let sum: f64 = words.iter().sum();
        prop_assert!((reduced(TreeOperation::Sum) - sum).abs() <= 1e-8);
        prop_assert_eq!(
            reduced(TreeOperation::Min),
            words.iter().copied().fold(f64::INFINITY, f64::min)
        );
        prop_assert_eq!(
            reduced(TreeOperation::Max),
            words.iter().copied().fold(f64::NEG_INFINITY, f64::max)
        );
        let all = words.iter().map(|&word| Word::from_f64(word).bits());
        prop_assert_eq!(
            board.reduce(TreeOperation::And, 0..16, 5).bits(),
            all.clone().reduce(|a, b| a & b).unwrap()
        );
        prop_assert_eq!(
            board.reduce(TreeOperation::Or, 0..16, 5).bits(),
            all.reduce(|a, b| a | b).unwrap()
        );
    }
}

#[test]
fn the_tree_ignores_nan() {
    let word = Word::from_f64;
    for words in [
        vec![Word::NAN, word(2.0), word(3.0)],
        vec![word(2.0), word(3.0), Word::NAN],
        vec![word(2.0), Word::NAN, word(3.0)],
    ] {
        assert_eq!(TreeOperation::Min.reduce(words.clone()), word(2.0));
        assert_eq!(TreeOperation::Max.reduce(words.clone()), word(3.0));
        assert!(TreeOperation::Sum.reduce(words).is_nan());
    }
}

#[test]
fn masks_say_where_results_are_stored() {
    let mut board = Board::new(Shape::DESIGN);
    let block = &mut board.blocks_mut()[3];
    block.run(&body("xor $pe 0x5 -> $m1\npass 2.5 -> $lm0v @!$m1 ; fadds 2.5 $bm0 -> $r8v @$m1\npass $bb -> $lm4"), 0);
    for element in 0..ELEMENTS {
        let (five, two) = (element == 5, Word::from_f64(2.5));
        assert_eq!(block.local(3, element), if five { two } else { Word::ZERO });
        assert_eq!(block.register(9, element), if five { Word::ZERO } else { two });
        assert_eq!(block.local(4, element), Word::from_bits(3));
    }
}

#[test]
fn one_element_writes_the_broadcast_memory() {
    let mut board = Board::new(Shape::DESIGN);
    let block = &mut board.blocks_mut()[0];
    block.run(&body("pass $pe -> $r0v\npass $r0v -> $bm6v.pe9"), 100);
    assert_eq!([105, 106, 109, 110].map(|at| block.broadcast(at).bits()), [0, 9, 9, 0]);
}

#[test]
fn a_vector_is_read_before_it_is_written() {
    let mut board = Board::new(Shape::DESIGN);
    let block = &mut board.blocks_mut()[0];
    (0..8).for_each(|at| block.set_broadcast(at, Word::from_bits(u128::try_from(at).unwrap())));
    block.run(&body("pass $bm0v -> $r0v\npass $bm4v -> $r4v\npass $r0v -> $r1v"), 0);
    assert_eq!([0, 1, 2, 3, 4, 5].map(|at| block.register(at, 0).bits()), [0, 0, 1, 2, 3, 5]);
}

#[test]
fn cycles_count_passes() {
    let program = body("fadds $t $t -> $t\nfmull $t $t -> $t ; faddl $r0v $t -> $r0v\nnop");
    assert_eq!(program.iter().map(Instruction::cycles).collect::<Vec<_>>(), [4, 8, 4]);
    let mut board = Board::new(Shape::DESIGN);
    board.for_each_block(|block| block.run(&program, 0));
    assert!(board.blocks().iter().all(|block| block.cycles() == 16));
}

#[test]
fn ports_are_few() {
    let refused = |text: &str| match assemble(&format!("loop\n{text}")) {
        Err(AssembleError { problem: AssembleProblem::Port(port), line: 2, .. }) => port,
        other => panic!("{text}: {other:?}"),
    };
    for text in [
        "fadds $r0v $r4v -> $t ; fmuls $r8v $r8v -> $r0v",
        "fadds $r0v $r0v -> $r0v ; fmuls $r4v $r4v -> $r4v",
        "fadds $r0v $r0 -> $r0v ; fmuls $r1 $r1 -> $t",
        "fadds $lm0v $lm4v -> $t",
        "fadds $lm0v $t -> $lm0v",
        "fadds $bm0 $bm1 -> $t",
        "fadds 1.0 2.0 -> $t",
    ] {
        assert!(matches!(refused(text), PortError::Busy(_)), "{text}");
    }
    assert!(matches!(refused("fadds $t $t -> $t ; fsubs $t $t -> $r0v"), PortError::Unit(_)));
    assert!(matches!(refused("fadds $t $t -> $r0v $r0v"), PortError::Twice(_)));
    assert!(matches!(refused("fadds $t $t -> $t ; fmuls $t $t -> $t"), PortError::Twice(_)));
    assert!(matches!(refused("pass $t -> $r0 $r1 $r2 $r3 $r4"), PortError::Targets(5)));
    for text in [
        "pass $r29v -> $t",
        "pass $t -> $lm253v",
        "pass $bm1024 -> $t",
        "pass $t -> $m4",
        "pass $t -> $bm0.pe32",
        "pass $t -> $t @$m4",
    ] {
        assert!(matches!(refused(text), PortError::Place { .. }), "{text}");
    }
    for text in [
        "fadds $r0v $r4v -> $r0v ; fmuls $t $r0v -> $t ; pass $lm0v -> $m0",
        "fadds 1.0 $bm0 -> $t ; fmuls $bm0 1.0 -> $r0v",
    ] {
        assert!(assemble(&format!("loop\n{text}")).is_ok(), "{text}");
    }
}

#[test]
fn traces_record_what_an_element_computes() {
    let mut board = Board::new(Shape::DESIGN);
    let block = &mut board.blocks_mut()[0];
    block.start_trace(Trace::new(6, 2));
    block.run(&body("fmull 3.0 $bm0 -> $t\npass $pe -> $r0v\npass $t -> $t"), 0);
    let trace = block.stop_trace().expect("watched");
    let entries = trace.entries();
    assert_eq!((entries.len(), trace.left_out()), (2, 1));
    assert_eq!((entries[0].cycle, entries[1].cycle), (0, 8));
    assert_eq!(entries[1].instruction.to_string(), "pass $pe -> $r0v");
    assert_eq!(entries[1].values, [[Word::from_bits(6); VECTOR]]);
}
