//! Tests that the assembler reads back printed listings unchanged, and that its errors name their
//! position.

use proptest::prelude::*;
use sprat_formula::{Column, Inputs, Output};
use sprat_grapedr::{
    AssembleError, Code, Condition, Instruction, Kernel, Listing, Operation, Place, Shape, Source,
    Target, Width, Word, assemble, is_listing, run,
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
        prop::sample::select(vec![
            Code::Less,
            Code::LessEqual,
            Code::Equal,
            Code::NotEqual,
            Code::Pass,
            Code::Xor
        ]),
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
    let condition =
        prop::option::of((0u8..4, any::<bool>()).prop_map(|(mask, set)| Condition { mask, set }));
    (code, prop::collection::vec(source(), 2), prop::collection::vec(target(), 1..3), condition)
        .prop_map(|(code, mut sources, targets, condition)| {
            sources.truncate(code.operands());
            Operation { code, sources, targets, condition }
        })
}

/// Returns random instructions that the machine can execute.
fn instructions() -> impl Strategy<Value = Vec<Instruction>> {
    let instruction = prop::collection::vec(operation(), 0..3)
        .prop_filter_map("ports", |all| Instruction::new(all).ok());
    prop::collection::vec(instruction, 0..8)
}

proptest! {
    #[test]
    fn printed_listings_are_read_back(
        stride in 0u16..1024,
        init in instructions(),
        body in instructions(),
    ) {
        let listing = Listing { stride, init, body };
        prop_assert_eq!(assemble(&listing.to_string()), Ok(listing));
    }

    #[test]
    fn any_text_is_a_listing_or_an_error(text in "[ -~\n]{0,200}") {
        let _ = assemble(&text);
        let _ = Kernel::assemble(&text);
    }

    /// A kernel in which one line is replaced is either an error or a kernel that runs.
    #[test]
    fn any_kernel_by_hand_runs_or_is_an_error(
        at in 0..24_usize,
        line in "(i|j|result|index|constant|pass|faddl)( [-a-z0-9$=>.]{1,6}){0,5}",
    ) {
        let lines =
            BY_HAND.lines().enumerate().map(|(other, text)| if other == at { &line } else { text });
        let text = lines.collect::<Vec<_>>().join("\n");
        if let Ok(kernel) = Kernel::assemble(&text) {
            let x = [1.0, 2.0];
            let columns = |count| vec![Column::from(&x[..]); count];
            let (i, j) = (columns(kernel.program().i().len()), columns(kernel.program().j().len()));
            let constants = vec![Some(1.0); kernel.program().constants().len()];
            let inputs =
                Inputs::new(kernel.program(), i, j, &constants).expect("as many as it has");
            assert!(!run(&kernel, &inputs, Shape::DESIGN, None).outputs.is_empty());
        }
    }
}

fn wrong(text: &str) -> String {
    assemble(text).map_err(|error: AssembleError| error.to_string()).expect_err(text)
}

#[test]
fn errors_name_the_place() {
    for (text, error) in [
        (
            "pass $t -> $t",
            "line 1, column 1: \"pass\" where `stride`, `init` or `loop` was expected",
        ),
        (
            "stride 4\nloop\nstride 2",
            "line 3, column 1: `stride` must come once, before `init` and `loop`",
        ),
        ("stride x", "line 1, column 8: \"x\" where how many words a j has was expected"),
        (
            "loop\n\n  fad $t $t -> $t",
            "line 3, column 3: \"fad\" where an operation, such as `fadds` was expected",
        ),
        (
            "init\nfadds $t -> $t",
            "line 2, column 10: \"->\" where an operand: `$r0`, `$r0v`, `$t`, `$lm0v`, `$bm0`, `$pe`, `$bb` or a number was expected",
        ),
        ("init\nfadds $t $t $t", "line 2, column 13: \"$t\" where `->` was expected"),
        (
            "init\npass $t -> 5",
            "line 2, column 12: \"5\" where a target: `$r0v`, `$t`, `$lm0v`, `$m0` or `$bm0.pe0` was expected",
        ),
        (
            "init\npass $t -> $t @m0",
            "line 2, column 15: \"@m0\" where a condition: `@$m0` or `@!$m0` was expected",
        ),
        (
            "init\npass $t -> $t 5",
            "line 2, column 15: \"5\" where the end of the line was expected",
        ),
        ("init\npass $t", "line 2, column 8: \"\" where `->` was expected"),
        (
            "init\nnop\n  pass $r32 -> $t # no",
            "line 3, column 3: register 32 does not exist: there are 32",
        ),
    ] {
        assert_eq!(wrong(text), error, "{text}");
    }
}

/// A kernel written by hand: a sum of products, and the j with the greatest x.
const BY_HAND: &str = "stride 2   # x and its number
i a f64 $lm0v
i nothing f32 unused
j x f64 $bm0
constant c f64 $lm4 = 2
result sum sum f64 $lm8v
result best argmax f64 $lm12v $lm16v
result any or bool $lm20v
index $bm1

init
  pass 0.0 -> $lm8v
  pass -inf -> $lm12v
  pass -1.0 -> $lm16v
  pass 0.0 -> $lm20v
loop
  pass $lm4 -> $r0v
  fmull $bm0 $lm0v -> $r4v
  fmull $r0v $r4v -> $r4v
  faddl $lm8v $r4v -> $r4v
  pass $r4v -> $lm8v
  flt $lm12v $bm0 -> $m0
  pass $bm0 -> $lm12v @$m0
  pass $bm1 -> $lm16v @$m0
  pass 0xffffffffffffffffff -> $lm20v @$m0
";

#[test]
fn a_kernel_by_hand_runs() {
    assert!(is_listing(BY_HAND) && !is_listing("# stride\nVARI x\n") && !is_listing(""));
    let kernel = Kernel::assemble(BY_HAND).expect("a kernel");
    let (a, x) = ([1.0, -1.0, 0.5], [3.0, 5.0, 4.0]);
    let i = vec![Column::from(&a[..]), Column::from(&a[..])];
    let inputs = |c| {
        Inputs::new(kernel.program(), i.clone(), vec![Column::from(&x[..])], &[c]).expect("inputs")
    };
    let outputs = run(&kernel, &inputs(None), Shape::DESIGN, None).outputs;
    let sums = |scale: f64| Output::F64(a.map(|a| scale * 12.0 * a).to_vec());
    assert_eq!(outputs, [sums(2.0), Output::Index(vec![1; 3]), Output::Bool(vec![true; 3])]);
    assert_eq!(run(&kernel, &inputs(Some(3.0)), Shape::DESIGN, None).outputs[0], sums(3.0));
}

#[test]
fn kernels_that_the_machine_cannot_have_are_named() {
    for (from, to, error) in [
        (
            "stride 2",
            "stride 513",
            "line 1, column 8: \"513\" where how many words a j has, 512 at most, was expected",
        ),
        ("stride 2 ", "stride 1 ", "line 9, column 7: \"$bm1\" where a word of each j"),
        (
            "fmull $bm0",
            "fmull $bm2",
            "line 18, column 3: broadcast memory beyond the 2 words of a j",
        ),
        ("$lm0v\n", "$lm253v\n", "line 2, column 9: \"$lm253v\" where four words of local memory"),
        ("$lm0v\n", "$r0v\n", "line 2, column 9: \"$r0v\" where four words"),
        ("$lm12v $lm16v", "$lm12v", "line 7, column 30: \"\" where four words of local memory"),
        ("or bool", "or f32", "line 8, column 15: \"f32\" where bool was expected"),
        ("sum sum", "sum mean", "line 6, column 12: \"mean\" where sum, min,"),
        ("= 2", "= two", "line 5, column 23: \"two\" where a number was expected"),
        ("i nothing", "i a", "line 3, column 1: this cannot be declared: `a` is already defined"),
        (
            "i nothing",
            "i and",
            "line 3, column 1: this cannot be declared: `and` is a word of the language",
        ),
        ("i nothing", "i no:", "line 3, column 3: \"no:\" where a name was expected"),
    ] {
        let text = BY_HAND.replace(from, to);
        assert_ne!(text, BY_HAND, "{from}");
        let found = Kernel::assemble(&text).expect_err(to).to_string();
        assert!(found.starts_with(error), "{to}: {found}");
    }
    assert!(
        Kernel::assemble("stride 0\ninit\nloop\n")
            .expect_err("none")
            .to_string()
            .contains("no result")
    );
    let many = format!(
        "stride 1\n{}",
        (0..65).map(|at| format!("i x{at} f32 unused\n")).collect::<String>()
    );
    assert!(Kernel::assemble(&many).expect_err("many").to_string().starts_with("line 66, "));
}

#[test]
fn comments_and_numbers_are_read() {
    let listing =
        assemble("stride 2 # of words\nloop\n\nfmuls -1.5e3 $t->$t;pass 0x10 -> $m0 # two")
            .map_err(|error| error.to_string());
    assert!(listing.is_err(), "arrows stand apart");
    let listing =
        assemble("stride 2 # of words\nloop\n\nfmuls -1.5e3 $t -> $t;pass -1.5e3 -> $m0 # two")
            .expect("a listing");
    assert_eq!(listing.stride, 2);
    assert_eq!(listing.body[0].to_string(), "fmuls -1500.0 $t -> $t ; pass -1500.0 -> $m0");
}
