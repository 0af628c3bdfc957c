//! One connection: requests in their order, each answered before the next is looked at.

use super::answers::{Answer, Content, Lines};
use super::body::{Broken, FileContent};
use super::chunks::Chunks;
use super::decide::{Body, Decision};
use super::options::Event;
use super::receive::Lane;
use super::shared::{Held, Shared};
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

/// A connection with one peer.
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    /// What others see of it.
    pub(super) held: Arc<Held>,
    pub(super) channel: Channel,
    pub(super) peer: SocketAddr,
    /// Bytes that came and were not used yet: what is pipelined.
    pub(super) came: Vec<u8>,
    /// From the first file on, all that is sent is paced.
    pub(super) paced: Option<Paced>,
    /// The upload that it brought a part of last: it stays open for the next.
    pub(super) lane: Option<Lane>,
}

/// Whether the client wants nothing that was computed for others: what it got before was wrong.
fn wants_fresh(request: &Request) -> bool {
    request.field("cache-control").is_some_and(|value| value.contains("no-cache"))
}

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Then {
    Next,
    /// Nothing more is said.
    Close,
    /// The same, while a body may still come that nobody wants.
    Drain,
    /// It must be seen that the answer is not whole.
    Abort,
}

/// What came of an answer.
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
    /// The peer has gone, or has nothing to say.
    Gone,
    Refused(Refused),
}

impl Connection {
    /// Answers until either side has had enough.
    pub(super) fn serve(mut self) {
        let mut first = true;
        let then = loop {
            let began = match self.next_head(first) {
                Ok(length) => Ok((length, Instant::now())),
                Err(NoHead::Gone) => break Then::Close,
                Err(NoHead::Refused(refused)) => Err(refused),
            };
            first = false;
            let then = match began {
                Ok((length, began)) => {
                    let head: Vec<u8> = self.came.drain(..length).collect();
                    match Request::parse(&head) {
                        Ok(request) => self.answer(&request, began),
                        Err(refused) => self.refuse(&refused),
                    }
                }
                Err(refused) => self.refuse(&refused),
            };
            if then != Then::Next {
                break then;
            }
        };
        match then {
            Then::Close => self.channel.close(),
            Then::Drain => self.channel.drain(),
            Then::Next | Then::Abort => {}
        }
    }

    /// Reads until a whole head has come; gives its bytes.
    fn next_head(&mut self, first: bool) -> Result<usize, NoHead> {
        let limits = self.shared.limits;
        let mut deadline = None;
        let mut seen = 0;
        loop {
            match extent(&self.came, seen).map_err(NoHead::Refused)? {
                Extent::Bytes(length) => return Ok(length),
                Extent::Unfinished => seen = self.came.len(),
            }
            let idle = self.came.is_empty() && !first;
            if idle && (self.shared.is_stopping() || self.shared.is_wanted(&self.held)) {
                return Err(NoHead::Gone);
            }
            let now = Instant::now();
            let until = match idle {
                true => now + limits.idle,
                // From the first byte, however slowly others follow.
                false => *deadline.get_or_insert(now + limits.head),
            };
            let mut part = [0; 4096];
            let room = part.len().min(MAX_HEAD - self.came.len());
            self.held.set_idle(idle);
            let read = self.channel.read_until(until, &mut part[..room]);
            self.held.set_idle(false);
            match read {
                Ok(0) => return Err(NoHead::Gone),
                Ok(count) => self.came.extend(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::TimedOut && !self.came.is_empty() => {
                    let what = format!("a request has to come within {} s", limits.head.as_secs());
                    return Err(NoHead::Refused(Refused { status: 408, what }));
                }
                Err(_) => return Err(NoHead::Gone),
            }
        }
    }

    /// Answers what is no request.
    fn refuse(&mut self, refused: &Refused) -> Then {
        let body = format!("{}\n", refused.what).into_bytes();
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
        self.tell(None, Sent { status, bytes, error, ..Sent::default() }, Instant::now());
        Then::Close
    }

    fn answer(&mut self, request: &Request, began: Instant) -> Then {
        if let Some(refused) = self.misdirected(request) {
            return self.refuse(&refused);
        }
        if request.method == Method::Put {
            return self.receive(request, began);
        }
        // What follows the head of a request that takes no body is not waited for.
        if request.length > 0 {
            return self.refuse(&Refused::bad("no body is taken with this request"));
        }
        let answer = self.shared.find(request);
        // Without a length, and without chunks, the end of the connection is the end of the answer.
        let unmarked = request.old && answer.decision.body == Body::Lines;
        let keep = request.keep && !unmarked && self.stays_open();
        self.send(request, answer, keep, began)
    }

    /// Whether there is a reason to keep it for another request.
    pub(super) fn stays_open(&self) -> bool {
        !self.shared.is_stopping() && !self.shared.is_wanted(&self.held)
    }

    /// Refuses a request by a name that is not this server's, where a page in a browser could have
    /// led it here.
    fn misdirected(&mut self, request: &Request) -> Option<Refused> {
        if self.shared.tokens().are_wanted() {
            return None;
        }
        let at = self.channel.tcp().local_addr().ok()?.ip();
        let host = request.field("host");
        if self.shared.names.allow(host.as_deref(), at) {
            return None;
        }
        let host = host.unwrap_or_default();
        let what = format!(
            "{host:?} is no name of this share; use its address, or sprat share --host-name NAME"
        );
        Some(Refused { status: 421, what })
    }

    fn send(&mut self, request: &Request, answer: Answer, keep: bool, began: Instant) -> Then {
        let Answer { decision: Decision { head, body }, content } = answer;
        let mut sent = Sent {
            status: head.status(),
            verified: matches!(body, Body::Verified(_)),
            ..Sent::default()
        };
        let head = head.finish(keep);
        let path = request.target.as_ref().map_or_else(|| "*".to_owned(), Target::encoded);
        let result = match (&body, &content) {
            (Body::Empty, _) => self.channel.send(&[&head]).map_err(Broken::from),
            (Body::Text(text), _) => {
                sent.bytes = body.length();
                self.channel.send(&[&head, text]).map_err(Broken::from)
            }
            (Body::Lines, Content::Lines(lines)) => {
                match self.send_lines(&head, lines, request.old) {
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
            (Err(_), _) => Then::Abort,
            (Ok(()), true) => Then::Next,
            (Ok(()), false) => Then::Close,
        };
        sent.error = result.err().map(|error| error.to_string());
        self.tell(Some((request, &path)), sent, began);
        then
    }

    /// Sends a head and what of a file follows it.
    fn send_file(
        &mut self,
        (file, version, below): (&File, Version, &Path),
        request: &Request,
        (head, body): (&[u8], &Body),
        sent: &mut Sent,
    ) -> Result<(), Broken> {
        let tcp = self.channel.tcp();
        let address = request.target.as_ref().map_or_else(String::new, Target::encoded);
        let mut going = self.shared.transfers.begin(
            tcp.clone(),
            self.peer,
            &address,
            (sent.verified, false),
            body.length(),
        );
        if self.paced.is_none() {
            // Where the kernel refuses, it goes at the kernel's own pace.
            self.paced = self.shared.pacer.add(&tcp, self.shared.pace).ok();
        }
        let path = &self.shared.root.path().join(below);
        let (values, fresh, summed) = (&self.shared.values, wants_fresh(request), Cell::new(0));
        let content = FileContent { file, path, version, values, fresh, summed };
        let result = content.send(&mut self.channel, head, body, &going);
        going.end(&result.as_ref().err().map_or_else(|| "done".to_owned(), ToString::to_string));
        (sent.bytes, sent.summed) = (going.sent(), content.summed.get());
        result
    }

    fn send_lines(&mut self, head: &[u8], lines: &Lines, plain: bool) -> io::Result<u64> {
        self.channel.send(&[head])?;
        let shared = self.shared.clone();
        let mut chunks = Chunks::new(&mut self.channel, plain);
        shared.write_lines(lines, &mut chunks)?;
        chunks.finish()
    }

    pub(super) fn tell(&mut self, request: Option<(&Request, &str)>, sent: Sent, began: Instant) {
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
