//! What the store promises of an object: an overwrite has the next version, a new object one above
//! every version its key ever had. A call whose version nobody was told leaves the version open but
//! for a lower bound, until someone is told.

use crate::history::{Action, Told, Value};
use sprat_wire::op::Condition;

/// An object in the model.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct State {
    value: Option<Value>,
    /// The version, or a version that it is above; of an absent object, the highest known to have
    /// been.
    version: u64,
    /// Whether `version` is the version.
    exact: bool,
}

impl State {
    /// An object that never was.
    pub const NEVER: Self = Self { value: None, version: 0, exact: true };

    /// The state, knowing that its object has this version; `None` if it cannot.
    fn with_version(self, version: u64) -> Option<Self> {
        let fits = if self.exact { version == self.version } else { version > self.version };
        (self.value.is_some() && fits).then_some(Self { version, exact: true, ..self })
    }

    /// The state, knowing that the condition holds; `None` if it cannot.
    fn given(self, condition: Condition) -> Option<Self> {
        match condition {
            Condition::None => Some(self),
            Condition::Absent => self.value.is_none().then_some(self),
            Condition::Exists => self.value.is_some().then_some(self),
            Condition::Version(version) => self.with_version(version),
        }
    }

    /// The state, knowing that the condition does not hold as the object has this version.
    fn refusing(self, condition: Condition, current: Option<u64>) -> Option<Self> {
        let known = match current {
            Some(version) => self.with_version(version)?,
            None => self.value.is_none().then_some(self)?,
        };
        (!condition.holds(current)).then_some(known)
    }

    /// After a write told to have given this version; of an unknown one for `None`.
    fn written(self, value: Value, told: Option<u64>) -> Option<Self> {
        let value = Some(value);
        let (version, exact) = match (self.value, told) {
            (Some(_), Some(version)) => {
                (self.with_version(version.checked_sub(1)?)?.version + 1, true)
            }
            (Some(_), None) => (self.version + 1, self.exact),
            (None, Some(version)) if version > self.version => (version, true),
            (None, Some(_)) => return None,
            (None, None) => (self.version, false),
        };
        Some(Self { value, version, exact })
    }

    fn removed(self, told: Option<u64>) -> Option<Self> {
        let was = match told {
            Some(version) => self.with_version(version)?,
            None => self.value.is_some().then_some(self)?,
        };
        let version = if was.exact { was.version } else { was.version + 1 };
        Some(Self { value: None, version, exact: true })
    }

    fn number(self) -> Option<i64> {
        match self.value {
            None => Some(0),
            Some(Value::Number(number) | Value::Sum(number)) => Some(number),
            Some(Value::Text { .. }) => None,
        }
    }

    /// The least version that it can have.
    #[must_use]
    pub fn least(self) -> u64 {
        if self.exact || self.value.is_none() { self.version } else { self.version + 1 }
    }

    /// Version and value of an object of which both are known.
    #[must_use]
    pub fn known(self) -> Option<(u64, Value)> {
        self.value.filter(|_| self.exact).map(|value| (self.version, value))
    }

    /// The state after a call that took place and was told what it was told; `None` if that cannot
    /// be.
    #[must_use]
    pub fn after(self, action: Action, told: Told) -> Option<Self> {
        match (action, told) {
            (Action::Read, Told::Found { version, value }) if self.value == Some(value) => {
                self.with_version(version)
            }
            (Action::Read, Told::Absent) => self.value.is_none().then_some(self),
            (Action::Write { value, condition }, Told::Done { version }) => {
                self.given(condition)?.written(value, Some(version))
            }
            (Action::Write { value, condition }, Told::Unknown) => {
                self.given(condition)?.written(value, None)
            }
            (Action::Remove { condition }, Told::Done { version }) => {
                self.given(condition)?.removed(Some(version))
            }
            (Action::Remove { condition }, Told::Unknown) => self.given(condition)?.removed(None),
            (Action::Remove { condition }, Told::Absent) => {
                self.given(condition).filter(|state| state.value.is_none())
            }
            (
                Action::Write { condition, .. } | Action::Remove { condition },
                Told::Conflict(current),
            ) => self.refusing(condition, current),
            (Action::Increment { delta }, Told::Sum { sum, version })
                if self.number()?.checked_add(delta) == Some(sum) =>
            {
                self.written(Value::Sum(sum), Some(version))
            }
            (Action::Increment { delta }, Told::Unknown) => {
                self.written(Value::Sum(self.number()?.checked_add(delta)?), None)
            }
            (Action::Increment { .. }, Told::NotANumber) => self.number().is_none().then_some(self),
            _ => None,
        }
    }
}
