//! Where a file comes from.

use super::error::Error;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use url::Url;

/// The port of `sprat share`, unless told.
pub const SHARE_PORT: u16 = 8040;

/// Parameters that let whoever knows them in: they are not shown.
const SECRETS: [&str; 2] = ["token", "ticket"];

/// What stands for itself in a path of ours: letters, digits and marks that no reader takes for
/// anything else.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'+')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b'/')
    .add(b';')
    .add(b'=')
    .add(b'*')
    .add(b':');

/// The address of a file on a server: `http`, `https`; or `sprat` and `sprats`, which are the same
/// on port 8040 and insist on the verified form.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address {
    url: Url,
    verified: bool,
    authorization: Option<String>,
    signed: Option<Signed>,
}

/// Of an address that is signed: what only its signer knows how to make.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Signed {
    /// What a request for the head asks for: a signature is for one method.
    head: String,
    /// By which name the file is shown and written down.
    shown: String,
}

impl Address {
    /// Whether `text` is an address, not the name of a local file.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.split_once("://")
            .is_some_and(|(scheme, _)| matches!(scheme, "http" | "https" | "sprat" | "sprats"))
    }

    /// Reads an address. A name and a password in it become the authorization.
    ///
    /// # Errors
    /// [`Error::Usage`] with what is wrong.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why: &dyn fmt::Display| {
            Error::Usage(format!(
                "{}: {why}; want http://HOST/PATH or sprat://HOST/PATH",
                shown_of(text)
            ))
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong(&"not an address"))?;
        if rest.starts_with('/') {
            return Err(wrong(&"no host"));
        }
        let (plain, ours) = match scheme {
            "http" | "https" => (scheme, false),
            "sprat" => ("http", true),
            "sprats" => ("https", true),
            _ => return Err(wrong(&format!("scheme {scheme:?} is not known"))),
        };
        let mut url = Url::parse(&format!("{plain}://{rest}")).map_err(|error| wrong(&error))?;
        if ours {
            // The other scheme has no port of its own, so that any that is given is seen.
            let given =
                Url::parse(&format!("sprat://{rest}")).map_err(|error| wrong(&error))?.port();
            url.set_port(Some(given.unwrap_or(SHARE_PORT))).map_err(|()| wrong(&"no host"))?;
        }
        Ok(Self {
            verified: ours,
            authorization: basic(&mut url),
            url: without_fragment(url),
            signed: None,
        })
    }

    /// The address of a file that who has its signature may fetch: one for the file, and one for
    /// its head. It is shown, and known to a journal, by another name, which does not change
    /// when it is signed anew.
    ///
    /// # Errors
    /// [`Error::Usage`] as [`Address::parse`].
    pub fn signed(file: &str, head: &str, shown: &str) -> Result<Self, Error> {
        let head = Self::parse(head)?.target(false);
        Ok(Self { signed: Some(Signed { head, shown: shown.to_owned() }), ..Self::parse(file)? })
    }

    /// Where a redirect leads. Who we are is told to nobody but the host that we were told to tell.
    ///
    /// # Errors
    /// [`Error::Protocol`] when it leads nowhere, or from TLS to plain text.
    pub fn redirected(&self, location: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::Protocol { source_name: self.to_string(), why };
        let url = self
            .url
            .join(location)
            .map_err(|error| wrong(format!("redirects to no address: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong(format!("redirects to {:?}, which is not HTTP", url.scheme())));
        }
        if self.is_tls() && url.scheme() == "http" {
            return Err(wrong("redirects from https to http".to_owned()));
        }
        let mut url = without_fragment(url);
        basic(&mut url); // another's idea of who we are
        let same = url.host() == self.url.host()
            && url.port_or_known_default() == self.url.port_or_known_default();
        let authorization = if same { self.authorization.clone() } else { None };
        Ok(Self { url, verified: self.verified, authorization, signed: None })
    }

    /// The same with a token that says who we are.
    #[must_use]
    pub fn with_token(mut self, token: Option<&str>) -> Self {
        if let Some(token) = token {
            self.authorization = Some(format!("Bearer {token}"));
        }
        self
    }

    /// The same without saying who we are.
    #[must_use]
    pub fn without_authorization(self) -> Self {
        Self { authorization: None, ..self }
    }

    /// The same path on another host, `HOST` or `HOST:PORT`, which is told the same of who we are.
    ///
    /// # Errors
    /// [`Error::Usage`] when that is no host.
    pub fn at_host(&self, host: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Usage(format!(
                "{host:?}: not a host; want HOST, HOST:PORT, or an address like http://HOST/PATH"
            ))
        };
        // A scheme without a port of its own, so that any that is given is seen.
        let given = Url::parse(&format!("sprat://{host}")).map_err(|_| wrong())?;
        let bare = given.path().is_empty() && given.query().is_none() && given.fragment().is_none();
        let named =
            given.host_str().filter(|name| !name.is_empty() && bare && given.username().is_empty());
        if self.signed.is_some() {
            return Err(Error::Usage(format!(
                "{host}: a signature is for one host; give an address of its own"
            )));
        }
        let mut other = self.clone();
        other.url.set_host(Some(named.ok_or_else(wrong)?)).map_err(|_| wrong())?;
        let port = given.port().or(self.verified.then_some(SHARE_PORT));
        other.url.set_port(port).map_err(|()| wrong())?;
        Ok(other)
    }

    /// Another path on the same server, with a query.
    #[must_use]
    pub fn with_path(&self, path: &str, query: Option<&str>) -> Self {
        let mut other = self.clone();
        other.url.set_path(path);
        other.url.set_query(query);
        other
    }

    /// Whether both are at one server, by one protocol.
    #[must_use]
    pub fn is_at_host_of(&self, other: &Self) -> bool {
        let server = |address: &Self| (address.is_tls(), address.host().to_owned(), address.port());
        server(self) == server(other)
    }

    /// The path, percent-encoded.
    #[must_use]
    pub fn path(&self) -> &str {
        self.url.path()
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Whether a signature is part of it.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.signed.is_some()
    }

    /// Whether only the verified form will do.
    #[must_use]
    pub fn wants_verified(&self) -> bool {
        self.verified
    }

    /// The host: a name, or an address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.url.host_str().unwrap_or_default();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(80)
    }

    /// What the `Host` field says.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// What a request asks for, for the head alone or for more: path and query.
    #[must_use]
    pub fn target(&self, head_only: bool) -> String {
        if let Some(signed) = self.signed.as_ref().filter(|_| head_only) {
            return signed.head.clone();
        }
        let path = self.url.path();
        self.url.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
    }

    /// What the `Authorization` field says, if we are somebody.
    #[must_use]
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    /// The last part of the path, decoded: what the file is called. None: the path is of a folder,
    /// or the name none that a file can have.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        usable(self.url.path_segments()?.next_back()?)
    }

    /// The same of a folder, whose path ends with a slash.
    #[must_use]
    pub fn folder_name(&self) -> Option<String> {
        usable(self.url.path_segments()?.nth_back(1)?)
    }
}

/// A name as part of a path in an address.
#[must_use]
pub fn encode(name: &OsStr) -> String {
    percent_encode(name.as_bytes(), ESCAPED).to_string()
}

/// A part of a path as the name of a file here, if it can be one.
fn usable(part: &str) -> Option<String> {
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(part).collect();
    let name = String::from_utf8(bytes).ok()?;
    let usable = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    usable.then_some(name)
}

/// The address as it may be shown and written down: without tokens and tickets.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(signed) = &self.signed {
            return f.write_str(&signed.shown);
        }
        let mut url = self.url.clone();
        let is_secret = |name: &str| SECRETS.contains(&name);
        if url.query_pairs().any(|(name, _)| is_secret(&name)) {
            let kept: Vec<_> = url
                .query_pairs()
                .filter(|(name, _)| !is_secret(name))
                .map(|(a, b)| (a.into_owned(), b.into_owned()))
                .collect();
            url.set_query(None);
            if !kept.is_empty() {
                url.query_pairs_mut().extend_pairs(kept);
            }
        }
        f.write_str(url.as_str())
    }
}

/// Takes name and password out of an address.
fn basic(url: &mut Url) -> Option<String> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let mut text = decoded(url.username());
    text.push(b':');
    text.extend(decoded(url.password().unwrap_or_default()));
    url.set_username("").and_then(|()| url.set_password(None)).ok()?;
    Some(format!("Basic {}", STANDARD.encode(text)))
}

fn without_fragment(mut url: Url) -> Url {
    url.set_fragment(None);
    url
}

/// A text that may be an address with a password, without that.
fn shown_of(text: &str) -> String {
    match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.1)))
    {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => text.to_owned(),
    }
}
