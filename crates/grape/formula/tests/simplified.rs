//! Checks that simplified programs give the same results, including signed zeros and NaN, and that
//! sums compensate rounding.

use sprat_formula::{Arithmetic, Column, Inputs, Kernel, Output, Precision, reference};

/// Numbers for x and y: ordinary ones, such as 5, for which 5 / 3 is not 5 * (1 / 3), and special
/// ones.
const NUMBERS: [f64; 10] =
    [0.0, -0.0, 1.5, -3.0, 5.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5e-324, 1e308];

fn run(statements: &str, x: &[f64], y: &[f64]) -> f64 {
    let text = format!("VARI x\nVARJ y\nVARF r\n{statements}");
    let program =
        Kernel::parse(&text, Precision::F64).unwrap_or_else(|error| panic!("{error}")).program;
    let inputs = Inputs::new(&program, vec![Column::from(x)], vec![Column::from(y)], &[]).unwrap();
    let Output::F64(found) = reference(&program, &inputs, Arithmetic::Typed).outputs.remove(0)
    else {
        panic!("of f64")
    };
    found[0]
}

#[test]
fn identities_hold_for_all_numbers_and_nan() {
    type Pair = fn(f64, f64) -> f64;
    let cases: &[(&str, Pair)] = &[
        ("x + 0", |x, _| x + 0.0),
        ("x + -0.0", |x, _| x + -0.0),
        ("0 + x", |x, _| 0.0 + x),
        ("x - 0", |x, _| x - 0.0),
        ("x - (-0.0)", |x, _| x - -0.0),
        ("0 - x", |x, _| 0.0 - x),
        ("-0.0 - x", |x, _| -0.0 - x),
        ("x * 0", |x, _| x * 0.0),
        ("x * -1", |x, _| -x),
        ("x / -1", |x, _| -x),
        ("x / 4", |x, _| x / 4.0),
        ("x / 3", |x, _| x / 3.0),
        ("x / 0", |x, _| x / 0.0),
        ("x / 5e-324", |x, _| x / 5e-324),
        ("x / 1e308", |x, _| x / 1e308),
        ("x / -0.5", |x, _| x / -0.5),
        ("-(x - y)", |x, y| -(x - y)),
        ("-x + y", |x, y| -x + y),
        ("x - -y", |x, y| x - -y),
        ("-x * -y", |x, y| -x * -y),
        ("-x / -y", |x, y| -x / -y),
        ("x - y - (y - x)", |x, y| (x - y) - (y - x)),
        ("x / y - y / x", |x, y| x / y - y / x),
        ("min(x, y) - min(y, x)", |x, y| {
            let min = |a: f64, b: f64| if a < b { a } else { b };
            min(x, y) - min(y, x)
        }),
        ("abs(-abs(x))", |x, _| x.abs()),
        ("select(not x == y, x, y)", |x, y| if x == y { y } else { x }),
        ("select(not x < y, x, y)", |x, y| if x < y { y } else { x }),
        ("select(1 < 2 and x < y, x, y)", |x, y| if x < y { x } else { y }),
        ("select(1 > 2 or x < y, x, y)", |x, y| if x < y { x } else { y }),
        ("select(1 < 2 or x < y, x, y)", |x, _| x),
    ];
    for (expression, by_hand) in cases {
        for x in NUMBERS {
            for y in NUMBERS {
                let expected = by_hand(x, y);
                // The minimum of one number keeps the sign of 0, but skips NaN.
                let found = run(&format!("r min= {expression}"), &[x], &[y]);
                let wanted = if expected.is_nan() { f64::INFINITY } else { expected };
                assert_eq!(
                    found.to_bits(),
                    wanted.to_bits(),
                    "{expression} of {x}, {y}: {found}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn sums_compensate_rounding() {
    assert_eq!(run("r += y", &[0.0], &[1.0, 1e100, 1.0, -1e100]), 2.0);
    assert_eq!(run("r += y", &[0.0], &[1e308, 1e308]), f64::INFINITY);
}

/// The reciprocal of 2^-128, a subnormal f32, exceeds f32.
#[test]
fn reciprocals_stay_within_the_type() {
    let text = "VARI x\nVARJ y\nVARF r\nr += x / 2.938735877055719e-39";
    let program =
        Kernel::parse(text, Precision::F32).unwrap_or_else(|error| panic!("{error}")).program;
    let (x, y) = ([f64::from(f32::MIN_POSITIVE)], [0.0]);
    let inputs =
        Inputs::new(&program, vec![Column::from(&x[..])], vec![Column::from(&y[..])], &[]).unwrap();
    assert_eq!(reference(&program, &inputs, Arithmetic::Typed).outputs, [Output::F32(vec![4.0])]);
}
