//! Programs by chance keep what they promise those who test with them.
#![cfg(feature = "arbitrary")]

use proptest::prelude::*;
use sprat_formula::arbitrary::{Case, Kind, cases};
use sprat_formula::{
    Arithmetic, Judgement, Kernel, Node, Output, Precision, Program, Type, reference,
};

const ALL: &[Type] = &[Type::F32, Type::F64];

fn numbers(output: &Output) -> Vec<f64> {
    match output {
        Output::F32(numbers) => numbers.iter().map(|&x| f64::from(x)).collect(),
        Output::F64(numbers) => numbers.clone(),
        Output::Bool(bools) => bools.iter().map(|&holds| f64::from(u8::from(holds))).collect(),
        Output::Index(places) => {
            places.iter().map(|&j| f64::from(i32::try_from(j).unwrap())).collect()
        }
    }
}

/// How far two computations of a case may be apart, of each result and i.
fn allowed(case: &Case, judgement: &Judgement, result: usize, i: usize) -> f64 {
    let nj = f64::from(u32::try_from(case.inputs().nj()).unwrap());
    match judgement.magnitudes[result].get(i) {
        Some(magnitude) => {
            nj * case.tolerances[result]
                + 1e-6 * magnitude * f64::from(u8::from(f32s(&judgement.outputs[result])))
                + 1e-13 * magnitude
        }
        None => {
            case.tolerances[result]
                + if f32s(&judgement.outputs[result]) {
                    1e-7 * numbers(&judgement.outputs[result])[i].abs()
                } else {
                    0.0
                }
        }
    }
}

fn f32s(output: &Output) -> bool {
    matches!(output, Output::F32(_))
}

fn same_listing(program: &Program) -> Result<(), TestCaseError> {
    let listing = program.to_string();
    let again = Kernel::parse(&listing, Precision::F32)
        .map_err(|error| TestCaseError::fail(format!("{error}\n{listing}")))?;
    prop_assert_eq!(&again.program, program, "{}", listing);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn tame_programs_differ_by_no_more_than_they_say(case in cases(Kind::Tame, ALL, 4, 20)) {
        same_listing(&case.program)?;
        let judge = reference(&case.program, &case.inputs(), Arithmetic::Wide);
        let others = [(&case.program, Arithmetic::Typed), (&case.program.contracted(), Arithmetic::Typed), (&case.program.contracted(), Arithmetic::Wide)];
        for (program, arithmetic) in others {
            let found = reference(program, &case.inputs(), arithmetic);
            for (result, (a, b)) in judge.outputs.iter().zip(&found.outputs).enumerate() {
                for (i, (x, y)) in numbers(a).into_iter().zip(numbers(b)).enumerate() {
                    let allowed = allowed(&case, &judge, result, i);
                    prop_assert!((x - y).abs() <= allowed || x == y, "r{result} of {i}: {x}, {y}, allowed {allowed:e}\n{program}");
                }
            }
        }
    }

    #[test]
    fn wild_programs_are_computed_and_listed(case in cases(Kind::Wild, ALL, 4, 20)) {
        same_listing(&case.program)?;
        for arithmetic in [Arithmetic::Wide, Arithmetic::Typed] {
            let judge = reference(&case.program, &case.inputs(), arithmetic);
            prop_assert!(judge.outputs.iter().all(|output| numbers(output).len() == case.inputs().ni()));
        }
    }
}

/// What cannot fail because it never happens proves nothing: each operation and reduction is among
/// the programs, and tolerances are not so wide that anything would pass.
#[test]
fn tame_programs_have_all_there_is() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = cases(Kind::Tame, ALL, 4, 20);
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    let (mut inexact, mut tight) = (0, 0);
    for _ in 0..1000 {
        let case = strategy.new_tree(&mut runner).unwrap().current();
        let contracted = case.program.contracted();
        let word = |text: String| {
            text.split(|c: char| !c.is_ascii_alphabetic()).take(2).collect::<Vec<_>>().join(" ")
        };
        for (node, of) in case.program.nodes().iter().chain(contracted.nodes()) {
            let name = match node {
                Node::Unary(what, _) => word(format!("{what:?}")),
                Node::Binary(what, ..) => word(format!("{what:?}")),
                Node::Compare(what, ..) => word(format!("{what:?}")),
                node => word(format!("{node:?}")),
            };
            *seen.entry(format!("{name} {of:?}")).or_default() += 1;
        }
        for (result, tolerance) in case.program.results().iter().zip(&case.tolerances) {
            *seen.entry(format!("{:?}", result.reduction)).or_default() += 1;
            inexact += usize::from(*tolerance > 0.0);
            tight += usize::from(*tolerance > 0.0 && *tolerance < 1e-3);
        }
    }
    // Of two types: 3 kinds of variables, numbers, 5 operations on one, 6 on two, conversion,
    // choice, fusing. Of bools: 4 comparisons, 3 of logic. And 7 reductions.
    assert_eq!(seen.len(), 2 * 18 + 7 + 7, "{seen:?}");
    assert!(seen.values().all(|count| *count >= 20), "{seen:?}");
    assert!(inexact > 500 && tight > inexact * 3 / 4, "{tight} of {inexact}");
}
