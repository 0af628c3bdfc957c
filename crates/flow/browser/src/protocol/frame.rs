//! Frames of native messaging: the length in the machine's own byte order (4 bytes), and so many
//! bytes of JSON.

use std::io::{self, ErrorKind, Read, Write};
use thiserror::Error;

/// Most bytes of a message from the browser. The longest that the extension sends has an address in
/// it.
pub const MAX_REQUEST: usize = 64 << 10;

/// Most bytes of a message to the browser: what browsers take.
pub const MAX_REPORT: usize = 1 << 20;

/// Why no more frames can be read.
#[derive(Debug, Error)]
pub enum FrameError {
    /// A frame is longer than any that the extension sends: what comes is not from it.
    #[error("a message of {0} B; the longest has {MAX_REQUEST}")]
    TooLong(u32),
    /// It ended within a frame.
    #[error("the browser stopped within a message")]
    Cut,
    /// It cannot be read.
    #[error("cannot read from the browser: {0}")]
    Io(#[from] io::Error),
}

/// Reads a frame. None: the browser has closed its end.
///
/// # Errors
/// [`FrameError`]; where the next frame begins is not known then.
pub fn read(from: &mut impl Read) -> Result<Option<Vec<u8>>, FrameError> {
    let mut head = Vec::new();
    if from.take(4).read_to_end(&mut head)? == 0 {
        return Ok(None);
    }
    let head: [u8; 4] = head.try_into().map_err(|_| FrameError::Cut)?;
    let told = u32::from_ne_bytes(head);
    let length = usize::try_from(told).ok().filter(|length| *length <= MAX_REQUEST);
    let mut body = vec![0; length.ok_or(FrameError::TooLong(told))?];
    from.read_exact(&mut body).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => FrameError::Cut,
        _ => error.into(),
    })?;
    Ok(Some(body))
}

/// Writes a frame.
///
/// # Errors
/// The system's; or [`ErrorKind::InvalidInput`] for more than [`MAX_REPORT`] bytes, of which
/// nothing is written.
pub fn write(to: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_REPORT);
    let length = length.ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
    let mut frame = length.to_ne_bytes().to_vec();
    frame.extend(body);
    to.write_all(&frame)?;
    to.flush()
}
