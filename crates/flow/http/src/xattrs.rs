//! Extended attributes of a file as a field of a head carries them ([`XATTRS`](super::XATTRS)).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::sync::Arc;

/// Longest value, bytes: the kernel's own limit. A field with a longer one is refused.
pub const MAX_VALUE: usize = 64 << 10;

/// Longest name with its prefix, bytes: the kernel's limit. A field with a longer one is refused.
const MAX_NAME: usize = 255;

/// Most bytes of them in a field, of the 16 KiB that a head has; attributes beyond that are left
/// out.
const MAX_FIELD: usize = 8 << 10;

/// Begins the names of the user's own attributes, the only ones that are copied. Fields leave it
/// out.
pub const PREFIX: &str = "user.";

/// The user's own extended attributes of a file (`user.*`): names without that prefix and values,
/// and how many there were besides that found no room in a head.
///
/// The sender makes it of a file and renders it with [`Xattrs::field`]; the receiver gets it from
/// [`Xattrs::parse`]. Clones share the values.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Xattrs {
    all: Arc<Vec<(Vec<u8>, Vec<u8>)>>,
    left_out: usize,
}

impl Xattrs {
    /// Makes them of names without their prefix, and values.
    #[must_use]
    pub fn new(mut all: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        all.sort();
        Self { all: Arc::new(all), left_out: 0 }
    }

    /// Iterates over names without their prefix, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.all.iter().map(|(name, value)| (&name[..], &value[..]))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many found no room in the field that these were parsed from.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Renders them as a field's value: `NAME=BASE64, ...`, names percent-encoded, and `+N` for
    /// those that find no room.
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

    /// Parses what [`Xattrs::field`] rendered. None: the text is no such list, or beyond a limit.
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
    fn what_is_told_is_read_and_what_is_too_much_is_counted() {
        let all = vec![(b"a=b, c".to_vec(), b"\0\xff,".to_vec()), ("\u{e4}".into(), Vec::new())];
        let few = Xattrs { all: Arc::new(all), left_out: 0 };
        assert_eq!(Xattrs::parse(&few.field()).as_ref(), Some(&few));
        let all = (0..9).map(|at| (vec![b'a' + at], vec![at; 2000])).collect();
        let many = Xattrs { all: Arc::new(all), left_out: 0 };
        let told = Xattrs::parse(&many.field()).expect("ours");
        assert_eq!((told.all.len(), told.left_out()), (3, 6));
        assert_eq!(Xattrs::parse(""), Some(Xattrs::default()));
        for text in ["a", "=YQ==", "a=?", "%00=YQ==", "+x", "a=YQ==, b"] {
            assert_eq!(Xattrs::parse(text), None, "{text:?}");
        }
        let long = format!("{}=YQ==", "n".repeat(MAX_NAME));
        assert_eq!(Xattrs::parse(&long), None);
    }
}
