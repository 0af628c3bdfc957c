//! What each operation gives for numbers that are known: in `f64`, to be rounded by whoever keeps
//! them. Constants are folded by it, and the reference computes by it.

use crate::program::{Binary, Compare, Type, Unary};

/// Of a number.
pub(crate) fn unary(what: Unary, a: f64) -> f64 {
    match what {
        Unary::Neg => -a,
        Unary::Abs => a.abs(),
        Unary::Sqrt => a.sqrt(),
        Unary::Rsqrt { .. } => 1.0 / a.sqrt(),
        Unary::Exp => a.exp(),
        Unary::Convert => a,
        Unary::Not => unreachable!("of bools"),
    }
}

/// Of two numbers. Rounded to `f32`, sums, products, quotients (and roots) of such are what `f32`
/// itself would give: `f64` has more than twice its digits.
pub(crate) fn binary(what: Binary, a: f64, b: f64) -> f64 {
    match what {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Min => {
            if a < b {
                a
            } else {
                b
            }
        }
        Binary::Max => {
            if a > b {
                a
            } else {
                b
            }
        }
        Binary::And | Binary::Or => unreachable!("of bools"),
    }
}

/// Whether it holds.
#[expect(clippy::float_cmp, reason = "that is what was asked")]
pub(crate) fn compare(what: Compare, a: f64, b: f64) -> bool {
    match what {
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Eq => a == b,
        Compare::Ne => a != b,
    }
}

/// Rounded to a type; what is not a number is always the same one.
pub(crate) fn round(number: f64, of: Type) -> f64 {
    if number.is_nan() {
        f64::NAN
    } else if of == Type::F32 {
        f64::from(narrow(number))
    } else {
        number
    }
}

/// To the nearest `f32`.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what was asked")]
pub(crate) fn narrow(number: f64) -> f32 {
    number as f32
}
