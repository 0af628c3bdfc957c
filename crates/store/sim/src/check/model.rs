//! The store's guarantees about an object: an overwrite has the next version, and a new object has
//! a version above all that its key has ever had. After a call whose response does not show a
//! version, the version is only known to be above a lower bound, until another response shows it.

use crate::history::{Action, Operation, Response, Value};
use sprat_wire::op::Condition;

/// The state of an object in the model.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct State {
    value: Option<Value>,
    /// The object's version, or a lower version. Of an absent object, the highest version that is
    /// known.
    version: u64,
    /// Whether `version` is exact.
    exact: bool,
    /// Whether the object has expired, and no call has come since.
    expired: bool,
}

impl State {
    /// An object that never existed.
    pub const NEVER: Self = Self { value: None, version: 0, exact: true, expired: false };

    /// Returns the state if the object has version `version`; `None` if that is impossible.
    fn with_version(self, version: u64) -> Option<Self> {
        let fits = if self.exact { version == self.version } else { version > self.version };
        (self.value.is_some() && fits).then_some(Self { version, exact: true, ..self })
    }

    /// Returns the state if the condition holds; `None` if it cannot hold.
    ///
    /// A transaction's server checks a condition when it prepares the change. If it then fails, and
    /// the object expires before it is recovered, the condition held nevertheless: no call came in
    /// between (seed 1 of 10,000 operations).
    fn given(self, condition: Condition, of_transaction: bool) -> Option<Self> {
        match condition {
            Condition::Exists if self.expired && of_transaction => Some(self),
            Condition::Version(version) if self.expired && of_transaction => {
                (version >= self.version).then_some(Self { version, ..self })
            }
            Condition::None => Some(self),
            Condition::Absent => self.value.is_none().then_some(self),
            Condition::Exists => self.value.is_some().then_some(self),
            Condition::Version(version) => self.with_version(version),
        }
    }

    /// Returns the state if the condition does not hold because the object's version is `current`;
    /// `None` if that is impossible.
    fn refusing(self, condition: Condition, current: Option<u64>) -> Option<Self> {
        let known = match current {
            Some(version) => self.with_version(version)?,
            None => self.value.is_none().then_some(self)?,
        };
        (!condition.holds(current)).then_some(known)
    }

    /// Returns the state after a write whose response had this version; `response` is `None` for a
    /// write without a response.
    fn written(self, value: Value, response: Option<u64>) -> Option<Self> {
        let value = Some(value);
        let (version, exact) = match (self.value, response) {
            (Some(_), Some(version)) => {
                (self.with_version(version.checked_sub(1)?)?.version + 1, true)
            }
            (Some(_), None) => (self.version + 1, self.exact),
            (None, Some(version)) if version > self.version => (version, true),
            (None, Some(_)) => return None,
            (None, None) => (self.version, false),
        };
        Some(Self { value, version, exact, expired: false })
    }

    fn removed(self, response: Option<u64>) -> Option<Self> {
        let was = match response {
            Some(version) => self.with_version(version)?,
            None => self.value.is_some().then_some(self)?,
        };
        let version = if was.exact { was.version } else { was.version + 1 };
        Some(Self { value: None, version, exact: true, expired: false })
    }

    fn number(self) -> Option<i64> {
        match self.value {
            None => Some(0),
            Some(Value::Number(number) | Value::Sum(number)) => Some(number),
            Some(Value::Text { .. }) => None,
        }
    }

    /// Returns the lowest version that the object can have.
    #[must_use]
    pub fn least(self) -> u64 {
        if self.exact || self.value.is_none() { self.version } else { self.version + 1 }
    }

    /// Returns version and value, if the object exists and its version is known.
    #[must_use]
    pub fn known(self) -> Option<(u64, Value)> {
        self.value.filter(|_| self.exact).map(|value| (self.version, value))
    }

    /// Returns the state after a call that took place and had this response; `None` if the response
    /// is impossible.
    #[must_use]
    pub fn after(self, call: &Operation) -> Option<Self> {
        let after = self.changed(call)?;
        Some(Self { expired: matches!(call.action, Action::Expire { .. }), ..after })
    }

    fn changed(self, call: &Operation) -> Option<Self> {
        let Operation { action, response, of_transaction, .. } = *call;
        match (action, response) {
            (Action::Read, Response::Found { version, value }) if self.value == Some(value) => {
                self.with_version(version)
            }
            (Action::Read, Response::Absent) => self.value.is_none().then_some(self),
            (Action::Read, Response::Outside { first, last }) => {
                let field = self.value.and_then(Value::field);
                field.is_none_or(|field| !(first..=last).contains(&field)).then_some(self)
            }
            (Action::Write { value, condition }, Response::Done { version }) => {
                self.given(condition, of_transaction)?.written(value, Some(version))
            }
            (Action::Write { value, condition }, Response::Unknown | Response::Committed) => {
                self.given(condition, of_transaction)?.written(value, None)
            }
            (Action::Remove { condition }, Response::Done { version }) => {
                self.given(condition, of_transaction)?.removed(Some(version))
            }
            (Action::Remove { condition }, Response::Unknown) => {
                self.given(condition, of_transaction)?.removed(None)
            }
            (Action::Remove { condition }, Response::Committed) => {
                let state = self.given(condition, of_transaction)?;
                if state.value.is_some() { state.removed(None) } else { Some(state) }
            }
            (Action::Remove { condition }, Response::Absent) => {
                self.given(condition, of_transaction).filter(|state| state.value.is_none())
            }
            (
                Action::Write { condition, .. } | Action::Remove { condition },
                Response::Conflict(current),
            ) => self.refusing(condition, current),
            (Action::Increment { delta }, Response::Sum { sum, version })
                if self.number()?.checked_add(delta) == Some(sum) =>
            {
                self.written(Value::Sum(sum), Some(version))
            }
            (Action::Expire { value }, _) if self.value == Some(value) => self.removed(None),
            (Action::Increment { delta }, Response::Unknown) => {
                self.written(Value::Sum(self.number()?.checked_add(delta)?), None)
            }
            (Action::Increment { .. }, Response::NotANumber) => {
                self.number().is_none().then_some(self)
            }
            _ => None,
        }
    }
}
