//! The model: the state of every object, from which every correct answer follows.

use super::content::Content;
use super::operation::{Action, Operation, Outcome, key_name};
use sprat_client::{Condition, Row};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

/// An answer that the model does not allow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Disagreement {
    /// Number of the operation, from 1; `None` for the scan of the whole table.
    pub operation: Option<u64>,
    /// The operation.
    pub asked: String,
    /// The object's key.
    pub key: String,
    /// The answer that the model allows.
    pub expected: String,
    /// The store's answer.
    pub got: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, asked, key, expected, got } = self;
        match operation {
            Some(number) => write!(f, "operation {number}, {asked} of {key:?}")?,
            None => write!(f, "{asked}, {key:?}")?,
        }
        write!(f, ": expected {expected}; got {got}")
    }
}

/// How much earlier or later than a time to live says an object may expire: by the difference of
/// servers' clocks, if its tablet comes to another server.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// The state of an object in the model.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectState {
    content: Option<Content>,
    /// The object's version; for an absent object, the highest that it ever had.
    version: u64,
    /// The earliest and the latest moment at which the object expires, if it does.
    expires: Option<(Instant, Instant)>,
}

impl ObjectState {
    fn current(self) -> Option<u64> {
        self.content.map(|_| self.version)
    }

    /// Returns the states that the object may have had at some moment of an operation, one or two:
    /// first that it is there, then that it has expired.
    fn during(self, Range { start, end }: &Range<Instant>) -> impl Iterator<Item = Self> {
        let is_there = self.expires.is_none_or(|(_, latest)| *start <= latest);
        let is_gone = self.expires.is_some_and(|(earliest, _)| *end >= earliest);
        let gone = Self { content: None, expires: None, ..self };
        is_there.then_some(self).into_iter().chain(is_gone.then_some(gone))
    }
}

/// The answer that the model allows.
#[derive(Clone, Copy, Debug)]
enum ExpectedAnswer {
    Found(Content, u64),
    Missing,
    /// Stored, with the next version if there was an object, otherwise with a version above all
    /// that the key ever had.
    Stored(Content, ExpectedVersion),
    Summed(i64, ExpectedVersion),
    Removed(u64),
    Conflict(Option<u64>),
    NotANumber,
}

#[derive(Clone, Copy, Debug)]
enum ExpectedVersion {
    Exactly(u64),
    Above(u64),
}

impl ExpectedVersion {
    fn allows(self, version: u64) -> bool {
        match self {
            Self::Exactly(expected) => version == expected,
            Self::Above(expected) => version > expected,
        }
    }
}

/// The state of all objects of a table that only one client uses.
///
/// Pass every operation with its answer to [`verify`](Self::verify), in the order of the operations
/// on each object. It compares the answer with the model and records the new state.
#[derive(Clone, Debug, Default)]
pub struct Model {
    objects: HashMap<usize, ObjectState>,
}

impl Model {
    /// Returns the number of objects, including those that have expired since they were last used.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.values().filter(|known| known.content.is_some()).count()
    }

    /// Returns whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the version of an object; `None` when there is none.
    #[must_use]
    pub fn version(&self, key: usize) -> Option<u64> {
        self.known(key).current()
    }

    fn known(&self, key: usize) -> ObjectState {
        self.objects.get(&key).copied().unwrap_or_default()
    }

    /// Compares an answer with the model, and records the object's new state. The version of a new
    /// object comes from the answer, since the model cannot predict it; so does whether an object
    /// has expired whose time has come about now. The operation was sent, and answered, `during`
    /// this time.
    ///
    /// # Errors
    /// [`Disagreement`] when the model does not allow the answer.
    pub fn verify(
        &mut self,
        operation: &Operation,
        outcome: &Outcome,
        during: &Range<Instant>,
    ) -> Result<(), Disagreement> {
        let known = self.known(operation.key);
        let action = operation.action;
        let allowed = |state| Self::expect(state, action).after(state, (action, outcome), during);
        if let Some(after) = known.during(during).find_map(allowed) {
            self.objects.insert(operation.key, after);
            return Ok(());
        }
        let first = known.during(during).next().expect("there or gone");
        let expected = Self::expect(first, action);
        Err(Disagreement {
            operation: Some(operation.number),
            asked: operation.action.to_string(),
            key: key_name(operation.key),
            expected: expected.to_string(),
            got: expected.describe(outcome),
        })
    }

    /// Compares all objects of the table with the model; they were read `during` this time.
    ///
    /// # Errors
    /// [`Disagreement`] for the first object that differs, or that is missing.
    pub fn verify_all(
        &self,
        rows: impl Iterator<Item = Row>,
        during: &Range<Instant>,
    ) -> Result<(), Disagreement> {
        let mut left: HashMap<Vec<u8>, ObjectState> = HashMap::new();
        left.extend(self.objects.iter().map(|(&key, &known)| (key_name(key).into_bytes(), known)));
        let wrong = |key: &[u8], expected: String, got: String| Disagreement {
            operation: None,
            asked: "the scan of the table at the end".to_owned(),
            key: String::from_utf8_lossy(key).into_owned(),
            expected,
            got,
        };
        for Row { key, version, value, .. } in rows {
            // A row counts once: removing its state makes a second one unexpected.
            let known = left.remove(&key).unwrap_or_default();
            let outcome = Outcome::Found { version, value };
            let state = known.during(during).next().expect("there or gone");
            let expected = Self::expect(state, Action::Get);
            if expected.after(state, (Action::Get, &outcome), during).is_none() {
                return Err(wrong(&key, expected.to_string(), expected.describe(&outcome)));
            }
        }
        let missed = left
            .into_iter()
            .filter(|(_, known)| known.during(during).all(|state| state.content.is_some()))
            .min_by(|a, b| a.0.cmp(&b.0));
        missed.map_or(Ok(()), |(key, known)| {
            Err(wrong(
                &key,
                Self::expect(known, Action::Get).to_string(),
                "no such object".to_owned(),
            ))
        })
    }

    fn expect(known: ObjectState, action: Action) -> ExpectedAnswer {
        let refused = |condition: Condition| !condition.holds(known.current());
        let next = if known.content.is_some() {
            ExpectedVersion::Exactly(known.version + 1)
        } else {
            ExpectedVersion::Above(known.version)
        };
        match (action, known.content) {
            (Action::Get, Some(content)) => ExpectedAnswer::Found(content, known.version),
            (Action::Put { condition, .. } | Action::Remove { condition }, _)
                if refused(condition) =>
            {
                ExpectedAnswer::Conflict(known.current())
            }
            (Action::Put { content, .. }, _) => ExpectedAnswer::Stored(content, next),
            (Action::Remove { .. }, Some(_)) => ExpectedAnswer::Removed(known.version),
            (Action::Get | Action::Remove { .. }, None) => ExpectedAnswer::Missing,
            (Action::Increment { delta }, content) => {
                let sum = content
                    .map_or(Some(0), Content::number)
                    .and_then(|number| number.checked_add(delta));
                sum.map_or(ExpectedAnswer::NotANumber, |sum| ExpectedAnswer::Summed(sum, next))
            }
        }
    }
}

impl ExpectedAnswer {
    /// Returns the object's state after that answer; `None` if the answer is wrong.
    fn after(
        self,
        known: ObjectState,
        (action, outcome): (Action, &Outcome),
        during: &Range<Instant>,
    ) -> Option<ObjectState> {
        match (self, outcome) {
            (Self::Found(content, expected), Outcome::Found { version, value }) => {
                (expected == *version && content.difference(value).is_none()).then_some(known)
            }
            (Self::Stored(content, expected), &Outcome::Stored { version })
                if expected.allows(version) =>
            {
                let expires = match action {
                    Action::Put { ttl: Some(ttl), .. } => {
                        let end = during.end + ttl.duration() + CLOCKS_APART;
                        let lives = ttl.duration().saturating_sub(CLOCKS_APART);
                        Some((during.start + lives, end))
                    }
                    _ => None,
                };
                Some(ObjectState { content: Some(content), version, expires })
            }
            (Self::Summed(expected, at), &Outcome::Summed { sum, version })
                if expected == sum && at.allows(version) =>
            {
                Some(ObjectState { content: Some(Content::Number(sum)), version, ..known })
            }
            (Self::Removed(expected), &Outcome::Removed { version }) if expected == version => {
                Some(ObjectState { content: None, version, expires: None })
            }
            (Self::Conflict(expected), Outcome::Conflict { current }) if expected == *current => {
                Some(known)
            }
            (Self::Missing, Outcome::Missing) | (Self::NotANumber, Outcome::NotANumber) => {
                Some(known)
            }
            _ => None,
        }
    }

    /// Describes an answer, and how a value in it differs from the expected one.
    fn describe(self, outcome: &Outcome) -> String {
        match (self, outcome) {
            (Self::Found(content, _), Outcome::Found { version, value }) => {
                match content.difference(value) {
                    Some(difference) => format!("version {version}, {difference}"),
                    None => format!("version {version}, the same bytes"),
                }
            }
            _ => outcome.to_string(),
        }
    }
}

impl fmt::Display for ExpectedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(content, version) => write!(f, "version {version}, {content}"),
            Self::Missing => write!(f, "no such object"),
            Self::Stored(_, version) => write!(f, "{version}"),
            Self::Summed(sum, version) => write!(f, "the sum {sum}, {version}"),
            Self::Removed(version) => write!(f, "the removal of version {version}"),
            Self::Conflict(Some(version)) => write!(f, "a conflict with version {version}"),
            Self::Conflict(None) => write!(f, "a conflict, as there is no such object"),
            Self::NotANumber => write!(f, "a refusal: no number there, or the sum overflows"),
        }
    }
}

impl fmt::Display for ExpectedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(version) => write!(f, "version {version}"),
            Self::Above(version) => write!(f, "a version above {version}"),
        }
    }
}
