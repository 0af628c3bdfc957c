//! Service locators. A locator that parses is printed as a text that parses to an equal locator.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sprat_net::Locator;

fuzz_target!(|text: &str| {
    match text.parse::<Locator>() {
        Ok(locator) => assert_eq!(locator.to_string().parse(), Ok(locator)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
