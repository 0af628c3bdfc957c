//! Several locators in one text.

use super::{Locator, LocatorError};
use std::fmt::{self, Display};
use std::ops::Deref;
use std::str::FromStr;

/// One or more locators, separated by commas:
/// `tcp:host=10.0.0.1,port=11100,tcp:host=10.0.0.2,port=11100`, or `10.0.0.1:11100,10.0.0.2:11100`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Locators(Vec<Locator>);

impl From<Locator> for Locators {
    fn from(one: Locator) -> Self {
        Self(vec![one])
    }
}

impl Deref for Locators {
    type Target = [Locator];

    fn deref(&self) -> &[Locator] {
        &self.0
    }
}

impl Display for Locators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, locator) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{locator}")?;
        }
        Ok(())
    }
}

impl FromStr for Locators {
    type Err = LocatorError;

    fn from_str(text: &str) -> Result<Self, LocatorError> {
        let mut ends = Vec::new();
        let mut at = 0;
        for part in text.split(',') {
            // A colon before the first equals sign means that the next locator begins here.
            let head = part.split_once('=').map_or("", |(head, _)| head);
            // The text after `dev=` may be an argument of the device, whatever it looks like.
            let device = text[ends.last().copied().unwrap_or(0)..at.max(1) - 1].contains("dev=");
            let short = !device && (part.contains("://") || super::parse::is_short(part.trim()));
            if at > 0 && (head.contains(':') || short) {
                ends.push(at);
            }
            at += part.len() + 1;
        }
        ends.push(text.len() + 1);
        let mut begin = 0;
        let one = |end| {
            let one = text[begin..end - 1].parse();
            begin = end;
            one
        };
        ends.into_iter().map(one).collect::<Result<_, _>>().map(Self)
    }
}
