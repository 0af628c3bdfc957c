//! A small HTTP server that makes the faults that a test requests.
#![allow(dead_code, reason = "each test binary uses its part")]

use sprat_flow::copy::{Error, Event, Fetch, Options, Outcome};
use sprat_flow::group::{GROUP_BYTES, VALUE_BYTES, VALUES, VERIFIED, count, range, value};
pub(crate) use sprat_testing::skip;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A fault in an answer that has a body.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// Closes the connection after this number of bytes of the answer, with its head. Closes with a
    /// reset, or in an orderly way.
    Cut { after: usize, reset: bool },
    /// Closes the connection after this number of bytes of the body.
    CutBody(usize),
    /// Flips a bit of this byte of the file, if the byte is in the part.
    Flip(u64),
    /// Sends nothing more after this number of bytes of the body.
    Stall(usize),
    /// Answers with this status, these header lines (each ends with CRLF), and an empty body.
    Status(u16, &'static str),
    /// Sends these fields instead of its own fields of the same name. An empty value removes the
    /// field.
    Says(Vec<(&'static str, String)>),
    /// Sends the whole file, whatever part was requested.
    Whole,
    /// Sends the body in chunks of this size.
    Chunked(usize),
    /// States no length. The end of the connection ends the body.
    NoLength,
    /// Changes the file to these bytes and this tag before it answers.
    Change(Vec<u8>, &'static str),
    /// Changes the file, and sends a part of the new file to a client that requested the old file.
    Mix(Vec<u8>, &'static str),
    /// Sends these bytes instead of an answer.
    Raw(Vec<u8>),
}

/// The state of the server: the file, and the faults to make.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) content: Vec<u8>,
    pub(crate) tag: String,
    /// Whether the server offers the verified form.
    pub(crate) verified: bool,
    /// The faults of the next answers, in order. Later answers have no fault.
    pub(crate) faults: VecDeque<Fault>,
    /// Whether the faults are for answers to `HEAD` too.
    pub(crate) faults_of_heads: bool,
    /// The requests received: method, target, and fields by name in lower case.
    pub(crate) requests: Vec<Request>,
    /// Number of bytes of bodies that were sent.
    pub(crate) sent: u64,
    /// Additional fields for every answer.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// Sends the body of an answer without fault only when this number of requests has been
    /// received, so that no stream ends before the others have begun.
    pub(crate) bodies_wait_for: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: BTreeMap<String, String>,
}

/// A server on a free port. It ends when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(content: Vec<u8>, verified: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { content, tag: "\"one\"".to_owned(), verified, ..State::default() };
        let (state, stop) = (Arc::new(Mutex::new(state)), Arc::new(AtomicBool::new(false)));
        let (shared, stopped) = (state.clone(), stop.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                let (stream, state) = (stream.unwrap(), shared.clone());
                thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state, stop }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/folder/file.bin", self.address)
    }

    pub(crate) fn fault(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().unwrap().faults.extend(faults);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.state.lock().unwrap().sent
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader) {
        let answered = answer(reader.get_mut(), &request, state);
        if answered.is_none() {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut words = line.split_whitespace();
    let mut request = Request {
        method: words.next()?.to_owned(),
        target: words.next()?.to_owned(),
        fields: BTreeMap::new(),
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { return Some(request) };
        request.fields.insert(name.to_lowercase(), value.to_owned());
    }
}

/// Answers a request. Returns `None` if the connection must end.
fn answer(stream: &mut TcpStream, request: &Request, state: &Mutex<State>) -> Option<()> {
    let head_only = request.method == "HEAD";
    let (fault, content, tag, verified, extra) = {
        let mut state = state.lock().unwrap();
        state.requests.push(request.clone());
        let faulty = !head_only || state.faults_of_heads;
        let fault =
            if faulty { state.faults.pop_front().unwrap_or(Fault::None) } else { Fault::None };
        if let Fault::Change(content, tag) | Fault::Mix(content, tag) = &fault {
            (state.content, state.tag) = (content.clone(), (*tag).to_owned());
        }
        (fault, state.content.clone(), state.tag.clone(), state.verified, state.fields.clone())
    };
    if let Fault::Status(status, fields) = &fault {
        write!(stream, "HTTP/1.1 {status} Trouble\r\nContent-Length: 0\r\n{fields}\r\n").ok()?;
        return Some(());
    }
    if let Fault::Raw(bytes) = &fault {
        stream.write_all(bytes).ok()?;
        return None;
    }
    let accepts = |form: &str| {
        verified && request.fields.get("accept").is_some_and(|accept| accept.contains(form))
    };
    let (verified, values) = (accepts(VERIFIED), accepts(VALUES));
    let length = content.len() as u64;
    let asked =
        request.fields.get("range").filter(|_| !matches!(fault, Fault::Whole)).filter(|_| {
            matches!(fault, Fault::Mix(..))
                || request.fields.get("if-range").is_none_or(|validator| *validator == tag)
        });
    let part = asked.map(|text| parse_range(text)).map(|part| part.start..part.end.min(length));
    if part.as_ref().is_some_and(Range::is_empty) {
        let head = format!(
            "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes \
             */{length}\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).ok()?;
        return Some(());
    }
    let (first, end) = part.clone().map_or((0, length), |part| (part.start, part.end));
    let mut body = if values {
        values_of(&content, first..end)
    } else {
        body_of(&content, first..end, verified)
    };
    if let Fault::Flip(at) = fault
        && (first..end).contains(&at)
    {
        let within = at - first;
        let values = if verified { within / GROUP_BYTES * VALUE_BYTES } else { 0 };
        body[usize::try_from(within + values).unwrap()] ^= 4;
    }
    let status = if part.is_some() { "206 Partial Content" } else { "200 OK" };
    let mut fields = vec![
        ("Content-Length", body.len().to_string()),
        (
            "Content-Type",
            if verified {
                VERIFIED
            } else if values {
                VALUES
            } else {
                "application/octet-stream"
            }
            .to_owned(),
        ),
        ("ETag", tag),
        ("Accept-Ranges", "bytes".to_owned()),
    ];
    if part.is_some() {
        fields.push(("Content-Range", format!("bytes {first}-{}/{length}", end - 1)));
    }
    let mut set = |name: &'static str, text: String| {
        fields.retain(|(had, _)| *had != name);
        if !text.is_empty() {
            fields.push((name, text));
        }
    };
    extra.into_iter().for_each(|(name, text)| set(name, text));
    match &fault {
        Fault::Says(says) => says.iter().for_each(|(name, text)| set(name, text.clone())),
        Fault::Chunked(size) => {
            set("Content-Length", String::new());
            set("Transfer-Encoding", "chunked".to_owned());
            body = body
                .chunks(*size)
                .flat_map(|chunk| {
                    [format!("{:x};x=y\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat()
                })
                .collect();
            body.extend(b"0\r\nTrailer: yes\r\n\r\n");
        }
        Fault::NoLength => {
            set("Content-Length", String::new());
            set("Connection", "close".to_owned());
        }
        _ => {}
    }
    let mut head = format!("HTTP/1.1 {status}\r\n");
    fields.iter().for_each(|(name, text)| write!(head, "{name}: {text}\r\n").unwrap());
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    let head_bytes = bytes.len();
    if !head_only {
        bytes.extend(body);
    }
    match fault {
        Fault::Cut { after, reset } => {
            bytes.truncate(after);
            let _ = stream.write_all(&bytes);
            if reset {
                socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
            state.lock().unwrap().sent += bytes.len().saturating_sub(head_bytes) as u64;
            None
        }
        Fault::CutBody(after) => {
            bytes.truncate(head_bytes + after);
            let _ = stream.write_all(&bytes);
            state.lock().unwrap().sent += (bytes.len() - head_bytes) as u64;
            None
        }
        Fault::Stall(after) => {
            bytes.truncate(head_bytes + after);
            let _ = stream.write_all(&bytes);
            let mut rest = [0; 1];
            let _ = std::io::Read::read(stream, &mut rest); // until the client closes
            None
        }
        _ => {
            state.lock().unwrap().sent += (bytes.len() - head_bytes) as u64;
            if !have_arrived(state) {
                let body = bytes.split_off(head_bytes);
                stream.write_all(&bytes).ok()?;
                sprat_testing::until("the other requests arrive", || have_arrived(state));
                bytes = body;
            }
            stream.write_all(&bytes).ok()?;
            (!matches!(fault, Fault::NoLength)).then_some(())
        }
    }
}

/// Returns whether enough requests have been received for the body of an answer to be sent.
fn have_arrived(state: &Mutex<State>) -> bool {
    let state = state.lock().unwrap();
    state.requests.len() >= state.bodies_wait_for
}

fn parse_range(text: &str) -> Range<u64> {
    let (first, last) = text.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    first.parse().unwrap()..last.parse::<u64>().unwrap() + 1
}

fn body_of(content: &[u8], part: Range<u64>, verified: bool) -> Vec<u8> {
    let at = |offset: u64| usize::try_from(offset).unwrap();
    if !verified {
        return content[at(part.start)..at(part.end)].to_vec();
    }
    let length = content.len() as u64;
    let groups = (0..count(length)).map(|index| (index, range(length, index)));
    let groups = groups.filter(|(_, range)| range.start >= part.start && range.end <= part.end);
    let mut body = Vec::with_capacity(at(part.end - part.start) + 32 * 64);
    for (index, range) in groups {
        let bytes = &content[at(range.start)..at(range.end)];
        body.extend_from_slice(bytes);
        body.extend_from_slice(&value(length, index, bytes));
    }
    body
}

fn values_of(content: &[u8], part: Range<u64>) -> Vec<u8> {
    let at = |offset: u64| usize::try_from(offset).unwrap();
    let length = content.len() as u64;
    let groups = (0..count(length)).map(|index| (index, range(length, index)));
    let groups = groups.filter(|(_, range)| range.start >= part.start && range.end <= part.end);
    groups
        .flat_map(|(index, range)| value(length, index, &content[at(range.start)..at(range.end)]))
        .collect()
}

/// Returns bytes whose contents differ from place to place.
pub(crate) fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().update(&bytes.to_le_bytes()).finalize_xof().fill(&mut content);
    content
}

/// Returns options for tests, with short time limits and small buffers.
pub(crate) fn options() -> Options {
    Options {
        patience: Duration::from_secs(2),
        receive_buffer: 0,
        retries: 4,
        ..Options::default()
    }
}

/// Copies a file, and collects all events.
pub(crate) fn copy(
    source: &str,
    target: &Path,
    options: Options,
) -> (Result<Outcome, Error>, Vec<Event>) {
    let mut events = Vec::new();
    let outcome = Fetch::new(source, target, options)
        .and_then(|copy| copy.run(&mut |event| events.push(event.clone())));
    events.retain(|event| !matches!(event, Event::Progress(_)));
    (outcome, events)
}

/// Returns the names in a directory.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}
