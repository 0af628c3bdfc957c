//! A body whose length is not known beforehand.

use super::socket::Channel;
use std::io::{self, Write};

/// Bytes that are gathered before they are sent.
const GATHERED: usize = 64 << 10;

/// Sends what is written to it, in chunks (RFC 9112, 7.1), or as it is to a client of HTTP/1.0.
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

    /// Sends what is left, and that it is the end; gives the bytes of the content.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.pass_on()?;
        if !self.plain {
            self.channel.send(&[b"0\r\n\r\n"])?;
        }
        Ok(self.sent)
    }

    fn pass_on(&mut self) -> io::Result<()> {
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
            self.pass_on()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass_on()
    }
}
