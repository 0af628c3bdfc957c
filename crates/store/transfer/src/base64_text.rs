//! Bytes as text: unchanged if they are UTF-8, otherwise base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;

/// Returns `bytes` as text, and whether that text is base64.
pub(super) fn encode(bytes: &[u8]) -> (Cow<'_, str>, bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Cow::Borrowed(text), false),
        Err(_) => (Cow::Owned(STANDARD.encode(bytes)), true),
    }
}

/// Decodes base64 `text` and appends the bytes to `out`; `None` when it is not base64.
pub(super) fn decode_into(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    STANDARD.decode_vec(text, out).ok()
}
