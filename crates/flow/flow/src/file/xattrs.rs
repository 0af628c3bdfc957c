//! Extended attributes of a file: those that are the user's own (`user.*`). What the system keeps there (access lists, capabilities, labels of
//! security) means something on one machine only, and is never copied.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

/// Longest list of names, and longest value, bytes: the kernel's own limits.
const MAX_LIST: usize = 64 << 10;
const MAX_VALUE: usize = 64 << 10;

/// Longest name, bytes: the kernel's limit.
const MAX_NAME: usize = 255;

/// Most bytes of them in a head of HTTP, of which there are 16 KiB in all.
const MAX_TOLD: usize = 8 << 10;

/// Whose they are.
const PREFIX: &str = "user.";

/// Attributes by names without `user.`, and how many there were besides that could not be told.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Xattrs {
    all: Arc<Vec<(Vec<u8>, Vec<u8>)>>,
    left_out: usize,
}

impl Xattrs {
    /// Of an open file. A filesystem that has none gives none.
    ///
    /// # Errors
    /// The filesystem's.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let mut list: Vec<u8> = Vec::with_capacity(MAX_LIST);
        match flistxattr(&file, spare_capacity(&mut list)) {
            Err(Errno::NOTSUP) => return Ok(Self::default()),
            other => other?,
        };
        let mut all = Vec::new();
        for name in list.split(|byte| *byte == 0) {
            let Some(short) = name.strip_prefix(PREFIX.as_bytes()) else { continue };
            let mut value: Vec<u8> = Vec::with_capacity(MAX_VALUE);
            match fgetxattr(&file, OsStr::from_bytes(name), spare_capacity(&mut value)) {
                // Gone since the list was made.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => all.push((short.to_vec(), value)),
            }
        }
        all.sort();
        Ok(Self { all: Arc::new(all), left_out: 0 })
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many could not be told.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Gives them to a file.
    ///
    /// # Errors
    /// The filesystem's: it has none, or no room for these.
    pub fn give(&self, file: impl AsFd) -> io::Result<()> {
        for (name, value) in self.all.iter() {
            let name = CString::new([PREFIX.as_bytes(), name].concat())?;
            fsetxattr(&file, &*name, value, XattrFlags::empty())?;
        }
        Ok(())
    }

    /// As a field of a head: `NAME=BASE64, ...`, names percent-encoded, and `+N` for those that find no room.
    #[must_use]
    pub fn told(&self) -> String {
        let (mut text, mut left_out) = (String::new(), self.left_out);
        for (name, value) in self.all.iter() {
            let item = format!("{}={}", percent_encode(name, NON_ALPHANUMERIC), STANDARD.encode(value));
            if text.len() + item.len() + 2 > MAX_TOLD {
                left_out += 1;
                continue;
            }
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(&item);
        }
        if left_out > 0 {
            text = if text.is_empty() { format!("+{left_out}") } else { format!("{text}, +{left_out}") };
        }
        text
    }

    /// Reads such a field. None: it is none.
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
            let fits = !name.is_empty() && name.len() + PREFIX.len() <= MAX_NAME && value.len() <= MAX_VALUE;
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
        assert_eq!(Xattrs::parse(&few.told()).as_ref(), Some(&few));
        let all = (0..9).map(|at| (vec![b'a' + at], vec![at; 2000])).collect();
        let many = Xattrs { all: Arc::new(all), left_out: 0 };
        let told = Xattrs::parse(&many.told()).expect("ours");
        assert_eq!((told.all.len(), told.left_out()), (3, 6));
        assert_eq!(Xattrs::parse(""), Some(Xattrs::default()));
        for text in ["a", "=YQ==", "a=?", "%00=YQ==", "+x", "a=YQ==, b"] {
            assert_eq!(Xattrs::parse(text), None, "{text:?}");
        }
        let long = format!("{}=YQ==", "n".repeat(MAX_NAME));
        assert_eq!(Xattrs::parse(&long), None);
    }
}
