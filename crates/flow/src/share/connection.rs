//! One connection: requests in their order, each answered before the next is looked at.

use super::answers::{ALLOWED, Answer, Content, Lines};
use super::body::{Broken, FileContent};
use super::chunks::Chunks;
use super::decide::{Body, Decision};
use super::socket::Channel;
use super::{Event, Shared};
use crate::http::MAX_HEAD;
use crate::http::answer::Head;
use crate::http::request::{Extent, Method, Refused, Request, extent};
use crate::http::target::Target;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// A connection with one peer.
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) channel: Channel,
    pub(super) peer: SocketAddr,
    /// Bytes that came and were not used yet: what is pipelined.
    pub(super) came: Vec<u8>,
}

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Then {
    Next,
    /// Nothing more is said.
    Close,
    /// It must be seen that the answer is not whole.
    Abort,
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
        if then == Then::Close {
            self.channel.close();
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
            if idle && self.shared.is_stopping() {
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
            match self.channel.read_until(until, &mut part[..room]) {
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
        let head = if matches!(refused.status, 405 | 501) { head.field("Allow", ALLOWED) } else { head };
        let sent = self.channel.send(&[&head.finish(false), &body]);
        self.tell(
            None,
            refused.status,
            body.len() as u64,
            false,
            Instant::now(),
            sent.err().map(|error| error.to_string()),
        );
        Then::Close
    }

    fn answer(&mut self, request: &Request, began: Instant) -> Then {
        // What follows the head of a request that takes no body is not waited for.
        if request.length > 0 && request.method != Method::Put {
            return self.refuse(&Refused::bad("no body is taken with this request"));
        }
        let answer = self.shared.find(request);
        // Without a length, and without chunks, the end of the connection is the end of the answer.
        let unmarked = request.old && answer.decision.body == Body::Lines;
        let keep = request.keep && request.length == 0 && !unmarked && !self.shared.is_stopping();
        self.send(request, answer, keep, began)
    }

    fn send(&mut self, request: &Request, answer: Answer, keep: bool, began: Instant) -> Then {
        let Answer { decision: Decision { head, body }, content } = answer;
        let status = head.status();
        let head = head.finish(keep);
        let (length, verified) = (body.length(), matches!(body, Body::Verified(_)));
        let path = request.target.as_ref().map_or_else(|| "*".to_owned(), Target::encoded);
        let (sent, error) = match (&body, &content) {
            (Body::Empty, _) => (0, self.channel.send(&[&head]).err().map(Broken::from)),
            (Body::Text(text), _) => (length, self.channel.send(&[&head, text]).err().map(Broken::from)),
            (Body::Lines, Content::Lines(lines)) => match self.send_lines(&head, lines, request.old) {
                Ok(sent) => (sent, None),
                Err(error) => (0, Some(error.into())),
            },
            (_, Content::File(file, version, path_below)) => {
                let tcp = self.channel.tcp();
                let mut going = self.shared.transfers.begin(tcp, self.peer, &path, verified, length);
                let (path, pace) = (&self.shared.root.path().join(path_below), self.shared.pace);
                let content = FileContent { file, path, version: *version, pace };
                let error = content.send(&mut self.channel, &head, &body, &going).err();
                going.end(&error.as_ref().map_or_else(|| "done".to_owned(), ToString::to_string));
                (going.sent(), error)
            }
            (_, _) => unreachable!("a part has its file, and lines their directory"),
        };
        let then = match (&error, keep) {
            (Some(_), _) => Then::Abort,
            (None, true) => Then::Next,
            (None, false) => Then::Close,
        };
        self.tell(Some((request, &path)), status, sent, verified, began, error.map(|error| error.to_string()));
        then
    }

    fn send_lines(&mut self, head: &[u8], lines: &Lines, plain: bool) -> io::Result<u64> {
        self.channel.send(&[head])?;
        let shared = self.shared.clone();
        let mut chunks = Chunks::new(&mut self.channel, plain);
        shared.write_lines(lines, &mut chunks)?;
        chunks.finish()
    }

    fn tell(
        &mut self,
        request: Option<(&Request, &str)>,
        status: u16,
        bytes: u64,
        verified: bool,
        began: Instant,
        error: Option<String>,
    ) {
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
        observer(&Event {
            peer: self.peer,
            method,
            path,
            status,
            bytes,
            verified,
            took: began.elapsed(),
            network,
            error,
        });
    }
}
