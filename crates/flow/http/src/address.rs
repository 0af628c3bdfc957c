//! Addresses of files on servers.

use super::error::Error;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use url::Url;

/// Default port of `sprat share`.
pub const SHARE_PORT: u16 = 8040;

/// Query parameters that grant access and are therefore never displayed.
const SECRETS: [&str; 2] = ["token", "ticket"];

/// Bytes that are percent-encoded in a path, besides those above 127: control characters, and marks
/// that have a meaning in URLs or patterns.
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

/// The address of a file on a server, with the credentials to use there.
///
/// The schemes are `http`, `https`, `sprat` and `sprats`. `sprat` and `sprats` are HTTP and HTTPS
/// with default port 8040. They accept a file only in verified form, in which a hash follows each
/// MiB of the file. [`Address::parse`] turns a name and a password in the text into an
/// `Authorization` field. [`Address::with_token`] replaces that field with a bearer token.
/// Credentials are sent only to the host for which they were given: [`Address::redirected`] drops
/// them when a redirect leads to another host or port.
///
/// `Display` omits credentials, tokens and tickets, so that an address can be printed and written
/// to a journal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address {
    url: Url,
    verified: bool,
    authorization: Option<String>,
    signed: Option<Signed>,
}

/// The parts of a presigned address that only its signer can produce.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Signed {
    /// The request target for `HEAD`. It differs from the target for `GET`, because a signature is
    /// valid for one method.
    head: String,
    /// The text that is displayed and written to journals instead of the signed URL: the bucket and
    /// key. It stays the same when the file is signed again.
    shown: String,
}

impl Address {
    /// Returns whether `text` is an address rather than the name of a local file.
    #[must_use]
    pub fn is_address(text: &str) -> bool {
        text.split_once("://")
            .is_some_and(|(scheme, _)| matches!(scheme, "http" | "https" | "sprat" | "sprats"))
    }

    /// Parses an address. A name and a password in `text` become the credentials.
    /// # Errors
    /// [`Error::Usage`] if `text` has no scheme, an unknown scheme or no host, or is not a valid
    /// URL. The error does not contain the password.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why: &dyn fmt::Display| {
            Error::Usage(format!(
                "{}: {why}; want http://HOST/PATH or sprat://HOST/PATH",
                without_password(text)
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
            // `Url` drops a port that is the default of its scheme. `sprat` has no default, so an
            // explicit `:80` is kept.
            let given =
                Url::parse(&format!("sprat://{rest}")).map_err(|error| wrong(&error))?.port();
            url.set_port(Some(given.unwrap_or(SHARE_PORT))).map_err(|()| wrong(&"no host"))?;
        }
        Ok(Self {
            verified: ours,
            authorization: take_credentials(&mut url),
            url: without_fragment(url),
            signed: None,
        })
    }

    /// Makes a presigned address from the signed URLs for `GET` (`file`) and for `HEAD` (`head`).
    /// The text `shown` is displayed and written to journals instead of the URLs. It stays the same
    /// when the file is signed again, whereas the URLs change.
    /// # Errors
    /// [`Error::Usage`] if [`Address::parse`] rejects one of the URLs.
    pub fn signed(file: &str, head: &str, shown: &str) -> Result<Self, Error> {
        let head = Self::parse(head)?.target(false);
        Ok(Self { signed: Some(Signed { head, shown: shown.to_owned() }), ..Self::parse(file)? })
    }

    /// Returns the address that a redirect from this address to `location` leads to. Credentials
    /// are kept only if host and port stay the same.
    /// # Errors
    /// [`Error::Protocol`] if the location is not a valid HTTP address, or leads from TLS to plain
    /// text.
    pub fn redirected(&self, location: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::Protocol { source_name: self.to_string(), why };
        let url = self
            .url
            .join(location)
            .map_err(|error| wrong(format!("redirects to an invalid address: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong(format!("redirects to {:?}, which is not HTTP", url.scheme())));
        }
        if self.is_tls() && url.scheme() == "http" {
            return Err(wrong("redirects from https to http".to_owned()));
        }
        let mut url = without_fragment(url);
        take_credentials(&mut url); // credentials that the server chose
        let same = url.host() == self.url.host()
            && url.port_or_known_default() == self.url.port_or_known_default();
        let authorization = if same { self.authorization.clone() } else { None };
        Ok(Self { url, verified: self.verified, authorization, signed: None })
    }

    /// Replaces the credentials with a bearer token. `None` changes nothing.
    #[must_use]
    pub fn with_token(mut self, token: Option<&str>) -> Self {
        if let Some(token) = token {
            self.authorization = Some(format!("Bearer {token}"));
        }
        self
    }

    /// Removes the credentials.
    #[must_use]
    pub fn without_authorization(self) -> Self {
        Self { authorization: None, ..self }
    }

    /// Returns this address with another host, which is given as `HOST` or `HOST:PORT`. Path, query
    /// and credentials stay the same. Without a port, the default port of the scheme applies.
    /// # Errors
    /// [`Error::Usage`] if `host` is not a host, or this address is presigned.
    pub fn at_host(&self, host: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Usage(format!(
                "{host:?}: not a host; want HOST, HOST:PORT, or an address like http://HOST/PATH"
            ))
        };
        // `Url` drops a port that is the default of its scheme. `sprat` has no default, so any port
        // is kept.
        let given = Url::parse(&format!("sprat://{host}")).map_err(|_| wrong())?;
        let bare = given.path().is_empty() && given.query().is_none() && given.fragment().is_none();
        let named =
            given.host_str().filter(|name| !name.is_empty() && bare && given.username().is_empty());
        if self.signed.is_some() {
            return Err(Error::Usage(format!(
                "{host}: a signed address is valid for one host only; give this host's own address"
            )));
        }
        let mut other = self.clone();
        other.url.set_host(Some(named.ok_or_else(wrong)?)).map_err(|_| wrong())?;
        let port = given.port().or(self.verified.then_some(SHARE_PORT));
        other.url.set_port(port).map_err(|()| wrong())?;
        Ok(other)
    }

    /// Replaces the path with `path`, and the query with `query`.
    #[must_use]
    pub fn with_path(&self, path: &str, query: Option<&str>) -> Self {
        let mut other = self.clone();
        other.url.set_path(path);
        other.url.set_query(query);
        other
    }

    /// Returns whether both addresses have the same host, port and encryption.
    #[must_use]
    pub fn is_same_server(&self, other: &Self) -> bool {
        let server = |address: &Self| (address.is_tls(), address.host().to_owned(), address.port());
        server(self) == server(other)
    }

    /// Returns the percent-encoded path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.url.path()
    }

    /// Returns whether the connection is encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns whether the address is presigned.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.signed.is_some()
    }

    /// Returns whether only the verified form is acceptable, as for `sprat` and `sprats`.
    #[must_use]
    pub fn wants_verified(&self) -> bool {
        self.verified
    }

    /// Returns the host: a name, or an IP address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.url.host_str().unwrap_or_default();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(80)
    }

    /// Returns the value of the `Host` field.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Returns the request target: path and query. `head_only` selects the target for `HEAD`, which
    /// differs only for a presigned address.
    #[must_use]
    pub fn target(&self, head_only: bool) -> String {
        if let Some(signed) = self.signed.as_ref().filter(|_| head_only) {
            return signed.head.clone();
        }
        let path = self.url.path();
        self.url.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
    }

    /// Returns the value of the `Authorization` field, if there are credentials.
    #[must_use]
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    /// Returns the last part of the path, decoded: the name of the file. `None` if the path is that
    /// of a folder, or the name is not valid for a file.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        decode_file_name(self.url.path_segments()?.next_back()?)
    }

    /// For a path that ends with a slash, returns the name of that folder, decoded. `None` for the
    /// root, or if the name is not valid.
    #[must_use]
    pub fn folder_name(&self) -> Option<String> {
        decode_file_name(self.url.path_segments()?.nth_back(1)?)
    }
}

/// Percent-encodes a name as one part of a path.
#[must_use]
pub fn encode(name: &OsStr) -> String {
    percent_encode(name.as_bytes(), ESCAPED).to_string()
}

/// Decodes a part of a path to a file name. `None` if it is not valid for a file.
fn decode_file_name(part: &str) -> Option<String> {
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(part).collect();
    let name = String::from_utf8(bytes).ok()?;
    let usable = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    usable.then_some(name)
}

/// Displays the address without credentials, tokens and tickets.
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

/// Removes the name and the password from `url` and returns them as basic authorization.
fn take_credentials(url: &mut Url) -> Option<String> {
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

/// Removes the name and the password from a text that may be an address, for an error message:
/// everything up to the last `@`, because a password can contain one.
fn without_password(text: &str) -> String {
    match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1)))
    {
        Some((scheme, rest)) => format!("{scheme}://{rest}"),
        None => text.to_owned(),
    }
}
