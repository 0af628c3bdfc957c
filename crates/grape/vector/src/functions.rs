//! Functions that no single instruction computes exactly. Each begins with an estimate or a
//! polynomial, which further operations refine.

use crate::ir::{Kind, Op, Var};
use crate::lower::Lower;
use crate::target::Target;
use sprat_formula::Compare;

/// Coefficients of the series of (1 - e)^(-1/2) after its leading 1. Let y be an estimate of the
/// inverse square root of x, and e = 1 - x y^2. Then y (1 + e/2 + 3/8 e^2 + ...) is the exact
/// inverse root.
const SERIES: [f64; 4] = [0.5, 0.375, 0.3125, 0.273_437_5];

/// Accuracies in bits that the AVX-512 estimate reaches with 0, 1, 2 and 3 terms. An error of 2
/// units in the last place counts as full accuracy.
const TERMS_512: [u8; 4] = [14, 27, 40, 53];

/// Accuracies in bits that the AVX2 estimate, which has 11 and a half bits, reaches with 0, 1 and 2
/// terms.
const TERMS_2: [u8; 3] = [11, 21, 24];

/// Degrees of the polynomials for e^r with |r| <= ln 2 / 2, for 32 and 64 bits.
const DEGREES: [usize; 2] = [7, 13];

impl Lower<'_> {
    pub(crate) fn rsqrt(&mut self, kind: Kind, x: Var, bits: u8) -> Var {
        match (self.target, self.terms(kind, bits)) {
            (Target::Avx512, Some(terms)) => {
                let y = self.inst(Op::Estimate, kind, &[x]);
                self.refine(kind, x, y, terms)
            }
            (_, Some(terms)) => {
                // The estimate treats numbers below the least normal one as 0. Such x are scaled up
                // first, and the result is scaled back.
                let (least, up, down) =
                    (f64::from(f32::MIN_POSITIVE), 2f64.powi(24), 2f64.powi(12));
                let least = self.number(kind, least);
                let small = self.compare(Compare::Lt, kind, &[x, least]);
                let (up, down) = (self.number(kind, up), self.number(kind, down));
                let greater = self.inst(Op::Mul, kind, &[x, up]);
                let scaled = self.blend(kind, small, greater, x);
                let y = self.inst(Op::Estimate, kind, &[scaled]);
                let y = self.refine(kind, scaled, y, terms);
                let less = self.inst(Op::Mul, kind, &[y, down]);
                self.blend(kind, small, less, y)
            }
            // AVX2 has no estimate for 64 bits. With one for 32 bits, x and the result would have
            // to be scaled.
            (_, None) => {
                let root = self.inst(Op::Sqrt, kind, &[x]);
                let one = self.number(kind, 1.0);
                self.inst(Op::Div, kind, &[one, root])
            }
        }
    }

    /// Refines an estimate by one step with this many terms. If x is 0, infinite or not a number, e
    /// is not a number. The minimum then replaces e by 1, which leaves y unchanged.
    fn refine(&mut self, kind: Kind, x: Var, y: Var, terms: usize) -> Var {
        if terms == 0 {
            return y;
        }
        let one = self.number(kind, 1.0);
        let product = self.inst(Op::Mul, kind, &[x, y]);
        let e = self.inst(Op::Fnma, kind, &[product, y, one]);
        let e = self.inst(Op::Min, kind, &[e, one]);
        self.series(kind, y, e, terms)
    }

    /// Computes y times a sum: 1, and this many terms of the series in e.
    fn series(&mut self, kind: Kind, y: Var, e: Var, terms: usize) -> Var {
        let mut factor = self.number(kind, SERIES[terms - 1]);
        for &term in SERIES[..terms - 1].iter().rev() {
            let term = self.number(kind, term);
            factor = self.inst(Op::Fma, kind, &[factor, e, term]);
        }
        if terms == 1 {
            let half = self.inst(Op::Mul, kind, &[y, factor]);
            return self.inst(Op::Fma, kind, &[half, e, y]);
        }
        let part = self.inst(Op::Mul, kind, &[y, e]);
        self.inst(Op::Fma, kind, &[part, factor, y])
    }

    /// Computes an inverse root that may be wrong if x is 0, infinite, not a number, or below the
    /// least normal number. In these cases the result is infinite or not a number. Returns the
    /// result with the factor by which it must be multiplied. With one term of the series, the
    /// result is twice the inverse root, y (3 - x y^2), which saves a multiplication.
    pub(crate) fn bare_rsqrt(&mut self, kind: Kind, x: Var, bits: u8) -> (Var, f64) {
        let terms = match self.terms(kind, bits) {
            Some(terms) if terms > 0 => terms,
            _ => return (self.rsqrt(kind, x, bits), 1.0),
        };
        let y = self.inst(Op::Estimate, kind, &[x]);
        let product = self.inst(Op::Mul, kind, &[x, y]);
        if terms == 1 {
            let three = self.number(kind, 3.0);
            let factor = self.inst(Op::Fnma, kind, &[product, y, three]);
            return (self.inst(Op::Mul, kind, &[y, factor]), 0.5);
        }
        let one = self.number(kind, 1.0);
        let e = self.inst(Op::Fnma, kind, &[product, y, one]);
        (self.series(kind, y, e, terms), 1.0)
    }

    /// Returns the number of terms that an accuracy of `bits` needs. `None` if the target has no
    /// estimate.
    fn terms(&self, kind: Kind, bits: u8) -> Option<usize> {
        let (good, most): (&[u8], _) = match (self.target, kind) {
            (Target::Avx512, Kind::F32) => (&TERMS_512, 1),
            (Target::Avx512, _) => (&TERMS_512, 3),
            (_, Kind::F32) => (&TERMS_2, 2),
            _ => return None,
        };
        Some(good.iter().position(|&good| bits <= good).unwrap_or(most).min(most))
    }

    /// Computes e^x as 2^n times a polynomial in r, where x = n ln 2 + r.
    pub(crate) fn exp(&mut self, kind: Kind, x: Var) -> Var {
        // Beyond these limits the result is infinity or 0 anyway. The order of the operands of
        // `min` and `max` preserves a NaN.
        let [most, least] = if kind == Kind::F32 { [89.0, -105.0] } else { [710.0, -746.0] };
        // ln 2 in two parts; the first has so few bits that its products with n are exact.
        let [high, low] = if kind == Kind::F32 {
            [0.693_359_375, -2.121_944_400_546_905_8e-4]
        } else {
            [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10]
        };
        let (most, least) = (self.number(kind, most), self.number(kind, least));
        let x = self.inst(Op::Min, kind, &[most, x]);
        let x = self.inst(Op::Max, kind, &[least, x]);
        let inverse = self.number(kind, std::f64::consts::LOG2_E);
        let n = self.inst(Op::Mul, kind, &[x, inverse]);
        let n = self.inst(Op::Round, kind, &[n]);
        let (high, low) = (self.number(kind, high), self.number(kind, low));
        let r = self.inst(Op::Fnma, kind, &[n, high, x]);
        let r = self.inst(Op::Fnma, kind, &[n, low, r]);
        let degree = DEGREES[usize::from(kind == Kind::F64)];
        let mut factorial: f64 =
            (1..=degree).map(|k| f64::from(u8::try_from(k).expect("few"))).product();
        let mut sum = self.number(kind, 1.0 / factorial);
        for k in (0..degree).rev() {
            factorial /= f64::from(u8::try_from(k + 1).expect("few"));
            let term = self.number(kind, 1.0 / factorial);
            sum = self.inst(Op::Fma, kind, &[sum, r, term]);
        }
        self.scale(kind, sum, n)
    }

    /// Computes a times 2^n. Without an instruction for this, it takes two steps, because 2^n may
    /// overflow although the product does not.
    fn scale(&mut self, kind: Kind, a: Var, n: Var) -> Var {
        if self.target == Target::Avx512 {
            return self.inst(Op::Scale, kind, &[a, n]);
        }
        // After this number is added, the lowest bits contain n plus the exponent's bias. A shift
        // then moves them to the position of the exponent.
        let (digits, bias) = if kind == Kind::F32 { (23u8, 127.0) } else { (52, 1023.0) };
        let magic = self.number(kind, 1.5 * 2f64.powi(i32::from(digits)) + bias);
        let half = self.number(kind, 0.5);
        let first = self.inst(Op::Mul, kind, &[n, half]);
        let first = self.inst(Op::Round, kind, &[first]);
        let second = self.inst(Op::Sub, kind, &[n, first]);
        let mut product = a;
        for part in [first, second] {
            let bits = self.inst(Op::Add, kind, &[part, magic]);
            let power = self.inst(Op::Shift(digits), kind, &[bits]);
            product = self.inst(Op::Mul, kind, &[product, power]);
        }
        product
    }
}
