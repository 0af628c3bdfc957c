//! The assembler: what is printed is read back as the same, and what is wrong is named with its place.

use proptest::prelude::*;
use sprat_grapedr::{
    AssembleError, Code, Condition, Instruction, Listing, Operation, Place, Source, Target, Width, Word, assemble,
};

fn place(limit: u16) -> impl Strategy<Value = Place> {
    (0..limit - 3, any::<bool>()).prop_map(|(at, vector)| Place { at, vector })
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        place(32).prop_map(Source::Register),
        Just(Source::Auxiliary),
        place(256).prop_map(Source::Local),
        place(1024).prop_map(Source::Broadcast),
        any::<u128>().prop_map(|bits| Source::Immediate(Word::from_bits(bits))),
        any::<f64>().prop_map(|number| Source::Immediate(Word::from_f64(number))),
        Just(Source::ElementId),
        Just(Source::BlockId),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        place(32).prop_map(Target::Register),
        Just(Target::Auxiliary),
        place(256).prop_map(Target::Local),
        (0u8..4).prop_map(Target::Mask),
        (place(1024), 0u8..32).prop_map(|(place, element)| Target::Broadcast { place, element }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let code = prop_oneof![
        prop::sample::select(vec![Code::Less, Code::LessEqual, Code::Equal, Code::NotEqual, Code::Pass, Code::Xor]),
        prop::sample::select(vec![
            Code::IntegerAdd,
            Code::IntegerSub,
            Code::And,
            Code::Or,
            Code::ShiftLeft,
            Code::ShiftRight
        ]),
        prop::sample::select(vec![Width::Short, Width::Long]).prop_map(Code::Mul),
        prop::sample::select(vec![Width::Short, Width::Long]).prop_map(Code::Add),
        prop::sample::select(vec![Width::Short, Width::Long]).prop_map(Code::Sub),
    ];
    let condition = prop::option::of((0u8..4, any::<bool>()).prop_map(|(mask, set)| Condition { mask, set }));
    (code, prop::collection::vec(source(), 2), prop::collection::vec(target(), 1..3), condition).prop_map(
        |(code, mut sources, targets, condition)| {
            sources.truncate(code.operands());
            Operation { code, sources, targets, condition }
        },
    )
}

/// Instructions that the machine has, of those at random.
fn instructions() -> impl Strategy<Value = Vec<Instruction>> {
    let instruction =
        prop::collection::vec(operation(), 0..3).prop_filter_map("ports", |all| Instruction::new(all).ok());
    prop::collection::vec(instruction, 0..8)
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(stride in 0u16..1024, init in instructions(), body in instructions()) {
        let listing = Listing { stride, init, body };
        prop_assert_eq!(assemble(&listing.to_string()), Ok(listing));
    }

    #[test]
    fn any_text_is_a_listing_or_an_error(text in "[ -~\n]{0,200}") {
        let _ = assemble(&text);
    }
}

fn wrong(text: &str) -> String {
    assemble(text).map_err(|error: AssembleError| error.to_string()).expect_err(text)
}

#[test]
fn errors_name_the_place() {
    for (text, error) in [
        ("pass $t -> $t", "line 1, column 1: \"pass\" where `stride`, `init` or `loop` was expected"),
        ("stride x", "line 1, column 8: \"x\" where how many words a j has was expected"),
        ("loop\n\n  fad $t $t -> $t", "line 3, column 3: \"fad\" where an operation, such as `fadds` was expected"),
        (
            "init\nfadds $t -> $t",
            "line 2, column 10: \"->\" where an operand: `$r0`, `$r0v`, `$t`, `$lm0v`, `$bm0`, `$pe`, `$bb` or a number was expected",
        ),
        ("init\nfadds $t $t $t", "line 2, column 13: \"$t\" where `->` was expected"),
        (
            "init\npass $t -> 5",
            "line 2, column 12: \"5\" where a target: `$r0v`, `$t`, `$lm0v`, `$m0` or `$bm0.pe0` was expected",
        ),
        ("init\npass $t -> $t @m0", "line 2, column 15: \"@m0\" where a condition: `@$m0` or `@!$m0` was expected"),
        ("init\npass $t -> $t 5", "line 2, column 15: \"5\" where the end of the line was expected"),
        ("init\npass $t", "line 2, column 8: \"\" where `->` was expected"),
        ("init\nnop\n  pass $r32 -> $t # no", "line 3, column 3: register 32 is not there: there are 32"),
    ] {
        assert_eq!(wrong(text), error, "{text}");
    }
}

#[test]
fn comments_and_numbers_are_read() {
    let listing = assemble("stride 2 # of words\nloop\n\nfmuls -1.5e3 $t->$t;pass 0x10 -> $m0 # two")
        .map_err(|error| error.to_string());
    assert!(listing.is_err(), "arrows stand apart");
    let listing =
        assemble("stride 2 # of words\nloop\n\nfmuls -1.5e3 $t -> $t;pass -1.5e3 -> $m0 # two").expect("a listing");
    assert_eq!(listing.stride, 2);
    assert_eq!(listing.body[0].to_string(), "fmuls -1500.0 $t -> $t ; pass -1500.0 -> $m0");
}
