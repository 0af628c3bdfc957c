//! Checks that random programs have the properties that the tests of engines rely on.
#![cfg(feature = "arbitrary")]

use proptest::prelude::*;
use sprat_formula::arbitrary::{Case, CaseKind, cases};
use sprat_formula::{
    Arithmetic, Kernel, Node, Output, Precision, Program, ReferenceOutput, Type, reference,
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

/// Returns how far two computations of a case may differ, for a result and an i.
fn allowed(case: &Case, judgement: &ReferenceOutput, result: usize, i: usize) -> f64 {
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
    fn tame_programs_stay_within_their_tolerances(case in cases(CaseKind::Tame, ALL, 4, 20)) {
        same_listing(&case.program)?;
        let judge = reference(&case.program, &case.inputs(), Arithmetic::Wide);
        let others = [
            (&case.program, Arithmetic::Typed),
            (&case.program.contracted(), Arithmetic::Typed),
            (&case.program.contracted(), Arithmetic::Wide),
        ];
        for (program, arithmetic) in others {
            let found = reference(program, &case.inputs(), arithmetic);
            for (result, (a, b)) in judge.outputs.iter().zip(&found.outputs).enumerate() {
                for (i, (x, y)) in numbers(a).into_iter().zip(numbers(b)).enumerate() {
                    let allowed = allowed(&case, &judge, result, i);
                    prop_assert!(
                        (x - y).abs() <= allowed || x == y,
                        "r{result} of {i}: {x}, {y}, \
                        allowed {allowed:e}\n{program}"
                    );
                }
            }
        }
    }

    #[test]
    fn wild_programs_run_and_list(case in cases(CaseKind::Wild, ALL, 4, 20)) {
        same_listing(&case.program)?;
        for arithmetic in [Arithmetic::Wide, Arithmetic::Typed] {
            let judge = reference(&case.program, &case.inputs(), arithmetic);
            prop_assert!(
                judge.outputs.iter().all(|output| numbers(output).len() == case.inputs().ni())
            );
        }
    }
}

/// Checks that the random programs contain each operation and reduction, and that the tolerances
/// are tight enough to find errors.
#[test]
fn tame_programs_contain_every_operation() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = cases(CaseKind::Tame, ALL, 4, 20);
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
    // For each of two types: 3 kinds of variables, literals, 5 unary and 6 binary operations,
    // conversion, selection, fusion. For bools: 4 comparisons, 3 logical operations. And 7
    // reductions.
    assert_eq!(seen.len(), 2 * 18 + 7 + 7, "{seen:?}");
    assert!(seen.values().all(|count| *count >= 20), "{seen:?}");
    assert!(inexact > 500 && tight > inexact * 3 / 4, "{tight} of {inexact}");
}
