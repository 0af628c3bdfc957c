//! Bounds of a value for all inputs, and of the error of computing it.

use crate::program::Type;
use crate::simplify::digits;

/// Limit on the magnitude of a value.
const MOST: f64 = 1_048_576.0;

/// Limit on the absolute error of a value.
const MOST_ERROR: f64 = 1.0 / 64.0;

/// Limit on how close to 0 divisors and radicands may come.
const LEAST: f64 = 1.0 / 1024.0;

/// Bounds of a value and of its error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    low: f64,
    high: f64,
    /// The largest error of any computation of the value.
    error: f64,
    /// All values are multiples of `2^-grid`; a value with few enough digits is therefore not
    /// rounded. `None` if values can have any digits.
    grid: Option<i32>,
}

impl Bounds {
    /// Bounds of inputs.
    pub(super) const GIVEN: Self = Self { low: 0.5, high: 2.0, error: 0.0, grid: Some(8) };

    /// Bounds of a number that is a multiple of an eighth.
    pub(super) fn number(number: f64) -> Self {
        Self { low: number, high: number, error: 0.0, grid: Some(3) }
    }

    pub(super) fn error(self) -> f64 {
        self.error
    }

    /// Returns whether every computation gives the same value.
    pub(super) fn is_exact(self) -> bool {
        self.error == 0.0
    }

    pub(super) fn add(self, other: Self, of: Type) -> Option<Self> {
        let grid = self.grid.zip(other.grid).map(|(a, b)| a.max(b));
        Self::rounded(
            self.low + other.low,
            self.high + other.high,
            self.error + other.error,
            grid,
            of,
        )
    }

    pub(super) fn sub(self, other: Self, of: Type) -> Option<Self> {
        self.add(other.neg(), of)
    }

    pub(super) fn mul(self, other: Self, of: Type) -> Option<Self> {
        let corners = [
            self.low * other.low,
            self.low * other.high,
            self.high * other.low,
            self.high * other.high,
        ];
        let error =
            self.error * other.size() + other.error * self.size() + self.error * other.error;
        let grid = self.grid.zip(other.grid).map(|(a, b)| a + b);
        let low = corners.into_iter().fold(f64::INFINITY, f64::min);
        Self::rounded(low, corners.into_iter().fold(f64::NEG_INFINITY, f64::max), error, grid, of)
    }

    pub(super) fn div(self, other: Self, of: Type) -> Option<Self> {
        if other.low < LEAST && other.high > -LEAST || other.error > LEAST / 2.0 {
            return None;
        }
        let least = other.low.abs().min(other.high.abs());
        let inverse = Self {
            low: 1.0 / other.high,
            high: 1.0 / other.low,
            error: other.error / (least * (least - other.error)),
            grid: None,
        };
        self.mul(inverse, of)
    }

    pub(super) fn neg(self) -> Self {
        Self { low: -self.high, high: -self.low, ..self }
    }

    pub(super) fn abs(self) -> Self {
        let low = if self.low > 0.0 || self.high < 0.0 {
            self.low.abs().min(self.high.abs())
        } else {
            0.0
        };
        Self { low, high: self.size(), ..self }
    }

    pub(super) fn sqrt(self, of: Type) -> Option<Self> {
        let below = self.root_of()?;
        Self::rounded(self.low.sqrt(), self.high.sqrt(), self.error / below.sqrt(), None, of)
    }

    pub(super) fn rsqrt(self, bits: u8, of: Type) -> Option<Self> {
        let below = self.root_of()?;
        let (low, high) = (1.0 / self.high.sqrt(), 1.0 / self.low.sqrt());
        let accuracy = 2.0_f64.powi(-i32::from(bits)).max(4.0 * unit(of));
        Self::rounded(low, high, self.error * below.powf(-1.5) + 2.0 * accuracy * high, None, of)
    }

    pub(super) fn exp(self, of: Type) -> Option<Self> {
        let high = self.high.exp();
        Self::rounded(self.low.exp(), high, (2.0 * self.error + 4.0 * unit(of)) * high, None, of)
    }

    /// Returns the bounds of a value that is either of two values.
    pub(super) fn join(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            error: self.error.max(other.error),
            grid: self.grid.zip(other.grid).map(|(a, b)| a.max(b)),
        }
    }

    pub(super) fn convert(self, to: Type) -> Option<Self> {
        Self::rounded(self.low, self.high, self.error, self.grid, to)
    }

    /// Returns the smallest radicand that a computation can have; `None` if it can come too close
    /// to 0.
    fn root_of(self) -> Option<f64> {
        (self.low >= LEAST && self.error < LEAST / 2.0).then_some(self.low - self.error)
    }

    fn size(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Adds the error of rounding to a type. Returns `None` beyond [`MOST`] or [`MOST_ERROR`].
    fn rounded(low: f64, high: f64, error: f64, grid: Option<i32>, of: Type) -> Option<Self> {
        let size = low.abs().max(high.abs());
        let exact =
            error == 0.0 && grid.is_some_and(|grid| size * 2.0_f64.powi(grid) <= 0.5 / unit(of));
        let (error, grid) =
            if exact { (0.0, grid) } else { (error + (size + error) * unit(of) + 1e-37, None) };
        (size <= MOST && error <= MOST_ERROR).then_some(Self { low, high, error, grid })
    }
}

/// Returns the largest relative change by rounding.
fn unit(of: Type) -> f64 {
    2.0_f64.powi(-i32::from(digits(of)))
}
