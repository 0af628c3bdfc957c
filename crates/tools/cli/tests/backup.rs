//! `sprat backup` and `sprat restore`, as people use them.

use crate::support::{CommandResult, ServerProcess, run, sprat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sprat_testing::{S3Server, until};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

/// Exit codes.
const NOT_FOUND: i32 = 3;
const CONFLICT: i32 = 4;
const CORRUPT: i32 = 10;

fn json(words: &[&str]) -> Value {
    serde_json::from_str(run(&[words, &["--json"]].concat()).ok()).expect("JSON")
}

#[test]
fn a_backup_is_made_listed_verified_restored_and_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let backups = dir.path().join("backups");
    let folder = backups.to_str().expect("text");
    let flags = ["--memory", "64M", "--disk", "256M", "-L", "fast+udp:host=127.0.0.1,port=0"];
    let server = ServerProcess::start(&dir.path().join("data"), &flags)
        .unwrap_or_else(|error| panic!("{error}"));
    let at = ["-C", &server.coordinator];
    let ask = |words: &[&str]| run(&[words, &at].concat());
    ask(&["table", "create", "users"]).ok();
    ask(&["put", "users", "ada", "36"]).ok();
    ask(&["incr", "users", "visits", "5"]).ok();
    let first = json(&[&["backup", "create", folder][..], &at].concat());
    let name = first["name"].as_str().expect("a name");
    assert!(first["held_ms"].as_f64().expect("a time") < 500.0, "{first}");
    ask(&["put", "users", "ada", "37"]).ok();
    let said = ask(&["backup", "create", folder]);
    assert!(said.ok().starts_with("backup 20"), "{said:?}");
    let listed = json(&["backup", "list", folder]);
    assert_eq!((listed.as_array().expect("a list").len(), &listed[0]["name"]), (2, &first["name"]));
    let lines = run(&["backup", "list", folder]);
    assert_eq!(lines.ok().lines().count(), 2, "{lines:?}");
    let said = run(&["backup", "verify", folder]);
    assert!(said.ok().starts_with("2 backups: "), "{said:?}");

    let said = ask(&["restore", folder, "users=then", "--point", name]);
    assert!(said.ok().starts_with("table \"then\": 2 objects\nrestored 2 objects"), "{said:?}");
    ask(&["restore", folder, "users=now"]).ok();
    let value = |table: &str, key: &str| ask(&["get", table, key]).ok().to_owned();
    assert_eq!([value("then", "ada"), value("now", "ada")], ["36", "37"]);
    ask(&["incr", "then", "visits", "1"]).ok();
    for (words, code, what) in [
        (&["restore", folder][..], CONFLICT, "restore under another name"),
        (&["restore", folder, "none"], NOT_FOUND, "no table named"),
        (&["restore", folder, "--point", "never"], NOT_FOUND, "no backup named never"),
        (&["restore", "/nowhere", "users=a"], 1, "not a folder of backups"),
        (&["restore", folder, "users="], 2, "want TABLE or TABLE=NEW"),
        (&["backup", "create", folder, "--rate", "1kB/s"], 2, "want 1MB/s or more"),
    ] {
        let refused = ask(words);
        assert_eq!(refused.code, Some(code), "{refused:?}");
        assert!(refused.stderr.contains(what), "{refused:?}");
    }
    assert_eq!(run(&["backup", "prune", folder]).code, Some(2));
    let pruned = json(&["backup", "prune", folder, "--keep", "1", "--dry-run"]);
    assert_eq!(pruned["points"][0], name, "{pruned}");
    let said = run(&["backup", "prune", folder, "--keep", "1"]);
    assert!(said.ok().starts_with(&format!("removed backup {name}\nremoved 1 backup")), "{said:?}");

    let segment = fs::read_dir(backups.join("segments")).expect("segments").next();
    let path = segment.expect("one is left").expect("readable").path();
    let mut bytes = fs::read(&path).expect("readable");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&path, bytes).expect("written");
    let verified = run(&["backup", "verify", folder]);
    assert_eq!(verified.code, Some(CORRUPT), "{verified:?}");
    let named = path.display().to_string();
    assert!(verified.text().contains(&named), "{verified:?}");
    let refused = ask(&["restore", folder, "users=again"]);
    assert_eq!(refused.code, Some(CORRUPT), "{refused:?}");
    assert!(refused.stderr.contains(&named), "{refused:?}");
    assert!(server.stop().success());
}

#[test]
fn backups_are_kept_in_a_bucket() {
    let Some(bucket) = S3Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let flags = ["--memory", "64M", "--disk", "256M", "-L", "fast+udp:host=127.0.0.1,port=0"];
    let server = ServerProcess::start(&dir.path().join("data"), &flags)
        .unwrap_or_else(|error| panic!("{error}"));
    let (id, secret) = S3Server::KEYS;
    let command = |words: &[&str]| {
        let mut command = sprat();
        command.args(words).env("AWS_ENDPOINT_URL", &bucket.endpoint);
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
        command.env("SPRAT_COORDINATOR", &server.coordinator);
        command
    };
    let ask = |words: &[&str]| -> CommandResult {
        let output = command(words).output().expect("it runs");
        let stderr = String::from_utf8(output.stderr).expect("text");
        CommandResult { code: output.status.code(), stdout: output.stdout, stderr }
    };
    let folder = "s3://bucket/of the rack/backups/";
    ask(&["table", "create", "users"]).ok();
    ask(&["put", "users", "ada", "36"]).ok();
    ask(&["backup", "create", folder]).ok();
    ask(&["put", "users", "ada", "37"]).ok();
    ask(&["backup", "create", folder]).ok();
    let listed = ask(&["backup", "list", folder, "--json"]);
    let listed: Value = serde_json::from_str(listed.ok()).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    let said = ask(&["backup", "verify", folder]);
    assert!(said.ok().starts_with("2 backups: "), "{said:?}");
    let first = listed[0]["name"].as_str().expect("a name");
    ask(&["restore", folder, "users=then", "--point", first]).ok();
    assert_eq!(ask(&["get", "then", "ada"]).ok(), "36");
    ask(&["backup", "prune", folder, "--keep", "1"]).ok();
    ask(&["restore", folder, "users=now"]).ok();
    assert_eq!(ask(&["get", "now", "ada"]).ok(), "37");
    let refused = ask(&["backup", "list", "s3://bucket/nothing"]);
    assert!(refused.stderr.contains("s3://bucket/nothing: not a folder"), "{refused:?}");

    // A process that is stopped in order gives its lock back, and one that is killed does not.
    let value = "x".repeat(100_000);
    for number in 0..60 {
        ask(&["put", "users", &format!("key {number}"), &value]).ok();
    }
    let list = "Accept: application/json\r\n";
    let locks = || bucket.ask("GET", "/buckets/bucket/of%20the%20rack/backups/locks/", list);
    let is_locked = || locks().contains("FullPath");
    for signal in [Signal::TERM, Signal::KILL] {
        let mut slow = command(&["backup", "create", folder, "--rate", "1MB/s"]);
        let mut child = slow.stdout(Stdio::null()).spawn().expect("it starts");
        until("the folder is locked", is_locked);
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let ended = child.wait().expect("it ends");
        if signal == Signal::TERM {
            assert_eq!(ended.signal(), Some(Signal::TERM.as_raw()));
            assert!(!is_locked(), "{}", locks());
        }
    }
    let refused = ask(&["backup", "create", folder]);
    assert!(refused.stderr.contains("unless it has ended: then remove s3://"), "{refused:?}");
    assert!(server.stop().success());
}
