//! Requests whose responses fit into memory: for services that are called before, after or between
//! the bulk transfers.

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

/// Limit on the body of a response, in bytes. A longer body is an error.
pub const MAX_ANSWER: usize = 4 << 20;

/// Limit on the idle connections that are kept. If there are this many, a connection is closed
/// after its exchange.
const MAX_KEPT: usize = 32;

/// Limit on the bytes of a request's body that are sent between two checks for cancellation.
const PIECE: usize = 256 << 10;

/// A request for [`Caller::call`].
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// The `http` or `https` address.
    pub url: &'a str,
    /// Additional fields. `Host`, `User-Agent` and `Content-Length` are added to them.
    pub fields: &'a [(String, String)],
    /// The body, in pieces.
    pub body: &'a [&'a [u8]],
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The head of the response.
    pub head: Head,
    /// The body of the response; empty for `HEAD`.
    pub body: Vec<u8>,
}

/// An HTTP client for requests whose responses fit into memory ([`MAX_ANSWER`]). Any number of
/// threads may share one client. It reuses idle connections, except for `POST`. If a request on a
/// reused connection fails, the client repeats it once on a new connection.
#[derive(Debug)]
pub struct Caller {
    connector: Connector,
    cancel: Cancel,
    kept: Mutex<Vec<(String, Wire)>>,
}

impl Caller {
    /// Makes a client. Its connections have `options`, and `cancel` interrupts its calls.
    /// # Errors
    /// [`Error::File`] if the file of trusted certificates cannot be read.
    pub fn new(options: &Options, cancel: &Cancel) -> Result<Self, Error> {
        Ok(Self {
            connector: Connector::new(options)?,
            cancel: cancel.clone(),
            kept: Mutex::default(),
        })
    }

    /// Sends a request and receives the response. Redirects and error statuses are responses, not
    /// errors.
    /// # Errors
    /// [`Error::Unreachable`] if a repeated request may succeed; any other error if it would fail
    /// too.
    pub fn call(&self, call: Call<'_>) -> Result<Reply, Error> {
        let address = Address::parse(call.url)?;
        let name = address.to_string();
        let peer = format!("{} {}", address.is_tls(), address.authority());
        // The server may have closed an idle connection, so a request that fails there is repeated
        // on a new one. A `POST` never uses an idle connection: the server may carry it out before
        // the failure.
        if call.method != "POST"
            && let Some(wire) = self.take_kept(&peer)
            && let Ok((reply, wire)) = self.exchange(wire, &address, &call)
        {
            self.keep(peer, wire);
            return Ok(reply);
        }
        let wire = self
            .connector
            .connect(&address, &self.cancel)
            .map_err(|fault| fault.into_error(&name))?;
        let done = self.exchange(wire, &address, &call);
        let (reply, wire) = done.map_err(|fault| fault.into_error(&name))?;
        self.keep(peer, wire);
        Ok(reply)
    }

    /// Sends a request on `wire` and receives the response. Also returns the connection if it can
    /// be used for another request.
    fn exchange(
        &self,
        mut wire: Wire,
        address: &Address,
        call: &Call<'_>,
    ) -> Result<(Reply, Option<Wire>), Fault> {
        wire.send(text(address, call).as_bytes())?;
        for piece in call.body.iter().flat_map(|part| part.chunks(PIECE)) {
            if self.cancel.is_cancelled() {
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
            if had > MAX_ANSWER {
                return Err(Fault::Malformed(format!("its answer is longer than {MAX_ANSWER} B")));
            }
            content.resize((2 * had).min(MAX_ANSWER + 1), 0);
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

/// Returns the head of a request, as text.
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
