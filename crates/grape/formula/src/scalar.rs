//! The operations on known numbers in `f64`; the caller rounds the result. The builder folds
//! constants with them, and the reference computes with them.

use crate::program::{Binary, Compare, Type, Unary};

/// Computes an operation on one number.
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

/// Computes an operation on two numbers. For `f32` operands, the `f64` result rounded to `f32` is
/// what `f32` arithmetic gives, since `f64` has more than twice the digits. This is true of sums,
/// products, quotients and square roots.
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

/// Computes a comparison.
#[expect(clippy::float_cmp, reason = "that is what was asked")]
pub(crate) fn compare(what: Compare, a: f64, b: f64) -> bool {
    match what {
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Eq => a == b,
        Compare::Ne => a != b,
    }
}

/// Rounds to a type. NaN always becomes the same NaN.
pub(crate) fn round(number: f64, of: Type) -> f64 {
    if number.is_nan() {
        f64::NAN
    } else if of == Type::F32 {
        f64::from(narrow(number))
    } else {
        number
    }
}

/// Rounds to the nearest `f32`.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what was asked")]
pub(crate) fn narrow(number: f64) -> f32 {
    number as f32
}
