//! Tests the server with unmodified programs of others.

use super::support::{Shared, content, skip};
use std::path::Path;
use std::process::{Command, Output};

/// Runs a program, if it is installed.
fn run(program: &str, arguments: &[&str], directory: &Path) -> Option<Output> {
    match Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .output()
    {
        Ok(output) => Some(output),
        Err(_) => {
            skip(&format!("{program} is not installed: share was not tried with it"));
            None
        }
    }
}

/// Returns a server, a file to fetch from it, and a directory for the file.
fn ready() -> (Shared, Vec<u8>, tempfile::TempDir) {
    let shared = Shared::new();
    let file = content((9 << 20) + 77);
    shared.write("a file.bin", &file);
    (shared, file, tempfile::tempdir().unwrap())
}

#[test]
fn curl() {
    let (shared, file, to) = ready();
    let url = shared.url("/a%20file.bin");
    let Some(output) = run("curl", &["-sSf", "-R", "-OJ", &url, "-o", "second", &url], to.path())
    else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read(to.path().join("second")).unwrap() == file);
    // The bytes that were fetched before are not fetched again.
    std::fs::write(to.path().join("part"), &file[..1_234_567]).unwrap();
    let output =
        run("curl", &["-sSf", "-C", "-", "-o", "part", "-w", "%{size_download}", &url], to.path())
            .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), (file.len() - 1_234_567).to_string());
    assert!(std::fs::read(to.path().join("part")).unwrap() == file);
    let code = |arguments: &[&str]| run("curl", arguments, to.path()).unwrap().status.code();
    assert_eq!(code(&["-sSf", "--path-as-is", &shared.url("/../secret")]), Some(22));
    // Two fetches over one connection, and one fetch with HTTP/1.0.
    let output = run("curl", &["-sSfv", "-o", "one", &url, "-o", "two", &url], to.path()).unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("Re-using existing connection"));
    assert_eq!(code(&["-sSf0", "-o", "old", &url]), Some(0));
    assert!(std::fs::read(to.path().join("old")).unwrap() == file);
    // A file that changes during the transfer does not arrive.
    std::fs::File::create(shared.path().join("large")).unwrap().set_len(8 << 30).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let large = shared.path().join("large");
            let large = std::fs::File::options().write(true).open(large).unwrap();
            let begun = (0..30_000).any(|_| {
                super::support::wait(1);
                shared.share.transfers().snapshot().0.iter().any(|live| live.path == "/large")
            });
            assert!(begun);
            large.set_len(1 << 30).unwrap();
        });
        assert_eq!(
            code(&["-sSf", "-o", "/dev/null", &shared.url("/large")]),
            Some(18),
            "curl says that the file is partial"
        );
    });
}

#[test]
fn wget() {
    let (shared, file, to) = ready();
    std::fs::create_dir(shared.path().join("sub")).unwrap();
    shared.write("sub/inner", b"inner");
    let Some(output) = run("wget", &["-q", "--no-proxy", &shared.url("/a%20file.bin")], to.path())
    else {
        return;
    };
    assert!(output.status.success());
    assert!(std::fs::read(to.path().join("a file.bin")).unwrap() == file);
    std::fs::write(to.path().join("a file.bin"), &file[..999_999]).unwrap();
    run("wget", &["-q", "-c", "--no-proxy", &shared.url("/a%20file.bin")], to.path());
    assert!(std::fs::read(to.path().join("a file.bin")).unwrap() == file);
    // wget follows the links of the pages.
    run("wget", &["-q", "-r", "-np", "-nH", "-l", "3", "--no-proxy", &shared.url("/")], to.path());
    assert_eq!(std::fs::read(to.path().join("sub/inner")).unwrap(), b"inner");
}

#[test]
fn aria2() {
    let (shared, file, to) = ready();
    let url = shared.url("/a%20file.bin");
    let arguments = ["-q", "-x", "8", "-s", "8", "-k", "1M", "--no-conf=true", "-o", "file", &url];
    let Some(output) = run("aria2c", &arguments, to.path()) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(std::fs::read(to.path().join("file")).unwrap() == file);
    let partial = shared.events.lock().unwrap().iter().filter(|event| event.status == 206).count();
    assert!(partial >= 2, "several ranges at a time");
}

#[test]
fn rclone() {
    let (shared, file, to) = ready();
    let remote = format!(":http,url='{}':", shared.url("/"));
    let Some(output) =
        run("rclone", &["--config", "/dev/null", "copy", &remote, "there"], to.path())
    else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read(to.path().join("there/a file.bin")).unwrap() == file);
}
