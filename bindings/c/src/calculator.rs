//! A kernel with the data sent to it and its results.

use crate::failure::Failure;
use sprat_grape::{
    Column, Engine, Error, Field, Inputs, Kernel, Options, Output, Precision, Shape, Target,
    check_threads,
};
use std::num::NonZeroUsize;

/// A kernel with the data sent to it and its results.
#[derive(Debug)]
pub(crate) struct Calculator {
    kernel: Kernel,
    i: Vec<Option<Numbers>>,
    j: Vec<Option<Numbers>>,
    constants: Vec<Option<f64>>,
    /// The results of the last run. `None` if there was no run, or the last run failed.
    outputs: Option<Vec<Output>>,
}

impl Calculator {
    /// Compiles a kernel, with no data sent to it yet. `precision` and `engine` are numbers of the
    /// header. If `threads` is 0, the calculator has one thread per processor.
    pub(crate) fn new(
        text: &str,
        precision: i32,
        engine: i32,
        threads: u32,
    ) -> Result<Self, Failure> {
        let kernel = Kernel::compile(
            text,
            read_precision(precision)?,
            &read_engine(engine, read_threads(threads)?)?,
        )?;
        let program = kernel.program();
        let none = |count| std::iter::repeat_with(|| None).take(count).collect();
        let (i, j) = (none(program.i().len()), none(program.j().len()));
        Ok(Self { i, j, constants: vec![None; program.constants().len()], kernel, outputs: None })
    }

    /// Sets the numbers of a variable. They replace earlier ones.
    pub(crate) fn send(&mut self, kind: Kind, name: &str, numbers: Numbers) -> Result<(), Failure> {
        let program = self.kernel.program();
        let (variable, fields, sent) = match kind {
            Kind::I => ("i variable", program.i(), &mut self.i),
            Kind::J => ("j variable", program.j(), &mut self.j),
        };
        let at = find(variable, name, fields.iter().map(|field| &field.name))?;
        sent[at] = Some(numbers);
        Ok(())
    }

    /// Sets the value of a constant. It replaces the default or an earlier value.
    pub(crate) fn set(&mut self, name: &str, value: f64) -> Result<(), Failure> {
        let constants = self.kernel.program().constants();
        let at = find("constant", name, constants.iter().map(|constant| &constant.name))?;
        self.constants[at] = Some(value);
        Ok(())
    }

    /// Runs the kernel on the data that was sent.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        // A caller that overlooks a failure must not get the results of an earlier run.
        self.outputs = None;
        let program = self.kernel.program();
        let (i, j) = (columns("i", program.i(), &self.i)?, columns("j", program.j(), &self.j)?);
        let inputs = Inputs::new(program, i, j, &self.constants)?;
        self.outputs = Some(self.kernel.run(&inputs));
        Ok(())
    }

    /// Returns a result of the last run. Fails if there was no run, no result has this name, or the
    /// result is not `count` elements of type `T`.
    pub(crate) fn result<T: Element>(&self, name: &str, count: usize) -> Result<&[T], Failure> {
        let outputs = self.outputs.as_ref().ok_or(Failure::NotRun)?;
        let at =
            find("result", name, self.kernel.program().results().iter().map(|field| &field.name))?;
        let name = || name.to_owned();
        let found = T::of(&outputs[at]);
        let found = found.ok_or_else(|| Failure::Type {
            name: name(),
            of: type_of(&outputs[at]),
            asked: T::NAME,
        })?;
        if found.len() != count {
            return Err(Failure::Room { name: name(), room: count, count: found.len() });
        }
        Ok(found)
    }
}

/// The kind of a variable's particles.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    I,
    J,
}

/// The numbers of a variable.
#[derive(Debug)]
pub(crate) enum Numbers {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl From<Vec<f32>> for Numbers {
    fn from(numbers: Vec<f32>) -> Self {
        Self::F32(numbers)
    }
}

impl From<Vec<f64>> for Numbers {
    fn from(numbers: Vec<f64>) -> Self {
        Self::F64(numbers)
    }
}

/// The type of a result's elements.
pub(crate) trait Element: Copy {
    /// The type's name in the header's functions.
    const NAME: &'static str;

    /// Returns the elements of a result, or `None` if the result has another type.
    fn of(output: &Output) -> Option<&[Self]>;
}

macro_rules! element {
    ($type:ty, $name:literal, $variant:ident) => {
        impl Element for $type {
            const NAME: &'static str = $name;

            fn of(output: &Output) -> Option<&[Self]> {
                let Output::$variant(results) = output else { return None };
                Some(results)
            }
        }
    };
}

element!(f32, "f32", F32);
element!(f64, "f64", F64);
element!(bool, "bool", Bool);
element!(i64, "index", Index);

fn type_of(output: &Output) -> &'static str {
    match output {
        Output::F32(_) => f32::NAME,
        Output::F64(_) => f64::NAME,
        Output::Bool(_) => bool::NAME,
        Output::Index(_) => i64::NAME,
    }
}

/// Returns a column for each field. Fails with `Failure::NotSent` if the caller has not sent one.
fn columns<'a>(
    kind: &'static str,
    fields: &[Field],
    sent: &'a [Option<Numbers>],
) -> Result<Vec<Column<'a>>, Failure> {
    let column = |(field, sent): (&Field, &'a Option<Numbers>)| match sent {
        Some(Numbers::F32(numbers)) => Ok(Column::from(&numbers[..])),
        Some(Numbers::F64(numbers)) => Ok(Column::from(&numbers[..])),
        None => Err(Failure::NotSent { kind, name: field.name.clone() }),
    };
    fields.iter().zip(sent).map(column).collect()
}

fn find<'a>(
    kind: &'static str,
    name: &str,
    known: impl Iterator<Item = &'a String> + Clone,
) -> Result<usize, Failure> {
    let unknown =
        || Failure::Name { kind, name: name.to_owned(), known: known.clone().cloned().collect() };
    known.clone().position(|other| other == name).ok_or_else(unknown)
}

fn read_precision(given: i32) -> Result<Precision, Failure> {
    match given {
        1 => Ok(Precision::F32),
        2 => Ok(Precision::F64),
        _ => Err(Failure::Choice {
            what: "precision",
            given: given.into(),
            want: "SPRAT_GRAPE_F32 or _F64".into(),
        }),
    }
}

fn read_engine(given: i32, threads: Option<NonZeroUsize>) -> Result<Engine, Failure> {
    let mut options = Options::default();
    options.threads = threads.unwrap_or(options.threads);
    let of = |target| Engine::Vector(Options { target, ..options });
    match given {
        0 => Ok(Engine::Vector(options)),
        1 => Ok(of(Target::Avx512)),
        2 => Ok(of(Target::Avx2)),
        3 => Ok(of(Target::Portable)),
        4 => Ok(Engine::GrapeDr(Shape::DESIGN)),
        5 => Ok(Engine::Reference),
        _ => {
            let want = "SPRAT_GRAPE_BEST, _AVX512, _AVX2, _PORTABLE, _GRAPEDR or _REFERENCE".into();
            Err(Failure::Choice { what: "engine", given: given.into(), want })
        }
    }
}

/// Returns the number of threads, or `None` for 0. A number that is too large for this machine is
/// an error, even for an engine that uses one thread.
fn read_threads(given: u32) -> Result<Option<NonZeroUsize>, Failure> {
    let count = NonZeroUsize::new(usize::try_from(given).unwrap_or(usize::MAX));
    count.map_or(Ok(()), check_threads).map_err(Error::from)?;
    Ok(count)
}
