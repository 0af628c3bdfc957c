//! Hardware addresses.

use std::fmt::{self, Display};

/// A hardware address of Ethernet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Mac(pub [u8; 6]);

impl Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
    }
}
