//! Tests transfers with a real server of the S3 protocol, SeaweedFS.
#![allow(clippy::disallowed_methods, reason = "a test waits for a server")]

use sprat_flow::copy::{Error, Event, Fetch, Options};
use sprat_flow::file::DestinationError;
use sprat_http::Cancel;
use sprat_objects::{Bucket, Location, Upload};
use sprat_testing::skip;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

const KEYS: (&str, &str) = ("sprat-key-id", "sprat-secret-0123456789");

/// How long the server may take until it answers.
const START: Duration = Duration::from_secs(60);

/// A server, which ends when it is dropped.
struct Server {
    child: Child,
    endpoint: String,
    /// The address at which the server shows its files without credentials.
    filer: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Server {
    /// Starts a server with an empty bucket. If the program is not installed, returns `None` and
    /// records the skip.
    fn start() -> Option<Self> {
        let this = std::env::current_exe().unwrap();
        let set_up =
            this.ancestors().map(|folder| folder.join("tools/bin/weed")).find(|path| path.exists());
        let Some(program) = set_up else {
            skip("sprat-objects, S3: SeaweedFS is not here; scripts/setup installs it");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("s3.json");
        let keys = format!(r#"{{"accessKey":"{}","secretKey":"{}"}}"#, KEYS.0, KEYS.1);
        let identity = format!(
            r#"{{"name":"us","credentials":[{keys}],"actions":["Admin","Read","Write","List"]}}"#
        );
        fs::write(&config, format!(r#"{{"identities":[{identity}]}}"#)).unwrap();
        // Ports that are free now.
        let held: Vec<_> = (0..8).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<_> =
            held.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(held);
        let mut command = Command::new(program);
        command.arg("-logdir").arg(directory.path()).args([
            "server",
            "-s3",
            "-s3.iam=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]);
        command.arg("-master.telemetry=false"); // no reports to its makers
        command.args([
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.volumeSizeLimitMB=256",
            "-volume.max=16",
        ]);
        let names = ["master.port", "volume.port", "filer.port", "s3.port"];
        let names = names.iter().flat_map(|name| [(*name).to_owned(), format!("{name}.grpc")]);
        command.args(names.zip(&ports).map(|(name, port)| format!("-{name}={port}")));
        command
            .arg(format!("-dir={}", directory.path().display()))
            .arg(format!("-s3.config={}", config.display()));
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let endpoint = format!("http://127.0.0.1:{}", ports[6]);
        let filer = SocketAddr::from(([127, 0, 0, 1], ports[4]));
        let server = Self { child, endpoint, filer, _directory: directory };
        let begun = Instant::now();
        // A folder in the directory of buckets is a bucket.
        let is_up = || TcpStream::connect(("127.0.0.1", ports[6])).is_ok();
        while !is_up() || !server.ask("POST", "/buckets/bucket/", "").starts_with("HTTP/1.1 20") {
            assert!(begun.elapsed() < START, "the server does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(server)
    }

    fn store(&self, options: &Options, cancel: &Cancel) -> Bucket {
        Bucket::with_keys(&self.endpoint, KEYS, "bucket", options, cancel).unwrap()
    }

    /// Returns the object as the server stores it. `None` if there is no such object.
    fn object(&self, key: &str) -> Option<Vec<u8>> {
        let answer = self.ask_bytes("GET", &format!("/buckets/bucket/{key}"), "");
        let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
        answer.starts_with(b"HTTP/1.1 200").then(|| answer[head..].to_vec())
    }

    /// Returns the server's list of unfinished uploads.
    fn uploads(&self) -> String {
        let listing = self.ask("GET", "/buckets/bucket/.uploads/", "Accept: application/json\r\n");
        listing.lines().filter(|line| line.contains("FullPath")).collect()
    }

    fn ask(&self, method: &str, path: &str, fields: &str) -> String {
        String::from_utf8_lossy(&self.ask_bytes(method, path, fields)).into_owned()
    }

    fn ask_bytes(&self, method: &str, path: &str, fields: &str) -> Vec<u8> {
        let mut answer = Vec::new();
        if let Ok(mut stream) = TcpStream::connect(self.filer) {
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{fields}\r\n"
            );
            let _ =
                stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
        }
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().update(&bytes.to_le_bytes()).finalize_xof().fill(&mut content);
    content
}

fn location(key: &str) -> Location {
    Location::parse(&format!("s3://bucket/{key}")).unwrap()
}

fn options() -> Options {
    Options {
        patience: Duration::from_secs(10),
        receive_buffer: 0,
        retries: 2,
        streams: 3,
        ..Options::default()
    }
}

fn upload(
    server: &Server,
    from: &Path,
    key: &str,
    options: Options,
) -> Result<sprat_objects::SentObject, Error> {
    let cancel = Cancel::default();
    let store = server.store(&options, &cancel);
    Upload::new(from, &location(key), options, &cancel)?.run(&store, &mut |_| {})
}

/// All tests use one server, because it takes seconds to start.
#[test]
fn object_stores_are_ends_of_a_copy() {
    let Some(server) = Server::start() else { return };
    a_file_goes_there_and_comes_back(&server);
    an_interrupted_fetch_goes_on_by_another_signature(&server);
    an_object_that_is_there_stays(&server);
    what_is_stopped_or_fails_leaves_no_part(&server);
    missing_and_denied_files_are_reported(&server);
    what_changed_is_not_mixed(&server);
}

fn a_file_goes_there_and_comes_back(server: &Server) {
    let here = tempfile::tempdir().unwrap();
    for bytes in [0, 1, 16 * MIB, 16 * MIB + 1, 70 * MIB + 5] {
        let (content, key) = (content(bytes), format!("folder/a name, {bytes} B + %2B"));
        let from = here.path().join("from");
        fs::write(&from, &content).unwrap();
        let sent = upload(server, &from, &key, options()).unwrap();
        assert_eq!((sent.length, sent.blake3), (bytes as u64, *blake3::hash(&content).as_bytes()));
        let kept =
            server.object(&key.replace(' ', "%20").replace("%2B", "%252B").replace('+', "%2B"));
        assert!(kept.is_some_and(|kept| kept == content), "{bytes} B");
        let cancel = Cancel::default();
        let address = server.store(&options(), &cancel).address(&location(&key)).unwrap();
        let mut opened = None;
        let outcome =
            Fetch::from_address(address, here.path(), options()).unwrap().run(&mut |event| {
                if let Event::Opened { source, streams, .. } = event {
                    opened = Some((source.clone(), *streams));
                }
            });
        let outcome = outcome.unwrap();
        // A file of one byte arrives with the first answer.
        let streams = if bytes == 1 { 1 } else { 3 };
        assert_eq!(
            opened.unwrap(),
            (format!("s3://bucket/{key}"), streams),
            "the shown address has no signature, and parts are fetched in parallel"
        );
        assert_eq!(outcome.target.file_name().unwrap(), key.rsplit('/').next().unwrap());
        assert!(fs::read(&outcome.target).unwrap() == content, "{bytes} B");
    }
    // Into a folder, under its own name.
    upload(server, &here.path().join("from"), "into/", options()).unwrap();
    assert_eq!(server.object("into/from").unwrap().len(), 70 * MIB + 5);
}

fn an_interrupted_fetch_goes_on_by_another_signature(server: &Server) {
    let (here, content) = (tempfile::tempdir().unwrap(), content(40 * MIB + 5));
    let target = here.path().join("file");
    fs::write(&target, &content).unwrap();
    upload(server, &target, "large", options()).unwrap();
    fs::remove_file(&target).unwrap();
    let copy = |options: Options| {
        let address =
            server.store(&options, &Cancel::default()).address(&location("large")).unwrap();
        Fetch::from_address(address, &target, options).unwrap()
    };
    let first = copy(Options { limit: Some(40_000_000), ..options() });
    let cancel = first.cancel();
    let stopped = first.run(&mut |event| {
        if matches!(event, Event::Progress(progress) if progress.done >= 16 * MIB as u64) {
            cancel.cancel();
        }
    });
    assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
    // Signatures contain the time in seconds, so that a second later the signature differs.
    std::thread::sleep(Duration::from_millis(1100));
    let outcome = copy(options()).run(&mut |_| {}).unwrap();
    assert!(outcome.progress.received <= 24 * MIB as u64 + 5, "{:?}", outcome.progress);
    assert!(fs::read(&target).unwrap() == content);
}

fn an_object_that_is_there_stays(server: &Server) {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("from");
    fs::write(&from, "old").unwrap();
    upload(server, &from, "file", options()).unwrap();
    fs::write(&from, "new").unwrap();
    let refused = upload(server, &from, "file", options());
    assert!(matches!(refused, Err(Error::Destination(DestinationError::Exists(_)))), "{refused:?}");
    assert_eq!(server.object("file").unwrap(), b"old");
    upload(server, &from, "file", Options { force: true, ..options() }).unwrap();
    assert_eq!(server.object("file").unwrap(), b"new");
}

fn what_is_stopped_or_fails_leaves_no_part(server: &Server) {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("from");
    for change in [false, true] {
        fs::write(&from, content(80 * MIB)).unwrap();
        let options = Options { streams: 1, ..options() };
        let cancel = Cancel::default();
        let store = server.store(&options, &cancel);
        let mut notes = Vec::new();
        let mut done = 0;
        let sent = Upload::new(&from, &location("never"), options, &cancel).unwrap().run(
            &store,
            &mut |event| match event {
                Event::Progress(progress) if progress.done > 0 && done == 0 => {
                    done = progress.done;
                    assert!(!server.uploads().is_empty(), "the upload is listed while it runs");
                    if change {
                        fs::File::options()
                            .append(true)
                            .open(&from)
                            .unwrap()
                            .write_all(b"x")
                            .unwrap();
                    } else {
                        cancel.cancel();
                    }
                }
                Event::Note(text) => notes.push(text.clone()),
                _ => {}
            },
        );
        assert!(done > 0, "a part was sent before");
        match change {
            true => assert!(matches!(sent, Err(Error::Changed { .. })), "{sent:?}"),
            false => assert!(matches!(sent, Err(Error::Cancelled)), "{sent:?}"),
        }
        assert_eq!(notes, [""; 0], "no note says that parts remain");
        assert_eq!((server.object("never"), server.uploads()), (None, String::new()));
    }
}

fn missing_and_denied_files_are_reported(server: &Server) {
    let here = tempfile::tempdir().unwrap();
    let target = here.path().join("file");
    let cancel = Cancel::default();
    let missing = server.store(&options(), &cancel).address(&location("no such")).unwrap();
    let error =
        Fetch::from_address(missing, &target, options()).unwrap().run(&mut |_| {}).unwrap_err();
    assert!(
        matches!(error, Error::NotFound { .. })
            && error.to_string().contains("s3://bucket/no such"),
        "{error}"
    );
    let others =
        Bucket::with_keys(&server.endpoint, (KEYS.0, "another"), "bucket", &options(), &cancel)
            .unwrap();
    let address = others.address(&location("file")).unwrap();
    let error =
        Fetch::from_address(address, &target, options()).unwrap().run(&mut |_| {}).unwrap_err();
    assert!(
        matches!(error, Error::Denied { .. }) && !error.to_string().contains("Signature="),
        "{error}"
    );
    assert!(matches!(others.length(&location("file")), Err(Error::Denied { .. })));
    assert!(!target.exists());
    for wrong in ["s3://", "s3://bucket", "s3:///key", "s3://bu cket/key", "s3://bucket/a//b"] {
        assert!(matches!(Location::parse(wrong), Err(Error::Usage(_))), "{wrong}");
    }
    assert!(matches!(
        server.store(&options(), &cancel).address(&location("folder/")),
        Err(Error::Usage(_))
    ));
}

fn what_changed_is_not_mixed(server: &Server) {
    let here = tempfile::tempdir().unwrap();
    let (from, target) = (here.path().join("from"), here.path().join("to"));
    let (old, new) = (content(64 * MIB), content(64 * MIB + 1));
    fs::write(&from, &old).unwrap();
    upload(server, &from, "changes", options()).unwrap();
    fs::write(&from, &new).unwrap();
    // The file is fetched slowly, in several requests. Requests after the change must notice it.
    // Streams begin with equal parts, so there may be no such request. In that case all of the file
    // is in its old state.
    let limited = Options { limit: Some(8_000_000), streams: 4, ..options() };
    let address = server.store(&limited, &Cancel::default()).address(&location("changes")).unwrap();
    let (mut changed, mut anew) = (false, false);
    let outcome =
        Fetch::from_address(address, &target, limited).unwrap().run(&mut |event| match event {
            Event::Progress(progress) if !changed && progress.done >= 4 * MIB as u64 => {
                changed = true;
                upload(server, &from, "changes", Options { force: true, ..options() }).unwrap();
            }
            Event::StartsOver { .. } => anew = true,
            _ => {}
        });
    outcome.unwrap();
    let whole = if anew { new } else { old };
    assert!(
        changed && fs::read(&target).unwrap() == whole,
        "changed: {changed}, begun anew: {anew}"
    );
}
