//! NumPy's arrays as a kernel's columns. An array is used in place if this is safe, and copied
//! otherwise.

use numpy::{Element, PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods as _};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice};
use sprat_grape::{Column, Data};

/// The numbers of one variable, which are kept while a kernel runs.
pub(crate) enum Numbers<'py> {
    F32(Kept<'py, f32>),
    F64(Kept<'py, f64>),
}

/// Every `stride`-th number of an array, from `first` up to `end`.
pub(crate) enum Kept<'py, T: Element> {
    There { array: PyReadonlyArrayDyn<'py, T>, first: usize, end: usize, stride: usize },
    Copied(Vec<T>),
}

impl<'py> Numbers<'py> {
    /// Returns the array of the variable `name`.
    pub(crate) fn of(name: &str, given: &Bound<'py, PyAny>) -> PyResult<Self> {
        let wrong = |what: String| {
            PyTypeError::new_err(format!(
                "{name}: {what}; want a numpy array of float32 or float64 (numpy.asarray)"
            ))
        };
        let Ok(array) = given.cast::<PyUntypedArray>() else {
            return Err(wrong(format!("a {} is not an array", given.get_type().name()?)));
        };
        if given.hasattr("mask")? {
            return Err(wrong(
                "a masked array, whose masked values a kernel would use too: fill or compress it"
                    .into(),
            ));
        }
        if array.ndim() != 1 {
            let shape = array.shape();
            return Err(PyValueError::new_err(format!(
                "{name}: an array of shape {shape:?}; want one dimension"
            )));
        }
        if let Ok(array) = given.extract() {
            Kept::new(given, array).map(Self::F64)
        } else if let Ok(array) = given.extract() {
            Kept::new(given, array).map(Self::F32)
        } else {
            Err(wrong(format!("an array of {}", array.dtype())))
        }
    }

    /// Returns whether the array is of float64.
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self, Self::F64(_))
    }

    pub(crate) fn column(&self) -> PyResult<Column<'_>> {
        let (data, stride) = match self {
            Self::F32(kept) => kept.slice().map(|(data, stride)| (Data::F32(data), stride))?,
            Self::F64(kept) => kept.slice().map(|(data, stride)| (Data::F64(data), stride))?,
        };
        Ok(Column::strided(data, stride))
    }
}

impl<'py, T: Element + Copy> Kept<'py, T> {
    fn new(given: &Bound<'py, PyAny>, array: PyReadonlyArrayDyn<'py, T>) -> PyResult<Self> {
        // A Rust reference cannot point to numbers at odd addresses, so NumPy copies them to
        // aligned addresses.
        if !given.getattr("flags")?.getattr("aligned")?.extract::<bool>()? {
            let aligned = given.call_method0("copy")?;
            let array = aligned.extract::<PyReadonlyArrayDyn<'py, T>>()?;
            return Ok(Self::There { first: 0, end: array.len(), stride: 1, array });
        }
        if array.as_slice().is_ok() {
            return Ok(Self::There { first: 0, end: array.len(), stride: 1, array });
        }
        if let Some(there) = Self::within(given, &array)? {
            return Ok(there);
        }
        Ok(Self::Copied(array.as_array().iter().copied().collect()))
    }

    /// Returns a view with gaps as every n-th number of the array that owns the numbers. Such a
    /// view is a column of a table, or a slice with a step.
    fn within(
        given: &Bound<'py, PyAny>,
        view: &PyReadonlyArrayDyn<'py, T>,
    ) -> PyResult<Option<Self>> {
        let Ok(array) = given.getattr("base")?.extract::<PyReadonlyArrayDyn<'py, T>>() else {
            return Ok(None);
        };
        if !array.getattr("flags")?.getattr("aligned")?.extract::<bool>()? {
            return Ok(None);
        }
        let Ok(all) = array.as_slice() else { return Ok(None) };
        let size = size_of::<T>();
        let stride = usize::try_from(view.strides()[0])
            .ok()
            .filter(|bytes| *bytes > 0 && bytes.is_multiple_of(size));
        let begin = view.as_array().as_ptr().addr().checked_sub(all.as_ptr().addr());
        let (Some(stride), Some(begin)) = (stride.map(|bytes| bytes / size), begin) else {
            return Ok(None);
        };
        let first = begin / size;
        let end = view
            .len()
            .checked_sub(1)
            .and_then(|last| first.checked_add(last.checked_mul(stride)?)?.checked_add(1));
        let Some(end) = end.filter(|end| begin.is_multiple_of(size) && *end <= all.len()) else {
            return Ok(None);
        };
        Ok(Some(Self::There { array, first, end, stride }))
    }

    fn slice(&self) -> PyResult<(&[T], usize)> {
        match self {
            Self::There { array, first, end, stride } => {
                Ok((&array.as_slice()?[*first..*end], *stride))
            }
            Self::Copied(numbers) => Ok((numbers, 1)),
        }
    }
}

/// Returns the arrays of `kind`, `i` or `j`, in the order of the kernel's variables. They come from
/// a dict by name, a sequence in this order, or a table with a row for each particle.
pub(crate) fn arrays<'py>(
    kind: &str,
    names: &[&str],
    given: Option<&Bound<'py, PyAny>>,
) -> PyResult<Vec<Numbers<'py>>> {
    let value =
        |what: String| PyValueError::new_err(format!("{kind}: {what}; the kernel has {names:?}"));
    let Some(given) = given else {
        return if names.is_empty() {
            Ok(Vec::new())
        } else {
            Err(value("nothing was given".to_owned()))
        };
    };
    if let Ok(named) = given.cast::<PyDict>() {
        for name in named.keys() {
            let name = name
                .extract::<String>()
                .map_err(|_| PyTypeError::new_err(format!("{kind}: names are strings")))?;
            if !names.contains(&&*name) {
                return Err(value(format!("{name} is not a variable")));
            }
        }
        let array = |name: &&str| {
            let array =
                named.get_item(*name)?.ok_or_else(|| value(format!("{name} was not given")))?;
            Numbers::of(name, &array)
        };
        return names.iter().map(array).collect();
    }
    if let Ok(table) = given.cast::<PyUntypedArray>() {
        return of_table(kind, names, table);
    }
    let wrong = |_| {
        let want =
            "a dict of arrays by name, a sequence of them, or one of shape (particles, variables)";
        PyTypeError::new_err(format!("{kind}: want {want}"))
    };
    let arrays =
        given.try_iter().map_err(wrong)?.take(names.len() + 1).collect::<PyResult<Vec<_>>>()?;
    if arrays.len() != names.len() {
        return Err(value(format!(
            "{} arrays",
            if arrays.len() > names.len() { "too many" } else { "too few" }
        )));
    }
    names.iter().zip(&arrays).map(|(name, array)| Numbers::of(name, array)).collect()
}

/// Returns the columns of an array with a row for each particle, as in NumPy and in the files of
/// the command line. An array of one dimension is a single column. The shape is never guessed: a
/// table that would fit only if it were transposed is refused.
fn of_table<'py>(
    kind: &str,
    names: &[&str],
    table: &Bound<'py, PyUntypedArray>,
) -> PyResult<Vec<Numbers<'py>>> {
    let count = names.len();
    let shape =
        format!("({})", table.shape().iter().map(usize::to_string).collect::<Vec<_>>().join(", "));
    match *table.shape() {
        [_] if count == 1 => Ok(vec![Numbers::of(names[0], table)?]),
        [_, columns] if columns == count && count > 0 => {
            let all = PySlice::full(table.py());
            let column =
                |(at, name): (usize, &&str)| Numbers::of(name, &table.get_item((&all, at))?);
            names.iter().enumerate().map(column).collect()
        }
        [rows, _] if rows == count && count > 0 => Err(PyValueError::new_err(format!(
            "{kind}: got {shape}: rows are particles, and columns the variables {names:?}; pass x.T"
        ))),
        _ => Err(PyValueError::new_err(format!(
            "{kind}: got {shape}: want (N, {count}), a row for each particle and a column for \
             each of {names:?}"
        ))),
    }
}
