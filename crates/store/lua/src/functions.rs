//! Functions of the program that scripts call.
//!
//! When a function refuses its arguments, the error begins with the place of the call, as errors of
//! Lua's own functions do.

use crate::engine::{Clock, MAX_CALLS, ended};
use mlua::{BorrowedBytes, Error, Lua, LuaString, MultiValue, Table, Value};
use std::sync::Arc;

/// Why a function returns no values.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// For an error that the script may handle.
    Text(String),
    /// The script has ended.
    Ended,
    Error(mlua::Error),
}

impl From<mlua::Error> for Refusal {
    fn from(error: mlua::Error) -> Self {
        Self::Error(error)
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// What a function returns.
pub(crate) type Returned = Result<Vec<Value>, Refusal>;

/// A function, and its name.
pub(crate) type Function = (&'static str, fn(&Given<'_>) -> Returned);

/// A call of a function.
pub(crate) struct Given<'a> {
    pub(crate) lua: &'a Lua,
    pub(crate) clock: &'a Clock,
    /// The function's name.
    pub(crate) name: &'static str,
    pub(crate) values: &'a MultiValue,
}

impl Given<'_> {
    /// Returns an argument; nil if it is not there.
    pub(crate) fn value(&self, at: usize) -> Value {
        self.values.get(at).cloned().unwrap_or(Value::Nil)
    }

    /// Returns the refusal of an argument.
    pub(crate) fn wrong(&self, at: usize, problem: &str) -> Refusal {
        format!("bad argument #{} to '{}' ({problem})", at + 1, self.name).into()
    }

    /// Returns the refusal of an argument that is of another kind.
    fn expected(&self, at: usize, kind: &str) -> Refusal {
        let given = self.values.get(at).map_or("no value", Value::type_name);
        self.wrong(at, &format!("{kind} expected, got {given}"))
    }

    /// Returns an argument that must be a string or a number.
    pub(crate) fn string(&self, at: usize) -> Result<LuaString, Refusal> {
        match self.value(at) {
            Value::String(text) => Ok(text),
            value @ (Value::Integer(_) | Value::Number(_)) => {
                Ok(self.lua.coerce_string(value)?.expect("a number has a text"))
            }
            _ => Err(self.expected(at, "string")),
        }
    }

    /// Returns the bytes of such an argument.
    pub(crate) fn bytes(&self, at: usize) -> Result<BorrowedBytes, Refusal> {
        Ok(self.string(at)?.as_bytes())
    }

    /// Returns an argument that must be a number, or the text of one.
    pub(crate) fn number(&self, at: usize) -> Result<f64, Refusal> {
        let number = self.lua.coerce_number(self.value(at))?;
        number.ok_or_else(|| self.expected(at, "number"))
    }

    /// Returns such an argument, if it is there.
    pub(crate) fn optional_number(&self, at: usize) -> Result<Option<f64>, Refusal> {
        match self.value(at) {
            Value::Nil => Ok(None),
            _ => self.number(at).map(Some),
        }
    }

    /// Returns a string of Lua.
    pub(crate) fn text(&self, bytes: impl AsRef<[u8]>) -> Result<Value, Refusal> {
        Ok(Value::String(self.lua.create_string(bytes)?))
    }
}

/// An error with this text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Text(String);

/// Makes functions the fields of a table, by their names.
pub(crate) fn add(
    lua: &Lua,
    table: &Table,
    clock: &Arc<Clock>,
    functions: &[Function],
) -> mlua::Result<()> {
    for &(name, run) in functions {
        let clock = clock.clone();
        let function = lua.create_function(move |lua, values: MultiValue| {
            match run(&Given { lua, clock: &clock, name, values: &values }) {
                Ok(values) => Ok(MultiValue::from_vec(values)),
                Err(Refusal::Text(text)) => {
                    Err(Error::external(Text(format!("{}{text}", place_of_call(lua)))))
                }
                Err(Refusal::Ended) => Err(ended()),
                Err(Refusal::Error(error)) => Err(error),
            }
        })?;
        table.raw_set(name, function)?;
    }
    Ok(())
}

/// Returns where Lua has called a function, such as `user_script:1: `. Calls by the sandbox count
/// as calls by who called it.
fn place_of_call(lua: &Lua) -> String {
    let place = (1..MAX_CALLS).map_while(|level| {
        lua.inspect_stack(level, |debug| {
            (debug.source().short_src.map(|it| it.into_owned()), debug.current_line())
        })
    });
    match place.into_iter().find(|(source, _)| source.as_deref() != Some("sandbox")) {
        Some((Some(source), Some(line))) => format!("{source}:{line}: "),
        _ => String::new(),
    }
}
