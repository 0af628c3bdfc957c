//! Tests uploads from `sprat cp` to `sprat share --writable`, by their binaries: the output, the
//! refusals, and the data that is sent again after a `kill -9` of either end.

use crate::support;
use serde_json::Value;
use sprat_testing::until;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use support::kills::{Ends, client, kill_either_end};
use support::{address, sprat};

/// A real, writable server of `directory`, at `address`. Dropping this value kills it.
struct Server(Child);

impl Server {
    fn start(directory: &Path, address: &str, more: &[&str]) -> Self {
        Self(serve(directory, address, more))
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(directory: &Path, address: &str, more: &[&str]) -> Child {
    let mut command = sprat();
    command.arg("share").arg(directory).args(["--writable", "--listen", address]).args(more);
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the server listens", || {
        assert!(server.try_wait().unwrap().is_none(), "it ends at once");
        TcpStream::connect(address).is_ok()
    });
    server
}

fn cp(arguments: &[&str]) -> Output {
    sprat().arg("cp").args(arguments).output().unwrap()
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns bytes that do not repeat.
fn content(megabytes: u32) -> Vec<u8> {
    (0..megabytes << 18).flat_map(|at: u32| at.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_and_folders_are_sent_and_the_result_is_reported() {
    let (here, there, address) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), address());
    let _server = Server::start(there.path(), &address, &["--max-file", "20M"]);
    let file = here.path().join("file");
    fs::write(&file, content(3)).unwrap();
    let (file, url) = (file.to_str().unwrap(), format!("sprat://{address}"));
    let output = cp(&["--json", file, &format!("{url}/")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    let done = lines(&output).pop().unwrap();
    assert_eq!((&done["event"], &done["verified"]), (&"done".into(), &true.into()));
    assert_eq!(done["target"], format!("http://{address}/file"));
    assert!(fs::read(there.path().join("file")).unwrap() == content(3));
    let again = cp(&[file, &format!("{url}/file")]);
    assert!(
        again.status.success() && stderr_of(&again).contains("exists already"),
        "{}",
        stderr_of(&again)
    );
    // A folder is sent into an existing folder, and under a new name. Its content is sent a second
    // time.
    let folder = here.path().join("folder");
    fs::create_dir_all(folder.join("sub/empty")).unwrap();
    for at in 0..300 {
        fs::write(folder.join(format!("sub/{at} #?")), format!("file {at}")).unwrap();
    }
    fs::write(folder.join("large"), content(9)).unwrap();
    fs::write(folder.join("nothing"), "").unwrap();
    let folder_name = folder.to_str().unwrap();
    for (to, lies) in [("/", "folder"), ("/new/one", "new/one")] {
        let output = cp(&["--json", "-r", folder_name, &format!("{url}{to}")]);
        let done = lines(&output).pop().unwrap();
        assert_eq!(
            (output.status.code(), done["files"].as_u64()),
            (Some(0), Some(302)),
            "{}",
            stderr_of(&output)
        );
        let lies = there.path().join(lies);
        assert!(fs::read(lies.join("large")).unwrap() == content(9));
        assert_eq!(fs::read(lies.join("sub/299 #?")).unwrap(), b"file 299");
        assert_eq!((names(&lies), names(&lies.join("sub")).len()), (names(&folder), 301));
        let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(time(&lies.join("sub")), time(&folder.join("sub")), "folders get their times");
        assert_eq!(time(&lies.join("sub/7 #?")), time(&folder.join("sub/7 #?")));
    }
    fs::write(folder.join("sub/7 #?"), "another").unwrap();
    fs::write(folder.join("sub/.hidden"), "").unwrap();
    let output = cp(&["--json", "-r", folder_name, &format!("{url}/")]);
    let (events, done) = (lines(&output), lines(&output).pop().unwrap());
    assert_eq!(output.status.code(), Some(6), "{}", stderr_of(&output));
    assert_eq!(
        (done["unchanged"].as_u64(), done["failed"].as_u64()),
        (Some(301), Some(1)),
        "{done}"
    );
    assert!(done["left_out"][0].as_str().unwrap().contains(".hidden"), "{done}");
    assert!(events.iter().any(|event| event["event"] == "failed"), "{events:?}");
    fs::remove_file(folder.join("sub/.hidden")).unwrap();
    let output = cp(&["--force", "--quiet", "-r", folder_name, &format!("{url}/")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    assert_eq!(fs::read(there.path().join("folder/sub/7 #?")).unwrap(), b"another");
    // Refusals, with their exit codes.
    fs::write(here.path().join("other"), "x").unwrap();
    let (other, large) = (here.path().join("other"), here.path().join("too large"));
    fs::File::create(&large).unwrap().set_len(21 << 20).unwrap();
    for (from, to, code) in [
        (other.to_str().unwrap(), "/file", 4),
        (other.to_str().unwrap(), "/none/x", 4),
        (other.to_str().unwrap(), "/.x", 8),
        (large.to_str().unwrap(), "/", 11),
        (folder_name, "/", 2),
        ("/no/such/file", "/", 2),
        ("http://127.0.0.1:1/x", "/", 2),
    ] {
        let output = cp(&[from, &format!("{url}{to}")]);
        assert_eq!(output.status.code(), Some(code), "{from} {to}: {}", stderr_of(&output));
    }
    assert_eq!(names(there.path()), ["file", "folder", "new"]);
}

#[test]
fn uploads_need_a_token() {
    let (here, there, address) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), address());
    // Without a token, the server refuses to listen where other machines can reach it.
    let output = sprat()
        .arg("share")
        .arg(there.path())
        .args(["--writable", "--port", "0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr_of(&output));
    assert!(
        stderr_of(&output).contains("--token-file") && stderr_of(&output).contains("--open"),
        "{}",
        stderr_of(&output)
    );
    let (tokens, file) = (here.path().join("tokens"), here.path().join("file"));
    fs::write(&tokens, "abcdefghijklmnop\n").unwrap();
    fs::write(&file, "x").unwrap();
    let (tokens, file, url) =
        (tokens.to_str().unwrap(), file.to_str().unwrap(), format!("sprat://{address}/"));
    let _server = Server::start(there.path(), &address, &["--token-file", tokens]);
    assert_eq!(cp(&[file, &url]).status.code(), Some(8));
    assert_eq!(names(there.path()), [""; 0]);
    let output = cp(&["--token-file", tokens, file, &url]);
    assert!(output.status.success(), "{}", stderr_of(&output));
    assert_eq!(names(there.path()), ["file"]);
}

#[test]
fn durable_bytes_are_not_sent_again_after_a_kill() {
    let (here, there, address) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), address());
    let mut server = Server::start(there.path(), &address, &[]);
    let file = here.path().join("file");
    fs::write(&file, content(60)).unwrap();
    let journal = there.path().join(".file.sprat-journal");
    let durable = || {
        let parsed = fs::read(&journal).ok().and_then(|bytes| sprat_flow::journal::parse(&bytes));
        parsed.map_or(0, |parsed| parsed.groups.len())
    };
    let send = |limit: &str| {
        let mut command = sprat();
        command.args(["cp", "--json", "--limit", limit, "--retries", "100"]).arg(&file);
        command.arg(format!("sprat://{address}/"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // The client is killed. The server records the received data as soon as the connection is gone.
    let mut client = send("60Mb/s");
    let events = BufReader::new(client.stdout.take().unwrap()).lines();
    let some = events.map_while(Result::ok).any(|line| {
        let line: Value = serde_json::from_str(&line).unwrap();
        line["event"] == "progress" && line["done"].as_u64() > Some(6 << 20)
    });
    assert!(some, "it got somewhere");
    client.kill().unwrap();
    client.wait().unwrap();
    until("4 MiB are durable", || durable() >= 4);
    assert_eq!(names(there.path()), [".file.sprat-journal", ".file.sprat-part"]);
    // The server is killed. The data that it had recorded exists after the restart.
    let (client, before) = (send("60Mb/s"), durable());
    until("4 MiB more are durable", || durable() >= before + 4);
    server.kill();
    let kept = durable();
    let _server = Server::start(there.path(), &address, &[]);
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr_of(&output));
    let (opened, done) = (&lines(&output)[0], lines(&output).pop().unwrap());
    assert!(opened["resumed"].as_u64() >= Some(4 << 20), "{opened}");
    assert!(done["retries"].as_u64() >= Some(1), "{done}");
    assert!(kept >= before + 4, "{kept}");
    assert!(fs::read(there.path().join("file")).unwrap() == content(60));
    assert_eq!(names(there.path()), ["file"]);
}

#[test]
fn an_uploaded_file_is_exact_when_either_end_is_killed() {
    let (here, there, address) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), address());
    let (file, to, content) = (here.path().join("file"), there.path().join("file"), content(24));
    fs::write(&file, &content).unwrap();
    let send = |whole: u64| {
        let (mut command, streams) = (sprat(), 1 + whole % 2);
        command.args([
            "cp",
            "--quiet",
            "--limit",
            "150Mb/s",
            "--retries",
            "100",
            "--streams",
            &streams.to_string(),
        ]);
        command.arg(&file).arg(format!("sprat://{address}/"));
        client(command)
    };
    let serve = || serve(there.path(), &address, &[]);
    kill_either_end(&Ends { serve: &serve, transfer: &send, content: &content, to: &to });
}
