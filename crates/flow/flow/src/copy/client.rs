//! Requests for files and their responses.

use super::answer::{Answer, BodyStart, FileRequest, Form, judge};
use super::error::{Error, Trouble, fault};
use super::options::Options;
use crate::group::{VALUES, VERIFIED};
use sprat_http::client::Head;
use sprat_http::client::{self, Connector, Wire};
use sprat_http::{Address, Cancel, XATTRS};
use std::fmt::Write as _;

/// Limit on the redirects that a request follows. A further redirect is an error.
const MAX_REDIRECTS: usize = 10;

/// Requests files from servers. Any number of threads may share one client.
#[derive(Debug)]
pub(crate) struct Client(Connector);

/// A response with the requested body, and the connection on which it arrives.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) wire: Wire,
    pub(crate) head: Head,
    pub(crate) start: BodyStart,
}

impl Client {
    /// Creates a client with the connection settings of a transfer. `receive_buffer` is the size of
    /// each connection's receive buffer in bytes; 0 leaves it to the kernel.
    pub(crate) fn new(options: &Options, receive_buffer: usize) -> Result<Self, Error> {
        let options = client::Options { receive_buffer, ..options.into() };
        Ok(Self(Connector::new(&options)?))
    }

    /// Sends a request on `kept`, or on a new connection, and receives the head of the response.
    /// The caller then owns the connection.
    pub(crate) fn ask(
        &self,
        address: &Address,
        file_request: &FileRequest,
        kept: Option<Wire>,
        cancel: &Cancel,
    ) -> Result<Reply, Trouble> {
        let (wire, head) = self.exchange(address, file_request, kept, cancel)?;
        match judge(&head, file_request) {
            Answer::Bytes(start) => Ok(Reply { wire, head, start }),
            Answer::Redirect(_) => {
                Err(wrong(address, "the server redirected in the middle of a file".to_owned()))
            }
            other => Err(refusal(address, &head, other)),
        }
    }

    /// Sends a request on new connections, following redirects, and returns the address that
    /// finally responded.
    pub(crate) fn ask_following(
        &self,
        address: &Address,
        file_request: &FileRequest,
        cancel: &Cancel,
    ) -> Result<(Address, Reply), Trouble> {
        let mut address = address.clone();
        for _ in 0..=MAX_REDIRECTS {
            let (wire, head) = self.exchange(&address, file_request, None, cancel)?;
            match judge(&head, file_request) {
                Answer::Bytes(start) => return Ok((address, Reply { wire, head, start })),
                Answer::Redirect(location) => address = address.redirected(&location)?,
                other => return Err(refusal(&address, &head, other)),
            }
        }
        Err(wrong(&address, format!("the server redirected more than {MAX_REDIRECTS} times")))
    }

    /// Opens a new connection.
    pub(crate) fn connect(&self, address: &Address, cancel: &Cancel) -> Result<Wire, Trouble> {
        self.0.connect(address, cancel).map_err(|error| fault(&address.to_string(), error))
    }

    fn exchange(
        &self,
        address: &Address,
        file_request: &FileRequest,
        kept: Option<Wire>,
        cancel: &Cancel,
    ) -> Result<(Wire, Head), Trouble> {
        let trouble = |error| fault(&address.to_string(), error);
        let request = request(address, file_request);
        if let Some(mut wire) = kept {
            // If this fails, the server may have closed the idle connection. That is no error: a
            // new connection is made.
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

/// Renders the text of a request.
pub(crate) fn request(address: &Address, file_request: &FileRequest) -> String {
    let method = if file_request.head_only { "HEAD" } else { "GET" };
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\n",
        address.target(file_request.head_only),
        address.authority()
    );
    let accept = match file_request.form {
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
    if let Some(most) = file_request.beginning {
        field("Range", &format!("bytes=0-{}", most - 1));
    }
    if let Some(range) = &file_request.range {
        field("Range", &format!("bytes={}-{}", range.start, range.end - 1));
        if let Some(validator) = &file_request.validator {
            // Object stores do not support `If-Range`. With `If-Match` they reject the request if
            // the file has changed, instead of sending all of it.
            let condition = if address.is_signed() { "If-Match" } else { "If-Range" };
            field(condition, validator);
        }
    }
    if file_request.xattrs {
        field(XATTRS, "1");
    }
    if file_request.fresh {
        field("Cache-Control", "no-cache");
    }
    if let Some(authorization) = address.authorization() {
        field("Authorization", authorization);
    }
    text.push_str("\r\n");
    text
}

/// Turns a response without the requested body into an error.
fn refusal(address: &Address, head: &Head, answer: Answer) -> Trouble {
    let (source_name, status) = (address.to_string(), head.status);
    match answer {
        Answer::Missing => Error::NotFound { source_name, status }.into(),
        Answer::Denied => Error::Denied { source_name, status }.into(),
        Answer::Unavailable(pause) => Trouble::Transient(
            format!("the server answered {status}: temporarily unavailable"),
            pause,
        ),
        Answer::Changed(why) => Trouble::Changed(why),
        Answer::Invalid(why) => wrong(address, why),
        Answer::Bytes(_) | Answer::Redirect(_) => unreachable!("the caller handles it"),
    }
}

pub(crate) fn wrong(address: &Address, why: String) -> Trouble {
    Error::Protocol { source_name: address.to_string(), why }.into()
}
