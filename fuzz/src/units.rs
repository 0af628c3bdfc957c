//! Sizes, rates, shares and durations. No text panics, and a share is printed as a text that parses
//! to an equal share.

use crate::input;
use sprat_units::{duration, percent, rate, ratio, seconds, share, size};

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = input::<&str>(bytes) else { return };
    let _ = (size(text), rate(text), duration(text), seconds(text), ratio(text));
    if let Ok(part) = share(text) {
        assert_eq!(share(&percent(part)), Ok(part));
    }
}
