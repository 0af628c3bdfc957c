//! A real server of the S3 protocol, SeaweedFS.

use crate::{free_port, skip, until};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

/// A server with the empty bucket `bucket`. It ends when it is dropped.
pub struct S3Server {
    child: Child,
    /// Its URL.
    pub endpoint: String,
    /// The address at which the server shows its files without credentials.
    filer: SocketAddr,
    _directory: tempfile::TempDir,
}

impl S3Server {
    /// The id of the key that the server takes, and the secret.
    pub const KEYS: (&str, &str) = ("sprat-key-id", "sprat-secret-0123456789");

    /// Starts a server. If the program is not installed, returns `None` and records the skip.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let this = std::env::current_exe().expect("a program");
        let set_up =
            this.ancestors().map(|folder| folder.join("tools/bin/weed")).find(|path| path.exists());
        let Some(program) = set_up else {
            skip("S3: SeaweedFS is not here; scripts/setup installs it");
            return None;
        };
        let directory = tempfile::tempdir().expect("a folder");
        let config = directory.path().join("s3.json");
        let (id, secret) = Self::KEYS;
        let keys = format!(r#"{{"accessKey":"{id}","secretKey":"{secret}"}}"#);
        let identity = format!(
            r#"{{"name":"us","credentials":[{keys}],"actions":["Admin","Read","Write","List"]}}"#
        );
        let identities = format!(r#"{{"identities":[{identity}]}}"#);
        fs::write(&config, identities).expect("written");
        let ports = [(); 8].map(|()| free_port());
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
            .expect("the server starts");
        let endpoint = format!("http://127.0.0.1:{}", ports[6]);
        let filer = SocketAddr::from(([127, 0, 0, 1], ports[4]));
        let server = Self { child, endpoint, filer, _directory: directory };
        // A folder in the directory of buckets is a bucket.
        until("the S3 server has started", || {
            TcpStream::connect(("127.0.0.1", ports[6])).is_ok()
                && server.ask("POST", "/buckets/bucket/", "").starts_with("HTTP/1.1 20")
        });
        Some(server)
    }

    /// Returns the object as the server stores it. `None` if there is no such object.
    #[must_use]
    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        let answer = self.ask_bytes("GET", &format!("/buckets/bucket/{key}"), "");
        let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
        answer.starts_with(b"HTTP/1.1 200").then(|| answer[head..].to_vec())
    }

    /// Returns the server's list of unfinished uploads.
    #[must_use]
    pub fn uploads(&self) -> String {
        let listing = self.ask("GET", "/buckets/bucket/.uploads/", "Accept: application/json\r\n");
        listing.lines().filter(|line| line.contains("FullPath")).collect()
    }

    /// Sends a request to the server's file browser, with these header fields, and returns the
    /// answer.
    #[must_use]
    pub fn ask(&self, method: &str, path: &str, fields: &str) -> String {
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

impl Drop for S3Server {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it runs");
    }
}
