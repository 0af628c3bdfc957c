//! Extended attributes of a file as a header field ([`XATTRS`](super::XATTRS)).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::sync::Arc;

/// Limit on the length of a value, in bytes: the kernel's limit. A field with a longer value is
/// rejected.
pub const MAX_VALUE: usize = 64 << 10;

/// Limit on the length of a name, in bytes and including [`PREFIX`]: the kernel's limit. A
/// field with a longer name is rejected.
const MAX_NAME: usize = 255;

/// Limit on the length of the attributes in the field, in bytes; a whole head may have 16 KiB. The
/// sender leaves out an attribute that would exceed the limit.
const MAX_FIELD: usize = 8 << 10;

/// Prefix of the names of user attributes. Sprat copies only these attributes. Names in the field
/// do not have the prefix.
pub const PREFIX: &str = "user.";

/// The extended attributes of a file in the `user.` namespace: their names without that prefix,
/// their values, and the number of attributes that did not fit into the field.
///
/// The sender reads the attributes from a file and formats them with [`Xattrs::field`]. The
/// receiver parses them with [`Xattrs::parse`]. Clones share the values.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Xattrs {
    all: Arc<Vec<(Vec<u8>, Vec<u8>)>>,
    left_out: usize,
}

impl Xattrs {
    /// Makes a set of attributes from names without their prefix, and values.
    #[must_use]
    pub fn new(mut all: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        all.sort();
        Self { all: Arc::new(all), left_out: 0 }
    }

    /// Iterates over the attributes: names without their prefix, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.all.iter().map(|(name, value)| (&name[..], &value[..]))
    }

    /// Returns whether there are no attributes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the number of attributes that the sender left out of the parsed field.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Formats the value of the field: `NAME=BASE64, ...` with percent-encoded names. `+N` at the
    /// end states the number of attributes that were left out.
    #[must_use]
    pub fn field(&self) -> String {
        let (mut text, mut left_out) = (String::new(), self.left_out);
        for (name, value) in self.all.iter() {
            let item =
                format!("{}={}", percent_encode(name, NON_ALPHANUMERIC), STANDARD.encode(value));
            if text.len() + item.len() + 2 > MAX_FIELD {
                left_out += 1;
                continue;
            }
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(&item);
        }
        if left_out > 0 {
            text = if text.is_empty() {
                format!("+{left_out}")
            } else {
                format!("{text}, +{left_out}")
            };
        }
        text
    }

    /// Parses the output of [`Xattrs::field`]. `None` if the text is malformed, or a name or value
    /// is too long.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (mut all, mut left_out) = (Vec::new(), 0);
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            if let Some(count) = item.strip_prefix('+') {
                left_out = count.parse().ok()?;
                continue;
            }
            let (name, value) = item.split_once('=')?;
            let name: Vec<u8> = percent_decode_str(name).collect();
            let value = STANDARD.decode(value).ok()?;
            let fits = !name.is_empty()
                && name.len() + PREFIX.len() <= MAX_NAME
                && value.len() <= MAX_VALUE;
            if !fits || name.contains(&0) {
                return None;
            }
            all.push((name, value));
        }
        Some(Self { all: Arc::new(all), left_out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xattrs_round_trip_and_excess_is_counted() {
        let all = vec![(b"a=b, c".to_vec(), b"\0\xff,".to_vec()), ("\u{e4}".into(), Vec::new())];
        let few = Xattrs { all: Arc::new(all), left_out: 0 };
        assert_eq!(Xattrs::parse(&few.field()).as_ref(), Some(&few));
        let all = (0..9).map(|at| (vec![b'a' + at], vec![at; 2000])).collect();
        let many = Xattrs { all: Arc::new(all), left_out: 0 };
        let parsed = Xattrs::parse(&many.field()).expect("ours");
        assert_eq!((parsed.all.len(), parsed.left_out()), (3, 6));
        assert_eq!(Xattrs::parse(""), Some(Xattrs::default()));
        for text in ["a", "=YQ==", "a=?", "%00=YQ==", "+x", "a=YQ==, b"] {
            assert_eq!(Xattrs::parse(text), None, "{text:?}");
        }
        let long = format!("{}=YQ==", "n".repeat(MAX_NAME));
        assert_eq!(Xattrs::parse(&long), None);
    }
}
