//! Frames of native messaging: a length of 4 bytes in native byte order, and that many bytes of
//! JSON.

use std::io::{self, ErrorKind, Read, Write};
use thiserror::Error;

/// Limit on the length of a message from the browser, in bytes, without the length field. The
/// extension's longest message contains an address, and is shorter than this limit. A longer
/// message is [`FrameError::TooLong`].
pub const MAX_REQUEST: usize = 64 << 10;

/// Limit on the length of a message to the browser, in bytes, without the length field. Browsers
/// reject longer messages.
pub const MAX_REPORT: usize = 1 << 20;

/// Why no more frames can be read.
#[derive(Debug, Error)]
pub enum FrameError {
    /// A frame is longer than [`MAX_REQUEST`]. The extension sends no frame of this length.
    #[error("a message of {0} B; the longest has {MAX_REQUEST}")]
    TooLong(u32),
    /// The input ended within a frame.
    #[error("the browser stopped in the middle of a message")]
    Cut,
    /// The input cannot be read.
    #[error("cannot read from the browser: {0}")]
    Io(#[from] io::Error),
}

/// Reads a frame. `None` if the browser has closed its end.
/// # Errors
/// [`FrameError`] if reading fails, the input ends within a frame, or the frame is longer than
/// [`MAX_REQUEST`]. The next frame cannot be found after an error.
pub fn read(from: &mut impl Read) -> Result<Option<Vec<u8>>, FrameError> {
    let mut head = Vec::new();
    if from.take(4).read_to_end(&mut head)? == 0 {
        return Ok(None);
    }
    let head: [u8; 4] = head.try_into().map_err(|_| FrameError::Cut)?;
    let length_field = u32::from_ne_bytes(head);
    let length = usize::try_from(length_field).ok().filter(|length| *length <= MAX_REQUEST);
    let mut body = vec![0; length.ok_or(FrameError::TooLong(length_field))?];
    from.read_exact(&mut body).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => FrameError::Cut,
        _ => error.into(),
    })?;
    Ok(Some(body))
}

/// Writes a frame.
/// # Errors
/// The operating system's error if writing fails. [`ErrorKind::InvalidInput`] if `body` has more
/// than [`MAX_REPORT`] bytes; nothing is written then.
pub fn write(to: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_REPORT);
    let length = length.ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
    let mut frame = length.to_ne_bytes().to_vec();
    frame.extend(body);
    to.write_all(&frame)?;
    to.flush()
}
