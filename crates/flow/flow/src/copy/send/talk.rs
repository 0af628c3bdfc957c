//! A connection to a server that stores files: requests whose bodies are sent piece by piece, and
//! short responses.

use crate::copy::client::Client;
use crate::copy::error::{Error, Trouble, fault};
use crate::escape_controls;
use crate::share::{SEND_BUFFER, UNSENT};
use sprat_http::client::Head;
use sprat_http::client::{Body, Fault, Framing, Wire};
use sprat_http::{Address, Cancel};
use sprat_pace::path::Path;
use sprat_pace::{Pace, Paced, Pacer};
use std::fmt::Write as _;

/// Limit on the bytes of a response's text that are displayed. Further bytes are ignored.
const MAX_WORDS: usize = 4096;

/// A complete response.
#[derive(Debug)]
pub(in crate::copy) struct Reply {
    pub(in crate::copy) head: Head,
    pub(in crate::copy) body: Vec<u8>,
}

impl Reply {
    /// Returns the server's text as one line that is safe to print.
    pub(super) fn words(&self) -> String {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(MAX_WORDS)]);
        let words: Vec<&str> = text.split_whitespace().collect();
        escape_controls(&words.join(" ")).into_owned()
    }
}

/// A paced connection to a server. It is opened when it is first needed.
pub(in crate::copy) struct Connection<'a> {
    client: &'a Client,
    pacer: &'a Pacer,
    pace: Pace,
    cancel: Cancel,
    open: Option<(Wire, Option<Paced>)>,
}

impl<'a> Connection<'a> {
    pub(in crate::copy) fn new(
        client: &'a Client,
        pacer: &'a Pacer,
        pace: Pace,
        cancel: &Cancel,
    ) -> Self {
        Self { client, pacer, pace, cancel: cancel.clone(), open: None }
    }

    /// Closes the connection. The next request opens another.
    pub(in crate::copy) fn close(&mut self) {
        self.open = None;
    }

    /// Connects, if there is no connection.
    pub(in crate::copy) fn open(&mut self, address: &Address) -> Result<(), Trouble> {
        if self.open.is_none() {
            let mut wire = self.client.connect(address, &self.cancel)?;
            wire.prepare_to_send(SEND_BUFFER, UNSENT)
                .map_err(|error| fault(&address.to_string(), Fault::Io(error)))?;
            // If the kernel does not support pacing, the connection is not paced.
            let paced = self.pacer.add(wire.tcp(), self.pace).ok();
            self.open = Some((wire, paced));
        }
        Ok(())
    }

    /// Sends the concatenation of `parts` from byte `done` on. Returns how many bytes of the
    /// concatenation have been sent in all. If some bytes are not sent, the caller must read a
    /// response first.
    pub(in crate::copy) fn send_parts(
        &mut self,
        address: &Address,
        parts: &[&[u8]],
        done: usize,
    ) -> Result<usize, Trouble> {
        let (wire, _) = self.open.as_mut().ok_or_else(connection_closed)?;
        wire.send_parts(parts, done).map_err(|error| fault(&address.to_string(), error))
    }

    /// Reads the next response, whose body may have at most `most` bytes. Keeps the connection if
    /// possible.
    pub(in crate::copy) fn answer(
        &mut self,
        address: &Address,
        most: u64,
    ) -> Result<Reply, Trouble> {
        let (wire, _) = self.open.as_mut().ok_or_else(connection_closed)?;
        let reply = read(wire, most).map_err(|error| fault(&address.to_string(), error))?;
        if reply.head.close {
            self.open = None;
        }
        Ok(reply)
    }

    /// Sends a request without a body, and reads the response. If this fails on a connection that
    /// was open already, repeats the request on a new one.
    pub(in crate::copy) fn call(
        &mut self,
        address: &Address,
        head: &str,
        most: u64,
    ) -> Result<Reply, Trouble> {
        if self.open.is_some() {
            if self.send_parts(address, &[head.as_bytes()], 0).is_ok_and(|done| done == head.len())
                && let Ok(reply) = self.answer(address, most)
            {
                return Ok(reply);
            }
            self.close();
        }
        self.open(address)?;
        self.send_parts(address, &[head.as_bytes()], 0)?;
        self.answer(address, most)
    }

    /// Returns what the kernel knows about the path to the server.
    pub(super) fn path(&self) -> Option<Path> {
        self.open.as_ref().and_then(|(wire, _)| Path::of(wire.socket()).ok())
    }
}

/// Returns the failure of a connection that the server closed after a response.
fn connection_closed() -> Trouble {
    Trouble::Transient("the server ended the connection".to_owned(), None)
}

fn read(wire: &mut Wire, most: u64) -> Result<Reply, Fault> {
    let head = wire.head()?;
    let framing = match (head.chunked, head.length) {
        _ if matches!(head.status, 204 | 304) => Framing::Length(0),
        (true, _) => Framing::Chunked,
        (false, Some(length)) if length > most => {
            return Err(Fault::Malformed(format!(
                "its response has {length} B; the limit is {most} B"
            )));
        }
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::Close,
    };
    let mut body = Body::new(wire, framing);
    let mut content = Vec::new();
    let mut room = vec![0; 64 << 10];
    loop {
        let count = body.fill(&mut room)?;
        content.extend(&room[..count]);
        if count < room.len() {
            return Ok(Reply { head, body: content });
        }
        if content.len() as u64 > most {
            return Err(Fault::Malformed(format!("its response is longer than {most} B")));
        }
    }
}

/// Renders the text of a request to an address.
pub(in crate::copy) fn request(method: &str, address: &Address, fields: &[(&str, &str)]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: sprat/{version}\r\n",
        address.target(false),
        address.authority()
    );
    let own = address.authorization().map(|authorization| ("Authorization", authorization));
    for (name, value) in fields.iter().copied().chain(own) {
        write!(text, "{name}: {value}\r\n").expect("a string takes everything");
    }
    text.push_str("\r\n");
    text
}

/// Returns the response if the server accepted the request, or reports that groups of an upload are
/// missing. Otherwise returns the error that the response stands for.
pub(in crate::copy) fn check_accepted(address: &Address, reply: Reply) -> Result<Reply, Trouble> {
    let target_name = address.to_string();
    let (status, why) = (reply.head.status, reply.words());
    match status {
        200..=202 | 204 => Ok(reply),
        409 if reply.head.missing.is_some() => Ok(reply),
        401 | 407 => Err(Error::Denied { source_name: target_name, status }.into()),
        408 | 425 | 429 | 500 | 502 | 503 | 504 => Err(Trouble::Transient(
            format!("the server answers {status}: {why}"),
            reply.head.retry_after,
        )),
        _ => Err(Error::Refused { target_name, status, why }.into()),
    }
}
