//! The inputs of a kernel, and its outputs.

use crate::program::{Field, Program, Type};
use crate::scalar;
use std::ops::Range;
use thiserror::Error;

/// The numbers of a variable.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Numbers of [`Type::F32`].
    F32(&'a [f32]),
    /// Numbers of [`Type::F64`].
    F64(&'a [f64]),
}

/// A variable of all particles: every `stride`-th number of a slice, beginning with the first. A
/// variable of type [`Type::F32`] may be given in `f64`, and is then rounded. A variable of type
/// [`Type::F64`] may be given in `f32`.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    data: Data<'a>,
    stride: usize,
}

impl<'a> Column<'a> {
    /// Takes every `stride`-th number.
    ///
    /// # Panics
    /// If the stride is 0.
    #[must_use]
    pub fn strided(data: Data<'a>, stride: usize) -> Self {
        assert!(stride > 0, "a stride of 0");
        Self { data, stride }
    }

    /// Returns the underlying slice.
    #[must_use]
    pub fn data(&self) -> Data<'a> {
        self.data
    }

    /// Returns the distance from one particle's number to the next.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the number of particles.
    #[must_use]
    pub fn len(&self) -> usize {
        let len = match self.data {
            Data::F32(data) => data.len(),
            Data::F64(data) => data.len(),
        };
        len.div_ceil(self.stride)
    }

    /// Returns whether there are no particles.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the column of a range of particles.
    ///
    /// # Panics
    /// If some of these particles do not exist.
    #[must_use]
    pub fn part(&self, of: Range<usize>) -> Self {
        assert!(
            of.start <= of.end && of.end <= self.len(),
            "particles that a column does not have"
        );
        let part = match of.is_empty() {
            true => 0..0,
            false => of.start * self.stride..(of.end - 1) * self.stride + 1,
        };
        let data = match self.data {
            Data::F32(data) => Data::F32(&data[part]),
            Data::F64(data) => Data::F64(&data[part]),
        };
        Self { data, stride: self.stride }
    }

    /// Returns a particle's number.
    ///
    /// # Panics
    /// If there is no such particle.
    #[must_use]
    pub fn get(&self, particle: usize) -> f64 {
        match self.data {
            Data::F32(data) => f64::from(data[particle * self.stride]),
            Data::F64(data) => data[particle * self.stride],
        }
    }
}

impl<'a> From<&'a [f32]> for Column<'a> {
    fn from(data: &'a [f32]) -> Self {
        Self::strided(Data::F32(data), 1)
    }
}

impl<'a> From<&'a [f64]> for Column<'a> {
    fn from(data: &'a [f64]) -> Self {
        Self::strided(Data::F64(data), 1)
    }
}

/// A result for all particles.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Numbers of [`Type::F32`].
    F32(Vec<f32>),
    /// Numbers of [`Type::F64`].
    F64(Vec<f64>),
    /// Results of `and` and `or`.
    Bool(Vec<bool>),
    /// Results of `argmin` and `argmax`: indices of j, or -1.
    Index(Vec<i64>),
}

impl Output {
    /// Returns the number of particles.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(numbers) => numbers.len(),
            Self::F64(numbers) => numbers.len(),
            Self::Bool(all) => all.len(),
            Self::Index(places) => places.len(),
        }
    }

    /// Returns whether there are no particles.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Converts to numbers, or returns `None` for bools and indices.
    #[must_use]
    pub fn into_numbers(self) -> Option<Vec<f64>> {
        match self {
            Self::F64(numbers) => Some(numbers),
            Self::F32(numbers) => Some(numbers.into_iter().map(f64::from).collect()),
            Self::Bool(_) | Self::Index(_) => None,
        }
    }
}

/// Why inputs do not fit a kernel.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum DataError {
    /// The number of variables is wrong.
    #[error(
        "{given} {kind} variables were given, the kernel has {}: {}",
        names.len(), names.join(", ")
    )]
    Count {
        /// `i`, `j` or `constant`.
        kind: &'static str,
        /// The number of columns or constants that were given.
        given: usize,
        /// Names of the kernel's variables.
        names: Vec<String>,
    },
    /// Variables have different numbers of particles.
    #[error(
        "{kind} variable {name} has {len} particles, {first} has {others}; all of a kind must have \
         equally many"
    )]
    Length {
        /// `i` or `j`.
        kind: &'static str,
        /// The variable.
        name: String,
        /// The number of particles of this variable.
        len: usize,
        /// The first variable of this kind.
        first: String,
        /// The first variable's number of particles.
        others: usize,
    },
    /// A constant has no value.
    #[error("constant {name} was not given, and has no default in the kernel")]
    Missing {
        /// Name of the constant.
        name: String,
    },
    /// A constant would become infinite, or 0, in its type.
    #[error(
        "constant {name} is {value}, and {narrow} in f32: compute in f64, or give it another value"
    )]
    Beyond {
        /// Name of the constant.
        name: String,
        /// The given value, as text.
        value: String,
        /// The constant's value in `f32`: "infinity" or "0".
        narrow: &'static str,
    },
    /// There are more particles of one kind than [`MAX_PARTICLES`].
    #[error("{count} {kind} particles: {limit} is the limit")]
    TooMany {
        /// `i` or `j`.
        kind: &'static str,
        /// The number of particles that were given.
        count: usize,
        /// The limit.
        limit: usize,
    },
}

/// Limit on the particles of each kind: back ends count them in 32 bits. [`Inputs::new`] rejects
/// more.
pub const MAX_PARTICLES: usize = i32::MAX as usize;

/// The inputs of a kernel, checked against its program.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    i: Vec<Column<'a>>,
    j: Vec<Column<'a>>,
    constants: Vec<f64>,
    ni: usize,
    nj: usize,
}

impl<'a> Inputs<'a> {
    /// Checks columns and constants, which are in the program's order. `None` for a constant means
    /// its default. A kernel without i variables runs for one i, and a kernel without j variables
    /// runs over one j.
    ///
    /// # Errors
    /// [`DataError`] if the number of columns or constants differs from the program's, columns of
    /// one kind differ in length, there are more than [`MAX_PARTICLES`], or a constant has neither
    /// a value nor a default, or does not fit its type.
    pub fn new(
        program: &Program,
        i: Vec<Column<'a>>,
        j: Vec<Column<'a>>,
        constants: &[Option<f64>],
    ) -> Result<Self, DataError> {
        let ni = particles("i", program.i(), &i)?;
        let nj = particles("j", program.j(), &j)?;
        let known = program.constants();
        if constants.len() != known.len() {
            let names = known.iter().map(|constant| constant.name.clone()).collect();
            return Err(DataError::Count { kind: "constant", given: constants.len(), names });
        }
        let given = known.iter().zip(constants).map(|(constant, given)| {
            let name = || constant.name.clone();
            let value =
                given.or(constant.default).ok_or_else(|| DataError::Missing { name: name() })?;
            match lost(value, constant.of) {
                Some(narrow) => {
                    Err(DataError::Beyond { name: name(), value: format!("{value:e}"), narrow })
                }
                None => Ok(value),
            }
        });
        let constants = given.collect::<Result<_, _>>()?;
        Ok(Self { i, j, constants, ni, nj })
    }

    /// Returns the i columns.
    #[must_use]
    pub fn i(&self) -> &[Column<'a>] {
        &self.i
    }

    /// Returns the j columns.
    #[must_use]
    pub fn j(&self) -> &[Column<'a>] {
        &self.j
    }

    /// Returns the values of the constants, not rounded to their types.
    #[must_use]
    pub fn constants(&self) -> &[f64] {
        &self.constants
    }

    /// Returns the inputs with only these i.
    ///
    /// # Panics
    /// If some of these i do not exist.
    #[must_use]
    pub fn of_i(&self, of: Range<usize>) -> Self {
        assert!(of.end <= self.ni, "i that there are not");
        let i = self.i.iter().map(|column| column.part(of.clone())).collect();
        Self { i, ni: of.len(), ..self.clone() }
    }

    /// Returns the inputs with only these j.
    ///
    /// # Panics
    /// If some of these j do not exist.
    #[must_use]
    pub fn of_j(&self, of: Range<usize>) -> Self {
        assert!(of.end <= self.nj, "j that there are not");
        let j = self.j.iter().map(|column| column.part(of.clone())).collect();
        Self { j, nj: of.len(), ..self.clone() }
    }

    /// Returns the number of i.
    #[must_use]
    pub fn ni(&self) -> usize {
        self.ni
    }

    /// Returns the number of j.
    #[must_use]
    pub fn nj(&self) -> usize {
        self.nj
    }
}

/// Returns "infinity" or "0" if a finite number that is not 0 becomes infinity or 0 in its type;
/// otherwise `None`.
fn lost(value: f64, of: Type) -> Option<&'static str> {
    let narrow = scalar::round(value, of);
    if value.is_finite() && narrow.is_infinite() {
        return Some("infinity");
    }
    (value != 0.0 && narrow == 0.0).then_some("0")
}

fn particles(
    kind: &'static str,
    fields: &[Field],
    columns: &[Column<'_>],
) -> Result<usize, DataError> {
    debug_assert!(fields.iter().all(|field| field.of != Type::Bool), "a variable is a number");
    if fields.len() != columns.len() {
        let names = fields.iter().map(|field| field.name.clone()).collect();
        return Err(DataError::Count { kind, given: columns.len(), names });
    }
    let Some(count) = columns.first().map(Column::len) else { return Ok(1) };
    for (field, column) in fields.iter().zip(columns) {
        let len = column.len();
        if len != count {
            let (name, first) = (field.name.clone(), fields[0].name.clone());
            return Err(DataError::Length { kind, name, len, first, others: count });
        }
    }
    if count > MAX_PARTICLES {
        return Err(DataError::TooMany { kind, count, limit: MAX_PARTICLES });
    }
    Ok(count)
}
