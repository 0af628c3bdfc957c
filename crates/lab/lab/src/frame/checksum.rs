//! The Internet checksum (RFC 1071), computed over several parts.

/// The sum of the parts that were added so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    sum: u64,
    /// Whether an odd number of bytes has been added.
    odd: bool,
}

impl Sum {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.odd
            && let [first, rest @ ..] = bytes
        {
            self.sum += u64::from(*first);
            self.odd = false;
            bytes = rest;
        }
        let (pairs, left) = bytes.as_chunks::<2>();
        self.sum += pairs.iter().map(|&pair| u64::from(u16::from_be_bytes(pair))).sum::<u64>();
        if let [last] = left {
            self.sum += u64::from(*last) << 8;
            self.odd = true;
        }
    }

    /// Returns the sum in 16 bits, with the carries added. It is not complemented.
    pub(crate) fn folded(self) -> u16 {
        let mut sum = self.sum;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).expect("folded to 16 bits")
    }

    /// Returns the checksum: the complement of the sum.
    pub(crate) fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// Returns the new checksum after a word that it covers has changed from `old` to `new`:
/// `~(~sum + ~old + new)`, RFC 1624, equation 3.
pub(crate) fn updated(sum: u16, old: u16, new: u16) -> u16 {
    let mut after = Sum::default();
    [!sum, !old, new].iter().for_each(|word| after.add(&word.to_be_bytes()));
    after.checksum()
}
