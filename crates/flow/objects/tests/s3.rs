//! Tests transfers with a real server of the S3 protocol, SeaweedFS.
#![allow(clippy::disallowed_methods, reason = "a test waits for a server")]

use sprat_flow::copy::{Error, Event, Fetch, Options};
use sprat_flow::file::DestinationError;
use sprat_http::Cancel;
use sprat_objects::{Bucket, Location, Upload};
use sprat_testing::S3Server;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

const MIB: usize = 1 << 20;

fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().update(&bytes.to_le_bytes()).finalize_xof().fill(&mut content);
    content
}

fn store(server: &S3Server, options: &Options, cancel: &Cancel) -> Bucket {
    Bucket::with_keys(&server.endpoint, S3Server::KEYS, "bucket", options, cancel).unwrap()
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
    server: &S3Server,
    from: &Path,
    key: &str,
    options: Options,
) -> Result<sprat_objects::SentObject, Error> {
    let cancel = Cancel::default();
    let store = store(server, &options, &cancel);
    Upload::new(from, &location(key), options, &cancel)?.run(&store, &mut |_| {})
}

/// All tests use one server, because it takes seconds to start.
#[test]
fn object_stores_are_ends_of_a_copy() {
    let Some(server) = S3Server::start() else { return };
    a_file_goes_there_and_comes_back(&server);
    an_interrupted_fetch_goes_on_by_another_signature(&server);
    an_object_that_is_there_stays(&server);
    what_is_stopped_or_fails_leaves_no_part(&server);
    missing_and_denied_files_are_reported(&server);
    what_changed_is_not_mixed(&server);
}

fn a_file_goes_there_and_comes_back(server: &S3Server) {
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
        let address = store(server, &options(), &cancel).address(&location(&key)).unwrap();
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

fn an_interrupted_fetch_goes_on_by_another_signature(server: &S3Server) {
    let (here, content) = (tempfile::tempdir().unwrap(), content(40 * MIB + 5));
    let target = here.path().join("file");
    fs::write(&target, &content).unwrap();
    upload(server, &target, "large", options()).unwrap();
    fs::remove_file(&target).unwrap();
    let copy = |options: Options| {
        let address =
            store(server, &options, &Cancel::default()).address(&location("large")).unwrap();
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

fn an_object_that_is_there_stays(server: &S3Server) {
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

fn what_is_stopped_or_fails_leaves_no_part(server: &S3Server) {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("from");
    for change in [false, true] {
        fs::write(&from, content(80 * MIB)).unwrap();
        let options = Options { streams: 1, ..options() };
        let cancel = Cancel::default();
        let store = store(server, &options, &cancel);
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

fn missing_and_denied_files_are_reported(server: &S3Server) {
    let here = tempfile::tempdir().unwrap();
    let target = here.path().join("file");
    let cancel = Cancel::default();
    let missing = store(server, &options(), &cancel).address(&location("no such")).unwrap();
    let error =
        Fetch::from_address(missing, &target, options()).unwrap().run(&mut |_| {}).unwrap_err();
    assert!(
        matches!(error, Error::NotFound { .. })
            && error.to_string().contains("s3://bucket/no such"),
        "{error}"
    );
    let others = Bucket::with_keys(
        &server.endpoint,
        (S3Server::KEYS.0, "another"),
        "bucket",
        &options(),
        &cancel,
    )
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
        store(server, &options(), &cancel).address(&location("folder/")),
        Err(Error::Usage(_))
    ));
}

fn what_changed_is_not_mixed(server: &S3Server) {
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
    let address =
        store(server, &limited, &Cancel::default()).address(&location("changes")).unwrap();
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
