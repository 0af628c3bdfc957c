//! A real etcd for one test: on free loopback ports, with its data in a temporary directory.

use sprat_testing::{PATIENCE, free_port};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Attempts to start etcd: another process may take a port between the choice and etcd's start.
const TRIES: usize = 3;

/// An etcd. Killed when dropped.
pub(crate) struct EtcdProcess {
    dir: tempfile::TempDir,
    ports: (u16, u16),
    child: Option<Child>,
    /// Its client URL.
    pub(crate) url: String,
}

impl EtcdProcess {
    /// Starts an etcd. Returns `None` if etcd is not installed, and notes that the test was
    /// skipped.
    pub(crate) fn start() -> Option<Self> {
        if Command::new("etcd")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
        {
            sprat_testing::skip(
                "coordinators over etcd: there is no etcd here (scripts/setup installs it)",
            );
            return None;
        }
        for _ in 0..TRIES {
            let ports = (free_port(), free_port());
            let dir = directory();
            let mut etcd =
                Self { dir, ports, child: None, url: format!("http://127.0.0.1:{}", ports.0) };
            if etcd.begin() {
                return Some(etcd);
            }
        }
        panic!("etcd does not start");
    }

    /// Starts etcd again with the same data.
    pub(crate) fn restart(&mut self) {
        assert!(self.begin(), "etcd does not start again");
    }

    /// Kills etcd.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill(); // it may have ended
            child.wait().expect("ours");
        }
    }

    /// Returns the process id of etcd, while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns the data directory of etcd.
    pub(crate) fn data(&self) -> &Path {
        self.dir.path()
    }

    fn begin(&mut self) -> bool {
        let peer = format!("http://127.0.0.1:{}", self.ports.1);
        let mut command = Command::new("etcd");
        command
            .args(["--name", "test", "--logger", "zap", "--log-level", "error", "--data-dir"])
            .arg(self.dir.path());
        command.args(["--listen-client-urls", &self.url, "--advertise-client-urls", &self.url]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("test={peer}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("etcd runs"));
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let ended =
                self.child.as_mut().is_some_and(|child| child.try_wait().expect("ours").is_some());
            if ended {
                self.child = None;
                return false;
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports.0)).is_ok() {
                return true;
            }
            pause(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes a temporary directory, in memory if possible. On a disk, the writes of other processes can
/// delay etcd's writes beyond the tests' deadlines.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

#[expect(clippy::disallowed_methods, reason = "a test's thread is no node")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
