//! Requests with bodies of their own, and short answers: for services that are spoken to in a few
//! words before or after bytes are moved.

use super::body::{Body, Framing};
use super::connect::Connector;
use super::fault::Fault;
use super::head::Head;
use super::options::Options;
use super::wire::Wire;
use crate::address::Address;
use crate::cancel::Cancel;
use crate::error::Error;
use sprat_host::lock;
use std::fmt::Write as _;
use std::sync::Mutex;

/// Longest body of an answer, bytes; more is an error.
pub const MAX_ANSWER: usize = 4 << 20;

/// Most connections that wait for another request.
const MAX_KEPT: usize = 32;

/// Bytes of a request that are sent between two looks at whether to stop.
const PIECE: usize = 256 << 10;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// Where to: an address of http or https.
    pub url: &'a str,
    /// Fields besides those that say where it goes and how long it is.
    pub fields: &'a [(String, String)],
    /// What follows them, in pieces.
    pub body: &'a [&'a [u8]],
}

/// An answer, whole.
#[derive(Clone, Debug)]
pub struct Reply {
    /// What was said of it.
    pub head: Head,
    /// What followed; nothing for `HEAD`.
    pub body: Vec<u8>,
}

/// Makes requests, from any number of threads.
#[derive(Debug)]
pub struct Caller {
    connector: Connector,
    cancel: Cancel,
    kept: Mutex<Vec<(String, Wire)>>,
}

impl Caller {
    /// Makes requests by connections with these options, until `cancel` stops it.
    ///
    /// # Errors
    /// [`Error::File`] when the certificates that are to be trusted cannot be read.
    pub fn new(options: &Options, cancel: &Cancel) -> Result<Self, Error> {
        Ok(Self {
            connector: Connector::new(options)?,
            cancel: cancel.clone(),
            kept: Mutex::default(),
        })
    }

    /// Makes a request. Redirects and errors of the server's are answers like others.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when it may be made again, and others when that is of no use.
    pub fn call(&self, call: Call<'_>) -> Result<Reply, Error> {
        let address = Address::parse(call.url)?;
        let name = address.to_string();
        let peer = format!("{} {}", address.is_tls(), address.authority());
        // A server may have closed what it kept: then once more, on a new connection; but not what
        // may not be done twice.
        if call.method != "POST"
            && let Some(wire) = self.take_kept(&peer)
            && let Ok((reply, wire)) = self.on(wire, &address, &call)
        {
            self.keep(peer, wire);
            return Ok(reply);
        }
        let wire = self
            .connector
            .connect(&address, &self.cancel)
            .map_err(|fault| fault.into_error(&name))?;
        let done = self.on(wire, &address, &call);
        let (reply, wire) = done.map_err(|fault| fault.into_error(&name))?;
        self.keep(peer, wire);
        Ok(reply)
    }

    /// Makes a request on a connection; gives it back if it can take another.
    fn on(
        &self,
        mut wire: Wire,
        address: &Address,
        call: &Call<'_>,
    ) -> Result<(Reply, Option<Wire>), Fault> {
        wire.send(text(address, call).as_bytes())?;
        for piece in call.body.iter().flat_map(|part| part.chunks(PIECE)) {
            if self.cancel.is_asked() {
                return Err(Fault::Cancelled);
            }
            wire.send(piece)?;
        }
        let head = wire.head()?;
        let framing = match (head.chunked, head.length) {
            _ if call.method == "HEAD" || matches!(head.status, 204 | 304) => Framing::Length(0),
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Close,
        };
        let mut body = Body::new(&mut wire, framing);
        let mut content = vec![0; 8 << 10];
        let mut had = 0;
        loop {
            had += body.fill(&mut content[had..])?;
            if had < content.len() {
                break;
            }
            if had >= MAX_ANSWER {
                return Err(Fault::Wrong(format!("its answer is longer than {MAX_ANSWER} B")));
            }
            content.resize(2 * had, 0);
        }
        content.truncate(had);
        let goes_on = body.is_over() && !head.close;
        Ok((Reply { head, body: content }, goes_on.then_some(wire)))
    }

    fn take_kept(&self, peer: &str) -> Option<Wire> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|(of, _)| of == peer)?;
        Some(kept.swap_remove(at).1)
    }

    fn keep(&self, peer: String, wire: Option<Wire>) {
        let mut kept = lock(&self.kept);
        if kept.len() < MAX_KEPT {
            kept.extend(wire.map(|wire| (peer, wire)));
        }
    }
}

/// The text of a request.
fn text(address: &Address, call: &Call<'_>) -> String {
    let mut text = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\n",
        call.method,
        address.target(false),
        address.authority()
    );
    let length: usize = call.body.iter().map(|part| part.len()).sum();
    let version = env!("CARGO_PKG_VERSION");
    write!(text, "User-Agent: sprat/{version}\r\nContent-Length: {length}\r\n")
        .expect("a string takes everything");
    for (name, value) in call.fields {
        write!(text, "{name}: {value}\r\n").expect("a string takes everything");
    }
    text.push_str("\r\n");
    text
}
