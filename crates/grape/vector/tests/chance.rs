//! Compares random kernels on every target with the reference implementation.

use crate::common;
use common::{compile, numbers, targets};
use proptest::prelude::*;
use sprat_formula::arbitrary::{Case, CaseKind, cases};
use sprat_formula::{Arithmetic, Reduction, Type, reference};

fn check(case: &Case) -> Result<(), TestCaseError> {
    let inputs = case.inputs();
    let judged = reference(&case.program, &inputs, Arithmetic::Typed);
    let expected: Vec<Vec<f64>> = judged.outputs.iter().map(numbers).collect();
    for target in targets() {
        let results: Vec<Vec<f64>> =
            compile(&case.program, target).run(&inputs).iter().map(numbers).collect();
        for (at, (result, tolerance)) in
            case.program.results().iter().zip(&case.tolerances).enumerate()
        {
            let sum = result.reduction == Reduction::Sum;
            let epsilon = if case.program.type_of(result.contribution) == Type::F32 {
                f64::from(f32::EPSILON)
            } else {
                f64::EPSILON
            };
            for i in 0..inputs.ni() {
                let (got, expected) = (results[at][i], expected[at][i]);
                let (terms, size) =
                    if sum { (inputs.nj() as f64, judged.magnitudes[at][i]) } else { (1.0, 0.0) };
                let bound = terms * (tolerance + epsilon * (size + terms * tolerance));
                let near = got == expected
                    || (got - expected).abs() <= bound
                    || (got.is_nan() && expected.is_nan());
                prop_assert!(
                    near,
                    "{target:?}, {} of {i}: {got} for {expected}, {bound} allowed",
                    result.name
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn tame_narrow_kernels_agree(case in cases(CaseKind::Tame, &[Type::F32], 40, 40)) {
        check(&case)?;
    }

    #[test]
    fn tame_wide_kernels_agree(case in cases(CaseKind::Tame, &[Type::F32, Type::F64], 40, 40)) {
        check(&case)?;
    }

    /// With arbitrary numbers, kernels run and return results of the right lengths.
    #[test]
    fn wild_kernels_run(case in cases(CaseKind::Wild, &[Type::F32, Type::F64], 70, 40)) {
        let inputs = case.inputs();
        for target in targets() {
            let results = compile(&case.program, target).run(&inputs);
            prop_assert_eq!(results.len(), case.program.results().len());
            prop_assert!(results.iter().all(|result| numbers(result).len() == inputs.ni()));
        }
    }
}
