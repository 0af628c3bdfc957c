//! Tests files that are sent to a server: whole, in parts, after interruptions of either end, over
//! existing files, and to servers that refuse.

use crate::support;
use sprat_flow::copy::{Error, Event, Options, Outcome, Upload};
use sprat_flow::file::DestinationError;
use sprat_flow::share::{self, Share};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{content, names, options};

const MIB: usize = 1 << 20;

/// A server that accepts files, and the answers that it has sent.
struct Receiver {
    directory: tempfile::TempDir,
    share: Share,
    events: Arc<Mutex<Vec<share::Event>>>,
}

impl Receiver {
    fn start() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut share::Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options =
            share::Options::new(directory.path().to_owned(), vec!["127.0.0.1:0".parse().unwrap()]);
        options.writable = Some(u64::MAX);
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        options.observer =
            Some(Arc::new(move |event: &share::Event| seen.lock().unwrap().push(event.clone())));
        change(&mut options);
        let share = Share::start(options).unwrap();
        Self { directory, share, events }
    }

    fn url(&self, path: &str) -> String {
        format!("sprat://{}{path}", self.share.addresses()[0])
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        names(self.directory.path())
    }

    /// Waits until the server has read its connections to their ends and closed them. Then its
    /// directory must have these names, sorted.
    #[track_caller]
    fn at_rest_has(&self, expected: &[&str]) {
        let port = format!(":{:04X}", self.share.addresses()[0].port());
        let is_open = |line: &str| {
            let mut fields = line.split_whitespace().skip(1);
            let (local, state) = (fields.next(), fields.nth(1));
            // Established, or closed by the other end only.
            local.is_some_and(|local| local.ends_with(&port)) && matches!(state, Some("01" | "08"))
        };
        sprat_testing::until("the server has closed its connections", || {
            !fs::read_to_string("/proc/net/tcp").unwrap().lines().any(is_open)
        });
        assert_eq!(self.names(), expected);
    }

    /// Returns the number of bytes of files that were received, according to all answers.
    fn received(&self) -> u64 {
        self.events
            .lock()
            .unwrap()
            .iter()
            .filter(|event| event.method == "PUT")
            .map(|event| event.bytes)
            .sum()
    }
}

/// Creates a file of `bytes` bytes in a directory of its own.
fn file(bytes: usize) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a file");
    fs::write(&path, content(bytes)).unwrap();
    (directory, path)
}

fn send(from: &Path, to: &str, options: Options) -> (Result<Outcome, Error>, Vec<Event>) {
    let mut events = Vec::new();
    let outcome = Upload::new(from, to, options)
        .and_then(|upload| upload.run(&mut |event| events.push(event.clone())));
    events.retain(|event| !matches!(event, Event::Progress(_)));
    (outcome, events)
}

fn resumed(events: &[Event]) -> u64 {
    let opened = events.iter().find_map(|event| match event {
        Event::Opened { resumed, .. } => Some(*resumed),
        _ => None,
    });
    opened.unwrap()
}

#[test]
fn a_file_arrives_as_it_is() {
    let receiver = Receiver::start();
    fs::create_dir(receiver.path("sub")).unwrap();
    for bytes in [0, 1, 4095, 4096, MIB - 1, MIB, MIB + 1, 3 * MIB + 4097, 21 * MIB + 5] {
        for streams in [1, 3] {
            let (_directory, path) = file(bytes);
            let (outcome, _) =
                send(&path, &receiver.url("/sub/"), Options { streams, ..options() });
            let outcome = outcome.unwrap();
            assert_eq!(outcome.blake3.unwrap(), *blake3::hash(&content(bytes)).as_bytes());
            assert!(
                outcome.verified && outcome.target.to_str().unwrap().ends_with("/sub/a%20file"),
                "{outcome:?}"
            );
            let there = receiver.path("sub/a file");
            assert!(fs::read(&there).unwrap() == content(bytes), "{bytes} B, {streams} streams");
            let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
            assert_eq!(time(&there), time(&path));
            assert_eq!(names(&receiver.path("sub")), ["a file"], "no other file is left");
            fs::remove_file(there).unwrap();
        }
    }
}

#[test]
fn where_it_goes_is_a_name_or_a_directory() {
    let receiver = Receiver::start();
    fs::create_dir(receiver.path("sub")).unwrap();
    let (_directory, path) = file(10);
    for (to, lies) in [("/other", "other"), ("/sub", "sub/a file"), ("/", "a file")] {
        send(&path, &receiver.url(to), options()).0.unwrap();
        assert_eq!(fs::read(receiver.path(lies)).unwrap(), content(10), "{to}");
    }
    let error = send(&path, &receiver.url("/none/file"), options()).0.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { status: 409, .. })
            && error.to_string().contains("directory"),
        "{error}"
    );
    let error = send(&path, &receiver.url("/.hidden"), options()).0.unwrap_err();
    assert!(matches!(error, Error::Refused { status: 403, .. }), "{error}");
    assert_eq!(receiver.names(), ["a file", "other", "sub"]);
}

#[test]
fn a_file_that_is_there_stays() {
    let receiver = Receiver::start();
    let (_directory, path) = file(MIB);
    let url = receiver.url("/a file");
    fs::write(receiver.path("a file"), "mine").unwrap();
    let (outcome, _) = send(&path, &url, options());
    assert!(matches!(outcome, Err(Error::Destination(DestinationError::Exists(_)))), "{outcome:?}");
    assert_eq!(fs::read(receiver.path("a file")).unwrap(), b"mine");
    assert_eq!(receiver.received(), 0, "nothing was sent");
    send(&path, &url, Options { force: true, ..options() }).0.unwrap();
    assert_eq!(fs::read(receiver.path("a file")).unwrap(), content(MIB));
    assert!(send(&path, &url, options()).0.unwrap().unchanged, "same length and time");
}

#[test]
fn it_goes_through_tls_as_well() {
    let made = share::tls::self_signed(&["127.0.0.1".to_owned()]).unwrap();
    let receiver = Receiver::with(|options| options.tls = Some(made.config.clone()));
    let (directory, path) = file(17 * MIB + 5);
    let trusted = directory.path().join("cert.pem");
    fs::write(&trusted, &made.pem).unwrap();
    let url = receiver.url("/file").replace("sprat://", "sprats://");
    let error = send(&path, &url, options()).0.unwrap_err();
    assert!(matches!(error, Error::Untrusted { .. }), "{error}");
    for streams in [1, 3] {
        let authorities = Some(trusted.clone());
        send(&path, &url, Options { streams, force: true, authorities, ..options() }).0.unwrap();
        assert!(
            fs::read(receiver.path("file")).unwrap() == content(17 * MIB + 5),
            "{streams} streams"
        );
    }
}

#[test]
fn a_refusal_is_heard_before_everything_is_sent() {
    let made = share::tls::self_signed(&["127.0.0.1".to_owned()]).unwrap();
    let (directory, path) = file(40 * MIB);
    let trusted = directory.path().join("cert.pem");
    fs::write(&trusted, &made.pem).unwrap();
    for tls in [None, Some(made.config)] {
        let scheme = if tls.is_some() { "sprats://" } else { "sprat://" };
        let receiver = Receiver::with(|options| options.tls = tls);
        let url = receiver.url("/file").replace("sprat://", scheme);
        let options = Options { authorities: Some(trusted.clone()), ..options() };
        // Another program takes the name after the check that it was free.
        let outcome = Upload::new(&path, &url, options).unwrap().run(&mut |event| {
            if let Event::Opened { .. } = event {
                fs::write(receiver.path("file"), "mine").unwrap();
            }
        });
        assert!(matches!(outcome, Err(Error::Refused { status: 412, .. })), "{outcome:?}");
        assert_eq!(fs::read(receiver.path("file")).unwrap(), b"mine");
        assert_eq!(receiver.received(), 0);
        receiver.at_rest_has(&["file"]);
    }
}

/// The last request of a process that was killed may be executed after the next process has asked
/// the server for the state of the upload.
#[test]
fn a_file_that_an_earlier_process_has_finished_is_no_failure() {
    let (_directory, path) = file(0);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    for (time, is_same) in [(modified, true), (std::time::UNIX_EPOCH, false)] {
        let receiver = Receiver::start();
        let upload = Upload::new(&path, &receiver.url("/file"), options()).unwrap();
        let outcome = upload.run(&mut |event| {
            if let Event::Opened { .. } = event {
                let there = fs::File::create(receiver.path("file")).unwrap();
                there.set_modified(time).unwrap();
            }
        });
        match outcome {
            Ok(_) => assert!(is_same, "another file was taken for it"),
            Err(Error::Refused { status: 412, .. }) => assert!(!is_same, "it is there"),
            Err(error) => panic!("{error}"),
        }
        receiver.at_rest_has(&["file"]);
    }
}

#[test]
fn a_sum_that_does_not_fit_gives_no_name() {
    let receiver = Receiver::start();
    let (_directory, path) = file(MIB);
    let sums = sprat_flow::copy::Sums { blake3: Some([7; 32]), sha256: None };
    let error = send(&path, &receiver.url("/file"), Options { sums, ..options() }).0.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert!(!receiver.path("file").exists());
}

#[test]
fn a_server_that_only_gives_takes_nothing() {
    let receiver = Receiver::with(|options| options.writable = None);
    let (_directory, path) = file(10);
    let error = send(&path, &receiver.url("/file"), options()).0.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { status: 405, .. })
            && error.to_string().contains("--writable"),
        "{error}"
    );
    let receiver = Receiver::with(|options| options.writable = Some(9));
    let error = send(&path, &receiver.url("/file"), options()).0.unwrap_err();
    assert!(matches!(error, Error::Refused { status: 413, .. }), "{error}");
    assert_eq!(receiver.names(), [""; 0]);
}

/// A proxy between both ends, which cuts or changes the stream to the server.
struct Pipe {
    address: String,
    /// The number of bytes that all connections together may still send to the server before the
    /// current connection is cut. A negative number means no limit. Unused unless `each` is
    /// negative.
    left: Arc<AtomicI64>,
    /// The number of bytes that each connection passes before it is cut. A negative number means no
    /// limit.
    each: Arc<AtomicI64>,
    /// The byte of the stream to the server that is changed, counted over all connections. A
    /// negative number means none.
    flip: Arc<AtomicI64>,
}

impl Pipe {
    fn to(receiver: &Receiver) -> Self {
        let (to, listener) =
            (receiver.share.addresses()[0], TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap().to_string();
        let none = || Arc::new(AtomicI64::new(-1));
        let (left, flip, each) = (none(), none(), none());
        let (limit, flips, most) = (left.clone(), flip.clone(), each.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, limit, flips) = (client.unwrap(), limit.clone(), flips.clone());
                let most = most.load(Ordering::Acquire);
                let server = TcpStream::connect(to).unwrap();
                let (mut down, mut up) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut down, &mut up);
                });
                let own = AtomicI64::new(most);
                std::thread::spawn(move || {
                    pass(client, server, if most < 0 { &limit } else { &own }, &flips)
                });
            }
        });
        Self { address, left, each, flip }
    }
}

fn pass(mut client: TcpStream, mut server: TcpStream, limit: &AtomicI64, flips: &AtomicI64) {
    let mut room = vec![0; 16 << 10];
    while let Ok(count @ 1..) = client.read(&mut room) {
        let count = i64::try_from(count).unwrap();
        let flip = flips.fetch_sub(count, Ordering::AcqRel);
        if (0..count).contains(&flip) {
            room[usize::try_from(flip).unwrap()] ^= 1;
        }
        let left = limit.load(Ordering::Acquire);
        let passes = if left < 0 { count } else { count.min(left) };
        if server.write_all(&room[..usize::try_from(passes).unwrap()]).is_err() {
            break;
        }
        if left >= 0 && limit.fetch_sub(passes, Ordering::AcqRel) <= passes {
            limit.store(-1, Ordering::Release);
            break;
        }
    }
    let _ = client.shutdown(std::net::Shutdown::Both);
    let _ = server.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_connection_that_breaks_costs_a_group_and_no_more() {
    let receiver = Receiver::start();
    let pipe = Pipe::to(&receiver);
    let bytes = 12 * MIB + 7;
    let (_directory, path) = file(bytes);
    pipe.left.store(5 << 20, Ordering::Release);
    let (outcome, events) = send(&path, &format!("sprat://{}/file", pipe.address), options());
    assert_eq!(outcome.unwrap().progress.retries, 1, "{events:?}");
    assert!(fs::read(receiver.path("file")).unwrap() == content(bytes));
    assert!(receiver.received() < (bytes + 2 * MIB) as u64, "{} B came", receiver.received());
    receiver.at_rest_has(&["file"]);
}

#[test]
fn a_path_that_breaks_before_every_megabyte_takes_the_file_all_the_same() {
    let receiver = Receiver::start();
    let pipe = Pipe::to(&receiver);
    let bytes = 3 * MIB + 7;
    let (_directory, path) = file(bytes);
    pipe.each.store(700_000, Ordering::Release);
    // The limit allows fewer failures than there are breaks, and no complete megabyte arrives
    // between two breaks.
    let few = Options { retries: 2, ..options() };
    let (outcome, events) = send(&path, &format!("sprat://{}/file", pipe.address), few);
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {events:?}"));
    assert_eq!((outcome.progress.wrong, outcome.progress.retries >= 4), (0, true), "{events:?}");
    assert!(fs::read(receiver.path("file")).unwrap() == content(bytes));
    receiver.at_rest_has(&["file"]);
}

#[test]
fn the_same_command_goes_on_and_another_file_does_not() {
    let receiver = Receiver::start();
    let pipe = Pipe::to(&receiver);
    let bytes = 9 * MIB + 7;
    let (_directory, path) = file(bytes);
    let url = format!("sprat://{}/file", pipe.address);
    pipe.left.store(5 << 20, Ordering::Release);
    let impatient = || Options { retries: 0, ..options() };
    let error = send(&path, &url, impatient()).0.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    receiver.at_rest_has(&[".file.sprat-journal", ".file.sprat-part"]);
    let (outcome, events) = send(&path, &url, options());
    assert_eq!(resumed(&events), 4 * MIB as u64, "the complete groups");
    outcome.unwrap();
    assert!(fs::read(receiver.path("file")).unwrap() == content(bytes));
    // If the file has changed since, the groups on the server cannot be used.
    fs::remove_file(receiver.path("file")).unwrap();
    pipe.left.store(5 << 20, Ordering::Release);
    send(&path, &url, impatient()).0.unwrap_err();
    receiver.at_rest_has(&[".file.sprat-journal", ".file.sprat-part"]);
    let mut other = content(bytes);
    other[MIB] ^= 1;
    fs::write(&path, &other).unwrap();
    let (outcome, events) = send(&path, &url, options());
    assert_eq!(resumed(&events), 0);
    outcome.unwrap();
    assert!(fs::read(receiver.path("file")).unwrap() == other);
    receiver.at_rest_has(&["file"]);
}

#[test]
fn a_server_that_is_stopped_keeps_what_has_come() {
    let receiver = Receiver::start();
    let (_directory, path) = file(12 * MIB);
    let url = receiver.url("/file");
    let Receiver { directory, share, .. } = receiver;
    let slow = Options { limit: Some(8_000_000), retries: 0, ..options() };
    let (upload, mut share) = (Upload::new(&path, &url, slow).unwrap(), Some(share));
    let outcome = upload.run(&mut |event| match event {
        Event::Progress(progress) if progress.done > 4 * MIB as u64 => {
            share.take().into_iter().for_each(|share| share.stop(Duration::from_secs(30)));
        }
        _ => {}
    });
    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
    let journal = fs::read(directory.path().join(".file.sprat-journal")).unwrap();
    let kept = sprat_flow::journal::parse(&journal).unwrap().groups.len();
    assert!(kept >= 2, "{kept} groups");
    assert_eq!(names(directory.path()), [".file.sprat-journal", ".file.sprat-part"]);
}

#[test]
fn a_byte_that_changes_on_the_way_is_found_and_sent_again() {
    let receiver = Receiver::start();
    let pipe = Pipe::to(&receiver);
    let bytes = 6 * MIB;
    let (_directory, path) = file(bytes);
    pipe.flip.store(3 << 20, Ordering::Release);
    let (outcome, events) = send(&path, &format!("sprat://{}/file", pipe.address), options());
    assert_eq!(outcome.unwrap().progress.wrong, 1);
    assert!(
        events.iter().any(|event| matches!(event, Event::Wrong { times: 1, .. })),
        "{events:?}"
    );
    assert!(fs::read(receiver.path("file")).unwrap() == content(bytes));
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_sent_again() {
    let receiver = Receiver::start();
    let bytes = 6 * MIB;
    let (_directory, path) = file(bytes);
    let slow = Options { limit: Some(8_000_000), ..options() };
    let upload = Upload::new(&path, &receiver.url("/file"), slow).unwrap();
    let (mut changed, mut over) = (false, 0);
    let outcome = upload.run(&mut |event| match event {
        Event::Progress(progress) if progress.done > 2 * MIB as u64 && !changed => {
            changed = true;
            fs::write(&path, content(bytes - 1)).unwrap();
        }
        Event::StartsOver { .. } => over += 1,
        _ => {}
    });
    outcome.unwrap();
    assert_eq!(over, 1);
    assert!(fs::read(receiver.path("file")).unwrap() == content(bytes - 1), "never a mixture");
    receiver.at_rest_has(&["file"]);
}

/// Overwrites some bytes of a file in place, and leaves the file's time unchanged.
fn damage(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt as _;
    let file = fs::File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"DAMAGED", at).unwrap();
    file.set_modified(modified).unwrap();
}

#[test]
fn a_part_that_was_damaged_at_the_server_is_sent_again() {
    // The part is damaged after the server has closed it, or perhaps while the server has it open.
    for at_rest in [true, false] {
        let receiver = Receiver::start();
        let pipe = Pipe::to(&receiver);
        let bytes = 9 * MIB + 7;
        let (_directory, path) = file(bytes);
        pipe.left.store(5 << 20, Ordering::Release);
        let impatient = Options { retries: 0, ..options() };
        send(&path, &format!("sprat://{}/file", pipe.address), impatient).0.unwrap_err();
        if at_rest {
            receiver.at_rest_has(&[".file.sprat-journal", ".file.sprat-part"]);
        }
        damage(&receiver.path(".file.sprat-part"), 5000);
        let outcome = send(&path, &receiver.url("/file"), options()).0.unwrap();
        assert!(fs::read(receiver.path("file")).unwrap() == content(bytes), "at rest: {at_rest}");
        assert_eq!(outcome.blake3, Some(*blake3::hash(&content(bytes)).as_bytes()));
        receiver.at_rest_has(&["file"]);
    }
}

#[test]
fn a_sum_is_held_against_the_file_that_is_at_the_server() {
    let receiver = Receiver::start();
    let bytes = 2 * MIB + 3;
    let (_directory, path) = file(bytes);
    let url = receiver.url("/file");
    send(&path, &url, options()).0.unwrap();
    let sums = sprat_flow::copy::Sums {
        blake3: Some(*blake3::hash(&content(bytes)).as_bytes()),
        sha256: None,
    };
    let with_sum = || Options { sums, ..options() };
    let outcome = send(&path, &url, with_sum()).0.unwrap();
    assert!(outcome.unchanged && outcome.verified, "{outcome:?}");
    damage(&receiver.path("file"), MIB as u64 + 9);
    let error = send(&path, &url, with_sum()).0.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    // Without a sum, a file of the same length and time counts as the file.
    assert!(send(&path, &url, options()).0.unwrap().unchanged);
}

#[test]
fn what_a_server_says_does_nothing_to_a_terminal() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let body = "\u{1b}]0;OWNED\u{7}\u{1b}[31m no\r\nsprat: all is well\u{9b}2J";
            let length = body.len();
            let _ = write!(stream, "HTTP/1.1 403 No\r\nContent-Length: {length}\r\n\r\n{body}");
        }
    });
    let (_directory, path) = file(10);
    let error = send(&path, &format!("sprat://{address}/x"), options()).0.unwrap_err().to_string();
    assert!(
        !error.contains(char::is_control) && error.contains(r"\u{1b}]0;OWNED\u{7}"),
        "{error:?}"
    );
}
