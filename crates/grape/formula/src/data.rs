//! What a kernel is run on, and what comes of it.

use crate::program::{Field, Program, Type};
use crate::scalar;
use std::ops::Range;
use thiserror::Error;

/// Numbers of one variable.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Of [`Type::F32`].
    F32(&'a [f32]),
    /// Of [`Type::F64`].
    F64(&'a [f64]),
}

/// One variable for all particles: every `stride`-th number of a slice, from its first. A variable
/// of [`Type::F32`] may be given in `f64`, and is rounded; one of [`Type::F64`] in `f32`.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    data: Data<'a>,
    stride: usize,
}

impl<'a> Column<'a> {
    /// Every `stride`-th of these.
    ///
    /// # Panics
    /// A stride of 0.
    #[must_use]
    pub fn strided(data: Data<'a>, stride: usize) -> Self {
        assert!(stride > 0, "a stride of 0");
        Self { data, stride }
    }

    /// The numbers.
    #[must_use]
    pub fn data(&self) -> Data<'a> {
        self.data
    }

    /// From one particle's to the next, in numbers.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// For how many particles.
    #[must_use]
    pub fn len(&self) -> usize {
        let len = match self.data {
            Data::F32(data) => data.len(),
            Data::F64(data) => data.len(),
        };
        len.div_ceil(self.stride)
    }

    /// Whether for none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Of these particles alone.
    ///
    /// # Panics
    /// Particles that it does not have.
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

    /// A particle's number.
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

/// One result for all particles.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Numbers of [`Type::F32`].
    F32(Vec<f32>),
    /// Numbers of [`Type::F64`].
    F64(Vec<f64>),
    /// What `and` and `or` give.
    Bool(Vec<bool>),
    /// What `argmin` and `argmax` give: places among j, -1 for none.
    Index(Vec<i64>),
}

impl Output {
    /// For how many particles.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(numbers) => numbers.len(),
            Self::F64(numbers) => numbers.len(),
            Self::Bool(all) => all.len(),
            Self::Index(places) => places.len(),
        }
    }

    /// Whether for none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its numbers; none of what is a bool or a place.
    #[must_use]
    pub fn into_numbers(self) -> Option<Vec<f64>> {
        match self {
            Self::F64(numbers) => Some(numbers),
            Self::F32(numbers) => Some(numbers.into_iter().map(f64::from).collect()),
            Self::Bool(_) | Self::Index(_) => None,
        }
    }
}

/// What is wrong with what a kernel was to be run on.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum DataError {
    /// Too few or too many.
    #[error("{given} {kind} variables were given, the kernel has {}: {}", names.len(), names.join(", "))]
    Count {
        /// `i`, `j` or `constant`.
        kind: &'static str,
        /// How many were given.
        given: usize,
        /// What the kernel has.
        names: Vec<String>,
    },
    /// Variables for different numbers of particles.
    #[error(
        "{kind} variable {name} is of {len} particles, {first} of {others}; all of a kind must be of as many"
    )]
    Length {
        /// `i` or `j`.
        kind: &'static str,
        /// The variable.
        name: String,
        /// For how many.
        len: usize,
        /// The first variable of the kind.
        first: String,
        /// For how many that is.
        others: usize,
    },
    /// A constant without a value.
    #[error("constant {name} was not given, and has no default in the kernel")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A constant that its type cannot hold: it would be infinity, or 0.
    #[error(
        "constant {name} is {value}, and {narrow} in f32: compute in f64, or give it another value"
    )]
    Beyond {
        /// Its name.
        name: String,
        /// What was given, as text.
        value: String,
        /// What it would be.
        narrow: &'static str,
    },
    /// More particles than places can tell.
    #[error("{count} {kind} particles: {limit} is the limit")]
    TooMany {
        /// `i` or `j`.
        kind: &'static str,
        /// How many.
        count: usize,
        /// How many may be.
        limit: usize,
    },
}

/// Particles of one kind, at most: what a back end's 32 bits can count.
pub const MAX_PARTICLES: usize = i32::MAX as usize;

/// What a kernel is run on: checked against it.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    i: Vec<Column<'a>>,
    j: Vec<Column<'a>>,
    constants: Vec<f64>,
    ni: usize,
    nj: usize,
}

impl<'a> Inputs<'a> {
    /// Checks columns and constants, in the order of the program's. A constant of `None` takes its
    /// default. A kernel without i variables is run for one i, and one without j variables over
    /// one j.
    ///
    /// # Errors
    /// [`DataError`].
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

    /// The i columns.
    #[must_use]
    pub fn i(&self) -> &[Column<'a>] {
        &self.i
    }

    /// The j columns.
    #[must_use]
    pub fn j(&self) -> &[Column<'a>] {
        &self.j
    }

    /// The constants.
    #[must_use]
    pub fn constants(&self) -> &[f64] {
        &self.constants
    }

    /// The same with these i alone.
    ///
    /// # Panics
    /// i that there are not.
    #[must_use]
    pub fn of_i(&self, of: Range<usize>) -> Self {
        assert!(of.end <= self.ni, "i that there are not");
        let i = self.i.iter().map(|column| column.part(of.clone())).collect();
        Self { i, ni: of.len(), ..self.clone() }
    }

    /// The same with these j alone.
    ///
    /// # Panics
    /// j that there are not.
    #[must_use]
    pub fn of_j(&self, of: Range<usize>) -> Self {
        assert!(of.end <= self.nj, "j that there are not");
        let j = self.j.iter().map(|column| column.part(of.clone())).collect();
        Self { j, nj: of.len(), ..self.clone() }
    }

    /// How many i.
    #[must_use]
    pub fn ni(&self) -> usize {
        self.ni
    }

    /// How many j.
    #[must_use]
    pub fn nj(&self) -> usize {
        self.nj
    }
}

/// What becomes of a number that its type cannot hold, not even nearly.
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
