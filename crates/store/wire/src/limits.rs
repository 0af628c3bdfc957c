//! The limits that all parts of the store share.

/// The longest key, in bytes.
pub const MAX_KEY: usize = 65_535;

/// The longest value, in bytes (1 MiB).
pub const MAX_VALUE: usize = 1 << 20;

/// The longest RPC message, in bytes (8 MiB), headers of the operation included.
pub const MAX_MESSAGE: usize = 8 << 20;

/// The longest table name, in bytes of UTF-8.
pub const MAX_TABLE_NAME: usize = 255;

/// The longest name of a rack, in bytes.
pub const MAX_RACK: usize = 32;

/// Returns whether a text is valid as a rack's name: 1 to [`MAX_RACK`] ASCII letters, digits, `_`
/// and `-`.
#[must_use]
pub fn is_rack(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_RACK).contains(&text.len()) && text.bytes().all(fits)
}

/// The largest number of bytes of log in one segment, in memory and on disk.
pub const SEGMENT_BYTES: usize = 8 << 20;

/// Bytes in one seglet, the unit in which a segment takes and returns memory.
pub const SEGLET_BYTES: usize = 64 << 10;

/// Seglets in a segment of [`SEGMENT_BYTES`].
pub const SEGLETS_PER_SEGMENT: usize = SEGMENT_BYTES / SEGLET_BYTES;

/// Highest version of an object: 48 bits store it.
pub const MAX_VERSION: u64 = (1 << 48) - 1;

/// Highest id of a server: frames on disk name a replica by 24 bits of it.
pub const MAX_SERVER_ID: u32 = (1 << 24) - 1;

/// Highest id of a segment: 40 bits, which with segments of 8 MB no master ever uses up.
pub const MAX_SEGMENT_ID: u64 = (1 << 40) - 1;

const _: () = assert!(MAX_VALUE + MAX_KEY + 1024 <= MAX_MESSAGE);
const _: () = assert!(SEGMENT_BYTES.is_multiple_of(SEGLET_BYTES));
