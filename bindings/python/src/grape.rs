//! `sprat.grape`: kernels on NumPy arrays.

use crate::columns::{Numbers, arrays};
use numpy::IntoPyArray as _;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sprat_grape::{
    Engine, Error, Inputs, Options, Output, Precision, Program, READY, Shape, Target, check_threads,
};
use std::num::NonZeroUsize;
use std::sync::OnceLock;

create_exception!(sprat.grape, GrapeError, PyException, "Why a kernel was not compiled.");
create_exception!(
    sprat.grape,
    KernelError,
    GrapeError,
    "The text is no kernel; line and column, from 1, say where."
);

/// A compiled kernel.
///
/// Unless the caller chose a precision, it follows the arrays of a call. So the kernel is compiled
/// when a call first needs a precision. Python's lock is held meanwhile, so a `fork` never finds a
/// kernel that is half compiled.
#[pyclass(frozen, module = "sprat.grape")]
#[derive(Debug)]
pub(crate) struct Kernel {
    asked: Asked,
    engine: Engine,
    /// The names of variables and results, which no precision changes.
    program: Program,
    f32: OnceLock<sprat_grape::Kernel>,
    f64: OnceLock<sprat_grape::Kernel>,
}

/// The arguments of `compile`. Another process can make the kernel again from them.
#[derive(Debug)]
struct Asked {
    text: String,
    precision: Option<Precision>,
    threads: Option<usize>,
    target: Option<String>,
}

/// Compiles a kernel's text.
///
/// precision: "f32" or "f64", for variables and results for which the kernel states none; None
/// follows the arrays of each call: f64 if one of them is float64, otherwise f32. threads: at most
/// 16 for each processor, None for one per processor; target: "avx512", "avx2" or "portable" (None:
/// the best of this processor), "reference" (slow, for comparison) or "grapedr" (slower: a
/// simulated GRAPE-DR).
#[pyfunction]
#[pyo3(signature = (text, precision = None, threads = None, target = None))]
pub(crate) fn compile(
    py: Python<'_>,
    text: String,
    precision: Option<&str>,
    threads: Option<usize>,
    target: Option<String>,
) -> PyResult<Kernel> {
    let precision = match precision {
        None => None,
        Some("f32") => Some(Precision::F32),
        Some("f64") => Some(Precision::F64),
        Some(other) => {
            return Err(PyValueError::new_err(format!(
                "precision: {other:?}; want \"f32\" or \"f64\""
            )));
        }
    };
    let engine = read_engine(threads, target.as_deref())?;
    let asked = Asked { text, precision, threads, target };
    let wrong = |error| exception(py, &error);
    let (f32, f64) = (OnceLock::new(), OnceLock::new());
    let program = match precision {
        Some(precision) => {
            let kernel =
                sprat_grape::Kernel::compile(&asked.text, precision, &engine).map_err(wrong)?;
            let slot = if precision == Precision::F32 { &f32 } else { &f64 };
            slot.get_or_init(|| kernel).program().clone()
        }
        None => asked.check(&engine).map_err(wrong)?,
    };
    if let Some(constant) =
        program.constants().iter().find(|constant| ["i", "j"].contains(&&*constant.name))
    {
        let name = &constant.name;
        return Err(PyValueError::new_err(format!(
            "constant {name}: a call takes arrays under this name; give it another"
        )));
    }
    Ok(Kernel { asked, engine, program, f32, f64 })
}

/// Returns the engine that computes on `threads` threads, for the instruction set `target`.
fn read_engine(threads: Option<usize>, target: Option<&str>) -> PyResult<Engine> {
    let mut options = Options::default();
    if let Some(threads) = threads {
        let some = NonZeroUsize::new(threads);
        options.threads =
            some.ok_or_else(|| PyValueError::new_err("threads: 0; want 1 at least"))?;
        check_threads(options.threads).map_err(|error| PyValueError::new_err(error.to_string()))?;
    }
    let of = |target| Engine::Vector(Options { target, ..options });
    Ok(match target {
        None => Engine::Vector(options),
        Some("avx512") => of(Target::Avx512),
        Some("avx2") => of(Target::Avx2),
        Some("portable") => of(Target::Portable),
        Some("grapedr") => Engine::GrapeDr(Shape::DESIGN),
        Some("reference") => Engine::Reference,
        Some(other) => {
            let known = "avx512, avx2, portable, grapedr or reference";
            return Err(PyValueError::new_err(format!("target: {other:?}; want {known}")));
        }
    })
}

impl Asked {
    /// Compiles the kernel in `f64`, or in `f32` if that fails, and returns its program. Fails only
    /// if both fail, with the error of `f64`. So an invalid kernel is reported by `compile`, and
    /// not by the first call.
    fn check(&self, engine: &Engine) -> Result<Program, Error> {
        let one = match engine {
            Engine::Vector(options) => {
                Engine::Vector(Options { threads: NonZeroUsize::MIN, ..*options })
            }
            other => *other,
        };
        let compile = |precision| sprat_grape::Kernel::compile(&self.text, precision, &one);
        let kernel =
            compile(Precision::F64).or_else(|error| compile(Precision::F32).map_err(|_| error))?;
        Ok(kernel.program().clone())
    }
}

/// Returns the texts of the built-in kernels by name.
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
    /// Runs the kernel and returns its results by name, each an array of one dimension, for all i.
    ///
    /// i and j are the arrays of their variables, in one of three forms: a dict by name, a sequence
    /// in the kernel's order, or one array of shape (N, variables), with a row for each particle
    /// and a column for each variable.
    #[pyo3(signature = (i = None, j = None, **constants))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        i: Option<&Bound<'py, PyAny>>,
        j: Option<&Bound<'py, PyAny>>,
        constants: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (held_i, held_j) = (arrays("i", &self.i(), i)?, arrays("j", &self.j(), j)?);
        let kernel = self.made(py, held_i.iter().chain(&held_j))?;
        let program = kernel.program();
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
        self.program.i().iter().map(|field| &*field.name).collect()
    }

    /// Names of the j variables, in order.
    #[getter]
    fn j(&self) -> Vec<&str> {
        self.program.j().iter().map(|field| &*field.name).collect()
    }

    /// Names of the results, in order.
    #[getter]
    fn results(&self) -> Vec<&str> {
        self.program.results().iter().map(|field| &*field.name).collect()
    }

    /// Constants and their defaults; None for those that must be given.
    #[getter]
    fn constants<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        self.program
            .constants()
            .iter()
            .try_for_each(|constant| all.set_item(&constant.name, constant.default))?;
        Ok(all)
    }

    /// Supports pickle and copy: the copy is compiled again, for the processor on which it is
    /// unpickled.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Asked { text, precision, threads, target } = &self.asked;
        let precision =
            precision.map(|precision| if precision == Precision::F32 { "f32" } else { "f64" });
        let compile = py.import("sprat.grape")?.getattr("compile")?;
        (compile, (text, precision, *threads, target)).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        format!("Kernel(i={:?}, j={:?}, results={:?})", self.i(), self.j(), self.results())
    }
}

impl Kernel {
    /// Returns the kernel in the precision that was chosen, or else in that of `arrays`.
    fn made<'a, 'py: 'a>(
        &self,
        py: Python<'_>,
        mut arrays: impl Iterator<Item = &'a Numbers<'py>>,
    ) -> PyResult<&sprat_grape::Kernel> {
        let wide = || if arrays.any(Numbers::is_wide) { Precision::F64 } else { Precision::F32 };
        let precision = self.asked.precision.unwrap_or_else(wide);
        let slot = if precision == Precision::F32 { &self.f32 } else { &self.f64 };
        if let Some(kernel) = slot.get() {
            return Ok(kernel);
        }
        let kernel = sprat_grape::Kernel::compile(&self.asked.text, precision, &self.engine);
        let kernel = kernel.map_err(|error| exception(py, &error))?;
        Ok(slot.get_or_init(|| kernel))
    }

    /// Returns the constants in the kernel's order; `None` for a constant that was not given.
    /// Raises `TypeError` for a name that the kernel does not have, or a value that is not a
    /// number.
    fn values(&self, given: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<Option<f64>>> {
        let known = self.program.constants();
        let mut values = vec![None; known.len()];
        for (name, value) in given.into_iter().flat_map(|given| given.iter()) {
            let name = name.extract::<String>()?;
            let Some(place) = known.iter().position(|constant| constant.name == name) else {
                return Err(PyTypeError::new_err(format!(
                    "{name}: the kernel has no such constant"
                )));
            };
            let number = value.extract::<f64>();
            values[place] =
                Some(number.map_err(|_| PyTypeError::new_err(format!("{name}: want a number")))?);
        }
        Ok(values)
    }
}
