//! Service locators. A locator that parses is printed as a text that parses to an equal locator.

use crate::input;
use sprat_net::Locator;

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = input::<&str>(bytes) else { return };
    match text.parse::<Locator>() {
        Ok(locator) => assert_eq!(locator.to_string().parse(), Ok(locator)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
