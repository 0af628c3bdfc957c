//! Tests copies from our own and other servers: whole, in parts, and after interruptions.

use crate::support;
use sprat_flow::copy::{Error, Event, Fetch, Sums};
use sprat_flow::file::DestinationError;
use std::fs;
use std::time::{Duration, UNIX_EPOCH};
use support::{Fault, Server, content, copy, names, options};

const MIB: usize = 1 << 20;

#[test]
fn a_file_arrives_as_it_is_in_either_form() {
    for verified in [true, false] {
        for bytes in [0, 1, 4095, 4096, MIB - 1, MIB, MIB + 1, 3 * MIB + 4097, 21 * MIB + 5] {
            for streams in [1, 3] {
                let content = content(bytes);
                let server = Server::start(content.clone(), verified);
                let directory = tempfile::tempdir().unwrap();
                let (outcome, _) = copy(
                    &server.url(),
                    directory.path(),
                    sprat_flow::copy::Options { streams, ..options() },
                );
                let outcome = outcome.unwrap();
                assert_eq!(outcome.target, directory.path().join("file.bin"));
                assert_eq!((outcome.verified, outcome.length), (verified, bytes as u64));
                assert_eq!(outcome.blake3.unwrap(), *blake3::hash(&content).as_bytes());
                assert!(
                    fs::read(&outcome.target).unwrap() == content,
                    "{bytes} B, {streams} streams"
                );
                assert_eq!(names(directory.path()), ["file.bin"], "no other file is left");
            }
        }
    }
}

#[test]
fn streams_begin_with_equal_parts() {
    let server = Server::start(content(40 * MIB), false);
    // Otherwise a stream may end before another has begun, and take over a part of the other's run.
    server.state.lock().unwrap().bodies_wait_for = 4;
    let four = sprat_flow::copy::Options { streams: 4, ..options() };
    copy(&server.url(), "/dev/null".as_ref(), four).0.unwrap();
    // A slow run may be taken over later, which requires more requests.
    let mut ranges: Vec<_> =
        server.requests()[..4].iter().map(|request| request.fields["range"].clone()).collect();
    ranges.sort();
    // The first request was sent before the length was known.
    let parts = [(0, 8), (8, 19), (19, 30), (30, 40)];
    let mut parts = parts.map(|(first, end)| format!("bytes={}-{}", first * MIB, end * MIB - 1));
    parts.sort();
    assert_eq!(ranges, parts);
}

#[test]
fn a_sum_of_a_file_that_is_not_kept_is_refused_before_anything_is_fetched() {
    let sums = Sums { sha256: Some([0; 32]), ..Default::default() };
    let options = sprat_flow::copy::Options { sums, ..options() };
    let refused = Fetch::new("http://127.0.0.1:9/file", "/dev/null".as_ref(), options);
    assert!(matches!(refused, Err(Error::Usage(why)) if why.contains("/dev/null")));
}

#[test]
fn stated_attributes_are_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::start(content(10), true);
    let when = UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789);
    server.state.lock().unwrap().fields =
        vec![("Sprat-Mode", "4751".to_owned()), ("Sprat-Mtime", "1600000000.123456789".to_owned())];
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("one");
    copy(&server.url(), &target, options()).0.unwrap();
    let plain = fs::metadata(&target).unwrap();
    assert_eq!(plain.modified().unwrap(), when);
    assert_eq!(
        plain.permissions().mode() & 0o7111,
        0,
        "without `preserve` no execute permission is copied"
    );
    let target = directory.path().join("two");
    let preserving = sprat_flow::copy::Options { preserve: true, ..options() };
    copy(&server.url(), &target, preserving).0.unwrap();
    assert_eq!(
        fs::metadata(&target).unwrap().permissions().mode() & 0o7777,
        0o751,
        "set-user-id is never copied"
    );
}

#[test]
fn a_file_that_is_there_stays() {
    let server = Server::start(content(MIB), true);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file.bin");
    fs::write(&target, "mine").unwrap();
    let (outcome, _) = copy(&server.url(), &target, options());
    assert!(matches!(outcome, Err(Error::Destination(_))), "{outcome:?}");
    assert_eq!(fs::read(&target).unwrap(), b"mine");
    let force = || sprat_flow::copy::Options { force: true, ..options() };
    assert!(!copy(&server.url(), &target, force()).0.unwrap().unchanged);
    assert_eq!(fs::read(&target).unwrap(), content(MIB));
    assert_eq!(names(directory.path()), ["file.bin"]);
    // The destination has the length and time of the source, so there is nothing to do.
    server.state.lock().unwrap().fields =
        vec![("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT".to_owned())];
    assert!(!copy(&server.url(), &target, force()).0.unwrap().unchanged);
    assert!(copy(&server.url(), &target, options()).0.unwrap().unchanged);
}

#[test]
fn an_interruption_costs_only_groups_that_were_not_durable() {
    for verified in [true, false] {
        for reset in [true, false] {
            let bytes = 9 * MIB + 7;
            let server = Server::start(content(bytes), verified);
            let directory = tempfile::tempdir().unwrap();
            let target = directory.path().join("file");
            let cut = Fault::Cut { after: 5 * MIB, reset };
            server.fault([cut]);
            let impatient = sprat_flow::copy::Options { retries: 0, ..options() };
            let (outcome, _) = copy(&server.url(), &target, impatient);
            assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
            assert!(!target.exists());
            let before = server.sent();
            let (outcome, events) = copy(&server.url(), &target, options());
            assert_eq!(fs::read(&target).unwrap(), content(bytes), "{outcome:?}");
            if !reset {
                let resumed = events.iter().find_map(|event| match event {
                    Event::Opened { resumed, .. } => Some(*resumed),
                    _ => None,
                });
                assert_eq!(resumed, Some(4 * MIB as u64), "the complete groups");
                assert!(
                    server.sent() - before < 6 * MIB as u64,
                    "{} B were sent again",
                    server.sent() - before
                );
            }
            assert_eq!(names(directory.path()), ["file"]);
        }
    }
}

#[test]
fn connections_that_break_are_made_again() {
    for verified in [true, false] {
        let bytes = 6 * MIB + 1;
        let server = Server::start(content(bytes), verified);
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        server.fault([
            Fault::Cut { after: 2 * MIB, reset: true },
            Fault::Cut { after: 0, reset: false },
            Fault::Cut { after: 30, reset: false },
            Fault::Status(503, "Retry-After: 0\r\n"),
            Fault::Stall(100),
        ]);
        let (outcome, events) = copy(&server.url(), &target, options());
        assert!(outcome.unwrap().progress.retries >= 5, "{events:?}");
        assert_eq!(fs::read(&target).unwrap(), content(bytes));
    }
}

#[test]
fn a_path_that_breaks_before_every_megabyte_brings_the_file_all_the_same() {
    let bytes = 3 * MIB + 77_000;
    for verified in [true, false] {
        for streams in [1, 2] {
            let server = Server::start(content(bytes), verified);
            let directory = tempfile::tempdir().unwrap();
            let target = directory.path().join("file");
            server.fault(vec![Fault::Cut { after: 700_000, reset: false }; 100]);
            // The limit allows fewer failures than there are breaks, and no complete megabyte
            // arrives between two breaks.
            let few = sprat_flow::copy::Options { streams, retries: 2, ..options() };
            let (outcome, events) = copy(&server.url(), &target, few);
            let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {events:?}"));
            assert_eq!((outcome.verified, outcome.progress.wrong), (verified, 0));
            assert!(
                fs::read(&target).unwrap() == content(bytes),
                "verified: {verified}, {streams} streams"
            );
            if streams == 1 {
                assert!(server.sent() < (bytes + 4096) as u64, "{} B were sent", server.sent());
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_one_group_fetched_again() {
    let bytes = 5 * MIB + 77;
    let server = Server::start(content(bytes), true);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    server.fault([Fault::Flip(3 * MIB as u64 + 5), Fault::Flip(3 * MIB as u64 + 6)]);
    let (outcome, events) = copy(&server.url(), &target, options());
    assert_eq!(outcome.unwrap().progress.wrong, 2);
    assert_eq!(fs::read(&target).unwrap(), content(bytes));
    let wrong = events
        .iter()
        .filter(|event| matches!(event, Event::Wrong { offset, .. } if *offset == 3 * MIB as u64));
    assert_eq!(wrong.count(), 2);
    let ranges: Vec<_> = server
        .requests()
        .iter()
        .filter_map(|request| request.fields.get("range").cloned())
        .collect();
    assert_eq!(ranges, vec![format!("bytes={}-{}", 3 * MIB, 4 * MIB - 1); 2]);
}

#[test]
fn a_bit_that_is_flipped_every_time_is_named() {
    let server = Server::start(content(2 * MIB), true);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    server.fault(vec![Fault::Flip(MIB as u64 + 9); 10]);
    let (outcome, _) = copy(&server.url(), &target, options());
    let error = outcome.unwrap_err();
    assert!(
        matches!(error, Error::Corrupt { .. }) && error.to_string().contains("at offset 1048576"),
        "{error}"
    );
    assert!(!target.exists());
}

#[test]
fn a_source_that_changes_is_fetched_again_and_never_mixed() {
    let old = content(4 * MIB);
    let mut other = old.clone();
    other[0] ^= 1;
    let faults = [
        Fault::Change(content(4 * MIB + 1), "\"two\""),
        Fault::Change(other.clone(), "\"two\""),
        // A server without conditional requests, whose tag differs.
        Fault::Mix(other, "\"two\""),
    ];
    for verified in [true, false] {
        for fault in &faults {
            let server = Server::start(old.clone(), verified);
            let directory = tempfile::tempdir().unwrap();
            let target = directory.path().join("file");
            server.fault([Fault::Cut { after: 2 * MIB + 500, reset: false }, fault.clone()]);
            let (outcome, events) = copy(&server.url(), &target, options());
            outcome.unwrap();
            assert!(
                events.iter().any(|event| matches!(event, Event::StartsOver { .. })),
                "the restart is reported: {events:?}"
            );
            assert!(fs::read(&target).unwrap() == server.state.lock().unwrap().content);
        }
    }
}

#[test]
fn parts_of_another_state_are_not_used() {
    let server = Server::start(content(4 * MIB), true);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    server.fault([Fault::Cut { after: 3 * MIB, reset: false }]);
    let impatient = sprat_flow::copy::Options { retries: 0, ..options() };
    copy(&server.url(), &target, impatient).0.unwrap_err();
    let mut other = content(4 * MIB);
    other[0] ^= 1;
    *server.state.lock().unwrap() = support::State {
        content: other.clone(),
        tag: "\"2\"".to_owned(),
        verified: false,
        ..Default::default()
    };
    let (outcome, events) = copy(&server.url(), &target, options());
    outcome.unwrap();
    assert!(
        events.iter().any(|event| matches!(event, Event::StartsOver { .. })),
        "the restart is reported: {events:?}"
    );
    assert!(fs::read(&target).unwrap() == other);
}

#[test]
fn sums_that_are_given_hold_or_nothing_is_kept() {
    let bytes = 2 * MIB + 3;
    let server = Server::start(content(bytes), false);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    let blake3 = *blake3::hash(&content(bytes)).as_bytes();
    let sha256: [u8; 32] =
        ring::digest::digest(&ring::digest::SHA256, &content(bytes)).as_ref().try_into().unwrap();
    for fault in [Fault::None, Fault::Chunked(1000)] {
        for (sums, right) in [
            (Sums { blake3: Some(blake3), sha256: None }, true),
            (Sums { blake3: Some(sha256), sha256: None }, false),
            (Sums { blake3: None, sha256: Some(sha256) }, true),
            (Sums { blake3: None, sha256: Some(blake3) }, false),
        ] {
            server.fault([fault.clone()]);
            let (outcome, _) =
                copy(&server.url(), &target, sprat_flow::copy::Options { sums, ..options() });
            if right {
                assert!(outcome.unwrap().verified);
                fs::remove_file(&target).unwrap();
            } else {
                assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
            }
            assert_eq!(names(directory.path()), [""; 0]);
        }
    }
}

#[test]
fn a_body_without_a_length_is_taken_whole_or_not() {
    for fault in [Fault::Chunked(70_000), Fault::Chunked(1), Fault::NoLength] {
        let bytes = if matches!(fault, Fault::Chunked(1)) { 10_000 } else { 2 * MIB + 17 };
        let server = Server::start(content(bytes), false);
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        server.fault([fault]);
        let (outcome, _) = copy(&server.url(), &target, options());
        assert_eq!(outcome.unwrap().blake3.unwrap(), *blake3::hash(&content(bytes)).as_bytes());
        assert_eq!(fs::read(&target).unwrap(), content(bytes));
        assert_eq!(names(directory.path()), ["file"]);
    }
}

#[test]
fn stopping_keeps_what_is_there() {
    let server = Server::start(content(6 * MIB), true);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    server.fault([Fault::Stall(4 * MIB)]);
    let patient = sprat_flow::copy::Options { patience: Duration::from_secs(60), ..options() };
    let copying = sprat_flow::copy::Fetch::new(&server.url(), &target, patient).unwrap();
    let cancel = copying.cancel();
    let stopped = copying.run(&mut |event| {
        if matches!(event, Event::Progress(progress) if progress.done >= 3 * MIB as u64) {
            cancel.cancel();
        }
    });
    assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
    let (outcome, _) = copy(&server.url(), &target, options());
    assert!(outcome.unwrap().progress.received <= 3 * MIB as u64);
    assert_eq!(fs::read(&target).unwrap(), content(6 * MIB));
}

/// Overwrites some bytes of a file in place, and leaves the file's time unchanged.
fn damage(path: &std::path::Path, at: u64) {
    use std::os::unix::fs::FileExt as _;
    let file = fs::File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"DAMAGED", at).unwrap();
    file.set_modified(modified).unwrap();
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().try_into().unwrap()
}

#[test]
fn a_sum_is_held_against_the_file_that_is_there() {
    let (server, directory) =
        (Server::start(content(2 * MIB + 3), true), tempfile::tempdir().unwrap());
    server.state.lock().unwrap().fields = vec![("Sprat-Mtime", "1600000000.123456789".to_owned())];
    let (local, target) = (directory.path().join("local"), directory.path().join("file"));
    fs::write(&local, content(2 * MIB + 3)).unwrap();
    let blake3 = *blake3::hash(&content(2 * MIB + 3)).as_bytes();
    let (right, wrong) = (sha256(&content(2 * MIB + 3)), [0; 32]);
    for source in [server.url(), local.display().to_string()] {
        let _ = fs::remove_file(&target);
        copy(&source, &target, options()).0.unwrap();
        for (sums, intact, damaged) in [
            (Sums::default(), true, true),
            (Sums { blake3: Some(blake3), sha256: None }, true, false),
            (Sums { blake3: None, sha256: Some(right) }, true, false),
            (Sums { blake3: Some(wrong), sha256: None }, false, false),
            (Sums { blake3: Some(blake3), sha256: Some(wrong) }, false, false),
        ] {
            let with_sums = || sprat_flow::copy::Options { sums, ..options() };
            let held = |is_right: bool| match copy(&source, &target, with_sums()).0 {
                Ok(outcome) => {
                    assert!(is_right && outcome.unchanged, "{sums:?}: {outcome:?}");
                    assert_eq!(
                        (outcome.verified, outcome.blake3.is_some()),
                        (sums.any(), sums.any())
                    );
                }
                Err(error) => {
                    assert!(
                        !is_right && matches!(error, Error::Corrupt { .. }),
                        "{sums:?}: {error}"
                    );
                    assert!(error.to_string().contains("--force"), "{error}");
                }
            };
            held(intact);
            let whole = fs::read(&target).unwrap();
            damage(&target, 77);
            held(damaged);
            let modified = fs::metadata(&target).unwrap().modified().unwrap();
            fs::write(&target, whole).unwrap();
            fs::File::options().write(true).open(&target).unwrap().set_modified(modified).unwrap();
        }
    }
}

#[test]
fn a_part_that_was_damaged_between_two_runs_is_read_and_fetched_again() {
    let bytes = 9 * MIB + 7;
    for verified in [true, false] {
        for sums in [Sums::default(), Sums { sha256: Some(sha256(&content(bytes))), blake3: None }]
        {
            let (server, directory) =
                (Server::start(content(bytes), verified), tempfile::tempdir().unwrap());
            let target = directory.path().join("file");
            server.fault([Fault::Cut { after: 5 * MIB, reset: false }]);
            let impatient = sprat_flow::copy::Options { retries: 0, ..options() };
            copy(&server.url(), &target, impatient).0.unwrap_err();
            damage(&directory.path().join("file.sprat-part"), 2 * MIB as u64 + 5000);
            let (outcome, events) =
                copy(&server.url(), &target, sprat_flow::copy::Options { sums, ..options() });
            outcome.unwrap();
            assert!(fs::read(&target).unwrap() == content(bytes), "verified: {verified}, {sums:?}");
            assert!(
                events
                    .iter()
                    .any(|event| matches!(event, Event::Note(text) if text.contains("1 of"))),
                "{events:?}"
            );
        }
    }
}

#[test]
fn pipes_and_devices_are_neither_opened_nor_replaced() {
    use nix::unistd::mkfifo;
    let (server, directory) = (Server::start(content(MIB), true), tempfile::tempdir().unwrap());
    let (pipe, file) = (directory.path().join("pipe"), directory.path().join("file"));
    mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (source, what) in [
        (pipe.as_path(), "a pipe"),
        ("/dev/zero".as_ref(), "a device"),
        (directory.path(), "a folder"),
    ] {
        let error = copy(source.to_str().unwrap(), &file, options()).0.unwrap_err();
        assert!(matches!(&error, Error::Usage(why) if why.contains(what)), "{error}");
        let sent = sprat_flow::copy::Upload::new(
            source,
            &format!("http://{}/x", server.address),
            options(),
        );
        let error = sent.unwrap().run(&mut |_| {}).unwrap_err();
        assert!(matches!(&error, Error::Usage(why) if why.contains(what)), "{error}");
    }
    let force = || sprat_flow::copy::Options { force: true, ..options() };
    for target in [pipe.as_path(), "/dev/zero".as_ref()] {
        let error = copy(&server.url(), target, force()).0.unwrap_err();
        assert!(
            matches!(&error, Error::Destination(_)) && error.to_string().contains("never replaces"),
            "{error}"
        );
    }
    // The copy does not wait for them either if they have the names of the part and the journal.
    for name in ["file.sprat-part", "file.sprat-journal"] {
        mkfifo(&directory.path().join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _ = copy(&server.url(), &file, options());
        let _ = fs::remove_file(directory.path().join(name));
    }
}

/// `--force` replaces the destination, but never a folder that has the name of its part.
#[test]
fn a_part_that_is_no_file_is_reported_without_force() {
    let server = Server::start(content(MIB), true);
    let directory = tempfile::tempdir().unwrap();
    let part = directory.path().join("file.sprat-part");
    fs::create_dir(&part).unwrap();
    for force in [false, true] {
        let options = sprat_flow::copy::Options { force, ..options() };
        let error = copy(&server.url(), &directory.path().join("file"), options).0.unwrap_err();
        assert!(
            matches!(
                &error,
                Error::Destination(DestinationError::Other { path, kind: "a folder" })
                    if *path == part
            ),
            "{error:?}"
        );
        assert!(!error.to_string().contains("--force"), "{error}");
    }
    assert!(part.is_dir());
}
