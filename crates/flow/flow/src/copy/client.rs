//! One request and its answer.

use super::answer::{Answer, Asked, Form, Start, judge};
use super::error::{Error, Trouble, fault};
use super::options::Options;
use crate::group::{VALUES, VERIFIED};
use sprat_http::client::Head;
use sprat_http::client::{self, Connector, Wire};
use sprat_http::{Address, Cancel, XATTRS};
use std::fmt::Write as _;

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 10;

/// Asks servers for files, from any number of threads.
#[derive(Debug)]
pub(crate) struct Client(Connector);

/// An answer that brings what was asked for.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) wire: Wire,
    pub(crate) head: Head,
    pub(crate) start: Start,
}

impl Client {
    /// Connects by a transfer's options, with so many bytes of each connection's receive buffer; 0:
    /// the kernel's choice.
    pub(crate) fn new(options: &Options, receive_buffer: usize) -> Result<Self, Error> {
        let options = client::Options { receive_buffer, ..options.into() };
        Ok(Self(Connector::new(&options)?))
    }

    /// Asks, on a connection that is there or on a new one, which then is the caller's.
    pub(crate) fn ask(
        &self,
        address: &Address,
        asked: &Asked,
        kept: Option<Wire>,
        cancel: &Cancel,
    ) -> Result<Reply, Trouble> {
        let (wire, head) = self.exchange(address, asked, kept, cancel)?;
        match judge(&head, asked) {
            Answer::Bytes(start) => Ok(Reply { wire, head, start }),
            Answer::Elsewhere(_) => {
                Err(wrong(address, "redirects in the middle of a file".to_owned()))
            }
            other => Err(refusal(address, &head, other)),
        }
    }

    /// The same, following redirects. Gives the address that answered.
    pub(crate) fn ask_around(
        &self,
        address: &Address,
        asked: &Asked,
        cancel: &Cancel,
    ) -> Result<(Address, Reply), Trouble> {
        let mut address = address.clone();
        for _ in 0..=MAX_REDIRECTS {
            let (wire, head) = self.exchange(&address, asked, None, cancel)?;
            match judge(&head, asked) {
                Answer::Bytes(start) => return Ok((address, Reply { wire, head, start })),
                Answer::Elsewhere(location) => address = address.redirected(&location)?,
                other => return Err(refusal(&address, &head, other)),
            }
        }
        Err(wrong(&address, format!("redirects more than {MAX_REDIRECTS} times")))
    }

    /// A new connection.
    pub(crate) fn connect(&self, address: &Address, cancel: &Cancel) -> Result<Wire, Trouble> {
        self.0.connect(address, cancel).map_err(|error| fault(&address.to_string(), error))
    }

    fn exchange(
        &self,
        address: &Address,
        asked: &Asked,
        kept: Option<Wire>,
        cancel: &Cancel,
    ) -> Result<(Wire, Head), Trouble> {
        let trouble = |error| fault(&address.to_string(), error);
        let request = request(address, asked);
        if let Some(mut wire) = kept {
            // A server may have closed what it kept: then a new connection, not an error.
            if wire.send(request.as_bytes()).is_ok()
                && let Ok(head) = wire.head()
            {
                return Ok((wire, head));
            }
        }
        let mut wire = self.connect(address, cancel)?;
        wire.send(request.as_bytes()).map_err(trouble)?;
        let head = wire.head().map_err(trouble)?;
        Ok((wire, head))
    }
}

/// The text of a request.
pub(crate) fn request(address: &Address, asked: &Asked) -> String {
    let method = if asked.head_only { "HEAD" } else { "GET" };
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\n",
        address.target(asked.head_only),
        address.authority()
    );
    let accept = match asked.form {
        Some(Form::Verified) => VERIFIED.to_owned(),
        Some(Form::Values) => VALUES.to_owned(),
        Some(Form::Plain) => "*/*".to_owned(),
        None => format!("{VERIFIED}, */*;q=0.5"),
    };
    let mut field = |name: &str, value: &str| {
        write!(text, "{name}: {value}\r\n").expect("a string takes everything")
    };
    field("User-Agent", &format!("sprat/{version}"));
    field("Accept", &accept);
    field("Accept-Encoding", "identity");
    if let Some(most) = asked.beginning {
        field("Range", &format!("bytes=0-{}", most - 1));
    }
    if let Some(range) = &asked.range {
        field("Range", &format!("bytes={}-{}", range.start, range.end - 1));
        if let Some(validator) = &asked.validator {
            // Object stores do not know the one, and refuse by the other.
            let condition = if address.is_signed() { "If-Match" } else { "If-Range" };
            field(condition, validator);
        }
    }
    if asked.xattrs {
        field(XATTRS, "1");
    }
    if asked.fresh {
        field("Cache-Control", "no-cache");
    }
    if let Some(authorization) = address.authorization() {
        field("Authorization", authorization);
    }
    text.push_str("\r\n");
    text
}

/// What an answer without the bytes means.
fn refusal(address: &Address, head: &Head, answer: Answer) -> Trouble {
    let (source_name, status) = (address.to_string(), head.status);
    match answer {
        Answer::Missing => Error::NotFound { source_name, status }.into(),
        Answer::Denied => Error::Denied { source_name, status }.into(),
        Answer::Later(pause) => {
            Trouble::Passing(format!("the server answers {status}: not now"), pause)
        }
        Answer::Changed(why) => Trouble::Changed(why),
        Answer::Wrong(why) => wrong(address, why),
        Answer::Bytes(_) | Answer::Elsewhere(_) => unreachable!("handled by who asked"),
    }
}

pub(crate) fn wrong(address: &Address, why: String) -> Trouble {
    Error::Protocol { source_name: address.to_string(), why }.into()
}
