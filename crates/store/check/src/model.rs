//! The model: what every object is now, and so what every answer must be.

use super::content::Content;
use super::operation::{Action, Operation, Outcome, key_name};
use sprat_client::{Condition, Row};
use std::collections::HashMap;
use std::fmt;

/// An answer that the model does not allow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Disagreement {
    /// Number of the operation, from 1; `None` when the whole table was looked at.
    pub operation: Option<u64>,
    /// What was asked.
    pub asked: String,
    /// The object's key.
    pub key: String,
    /// What the model says.
    pub expected: String,
    /// What the store said.
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

/// An object as the model knows it.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    content: Option<Content>,
    /// Its version; of an absent object, the highest it has had.
    version: u64,
}

impl Known {
    fn current(self) -> Option<u64> {
        self.content.map(|_| self.version)
    }
}

/// What an answer must be.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Found(Content, u64),
    Missing,
    /// Stored: with the next version over an object, with a higher one than ever otherwise.
    Stored(Content, Version),
    Summed(i64, Version),
    Removed(u64),
    Conflict(Option<u64>),
    NotANumber,
}

#[derive(Clone, Copy, Debug)]
enum Version {
    Exactly(u64),
    Above(u64),
}

impl Version {
    fn allows(self, version: u64) -> bool {
        match self {
            Self::Exactly(own) => version == own,
            Self::Above(own) => version > own,
        }
    }
}

/// Every object, as one client made it that nobody else disturbs.
#[derive(Clone, Debug, Default)]
pub struct Model {
    objects: HashMap<usize, Known>,
}

impl Model {
    /// Objects that there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.values().filter(|known| known.content.is_some()).count()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version of an object; `None` when there is none.
    #[must_use]
    pub fn version(&self, key: usize) -> Option<u64> {
        self.known(key).current()
    }

    fn known(&self, key: usize) -> Known {
        self.objects.get(&key).copied().unwrap_or_default()
    }

    /// Holds an answer against the model, which learns what it could not know: versions of new
    /// objects.
    ///
    /// # Errors
    /// What does not agree.
    pub fn judge(&mut self, operation: &Operation, outcome: &Outcome) -> Result<(), Disagreement> {
        let known = self.known(operation.key);
        let expected = Self::expect(known, operation.action);
        if let Some(after) = expected.after(known, outcome) {
            self.objects.insert(operation.key, after);
            return Ok(());
        }
        Err(Disagreement {
            operation: Some(operation.number),
            asked: operation.action.to_string(),
            key: key_name(operation.key),
            expected: expected.to_string(),
            got: expected.told(outcome),
        })
    }

    /// Holds all objects of the table, each by its key, version and value, against the model.
    ///
    /// # Errors
    /// The first that does not agree, or that is missing.
    pub fn judge_all(&self, rows: impl Iterator<Item = Row>) -> Result<(), Disagreement> {
        let mut left: HashMap<Vec<u8>, Known> = HashMap::new();
        left.extend(self.objects.iter().map(|(&key, &known)| (key_name(key).into_bytes(), known)));
        let wrong = |key: &[u8], expected: String, got: String| Disagreement {
            operation: None,
            asked: "the scan of the table at the end".to_owned(),
            key: String::from_utf8_lossy(key).into_owned(),
            expected,
            got,
        };
        for Row { key, version, value, .. } in rows {
            // Each may come once: what has been seen counts as absent.
            let known = left.remove(&key).unwrap_or_default();
            let expected = Self::expect(known, Action::Get);
            let outcome = Outcome::Found { version, value };
            if expected.after(known, &outcome).is_none() {
                return Err(wrong(&key, expected.to_string(), expected.told(&outcome)));
            }
        }
        let missed = left
            .into_iter()
            .filter(|(_, known)| known.content.is_some())
            .min_by(|a, b| a.0.cmp(&b.0));
        missed.map_or(Ok(()), |(key, known)| {
            Err(wrong(
                &key,
                Self::expect(known, Action::Get).to_string(),
                "no such object".to_owned(),
            ))
        })
    }

    fn expect(known: Known, action: Action) -> Expected {
        let refused = |condition: Condition| !condition.holds(known.current());
        let next = if known.content.is_some() {
            Version::Exactly(known.version + 1)
        } else {
            Version::Above(known.version)
        };
        match (action, known.content) {
            (Action::Get, Some(content)) => Expected::Found(content, known.version),
            (Action::Put { condition, .. } | Action::Remove { condition }, _)
                if refused(condition) =>
            {
                Expected::Conflict(known.current())
            }
            (Action::Put { content, .. }, _) => Expected::Stored(content, next),
            (Action::Remove { .. }, Some(_)) => Expected::Removed(known.version),
            (Action::Get | Action::Remove { .. }, None) => Expected::Missing,
            (Action::Increment { delta }, content) => {
                let sum = content
                    .map_or(Some(0), Content::number)
                    .and_then(|number| number.checked_add(delta));
                sum.map_or(Expected::NotANumber, |sum| Expected::Summed(sum, next))
            }
        }
    }
}

impl Expected {
    /// What the object is after that answer; `None` if the answer is wrong.
    fn after(self, known: Known, outcome: &Outcome) -> Option<Known> {
        match (self, outcome) {
            (Self::Found(content, own), Outcome::Found { version, value }) => {
                (own == *version && content.difference(value).is_none()).then_some(known)
            }
            (Self::Stored(content, own), &Outcome::Stored { version }) if own.allows(version) => {
                Some(Known { content: Some(content), version })
            }
            (Self::Summed(own, at), &Outcome::Summed { sum, version })
                if own == sum && at.allows(version) =>
            {
                Some(Known { content: Some(Content::Number(sum)), version })
            }
            (Self::Removed(own), &Outcome::Removed { version }) if own == version => {
                Some(Known { content: None, version })
            }
            (Self::Conflict(own), Outcome::Conflict { current }) if own == *current => Some(known),
            (Self::Missing, Outcome::Missing) | (Self::NotANumber, Outcome::NotANumber) => {
                Some(known)
            }
            _ => None,
        }
    }

    /// An answer in words, with how its value differs from the one that was expected.
    fn told(self, outcome: &Outcome) -> String {
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

impl fmt::Display for Expected {
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

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(version) => write!(f, "version {version}"),
            Self::Above(version) => write!(f, "a version above {version}"),
        }
    }
}
