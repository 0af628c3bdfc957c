//! Bodies whose length is not known in advance.

use super::socket::Channel;
use std::io::{self, Write};

/// Number of bytes that are buffered before they are sent as a chunk.
const GATHERED: usize = 64 << 10;

/// Sends the bytes written to it in chunks (RFC 9112, section 7.1), or unchanged to an HTTP/1.0
/// client.
pub(super) struct Chunks<'a> {
    channel: &'a mut Channel,
    plain: bool,
    gathered: Vec<u8>,
    sent: u64,
}

impl<'a> Chunks<'a> {
    pub(super) fn new(channel: &'a mut Channel, plain: bool) -> Self {
        Self { channel, plain, gathered: Vec::with_capacity(GATHERED), sent: 0 }
    }

    /// Sends the buffered bytes and the end marker. Returns the number of content bytes.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.send_chunk()?;
        if !self.plain {
            self.channel.send(&[b"0\r\n\r\n"])?;
        }
        Ok(self.sent)
    }

    /// Sends the buffered bytes as one chunk.
    fn send_chunk(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        match self.plain {
            true => self.channel.send(&[&self.gathered])?,
            false => self.channel.send(&[
                format!("{:x}\r\n", self.gathered.len()).as_bytes(),
                &self.gathered,
                b"\r\n",
            ])?,
        }
        self.sent += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }
}

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend(bytes);
        if self.gathered.len() >= GATHERED {
            self.send_chunk()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_chunk()
    }
}
