//! Tests `sprat cp` by its binary: its output, its exit codes, and the files that remain after
//! Ctrl-C.

use crate::support;
use serde_json::Value;
use sprat_flow::share::{Options, Share};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;
use support::kills::{Ends, client, kill_either_end};
use support::{address, sprat};

fn share(directory: &Path) -> (Share, String) {
    let options = Options::new(directory.to_owned(), vec!["127.0.0.1:0".parse().unwrap()]);
    let share = Share::start(options).unwrap();
    let url = format!("sprat://{}", share.addresses()[0]);
    (share, url)
}

fn cp(arguments: &[&str]) -> Output {
    sprat().arg("cp").args(arguments).output().unwrap()
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn json_reports_events_and_the_result() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let content = vec![7; (3 << 20) + 5];
    fs::write(source.path().join("file"), &content).unwrap();
    let (_share, url) = share(source.path());
    let to = target.path().to_str().unwrap();
    let output = cp(&["--json", &format!("{url}/file"), to]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    let lines: Vec<Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!((&lines[0]["event"], &lines[0]["verified"]), (&"opened".into(), &true.into()));
    let done = lines.last().unwrap();
    assert_eq!((&done["event"], &done["bytes"]), (&"done".into(), &content.len().into()));
    assert_eq!(fs::read(target.path().join("file")).unwrap(), content);
    // A repeated copy has no work. A file with the name of another one is kept. A missing source is
    // an error.
    let again = cp(&[&format!("{url}/file"), to]);
    assert!(
        again.status.success() && stderr_of(&again).contains("exists already"),
        "{}",
        stderr_of(&again)
    );
    fs::write(target.path().join("file"), "mine").unwrap();
    for (source, code) in [
        (format!("{url}/file"), 4),
        (format!("{url}/no such"), 3),
        ("sprat://127.0.0.1:1/x".to_owned(), 5),
        ("gopher://127.0.0.1/x".to_owned(), 2),
        (format!("{url}/"), 2),
    ] {
        let output = cp(&[&source, to]);
        assert_eq!(output.status.code(), Some(code), "{source}: {}", stderr_of(&output));
    }
    let wrong = cp(&[
        "--blake3",
        &"0".repeat(64),
        &format!("{url}/file"),
        target.path().join("new").to_str().unwrap(),
    ]);
    assert_eq!(wrong.status.code(), Some(10), "{}", stderr_of(&wrong));
    let nowhere = cp(&[&format!("{url}/file"), "/proc/no/where"]);
    assert_eq!(nowhere.status.code(), Some(11), "{}", stderr_of(&nowhere));
    assert_eq!(fs::read(target.path().join("file")).unwrap(), b"mine");
}

#[test]
fn ctrl_c_keeps_partial_files_and_the_same_command_resumes() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let content: Vec<u8> = (0..40 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
    fs::write(source.path().join("file"), &content).unwrap();
    let (_share, url) = share(source.path());
    let (from, to) = (format!("{url}/file"), target.path().join("file"));
    let mut child = sprat();
    child
        .args(["cp", "--json", "--limit", "200Mb/s", &from])
        .arg(&to)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let some = lines.map_while(Result::ok).any(|line| {
        let line: Value = serde_json::from_str(&line).unwrap();
        line["event"] == "progress" && line["done"].as_u64() > Some(4 << 20)
    });
    assert!(some, "it got somewhere");
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr_of(&output));
    assert!(stderr_of(&output).contains("the same command"), "{}", stderr_of(&output));
    assert!(!to.exists());
    let output = cp(&["--json", &from, to.to_str().unwrap()]);
    let events: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events[0]["event"], "checking", "the existing file is read first: {events:?}");
    let opened = events.iter().find(|line| line["event"] == "opened").unwrap();
    assert!(opened["resumed"].as_u64() > Some(4 << 20), "{opened}");
    assert_eq!(fs::read(&to).unwrap(), content);
}

/// Starts a real server of `directory`, at `address`.
fn serve(directory: &Path, address: &str) -> Child {
    let mut command = sprat();
    command.arg("share").arg(directory).args(["--listen", address]);
    let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while TcpStream::connect(address).is_err() {
        wait(5);
    }
    server
}

/// Starts a real client. Its rate is limited so that the copy takes a second or two.
fn fetch(from: &str, to: &Path) -> Child {
    let mut command = sprat();
    command.args(["cp", "--quiet", "--limit", "150Mb/s", "--retries", "100", from]).arg(to);
    client(command)
}

fn wait(milliseconds: u64) {
    #[expect(clippy::disallowed_methods, reason = "the test waits for other processes")]
    std::thread::sleep(Duration::from_millis(milliseconds));
}

#[test]
fn the_file_is_exact_when_either_end_is_killed() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let content: Vec<u8> =
        (0..24 << 18).flat_map(|at: u32| at.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    fs::write(source.path().join("file"), &content).unwrap();
    let address = address();
    let (from, to) = (format!("sprat://{address}/file"), target.path().join("file"));
    let (serve, transfer) = (|| serve(source.path(), &address), |_| fetch(&from, &to));
    kill_either_end(&Ends { serve: &serve, transfer: &transfer, content: &content, to: &to });
}

#[test]
fn hosts_named_with_also_share_the_work_and_are_reported() {
    let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let content = vec![7; (24 << 20) + 5];
    fs::write(source.path().join("file"), &content).unwrap();
    let ((_one, url), (two, _)) = (share(source.path()), share(source.path()));
    let (from, to) = (format!("{url}/file"), target.path().join("file"));
    let (other, unreachable) = (two.addresses()[0].to_string(), "127.0.0.1:1");
    let (from, other, into) = (from.as_str(), other.as_str(), to.to_str().unwrap());
    let output = cp(&[
        "--json",
        "--limit",
        "100Mb/s",
        "--retries",
        "1",
        "--also",
        other,
        "--also",
        unreachable,
        from,
        into,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.iter().any(|line| line["event"] == "without"), "{lines:?}");
    let sources = lines.last().unwrap()["sources"].as_array().unwrap();
    let bytes: Vec<_> = sources.iter().map(|source| source["bytes"].as_u64().unwrap()).collect();
    assert!(matches!(bytes[..], [(1..), (1..), 0]), "{sources:?}");
    assert_eq!(bytes.iter().sum::<u64>(), content.len() as u64);
    assert_eq!(fs::read(&to).unwrap(), content);
    for wrong in [
        &["-r", "--also", other, from][..],
        &["--also", "a b", from],
        &["--also", other, "/etc/hostname"],
    ] {
        assert_eq!(cp(&[wrong, &["/nowhere/x"]].concat()).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn object_stores_need_credentials() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("file");
    fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, want) in [
        (&["s3://bucket/key", file][..], "AWS_ACCESS_KEY_ID"),
        (&[file, "s3://bucket/key"], "AWS_ACCESS_KEY_ID"),
        (&["s3://bucket", file], "s3://BUCKET/KEY"),
        (&["s3://bucket//key", file], "an empty part"),
        (&["s3://bucket/a//b", file], "an empty part"),
        (&[file, "s3://bucket/a/../b"], "an empty part"),
        (&[file, "s3://bucket/./"], "an empty part"),
        (&["-r", "s3://bucket/key/", file], "one by one"),
        (&["-r", file, "s3://bucket/key/"], "one by one"),
        (&["http://127.0.0.1:1/x", "s3://bucket/"], "fetch it first"),
        (&[file, file, "s3://bucket/key"], "end it with /"),
    ] {
        let output =
            sprat().arg("cp").args(arguments).env_remove("AWS_ACCESS_KEY_ID").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr_of(&output));
        assert!(stderr_of(&output).contains(want), "{arguments:?}: {}", stderr_of(&output));
    }
}

#[test]
fn a_pipe_is_refused_at_once() {
    let here = tempfile::tempdir().unwrap();
    let pipe = here.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for target in [here.path().join("out").to_str().unwrap(), "sprat://127.0.0.1:1/x"] {
        let output = cp(&[pipe.to_str().unwrap(), target]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr_of(&output));
        assert!(stderr_of(&output).contains("is a pipe"), "{}", stderr_of(&output));
    }
    let (_share, url) = share(here.path());
    let output = cp(&["--force", &format!("{url}/none"), pipe.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr_of(&output));
    // A folder that contains a pipe arrives without the pipe, and the report says so.
    fs::write(here.path().join("file"), "x").unwrap();
    let there = tempfile::tempdir().unwrap();
    let output = cp(&["-r", &format!("{url}/"), there.path().join("all").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(6), "{}", stderr_of(&output));
    assert!(stderr_of(&output).contains("left out: \"pipe\" is a pipe"), "{}", stderr_of(&output));
    assert_eq!(fs::read(there.path().join("all/file")).unwrap(), b"x");
}

/// Starts a server whose names and messages contain control characters. It lists two files: one
/// that it does not have, and one that it leaves out.
fn evil() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap_or(0);
            let is_listing = String::from_utf8_lossy(&request[..count]).contains("format=jsonl");
            let (status, kind, body) = match is_listing {
                true => (200, "application/jsonl", LISTING),
                false => (403, "text/plain", "\u{1b}]0;OWNED\u{7}\u{1b}[31m\u{9b}2J\nsprat: fine"),
            };
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n",
                body.len()
            );
            let _ = write!(stream, "{head}Connection: close\r\n\r\n{body}");
        }
    });
    format!("http://{address}")
}

const LISTING: &str = "{\"href\":\"a%1B%5B31m%C2%9B\",\"kind\":\"file\",\"size\":1}\n\
                       {\"end\":true,\"left_out\":[\"\\u001b]0;OWNED\\u0007 is a pipe\"]}\n";

#[test]
fn server_messages_are_printed_without_control_characters() {
    let (here, url) = (tempfile::tempdir().unwrap(), evil());
    let file = here.path().join("file");
    fs::write(&file, "x").unwrap();
    let (file, folder) = (file.to_str().unwrap(), here.path().join("folder"));
    let up = cp(&["--retries", "0", file, &format!("{url}/x").replace("http", "sprat")]);
    let down = cp(&["--retries", "0", "-r", &format!("{url}/d/"), folder.to_str().unwrap()]);
    for (output, shown) in [(up, r"\u{1b}]0;OWNED\u{7}"), (down, r"a\u{1b}[31m\u{9b}")] {
        let text = String::from_utf8([&output.stderr[..], &output.stdout].concat()).unwrap();
        assert!(!output.status.success() && text.contains(shown), "{text:?}");
        assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{text:?}");
        assert!(text.lines().all(|line| line != "sprat: fine"), "{text}");
    }
}
