//! Seals and opens frames: a key for each direction, frame numbers that are never reused, and a
//! window against replay.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sprat_wire::channel::{CHANNEL_HEADER_BYTES, SEALED, SealedHeader, TAG_BYTES};
use zerocopy::{FromBytes, IntoBytes};

/// A key seals 2^`EPOCH_BITS` frames. After them, a key derived from this key replaces it. 2^24
/// frames of 64 KB are 2^36 blocks of the cipher, and the probability that an attacker can
/// distinguish 2^36 blocks from random ones is about 2^-56 at most.
#[cfg(not(test))]
const EPOCH_BITS: u32 = 24;

/// A short epoch, so that tests reach its end.
#[cfg(test)]
const EPOCH_BITS: u32 = 8;

/// Limit of the frame numbers in a channel: at a hundred million frames a second it is reached
/// after a thousand years. Frames with this number or a higher one are neither sealed nor opened.
const MAX_NUMBER: u64 = 1 << 62;

/// Words of the replay window.
const WORDS: usize = 17;

/// A late frame is recognized as new only if its number is one of this many up to the highest that
/// has arrived.
pub(crate) const WINDOW: u64 = (WORDS as u64 - 1) * 64;

const _: () = assert!(WINDOW == 1024 && WINDOW <= 1 << (2 * EPOCH_BITS));

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

fn key_of(bytes: &[u8; KEY_BYTES]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("32 bytes"))
}

/// Derives the key of the next epoch: Noise's rekey, with a frame number that no frame uses.
fn next_key(key: &LessSafeKey) -> LessSafeKey {
    let mut bytes = [0; KEY_BYTES];
    let _tag = key
        .seal_in_place_separate_tag(nonce(u64::MAX), Aad::empty(), &mut bytes)
        .expect("32 bytes are few");
    key_of(&bytes)
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Seals the frames of one direction.
#[derive(Debug)]
pub(crate) struct Sealing {
    key: LessSafeKey,
    number: u64,
}

impl Sealing {
    pub(crate) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self { key: key_of(key), number: 0 }
    }

    /// Seals a frame whose first [`CHANNEL_HEADER_BYTES`] the caller left free for the header. `to`
    /// is the receiver's number of the channel. Returns false if all frame numbers are used up.
    #[inline]
    pub(crate) fn seal(&mut self, to: u32, frame: &mut Vec<u8>) -> bool {
        let number = self.number;
        if number >= MAX_NUMBER {
            return false;
        }
        if number >> EPOCH_BITS != number.saturating_sub(1) >> EPOCH_BITS {
            self.key = next_key(&self.key);
        }
        self.number += 1;
        let lead =
            SealedHeader { kind: SEALED, reserved: [0; 3], to: to.into(), number: number.into() };
        let (head, body) = frame.split_at_mut(CHANNEL_HEADER_BYTES);
        head.copy_from_slice(lead.as_bytes());
        let tag =
            self.key.seal_in_place_separate_tag(nonce(number), Aad::from(lead.as_bytes()), body);
        frame.extend_from_slice(tag.expect("a frame is short").as_ref());
        true
    }
}

/// Why a sealed frame was not opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rejected {
    /// The sender lacks the key, or the frame was changed, is too short, or is of an epoch that is
    /// neither the present one nor next to it.
    Forged,
    /// The frame arrived before, or so late that the window no longer covers its number.
    Repeated,
}

/// Opens the sealed frames of one direction.
#[derive(Debug)]
pub(crate) struct Opening {
    key: LessSafeKey,
    epoch: u64,
    /// The key of the previous epoch, for frames that arrive late.
    previous: Option<LessSafeKey>,
    window: Window,
}

impl Opening {
    pub(crate) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self { key: key_of(key), epoch: 0, previous: None, window: Window::default() }
    }

    /// Decrypts a frame in place and returns its packets.
    #[inline]
    pub(crate) fn open<'a>(&mut self, frame: &'a mut [u8]) -> Result<&'a [u8], Rejected> {
        let (head, body) =
            frame.split_at_mut_checked(CHANNEL_HEADER_BYTES).ok_or(Rejected::Forged)?;
        let lead = *SealedHeader::ref_from_bytes(head).map_err(|_| Rejected::Forged)?;
        let number = lead.number.get();
        if number >= MAX_NUMBER || body.len() < TAG_BYTES {
            return Err(Rejected::Forged);
        }
        if !self.window.is_new(number) {
            return Err(Rejected::Repeated);
        }
        let epoch = number >> EPOCH_BITS;
        let aad = Aad::from(lead.as_bytes());
        let opened = if epoch == self.epoch {
            self.key.open_in_place(nonce(number), aad, body)
        } else if epoch + 1 == self.epoch {
            let previous = self.previous.as_ref().ok_or(Rejected::Repeated)?;
            previous.open_in_place(nonce(number), aad, body)
        } else if epoch == self.epoch + 1 {
            let next = next_key(&self.key);
            let opened = next.open_in_place(nonce(number), aad, body);
            if opened.is_ok() {
                self.previous = Some(std::mem::replace(&mut self.key, next));
                self.epoch = epoch;
            }
            opened
        } else {
            return Err(Rejected::Forged);
        };
        let opened = opened.map_err(|_| Rejected::Forged)?;
        self.window.take(number);
        Ok(opened)
    }
}

/// A bitmap of the newest frame numbers that have arrived.
#[derive(Debug, Default)]
struct Window {
    /// One more than the highest number that has arrived.
    next: u64,
    /// A bit for each number, at the number modulo the count of bits.
    words: [u64; WORDS],
}

impl Window {
    #[inline]
    fn place(number: u64) -> (usize, u64) {
        let word = usize::try_from(number / 64 % WORDS as u64).expect("few words");
        (word, 1 << (number % 64))
    }

    #[inline]
    fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            return true;
        }
        let (word, bit) = Self::place(number);
        self.next - number <= WINDOW && self.words[word] & bit == 0
    }

    #[inline]
    fn take(&mut self, number: u64) {
        if number >= self.next {
            // The words between the highest number so far and this number hold bits of numbers long
            // past.
            let highest = self.next.saturating_sub(1) / 64;
            for word in (highest + 1..=number / 64).take(WORDS) {
                self.words[Self::place(word * 64).0] = 0;
            }
            self.next = number + 1;
        }
        let (word, bit) = Self::place(number);
        self.words[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn ends() -> (Sealing, Opening) {
        (Sealing::new(&[7; 32]), Opening::new(&[7; 32]))
    }

    fn sealed(sealing: &mut Sealing, bytes: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; CHANNEL_HEADER_BYTES];
        frame.extend_from_slice(bytes);
        assert!(sealing.seal(5, &mut frame));
        frame
    }

    #[test]
    fn a_sealed_frame_opens_once_and_only_unchanged() {
        let (mut sealing, mut opening) = ends();
        let frame = sealed(&mut sealing, b"some packets");
        assert!(!frame.windows(4).any(|window| window == b"some"));
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 0x10;
            assert!(opening.open(&mut changed).is_err(), "byte {at}");
            assert!(opening.open(&mut frame[..at].to_vec()).is_err(), "cut at {at}");
        }
        assert!(Opening::new(&[8; 32]).open(&mut frame.clone()).is_err(), "another key");
        assert_eq!(opening.open(&mut frame.clone()), Ok(&b"some packets"[..]));
        assert_eq!(opening.open(&mut frame.clone()), Err(Rejected::Repeated));
        assert_eq!(opening.open(&mut sealed(&mut sealing, b"")), Ok(&b""[..]));
    }

    #[test]
    fn keys_give_way_and_stragglers_are_taken() {
        let (mut sealing, mut opening) = ends();
        let frames: Vec<_> =
            (0..3u32 << EPOCH_BITS).map(|at| sealed(&mut sealing, &at.to_le_bytes())).collect();
        let epoch = 1 << EPOCH_BITS;
        let mut open = |at: usize| opening.open(&mut frames[at].clone()).map(<[u8]>::to_vec);
        let bytes = |at: usize| Ok(u32::try_from(at).unwrap().to_le_bytes().to_vec());
        assert_eq!(open(epoch - 2), bytes(epoch - 2));
        assert_eq!(open(epoch), bytes(epoch), "by the next key");
        assert_eq!(open(epoch - 1), bytes(epoch - 1), "by the one before");
        assert_eq!(open(epoch - 2), Err(Rejected::Repeated));
        assert_eq!(open(2 * epoch + 1), bytes(2 * epoch + 1));
        assert_eq!(open(epoch - 3), Err(Rejected::Forged), "two keys ago");
        assert_eq!(open(2 * epoch - 1), bytes(2 * epoch - 1));
    }

    #[test]
    fn numbers_end_before_they_come_again() {
        let mut sealing = Sealing { key: key_of(&[0; 32]), number: MAX_NUMBER - 1 };
        let mut frame = vec![0; CHANNEL_HEADER_BYTES];
        assert!(sealing.seal(0, &mut frame));
        assert!(!sealing.seal(0, &mut vec![0; CHANNEL_HEADER_BYTES]));
    }

    proptest! {
        #[test]
        fn the_window_takes_each_number_once(
            steps in proptest::collection::vec((0..4u8, 0..3000u64), 1..400)
        ) {
            let (mut window, mut seen, mut highest) = (Window::default(), HashSet::new(), 0u64);
            for (kind, by) in steps {
                let number = match kind {
                    0 => highest + by % 3,
                    1 => highest + by,
                    2 => highest.saturating_sub(by % 70),
                    _ => highest.saturating_sub(by),
                };
                let late = !seen.is_empty() && highest.saturating_sub(number) >= WINDOW;
                let new = !late && !seen.contains(&number);
                prop_assert_eq!(window.is_new(number), new, "{}", number);
                if window.is_new(number) {
                    window.take(number);
                    seen.insert(number);
                    highest = highest.max(number);
                }
            }
        }
    }
}
