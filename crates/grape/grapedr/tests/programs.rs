//! Compares random programs on the simulated machine with the reference implementation.

use proptest::prelude::*;
use sprat_formula::arbitrary::{Case, CaseKind, cases};
use sprat_formula::{Arithmetic, Output, Reduction, Type, reference};
use sprat_grapedr::{Kernel, Shape, compile, is_listing, run};

fn numbers(output: &Output) -> Vec<f64> {
    match output {
        Output::F32(all) => all.iter().map(|&x| f64::from(x)).collect(),
        Output::F64(all) => all.clone(),
        Output::Bool(all) => all.iter().map(|&x| f64::from(u8::from(x))).collect(),
        Output::Index(all) => all.iter().map(|&x| x as f64).collect(),
    }
}

fn check(case: &Case, chips: usize) -> Result<(), TestCaseError> {
    let inputs = case.inputs();
    let judged = reference(&case.program, &inputs, Arithmetic::Typed);
    let kernel = compile(&case.program).unwrap();
    let shape = Shape::new(chips, 5e8).unwrap();
    let ours = run(&kernel, &inputs, shape, None).outputs;
    // The printed kernel must run with the same results.
    let printed = kernel.to_string();
    prop_assert!(is_listing(&printed));
    let read = Kernel::assemble(&printed)
        .map_err(|error| TestCaseError::fail(format!("{error} of\n{printed}")))?;
    prop_assert_eq!((read.listing(), read.to_string()), (kernel.listing(), printed));
    let again = run(&read, &inputs, shape, None).outputs;
    prop_assert_eq!(format!("{again:?}"), format!("{ours:?}"));
    for (at, (result, tolerance)) in case.program.results().iter().zip(&case.tolerances).enumerate()
    {
        let (got, expected) = (numbers(&ours[at]), numbers(&judged.outputs[at]));
        let narrow = case.program.type_of(result.contribution) == Type::F32;
        let epsilon = if narrow { f64::from(f32::EPSILON) } else { f64::EPSILON };
        let sum = result.reduction == Reduction::Sum;
        for i in 0..inputs.ni() {
            let (terms, size) =
                if sum { (inputs.nj() as f64, judged.magnitudes[at][i]) } else { (1.0, 0.0) };
            let bound = terms * (tolerance + epsilon * (size + terms * tolerance));
            let (got, expected) = (got[i], expected[i]);
            let near = got == expected || (got - expected).abs() <= bound;
            prop_assert!(near, "{} of {i}: {got} for {expected}, {bound} allowed", result.name);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn narrow_programs_agree_with_the_reference(
        case in cases(CaseKind::Tame, &[Type::F32], 150, 40),
        chips in 1usize..5,
    ) {
        check(&case, chips)?;
    }

    #[test]
    fn wide_programs_agree_with_the_reference(
        case in cases(CaseKind::Tame, &[Type::F32, Type::F64], 150, 40),
        chips in 1usize..5,
    ) {
        check(&case, chips)?;
    }

    /// With arbitrary numbers, programs run and return results of the right lengths.
    #[test]
    fn wild_programs_run(case in cases(CaseKind::Wild, &[Type::F32, Type::F64], 70, 40)) {
        let kernel = compile(&case.program).unwrap();
        let inputs = case.inputs();
        let ours = run(&kernel, &inputs, Shape::new(1, 5e8).unwrap(), None).outputs;
        prop_assert_eq!(ours.len(), case.program.results().len());
        prop_assert!(ours.iter().all(|output| numbers(output).len() == inputs.ni()));
    }
}
