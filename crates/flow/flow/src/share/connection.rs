//! One connection. It answers requests in order, each before it reads the next.

use super::answers::{Answer, Content, Lines};
use super::body::{FileContent, SendError};
use super::chunks::Chunks;
use super::decide::{Body, Decision};
use super::options::Event;
use super::receive::UploadStream;
use super::shared::{ActiveConnection, Shared};
use super::socket::Channel;
use super::version::Version;
use sprat_http::MAX_HEAD;
use sprat_http::server::answer::Head;
use sprat_http::server::refused::Refused;
use sprat_http::server::request::{Extent, Method, Request, extent};
use sprat_http::server::target::Target;
use sprat_pace::Paced;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A connection to one client.
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    /// The state of the connection that other threads see.
    pub(super) active: Arc<ActiveConnection>,
    pub(super) channel: Channel,
    pub(super) peer: SocketAddr,
    /// Bytes that were received and not used yet, such as pipelined requests.
    pub(super) unread: Vec<u8>,
    /// Set when the first file is sent. It paces everything that is sent afterwards.
    pub(super) paced: Option<Paced>,
    /// The upload to which the last part belonged. It is kept open for the next part.
    pub(super) stream: Option<UploadStream>,
}

/// Returns whether the client bypasses caches, because the bytes it received were corrupt.
fn wants_fresh(request: &Request) -> bool {
    request.field("cache-control").is_some_and(|value| value.contains("no-cache"))
}

/// What happens to the connection after a response.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum AfterAnswer {
    /// The connection waits for the next request.
    KeepAlive,
    /// The connection is closed after all bytes were sent.
    Close,
    /// The connection is closed after all bytes were sent. An unwanted body that still arrives is
    /// read and discarded.
    Drain,
    /// The connection is dropped, so that the client sees that the response is incomplete.
    Abort,
}

/// How much of a response was sent, for the observer.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) status: u16,
    pub(super) bytes: u64,
    pub(super) verified: bool,
    pub(super) summed: u64,
    pub(super) error: Option<String>,
}

/// Why there is no next request.
enum NoHead {
    /// The client has closed the connection or stayed idle too long, the connection broke, or the
    /// server needs the idle connection's slot or is stopping.
    Gone,
    Refused(Refused),
}

impl Connection {
    /// Answers requests until either side ends the connection.
    pub(super) fn serve(mut self) {
        let mut first = true;
        let then = loop {
            let began = match self.next_head(first) {
                Ok(length) => Ok((length, Instant::now())),
                Err(NoHead::Gone) => break AfterAnswer::Close,
                Err(NoHead::Refused(refused)) => Err(refused),
            };
            first = false;
            let then = match began {
                Ok((length, began)) => {
                    let head: Vec<u8> = self.unread.drain(..length).collect();
                    match Request::parse(&head) {
                        Ok(request) => self.answer(&request, began),
                        Err(refused) => self.refuse(&refused),
                    }
                }
                Err(refused) => self.refuse(&refused),
            };
            if then != AfterAnswer::KeepAlive {
                break then;
            }
        };
        match then {
            AfterAnswer::Close => self.channel.close(),
            AfterAnswer::Drain => self.channel.drain(),
            AfterAnswer::KeepAlive | AfterAnswer::Abort => {}
        }
    }

    /// Reads until a complete head has arrived, and returns the length of the head.
    fn next_head(&mut self, first: bool) -> Result<usize, NoHead> {
        let limits = self.shared.limits;
        let mut deadline = None;
        let mut seen = 0;
        loop {
            match extent(&self.unread, seen).map_err(NoHead::Refused)? {
                Extent::Bytes(length) => return Ok(length),
                Extent::Unfinished => seen = self.unread.len(),
            }
            let idle = self.unread.is_empty() && !first;
            if idle && (self.shared.is_stopping() || self.shared.is_wanted(&self.active)) {
                return Err(NoHead::Gone);
            }
            let now = Instant::now();
            let until = match idle {
                true => now + limits.idle,
                // The time limit of a head starts at its first byte.
                false => *deadline.get_or_insert(now + limits.head),
            };
            let mut part = [0; 4096];
            let room = part.len().min(MAX_HEAD - self.unread.len());
            self.active.set_idle(idle);
            let read = self.channel.read_until(until, &mut part[..room]);
            self.active.set_idle(false);
            match read {
                Ok(0) => return Err(NoHead::Gone),
                Ok(count) => self.unread.extend(&part[..count]),
                Err(error)
                    if error.kind() == io::ErrorKind::TimedOut && !self.unread.is_empty() =>
                {
                    let reason =
                        format!("no complete request arrived within {} s", limits.head.as_secs());
                    return Err(NoHead::Refused(Refused { status: 408, reason }));
                }
                Err(_) => return Err(NoHead::Gone),
            }
        }
    }

    /// Answers an invalid request.
    fn refuse(&mut self, refused: &Refused) -> AfterAnswer {
        let body = format!("{}\n", refused.reason).into_bytes();
        let head = Head::new(refused.status).field("Content-Type", "text/plain; charset=utf-8");
        let head = head.field("Content-Length", body.len());
        let head = if matches!(refused.status, 405 | 501) {
            head.field("Allow", self.shared.allowed())
        } else {
            head
        };
        let sent = self.channel.send(&[&head.finish(false), &body]);
        let (status, bytes, error) =
            (refused.status, body.len() as u64, sent.err().map(|error| error.to_string()));
        self.report(None, Sent { status, bytes, error, ..Sent::default() }, Instant::now());
        AfterAnswer::Close
    }

    fn answer(&mut self, request: &Request, began: Instant) -> AfterAnswer {
        if let Some(refused) = self.misdirected(request) {
            return self.refuse(&refused);
        }
        if request.method == Method::Put {
            return self.receive(request, began);
        }
        // This method must not have a body. Answer without waiting for the body.
        if request.length > 0 {
            return self.refuse(&Refused::bad("this request must not have a body"));
        }
        let answer = self.shared.find(request);
        // Without a length and without chunks, the end of the connection marks the end of the body.
        let unmarked = request.is_http10 && answer.decision.body == Body::Lines;
        let keep = request.keep_alive && !unmarked && self.stays_open();
        self.send(request, answer, keep, began)
    }

    /// Returns whether the connection may wait for another request.
    pub(super) fn stays_open(&self) -> bool {
        !self.shared.is_stopping() && !self.shared.is_wanted(&self.active)
    }

    /// Rejects a request for a host name that is not this server's, which a page in a browser could
    /// have caused (see [`super::names`]).
    fn misdirected(&mut self, request: &Request) -> Option<Refused> {
        if self.shared.tokens().are_required() {
            return None;
        }
        let at = self.channel.tcp().local_addr().ok()?.ip();
        let host = request.field("host");
        if self.shared.names.allow(host.as_deref(), at) {
            return None;
        }
        let host = host.unwrap_or_default();
        let reason = format!(
            "{host:?} is not a name of this share; use its address, or sprat share --host-name NAME"
        );
        Some(Refused { status: 421, reason })
    }

    fn send(
        &mut self,
        request: &Request,
        answer: Answer,
        keep: bool,
        began: Instant,
    ) -> AfterAnswer {
        let Answer { decision: Decision { head, body }, content } = answer;
        let mut sent = Sent {
            status: head.status(),
            verified: matches!(body, Body::Verified(_)),
            ..Sent::default()
        };
        let head = head.finish(keep);
        let path = request.target.as_ref().map_or_else(|| "*".to_owned(), Target::encoded);
        let result = match (&body, &content) {
            (Body::Empty, _) => self.channel.send(&[&head]).map_err(SendError::from),
            (Body::Text(text), _) => {
                sent.bytes = body.length();
                self.channel.send(&[&head, text]).map_err(SendError::from)
            }
            (Body::Lines, Content::Lines(lines)) => {
                match self.send_lines(&head, lines, request.is_http10) {
                    Ok(bytes) => {
                        sent.bytes = bytes;
                        Ok(())
                    }
                    Err(error) => Err(error.into()),
                }
            }
            (_, Content::File(file, version, below)) => {
                self.send_file((file, *version, below), request, (&head, &body), &mut sent)
            }
            (_, _) => unreachable!("a part has its file, and lines their directory"),
        };
        let then = match (&result, keep) {
            (Err(_), _) => AfterAnswer::Abort,
            (Ok(()), true) => AfterAnswer::KeepAlive,
            (Ok(()), false) => AfterAnswer::Close,
        };
        sent.error = result.err().map(|error| error.to_string());
        self.report(Some((request, &path)), sent, began);
        then
    }

    /// Sends a head and a file's content.
    fn send_file(
        &mut self,
        (file, version, below): (&File, Version, &Path),
        request: &Request,
        (head, body): (&[u8], &Body),
        sent: &mut Sent,
    ) -> Result<(), SendError> {
        let tcp = self.channel.tcp();
        let address = request.target.as_ref().map_or_else(String::new, Target::encoded);
        let mut transfer = self.shared.transfers.begin(
            tcp.clone(),
            self.peer,
            &address,
            (sent.verified, false),
            body.length(),
        );
        if self.paced.is_none() {
            // If the kernel does not support pacing, the connection is not paced.
            self.paced = self.shared.pacer.add(&tcp, self.shared.pace).ok();
        }
        let path = &self.shared.root.path().join(below);
        let (values, fresh, summed) = (&self.shared.values, wants_fresh(request), Cell::new(0));
        let content = FileContent { file, path, version, values, fresh, summed };
        let result = content.send(&mut self.channel, head, body, &transfer);
        transfer.end(&result.as_ref().err().map_or_else(|| "done".to_owned(), ToString::to_string));
        (sent.bytes, sent.summed) = (transfer.sent(), content.summed.get());
        result
    }

    fn send_lines(&mut self, head: &[u8], lines: &Lines, plain: bool) -> io::Result<u64> {
        self.channel.send(&[head])?;
        let shared = self.shared.clone();
        let mut chunks = Chunks::new(&mut self.channel, plain);
        shared.write_lines(lines, &mut chunks)?;
        chunks.finish()
    }

    /// Reports a response to the observer.
    pub(super) fn report(&mut self, request: Option<(&Request, &str)>, sent: Sent, began: Instant) {
        let Some(observer) = &self.shared.observer else { return };
        let method = match request.map(|(request, _)| request.method) {
            None => "-",
            Some(Method::Get) => "GET",
            Some(Method::Head) => "HEAD",
            Some(Method::Options) => "OPTIONS",
            Some(Method::Put) => "PUT",
        };
        let path = request.map_or_else(|| "-".to_owned(), |(_, path)| path.to_owned());
        let network = sprat_pace::path::Path::of(&*self.channel.tcp()).ok();
        let Sent { status, bytes, verified, summed, error } = sent;
        let (peer, took) = (self.peer, began.elapsed());
        observer(&Event {
            peer,
            method,
            path,
            status,
            bytes,
            verified,
            summed,
            took,
            network,
            error,
        });
    }
}
