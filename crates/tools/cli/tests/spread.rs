//! Tests files and folders that are spread over several servers (sets), by real processes: `sprat
//! cp --spread` and `--gather`. Either end is killed during the copy.

use crate::support;
use serde_json::Value;
use sprat_testing::until;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use support::sprat;
use tempfile::TempDir;

const MEGABYTE: usize = 1 << 20;

/// A server that accepts uploads. Dropping this value kills it.
struct Server {
    child: Child,
    address: String,
    folder: TempDir,
}

impl Server {
    fn start() -> Self {
        let address = support::address();
        let folder = tempfile::tempdir().unwrap();
        Self { child: serve(folder.path(), &address), address, folder }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = serve(self.folder.path(), &self.address);
    }

    /// Returns the names of the set's pieces on this server.
    fn pieces(&self, set: &str) -> Vec<String> {
        let folder = self.folder.path().join(format!("{set}.sprat-pieces"));
        let names =
            fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    fn has_list(&self, set: &str) -> bool {
        self.folder.path().join(format!("{set}.sprat-spread")).exists()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(folder: &Path, address: &str) -> Child {
    let mut command = sprat();
    command.arg("share").arg(folder).args(["--listen", address, "--writable"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the server listens", || TcpStream::connect(address).is_ok());
    assert!(child.try_wait().unwrap().is_none(), "another listens at {address}");
    child
}

/// Returns a `sprat cp --spread` to the servers. The first server is the destination.
fn spread(from: &Path, servers: &[Server], more: &[&str]) -> std::process::Command {
    let mut command = sprat();
    command
        .args(["cp", "-r", "--json"])
        .args(more)
        .arg(from)
        .arg(format!("sprat://{}/", servers[0].address));
    for other in &servers[1..] {
        command.args(["--spread", &other.address]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn gather(server: &Server, set: &str, to: &Path, more: &[&str]) -> std::process::Command {
    let mut command = sprat();
    command
        .args(["cp", "--gather", "--json"])
        .args(more)
        .arg(format!("sprat://{}/{set}", server.address))
        .arg(to);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn done(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr_of(output));
    lines(output).pop().unwrap()
}

/// Returns bytes that do not repeat within a piece, nor between files.
fn content(bytes: usize, seed: u32) -> Vec<u8> {
    (0..u32::try_from(bytes / 4 + 1).unwrap())
        .flat_map(|at| (at ^ seed).wrapping_mul(0x9E37_79B9).to_le_bytes())
        .take(bytes)
        .collect()
}

fn bytes_at(done: &Value) -> Vec<u64> {
    done["sources"].as_array().unwrap().iter().map(|host| host["bytes"].as_u64().unwrap()).collect()
}

#[test]
fn a_folder_lies_on_three_servers_and_is_fetched_as_one() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let set = here.path().join("run 7");
    fs::create_dir_all(set.join("deep/er")).unwrap();
    let files = [
        ("large", content(300 * MEGABYTE + 4711, 1)),
        ("deep/exact", content(128 * MEGABYTE, 2)),
        ("deep/er/small é", content(9, 3)),
        ("empty", Vec::new()),
    ];
    for (name, content) in &files {
        fs::write(set.join(name), content).unwrap();
    }
    fs::set_permissions(set.join("large"), fs::Permissions::from_mode(0o640)).unwrap();
    let time = |path: &Path| path.metadata().unwrap().modified().unwrap();

    let output = spread(&set, &servers, &[]).output().unwrap();
    let sent = done(&output);
    let total: u64 = files.iter().map(|(_, content)| content.len() as u64).sum();
    assert_eq!((sent["files"].as_u64(), sent["bytes"].as_u64()), (Some(4), Some(total)), "{sent}");
    assert_eq!(bytes_at(&sent).iter().sum::<u64>(), total);
    // With pieces of 64 MB, the files have five, two and one pieces, and the empty file has none.
    assert_eq!(servers.iter().map(|server| server.pieces("run 7").len()).sum::<usize>(), 8);
    assert!(
        servers.iter().all(|server| !server.pieces("run 7").is_empty() && server.has_list("run 7")),
        "{sent}"
    );

    // The set is fetched from a server other than the first. Permissions are kept on request.
    let output = gather(&servers[1], "run%207", there.path(), &["--preserve"]).output().unwrap();
    let fetched = done(&output);
    assert_eq!(
        (fetched["files"].as_u64(), fetched["verified"].as_bool()),
        (Some(4), Some(true)),
        "{fetched}"
    );
    assert!(bytes_at(&fetched).iter().all(|bytes| *bytes > 0), "{fetched}");
    for (name, content) in &files {
        let (sent, received) = (set.join(name), there.path().join("run 7").join(name));
        assert!(fs::read(&received).unwrap() == *content, "{name}");
        assert_eq!(time(&received), time(&sent), "{name}");
    }
    let mode = there.path().join("run 7/large").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(time(&there.path().join("run 7/deep")), time(&set.join("deep")));
    assert!(
        fs::read_dir(there.path().join("run 7")).unwrap().count() == 3,
        "nothing else is there"
    );

    // A second run transfers nothing, in either direction.
    let again = done(&spread(&set, &servers, &[]).output().unwrap());
    assert_eq!(
        (again["bytes"].as_u64(), again["unchanged"].as_u64()),
        (Some(0), Some(4)),
        "{again}"
    );
    let again = done(&gather(&servers[0], "run%207", there.path(), &[]).output().unwrap());
    assert_eq!(
        (again["files"].as_u64(), again["unchanged"].as_u64()),
        (Some(0), Some(4)),
        "{again}"
    );

    // Another set of that name is refused, unless the command may replace the existing set.
    fs::write(set.join("large"), content(MEGABYTE, 4)).unwrap();
    let refused = spread(&set, &servers, &[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(4), "{}", stderr_of(&refused));
    let replaced = done(&spread(&set, &servers, &["--force"]).output().unwrap());
    assert_eq!(
        replaced["bytes"].as_u64(),
        Some(MEGABYTE as u64),
        "the other files already exist: {replaced}"
    );
    let refused = gather(&servers[0], "run%207", there.path(), &[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(6), "{}", stderr_of(&refused));
    done(&gather(&servers[2], "run%207", there.path(), &["--force"]).output().unwrap());
    let deep = there.path().join("run 7/deep").metadata().unwrap().permissions().mode();
    assert_eq!(deep & 0o700, 0o700, "without --preserve, its owner can enter a folder");
    assert!(fs::read(there.path().join("run 7/large")).unwrap() == content(MEGABYTE, 4));
}

#[test]
fn sending_a_set_survives_kills() {
    let mut servers = [Server::start(), Server::start(), Server::start()];
    let here = tempfile::tempdir().unwrap();
    let (file, content) = (here.path().join("file"), content(640 * MEGABYTE + 5, 7));
    fs::write(&file, &content).unwrap();
    let pieces = |servers: &[Server]| {
        servers.iter().map(|server| server.pieces("file").len()).sum::<usize>()
    };

    // The sender is killed.
    let mut sender = spread(&file, &servers, &["--limit", "2Gb/s"]).spawn().unwrap();
    until("some pieces have arrived", || pieces(&servers) >= 3);
    sender.kill().unwrap();
    sender.wait().unwrap();
    assert!(!servers.iter().any(|server| server.has_list("file")));

    // A server is killed, and restarts after a while.
    let mut sender =
        spread(&file, &servers, &["--limit", "2Gb/s", "--retries", "100"]).spawn().unwrap();
    let mut events = BufReader::new(sender.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(events.any(|line| line.contains("\"progress\"")), "it has begun");
    servers[1].kill();
    servers[1].restart();
    let events: Vec<Value> = events.map(|line| serde_json::from_str(&line).unwrap()).collect();
    assert!(sender.wait().unwrap().success(), "{events:?}");
    let sent = events.last().unwrap();
    // One of three pieces may have been sent twice. If the sender does not learn that a piece is
    // complete, it sends the piece to another server too.
    assert!(
        sent["bytes"].as_u64().unwrap() <= (content.len() - 2 * 64 * MEGABYTE) as u64,
        "{sent}"
    );
    assert!(pieces(&servers) >= 11 && bytes_at(sent).len() == 3, "{events:?}");

    // One server is killed for good. The others get its pieces.
    let before = servers[2].pieces("file").len();
    assert!(before > 0, "{sent}");
    servers[2].kill();
    for server in &servers {
        fs::remove_file(server.folder.path().join("file.sprat-spread")).unwrap();
    }
    let output = spread(&file, &servers, &["--retries", "1"]).output().unwrap();
    let sent = done(&output);
    assert!(lines(&output).iter().any(|line| line["event"] == "without"), "{sent}");
    assert!(pieces(&servers[..2]) >= 11 && bytes_at(&sent).len() == 2, "{sent}");
    let there = here.path().join("there");
    let fetched = done(&gather(&servers[0], "file", &there, &[]).output().unwrap());
    assert!(fs::read(&there).unwrap() == content, "{fetched}");
    let hash = blake3_of(&content);
    assert_eq!(fetched["blake3"].as_str(), Some(&hash[..]), "{fetched}");
}

#[test]
fn fetching_a_set_survives_kills() {
    let mut servers = [Server::start(), Server::start()];
    let here = tempfile::tempdir().unwrap();
    let (file, content) = (here.path().join("file"), content(256 * MEGABYTE + 5, 7));
    fs::write(&file, &content).unwrap();
    done(&spread(&file, &servers, &[]).output().unwrap());
    let there = here.path().join("there");
    let far = |line: &Value, bytes: usize| {
        line["event"] == "progress" && line["done"].as_u64() > Some(bytes as u64)
    };
    let watch = |child: &mut Child, bytes: usize| {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(
            lines.into_iter().any(|line| far(&serde_json::from_str(&line).unwrap(), bytes)),
            "it got somewhere"
        );
    };
    let mut fetcher = gather(&servers[0], "file", &there, &["--limit", "300Mb/s"]).spawn().unwrap();
    // The fetcher syncs and records its progress every three seconds.
    watch(&mut fetcher, 150 * MEGABYTE);
    fetcher.kill().unwrap();
    fetcher.wait().unwrap();
    assert!(!there.exists());
    // The file is fetched from the other server, while one server is away for some time.
    let more = ["--limit", "300Mb/s", "--retries", "100", "--also", &servers[0].address];
    let mut fetcher = gather(&servers[1], "file", &there, &more).spawn().unwrap();
    watch(&mut fetcher, 170 * MEGABYTE);
    servers[0].kill();
    servers[0].restart();
    let output = fetcher.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr_of(&output));
    assert!(fs::read(&there).unwrap() == content);
    let left: Vec<_> =
        fs::read_dir(here.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");

    // Without the first server, another server has the list, but not the first server's pieces.
    fs::remove_file(&there).unwrap();
    servers[0].kill();
    let output =
        gather(&servers[0], "file", &there, &["--retries", "0", "--also", &servers[1].address])
            .output()
            .unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", stderr_of(&output));
    assert!(lines(&output).iter().any(|line| line["event"] == "without"));
}

#[test]
fn a_wrong_piece_is_detected() {
    let servers = [Server::start(), Server::start()];
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("file");
    fs::write(&file, content(130 * MEGABYTE, 7)).unwrap();
    done(&spread(&file, &servers, &[]).output().unwrap());
    // Either server may have been fast enough to receive all pieces.
    let (at, server) =
        servers.iter().find_map(|server| Some((server.pieces("file").pop()?, server))).unwrap();
    let at = server.folder.path().join("file.sprat-pieces").join(at);
    let mut bytes = fs::read(&at).unwrap();
    bytes[MEGABYTE + 1] ^= 1;
    fs::write(&at, bytes).unwrap();
    let there = here.path().join("there");
    let output = gather(&servers[1], "file", &there, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(10), "{}", stderr_of(&output));
    assert!(
        stderr_of(&output).contains("is not the piece that the list describes"),
        "{}",
        stderr_of(&output)
    );
    assert!(!there.exists());
    // A sender that sends the file again compares the stored piece with the file, and rejects it.
    let sent = done(&spread(&file, &servers, &[]).output().unwrap());
    assert!(sent["bytes"].as_u64() > Some(0), "{sent}");
    done(&gather(&servers[1], "file", &there, &[]).output().unwrap());
    assert!(fs::read(&there).unwrap() == content(130 * MEGABYTE, 7));
}

#[test]
fn contradictory_options_are_refused() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("file");
    fs::write(&file, "x").unwrap();
    let (file, folder) = (file.to_str().unwrap(), here.path().to_str().unwrap());
    let server = "sprat://127.0.0.1:1/";
    for words in [
        &["--spread", "b", file, "/tmp/x"][..],
        &["--spread", "b", server, folder],
        &["--spread", "b", folder, server],
        &["--spread", "127.0.0.1:1", file, server],
        &["--spread", "a b", file, server],
        &["--spread", "b", "--also", "c", file, server],
        &["--spread", "b", "--no-verify", file, server],
        &["--gather", file, folder],
        &["--gather", file, server],
        &["--gather", "-r", server, folder],
        &["--gather", "--no-verify", server, folder],
    ] {
        let output = sprat().arg("cp").args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr_of(&output));
    }
    // First no server answers; then a server has no list.
    let output = sprat().args(["cp", "--spread", "127.0.0.1:2", file, server]).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", stderr_of(&output));
    let one = Server::start();
    let output = gather(&one, "none", here.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr_of(&output));
}

/// Returns the hash as `b3sum` prints it, computed from the whole content by the functions of
/// [`sprat_flow::group`].
fn blake3_of(content: &[u8]) -> String {
    let values: Vec<_> = (0..sprat_flow::group::count(content.len() as u64))
        .map(|index| {
            let range = sprat_flow::group::range(content.len() as u64, index);
            let part = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            sprat_flow::group::value(content.len() as u64, index, &content[part])
        })
        .collect();
    sprat_flow::group::root(&values).iter().map(|byte| format!("{byte:02x}")).collect()
}
