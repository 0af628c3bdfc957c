//! Tests interruptions from outside: kills at any time, full disks, and unwritable destinations.
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes")]

use crate::support;
use nix::sched::{CloneFlags, unshare};
use sprat_flow::copy::{Error, Fetch, Options};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Fault, Server, content, copy, names, options, skip};

const MIB: usize = 1 << 20;

/// Environment variable with the source and the destination, set in the process that will be
/// killed.
const CHILD: &str = "SPRAT_TEST_COPY";

/// Environment variable with the number of processes to kill. The default is small, to save time.
const KILLS: &str = "SPRAT_KILLS";

#[test]
fn a_process_that_is_to_be_killed() {
    let Some(text) = std::env::var_os(CHILD) else { return };
    let text = text.into_string().unwrap();
    let words: Vec<_> = text.split(' ').collect();
    let eager = Options {
        sync_bytes: 2 << 20,
        limit: Some(60_000_000),
        streams: words[2].parse().unwrap(),
        patience: Duration::from_secs(30),
        ..options()
    };
    Fetch::new(words[0], Path::new(words[1]), eager).unwrap().run(&mut |_| {}).unwrap();
}

#[test]
fn killed_at_any_time_it_goes_on_to_the_exact_file() {
    let kills: u64 = std::env::var(KILLS).map_or(6, |text| text.parse().unwrap());
    let bytes = 24 * MIB + 999;
    let (mut killed, mut whole, mut resumed) = (0, 0, 0);
    for verified in [true, false].into_iter().cycle() {
        let server = Server::start(content(bytes), verified);
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let streams = 1 + whole % 2;
        let durable = || {
            let bytes = fs::read(directory.path().join("file.sprat-journal")).ok();
            bytes
                .and_then(|bytes| sprat_flow::journal::parse(&bytes))
                .map_or(0, |parsed| parsed.groups.len())
        };
        while !target.exists() {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "interrupted::a_process_that_is_to_be_killed"]);
            child.env(CHILD, format!("{} {} {streams}", server.url(), target.display()));
            let mut child =
                child.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap();
            // Kill the process some megabytes later, whatever it is doing then.
            let chance = sprat_host::random();
            let enough = durable() + usize::try_from(chance % 7).unwrap();
            while durable() < enough && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(chance / 7 % 30_000));
            let ended = child.try_wait().unwrap().is_some();
            child.kill().unwrap();
            child.wait().unwrap();
            killed += u64::from(!ended);
            resumed += durable();
            if killed >= kills {
                break;
            }
        }
        if !target.exists() {
            copy(
                &server.url(),
                &target,
                Options { patience: Duration::from_secs(30), ..options() },
            )
            .0
            .unwrap();
        }
        assert!(fs::read(&target).unwrap() == content(bytes), "after {killed} kills");
        assert_eq!(names(directory.path()), ["file"]);
        whole += 1;
        if killed >= kills {
            break;
        }
    }
    assert!(resumed > 0, "no run has resumed");
    eprintln!("{killed} kills, {whole} files, {resumed} groups found durable after them");
}

/// Mounts a small filesystem in memory, which only the caller's thread and the threads it starts
/// can see. Returns the reason if this is not possible.
fn small_filesystem(directory: &Path, settings: &str) -> Result<PathBuf, String> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("a mount namespace: {error}"))?;
    let root = directory.join("small");
    fs::create_dir(&root).map_err(|error| error.to_string())?;
    mount(&["--make-rprivate", "/"])?;
    mount(&["-t", "tmpfs", "-o", settings, "small", root.to_str().unwrap()])?;
    Ok(root)
}

fn mount(arguments: &[&str]) -> Result<(), String> {
    let output =
        Command::new("mount").args(arguments).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

/// Runs a test in a small filesystem with these settings.
fn within(settings: &'static str, test: impl FnOnce(&Path) + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let directory = tempfile::tempdir().unwrap();
            match small_filesystem(directory.path(), settings) {
                Ok(root) => test(&root),
                Err(why) => skip(&format!("sprat-flow, a disk that is full: {why}")),
            }
        });
    });
}

#[test]
fn a_full_disk_is_reported_before_anything_is_kept() {
    within("size=4m", |root| {
        let server = Server::start(content(6 * MIB), true);
        let (outcome, _) =
            copy(&server.url(), &root.join("file"), Options { streams: 2, ..options() });
        let error = outcome.unwrap_err();
        assert!(
            matches!(error, Error::Sink(_)) && error.to_string().contains("make room"),
            "{error}"
        );
        assert_eq!(names(root), [""; 0], "no file is left that takes space");
    });
}

#[test]
fn a_disk_that_fills_up_leaves_no_wrong_file() {
    within("size=4m", |root| {
        let server = Server::start(content(6 * MIB), false);
        server.fault([Fault::Chunked(65536)]);
        let (outcome, _) = copy(&server.url(), &root.join("file"), options());
        let error = outcome.unwrap_err();
        assert!(
            matches!(error, Error::Sink(_)) && error.to_string().contains("make room"),
            "{error}"
        );
        assert_eq!(names(root), [""; 0]);
    });
}

#[test]
fn an_unwritable_destination_is_named() {
    within("size=4m,ro", |root| {
        let server = Server::start(content(MIB), true);
        let error = copy(&server.url(), &root.join("file"), options()).0.unwrap_err().to_string();
        assert!(
            error.contains(root.to_str().unwrap()) && error.to_lowercase().contains("read-only"),
            "{error}"
        );
    });
}

#[test]
fn two_copies_to_one_name_do_not_mix() {
    let server = Server::start(content(4 * MIB), true);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    let slow = Options { limit: Some(2_000_000), ..options() };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| copy(&server.url(), &target, slow).0);
        sprat_testing::until("the first copy has a partial file", || {
            directory.path().join("file.sprat-part").exists()
        });
        let second = copy(&server.url(), &target, options()).0.unwrap_err();
        assert!(second.to_string().contains("another transfer"), "{second}");
        first.join().unwrap().unwrap();
    });
    assert_eq!(fs::read(&target).unwrap(), content(4 * MIB));
}
