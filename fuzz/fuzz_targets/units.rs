//! Sizes, rates, shares and durations. No text panics, and a share is printed as a text that parses
//! to an equal share.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sprat_units::{duration, percent, rate, ratio, seconds, share, size};

fuzz_target!(|text: &str| {
    let _ = (size(text), rate(text), duration(text), seconds(text), ratio(text));
    if let Ok(part) = share(text) {
        assert_eq!(share(&percent(part)), Ok(part));
    }
});
