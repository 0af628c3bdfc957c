//! The kernel's counters of an interface.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Limit on the bytes of the list that are read: enough for some hundred interfaces.
const LIST_BYTES: usize = 32_768;

/// Column of `/proc/net/dev` with the packets that were dropped before the box read them. For a TAP
/// these are drops on sending: the fourth of the transmit columns, which follow eight receive
/// columns.
const DROPPED: usize = 11;

/// Reads the counters of an interface from a list that was opened in the interface's namespace. The
/// open list continues to show that namespace.
#[derive(Debug)]
pub(super) struct InterfaceStats {
    list: File,
    name: String,
    at_first: u64,
}

impl InterfaceStats {
    pub(super) fn new(list: File, name: &str) -> Self {
        let mut stats = Self { list, name: name.to_owned(), at_first: 0 };
        stats.at_first = stats.read().unwrap_or(0);
        stats
    }

    /// Returns the number of packets dropped since this value was made.
    pub(super) fn dropped(&self) -> u64 {
        self.read().unwrap_or(0).saturating_sub(self.at_first)
    }

    fn read(&self) -> Option<u64> {
        let mut text = vec![0; LIST_BYTES];
        let len = self.list.read_at(&mut text, 0).ok()?;
        let text = str::from_utf8(&text[..len]).ok()?;
        dropped_in(text, &self.name)
    }
}

fn dropped_in(list: &str, name: &str) -> Option<u64> {
    let mut lines = list.lines().filter_map(|line| line.trim_start().split_once(':'));
    let (_, counts) = lines.find(|(interface, _)| *interface == name)?;
    counts.split_whitespace().nth(DROPPED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::dropped_in;

    #[test]
    fn the_right_column_of_the_right_line() {
        let list = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop ...\n    lo: 1 \
                    2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\ntap0: 0 0 0 0 0 0 0 0 0 0 0 77 0 0 0 0\n";
        assert_eq!(dropped_in(list, "tap0"), Some(77));
        assert_eq!(dropped_in(list, "lo"), Some(12));
        assert_eq!(dropped_in(list, "tap1"), None);
        assert_eq!(dropped_in("tap0: 1", "tap0"), None);
    }
}
