//! Finds the response to a request: which file or directory the request names, and in which form
//! the server sends it.

use super::access::{COOKIE, Proof, Tokens};
use super::decide::{Body, Decision, decide, finish, text};
use super::listing::{Entry, LeftOut, list, walk};
use super::page::{FILE_POLICY, PARTS, POLICY, page};
use super::root::{FindError, Found, RESERVED};
use super::shared::Shared;
use super::version::Version;
use crate::file::xattrs_of;
use serde_json::json;
use sprat_http::XATTRS;
use sprat_http::address::encode;
use sprat_http::server::answer::Head;
use sprat_http::server::request::{Method, Request};
use sprat_http::server::target::Target;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Allowed methods of a server that only serves files, and of a server that also stores files.
const ALLOWED: &str = "GET, HEAD, OPTIONS";
const ALLOWED_WRITABLE: &str = "GET, HEAD, OPTIONS, PUT";

/// A response.
pub(super) struct Answer {
    pub(super) decision: Decision,
    pub(super) content: Content,
}

/// The source of a response's body.
pub(super) enum Content {
    /// The decision contains the body.
    Own,
    /// Parts of a file, with the file's version and its path below the root.
    File(File, Version, PathBuf),
    /// The entries of a directory, one line each.
    Lines(Lines),
}

/// A directory that is listed line by line.
pub(super) struct Lines {
    pub(super) directory: File,
    pub(super) names: Vec<OsString>,
    pub(super) recursive: bool,
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        Self { decision, content: Content::Own }
    }
}

/// The forms of a listing.
enum Form {
    Page,
    Json,
    Lines,
}

impl Shared {
    /// Finds the response to a request.
    pub(super) fn find(&self, request: &Request) -> Answer {
        let Some(proof) = self.tokens().check(request) else {
            return unauthorized(request);
        };
        let Some(target) = &request.target else { return self.options().into() };
        match request.method {
            Method::Options => self.options().into(),
            Method::Put => unreachable!("the receiver handles requests with a body"),
            Method::Get | Method::Head => self.get(request, target, proof),
        }
    }

    /// Returns the methods that the server allows.
    pub(super) fn allowed(&self) -> &'static str {
        if self.writable.is_some() { ALLOWED_WRITABLE } else { ALLOWED }
    }

    fn options(&self) -> Decision {
        Decision { head: Head::new(204).field("Allow", self.allowed()), body: Body::Empty }
    }

    fn get(&self, request: &Request, target: &Target, proof: Proof) -> Answer {
        let names = target.names();
        if names.first().is_some_and(|name| name == RESERVED) {
            return self.serve_reserved(request, target);
        }
        if let Some(decision) = self.answer_upload_query(request, target) {
            return decision.into();
        }
        match self.root.find(names) {
            Ok(Found::File(..)) if target.has_slash() => {
                refuse(request, 404, "that is a file, not a directory")
            }
            Ok(Found::File(file, metadata)) => {
                let version = Version::of(&metadata);
                let name = names.last().map(|name| &name[..]).unwrap_or_default();
                let save_as = target.parameter("download").map(|_| encode(name));
                let kind = content_type(name);
                let mut decision = decide(request, &version, kind, save_as.as_deref());
                if self.xattrs
                    && request.field(&XATTRS.to_ascii_lowercase()).is_some()
                    && let Ok(xattrs) = xattrs_of(&file)
                {
                    decision.head = decision.head.field(XATTRS, xattrs.field());
                }
                if kind.contains("html") || kind.contains("xml") {
                    decision.head = decision.head.field("Content-Security-Policy", FILE_POLICY);
                }
                Answer { decision, content: Content::File(file, version, target.path()) }
            }
            // The ticket was issued for a file that has been replaced by a directory.
            Ok(Found::Directory(..)) if proof == Proof::Ticket => unauthorized(request),
            Ok(Found::Directory(..)) if !target.has_slash() => {
                // With the slash, relative links resolve inside the directory.
                let query = if target.query().is_empty() {
                    String::new()
                } else {
                    format!("?{}", target.query())
                };
                let head =
                    Head::new(301).field("Location", format_args!("{}/{query}", target.encoded()));
                text(request, head, "that is a directory\n").into()
            }
            Ok(Found::Directory(directory, _)) => self.directory(request, target, directory, proof),
            Err(FindError::Missing) => refuse(request, 404, "there is no such file"),
            Err(FindError::Forbidden) => refuse(request, 403, "the server may not read that"),
            Err(FindError::Busy) => {
                text(request, Head::new(503).field("Retry-After", 1), "try again soon\n").into()
            }
            Err(FindError::Io(error)) => refuse(request, 500, &error.to_string()),
        }
    }

    fn directory(
        &self,
        request: &Request,
        target: &Target,
        directory: File,
        proof: Proof,
    ) -> Answer {
        let form = match target.parameter("format").as_deref() {
            Some("json") => Form::Json,
            Some("jsonl") => Form::Lines,
            Some("html") => Form::Page,
            Some(_) => return refuse(request, 400, "format: html, json or jsonl"),
            None if request.accepts("application/json") => Form::Json,
            None if request.accepts("application/jsonl") => Form::Lines,
            None => Form::Page,
        };
        if matches!(form, Form::Page) && matches!(proof, Proof::Address(..)) {
            return self.token_to_cookie(request, target);
        }
        let head = Head::new(200).field("Vary", "Accept");
        if matches!(form, Form::Lines) {
            let recursive = target.parameter("recursive").is_some_and(|value| value != "0");
            let head =
                head.field("Cache-Control", "no-cache").field("Content-Type", "application/jsonl");
            let head =
                if request.is_http10 { head } else { head.field("Transfer-Encoding", "chunked") };
            let names = target.names().to_vec();
            let body = if request.method == Method::Head { Body::Empty } else { Body::Lines };
            return Answer {
                decision: Decision { head, body },
                content: Content::Lines(Lines { directory, names, recursive }),
            };
        }
        let listing = match list(&self.root, target.names(), &directory) {
            Ok(listing) => listing,
            Err(error) => {
                return refuse(request, 500, &format!("the directory cannot be read: {error}"));
            }
        };
        let (head, body) = match form {
            Form::Json => (
                head.field("Cache-Control", "no-cache").field("Content-Type", "application/json"),
                serde_json::to_vec(&listing).expect("texts and numbers"),
            ),
            Form::Page | Form::Lines => {
                let host = request.field("host").filter(|host| !host.is_empty());
                let host = host.unwrap_or_else(|| "localhost".into());
                // Tickets in the page are for this client only, so no cache may store the page.
                let (head, key) = match proof {
                    Proof::Head(key, _) => (head.field("Cache-Control", "no-store"), Some(key)),
                    _ => (head.field("Cache-Control", "no-cache"), None),
                };
                (
                    with_policy(head),
                    page(&listing, target, &host, self.tls.is_some(), key).into_bytes(),
                )
            }
        };
        finish(request, head, Body::Text(body)).into()
    }

    /// Moves the token from a browser's address to a cookie, because others can see the address,
    /// for example in the browser's history.
    fn token_to_cookie(&self, request: &Request, target: &Target) -> Answer {
        let token = target.parameter("token").unwrap_or_default();
        let secure = if self.tls.is_some() { "; Secure" } else { "" };
        let cookie = format!(
            "{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict{secure}",
            Tokens::cookie(&token)
        );
        let path = target.encoded();
        let slash = if path.ends_with('/') { "" } else { "/" };
        let head = Head::new(303)
            .field("Location", format_args!("{path}{slash}"))
            .field("Set-Cookie", cookie);
        text(request, head.field("Cache-Control", "no-store"), "the token is accepted\n").into()
    }

    /// Serves the server's own resources, below [`RESERVED`].
    fn serve_reserved(&self, request: &Request, target: &Target) -> Answer {
        let [_, name] = target.names() else {
            return refuse(request, 404, "there is no such file");
        };
        if name == "transfers" {
            let (live, past) = self.transfers.snapshot();
            let body = json!({ "live": live, "past": past }).to_string().into_bytes();
            let head = Head::new(200)
                .field("Content-Type", "application/json")
                .field("Cache-Control", "no-store");
            return finish(request, head, Body::Text(body)).into();
        }
        match PARTS.iter().find(|(part, ..)| name == part) {
            Some((_, kind, content)) => {
                let head =
                    Head::new(200).field("Content-Type", kind).field("Cache-Control", "no-cache");
                finish(request, head, Body::Text(content.as_bytes().to_vec())).into()
            }
            None => refuse(request, 404, "there is no such file"),
        }
    }

    /// Writes a directory's entries as lines, and then a last line that marks the end.
    pub(super) fn write_lines(&self, lines: &Lines, out: &mut dyn io::Write) -> io::Result<()> {
        let mut put = |entry: &Entry| {
            serde_json::to_writer(&mut *out, entry)?;
            out.write_all(b"\n")
        };
        let Lines { directory, names, recursive } = lines;
        let (entries, left_out) = walk(&self.root, names, directory, *recursive, &mut put)?;
        let LeftOut { named, hidden } = left_out;
        writeln!(
            out,
            "{}",
            json!({ "end": true, "entries": entries, "left_out": named, "hidden": hidden })
        )
    }
}

fn with_policy(head: Head) -> Head {
    head.field("Content-Type", "text/html; charset=utf-8")
        .field("Content-Security-Policy", POLICY)
        .field("Referrer-Policy", "no-referrer")
}

/// Returns the response to a client without a valid token.
fn unauthorized(request: &Request) -> Answer {
    let head = Head::new(401).field("WWW-Authenticate", "Bearer realm=\"sprat\"");
    text(request, head, "a token is required\n").into()
}

fn refuse(request: &Request, status: u16, reason: &str) -> Answer {
    text(request, Head::new(status), &format!("{reason}\n")).into()
}

/// Returns the content type for a file name. `nosniff` makes browsers use it.
fn content_type(name: &OsStr) -> &'static str {
    let extension = std::path::Path::new(name).extension().and_then(OsStr::to_str).unwrap_or("");
    mime_guess::from_ext(extension).first_raw().unwrap_or("application/octet-stream")
}
