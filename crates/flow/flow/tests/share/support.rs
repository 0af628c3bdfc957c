//! A server of a temporary directory, and a client that shows all details of an answer.

use sprat_flow::share::{Event, Limits, Options, Share};
pub(super) use sprat_testing::skip;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A directory, and the server that shares it.
pub(super) struct Shared {
    pub(super) directory: tempfile::TempDir,
    pub(super) share: Share,
    pub(super) events: Arc<Mutex<Vec<Event>>>,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options =
            Options::new(directory.path().to_owned(), vec!["127.0.0.1:0".parse().unwrap()]);
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        options.observer =
            Some(Arc::new(move |event: &Event| seen.lock().unwrap().push(event.clone())));
        options.names = (b'a'..=b'z')
            .map(|name| char::from(name).to_string())
            .chain(["here".to_owned()])
            .collect();
        change(&mut options);
        let share = Share::start(options).unwrap();
        Self { directory, share, events }
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.share.addresses()[0]
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub(super) fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.path().join(name), content).unwrap();
    }

    pub(super) fn connect(&self) -> Client {
        let tcp = TcpStream::connect(self.address()).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client { tcp, came: Vec::new() }
    }

    /// Returns the answer to a request on a new connection.
    pub(super) fn ask(&self, method: &str, path: &str, fields: &str) -> Answer {
        let mut client = self.connect();
        client.send(&format!("{method} {path} HTTP/1.1\r\nHost: here\r\n{fields}\r\n"));
        client.answer(method == "HEAD").unwrap()
    }

    pub(super) fn get(&self, path: &str, fields: &str) -> Answer {
        self.ask("GET", path, fields)
    }
}

/// Returns limits with short waits, to test what happens after them.
pub(super) fn impatient() -> Limits {
    let short = Duration::from_millis(300);
    Limits { head: short, idle: short, patience: short, ..Limits::default() }
}

/// Returns bytes whose contents differ from place to place.
pub(super) fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    content
}

pub(super) struct Client {
    pub(super) tcp: TcpStream,
    came: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Whether the connection ended before the body's length was reached.
    pub(super) cut: bool,
}

impl Client {
    pub(super) fn send(&mut self, text: &str) {
        self.tcp.write_all(text.as_bytes()).unwrap();
    }

    /// Returns whether an answer, or the end of the connection, has arrived already.
    pub(super) fn is_answered(&self) -> bool {
        self.tcp.set_nonblocking(true).unwrap();
        let peeked = self.tcp.peek(&mut [0]);
        self.tcp.set_nonblocking(false).unwrap();
        !self.came.is_empty()
            || !matches!(peeked, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Returns the next answer. `None` if the connection ends before an answer.
    pub(super) fn answer(&mut self, no_body: bool) -> Option<Answer> {
        let length = loop {
            if let Some(at) = self.came.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more() {
                return None;
            }
        };
        let head: Vec<u8> = self.came.drain(..length).collect();
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Response::new(&mut fields);
        parsed.parse(&head).unwrap();
        let status = parsed.code.unwrap();
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let fields =
            parsed.headers.iter().map(|field| (field.name.to_owned(), text(field.value))).collect();
        let mut answer = Answer { status, fields, body: Vec::new(), cut: false };
        if no_body || status == 304 || status == 204 {
            return Some(answer);
        }
        if answer.field("Transfer-Encoding") == Some("chunked") {
            answer.cut = !self.chunks(&mut answer.body);
            return Some(answer);
        }
        let length: usize = answer.field("Content-Length").unwrap().parse().unwrap();
        while self.came.len() < length && !answer.cut {
            answer.cut = !self.more();
        }
        answer.body = self.came.drain(..length.min(self.came.len())).collect();
        Some(answer)
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let Some(at) = self.came.windows(2).position(|two| two == b"\r\n") else {
                if !self.more() {
                    return false;
                }
                continue;
            };
            let length =
                usize::from_str_radix(std::str::from_utf8(&self.came[..at]).unwrap(), 16).unwrap();
            while self.came.len() < at + 2 + length + 2 {
                if !self.more() {
                    return false;
                }
            }
            let chunk: Vec<u8> = self.came.drain(..at + 2 + length + 2).collect();
            body.extend(&chunk[at + 2..at + 2 + length]);
            if length == 0 {
                return true;
            }
        }
    }

    fn more(&mut self) -> bool {
        let mut part = vec![0; 1 << 16];
        match self.tcp.read(&mut part) {
            Ok(count) => {
                self.came.extend(&part[..count]);
                count > 0
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer"),
            Err(_) => false,
        }
    }

    /// Returns whether the server closes the connection without sending anything more.
    pub(super) fn is_closed(&mut self) -> bool {
        self.came.is_empty() && !self.more()
    }
}

impl Answer {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| &value[..]);
        assert!(found.next().is_none(), "{name} comes once");
        value
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Waits for this number of milliseconds.
#[expect(clippy::disallowed_methods, reason = "a test has no loop that owns waiting")]
pub(super) fn wait(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
