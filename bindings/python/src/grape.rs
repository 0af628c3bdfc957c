//! `sprat.grape`: kernels on NumPy's arrays.

use crate::columns::{Numbers, arrays};
use numpy::IntoPyArray as _;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sprat_grape::{Engine, Error, Inputs, MAX_THREADS, Options, Output, Precision, READY, Shape, Target};
use std::num::NonZeroUsize;

create_exception!(sprat.grape, GrapeError, PyException, "Why a kernel was not compiled.");
create_exception!(sprat.grape, KernelError, GrapeError, "The text is no kernel; line and column, from 1, say where.");

/// A kernel, ready to be called.
#[pyclass(frozen, module = "sprat.grape")]
#[derive(Debug)]
pub(crate) struct Kernel(sprat_grape::Kernel);

/// Compiles a kernel's text.
///
/// precision: "f32" or "f64", of what does not say its own; threads: how many, None for one a processor; target: "avx512", "avx2" or
/// "portable" (None: the best that is here), "reference" (slow, the judge) or "grapedr" (slower: a simulated GRAPE-DR).
#[pyfunction]
#[pyo3(signature = (text, precision = "f64", threads = None, target = None))]
pub(crate) fn compile(
    py: Python<'_>,
    text: &str,
    precision: &str,
    threads: Option<usize>,
    target: Option<&str>,
) -> PyResult<Kernel> {
    let precision = match precision {
        "f32" => Precision::F32,
        "f64" => Precision::F64,
        other => return Err(PyValueError::new_err(format!("precision: {other:?}; want \"f32\" or \"f64\""))),
    };
    let mut options = Options::default();
    if let Some(threads) = threads {
        let few = NonZeroUsize::new(threads).filter(|threads| threads.get() <= MAX_THREADS);
        let wrong = || PyValueError::new_err(format!("threads: {threads}; want 1 to {MAX_THREADS}"));
        options.threads = few.ok_or_else(wrong)?;
    }
    let engine = match target {
        None => Engine::Vector(options),
        Some("avx512") => Engine::Vector(Options { target: Target::Avx512, ..options }),
        Some("avx2") => Engine::Vector(Options { target: Target::Avx2, ..options }),
        Some("portable") => Engine::Vector(Options { target: Target::Portable, ..options }),
        Some("grapedr") => Engine::GrapeDr(Shape::DESIGN),
        Some("reference") => Engine::Reference,
        Some(other) => {
            let known = "avx512, avx2, portable, grapedr or reference";
            return Err(PyValueError::new_err(format!("target: {other:?}; want {known}")));
        }
    };
    let kernel = sprat_grape::Kernel::compile(text, precision, &engine).map_err(|error| exception(py, &error))?;
    if let Some(constant) = kernel.program().constants().iter().find(|constant| ["i", "j"].contains(&&*constant.name)) {
        let name = &constant.name;
        return Err(PyValueError::new_err(format!(
            "constant {name}: a call takes arrays under this name; give it another"
        )));
    }
    Ok(Kernel(kernel))
}

/// The kernels that are there to begin with: their texts by their names.
#[pyfunction]
pub(crate) fn kernels(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    READY.iter().try_for_each(|ready| all.set_item(ready.name, ready.text))?;
    Ok(all)
}

fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let Error::Syntax(syntax) = error else { return GrapeError::new_err(error.to_string()) };
    let raised = KernelError::new_err(syntax.to_string());
    let value = raised.value(py);
    match value.setattr("line", syntax.line).and_then(|()| value.setattr("column", syntax.column)) {
        Ok(()) => raised,
        Err(failed) => failed,
    }
}

#[pymethods]
impl Kernel {
    /// The results by their names, an array each, for all i.
    #[pyo3(signature = (i = None, j = None, **constants))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        i: Option<&Bound<'py, PyAny>>,
        j: Option<&Bound<'py, PyAny>>,
        constants: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (program, kernel) = (self.0.program(), &self.0);
        let (held_i, held_j) = (arrays("i", &self.i(), i)?, arrays("j", &self.j(), j)?);
        let i = held_i.iter().map(Numbers::column).collect::<PyResult<Vec<_>>>()?;
        let j = held_j.iter().map(Numbers::column).collect::<PyResult<Vec<_>>>()?;
        let inputs = Inputs::new(program, i, j, &self.values(constants)?);
        let inputs = inputs.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let outputs = py.detach(|| kernel.run(&inputs));
        let results = PyDict::new(py);
        for (field, output) in program.results().iter().zip(outputs) {
            match output {
                Output::F32(numbers) => results.set_item(&field.name, numbers.into_pyarray(py))?,
                Output::F64(numbers) => results.set_item(&field.name, numbers.into_pyarray(py))?,
                Output::Bool(all) => results.set_item(&field.name, all.into_pyarray(py))?,
                Output::Index(places) => results.set_item(&field.name, places.into_pyarray(py))?,
            }
        }
        Ok(results)
    }

    /// Names of the i variables, in order.
    #[getter]
    fn i(&self) -> Vec<&str> {
        self.0.program().i().iter().map(|field| &*field.name).collect()
    }

    /// Names of the j variables, in order.
    #[getter]
    fn j(&self) -> Vec<&str> {
        self.0.program().j().iter().map(|field| &*field.name).collect()
    }

    /// Names of the results, in order.
    #[getter]
    fn results(&self) -> Vec<&str> {
        self.0.program().results().iter().map(|field| &*field.name).collect()
    }

    /// Constants and their defaults, None for what must be given.
    #[getter]
    fn constants<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        self.0.program().constants().iter().try_for_each(|constant| all.set_item(&constant.name, constant.default))?;
        Ok(all)
    }

    fn __repr__(&self) -> String {
        format!("Kernel(i={:?}, j={:?}, results={:?})", self.i(), self.j(), self.results())
    }
}

impl Kernel {
    /// The constants in the kernel's order; None for what was not given.
    fn values(&self, given: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<Option<f64>>> {
        let known = self.0.program().constants();
        let mut values = vec![None; known.len()];
        for (name, value) in given.into_iter().flat_map(|given| given.iter()) {
            let name = name.extract::<String>()?;
            let Some(place) = known.iter().position(|constant| constant.name == name) else {
                return Err(PyTypeError::new_err(format!("{name}: the kernel has no such constant")));
            };
            let number = value.extract::<f64>();
            values[place] = Some(number.map_err(|_| PyTypeError::new_err(format!("{name}: want a number")))?);
        }
        Ok(values)
    }
}
