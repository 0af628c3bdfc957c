//! Runs the real binary as a child process, for tests.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod kills;
pub(crate) mod racks;
pub(crate) mod small;

pub(crate) use sprat_testing::{PATIENCE, free_port, skip};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Locators of a coordinator and of servers. The kernel chooses the ports.
pub(crate) const COORDINATOR: &str = "tcp:host=127.0.0.1,port=0";
pub(crate) const UDP: &str = "fast+udp:host=127.0.0.1,port=0";
pub(crate) const TCP: &str = "tcp:host=127.0.0.1,port=0";

/// Takes the lock of the tests that spin on cores or partition clusters. Two of them at a time
/// would take cores from each other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an address that is free now, and remains free while its server is away.
pub(crate) fn address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// Returns a command of the binary without the settings in the caller's environment.
pub(crate) fn sprat() -> Command {
    without_settings(Command::new(env!("CARGO_BIN_EXE_sprat")))
}

/// The beginning of a command that runs the rest before programs of usual priority, which needs
/// root: busy test machines held servers back until their coordinator took them for dead.
pub(crate) const BEFORE_OTHERS: [&str; 3] = ["nice", "-n", "-10"];

/// Returns a command as [`sprat`] does, for a coordinator or a server with replicas. It runs
/// [before others](BEFORE_OTHERS), if this user may start it so.
pub(crate) fn leased_sprat() -> Command {
    if !rustix::process::geteuid().is_root() {
        return sprat();
    }
    let mut command = Command::new(BEFORE_OTHERS[0]);
    command.args(&BEFORE_OTHERS[1..]).arg(env!("CARGO_BIN_EXE_sprat"));
    without_settings(command)
}

fn without_settings(mut command: Command) -> Command {
    command.env_remove("SPRAT_COORDINATOR").env_remove("SPRAT_LOCAL").env_remove("SPRAT_LAB_STATE");
    command.env_remove("SPRAT_IDENTITY").env_remove("SPRAT_RACK");
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// The result of a finished command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl CommandResult {
    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.stdout).expect("text")
    }

    /// Returns the standard output. Panics unless the command succeeded.
    #[track_caller]
    pub(crate) fn ok(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.text()
    }
}

/// Runs the binary and waits until it exits.
pub(crate) fn run(args: &[&str]) -> CommandResult {
    run_with(args, b"")
}

/// Runs the binary with `input` on its standard input, and waits until it exits.
pub(crate) fn run_with(args: &[&str], input: &[u8]) -> CommandResult {
    let mut child = sprat()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    // The command may exit without reading all input. The broken pipe is then no error.
    let feed = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("it ends");
    feed.join().expect("no panic");
    CommandResult {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).expect("messages are text"),
    }
}

/// A running `sprat server`. Dropping this value kills it.
pub(crate) struct ServerProcess {
    child: Child,
    lines: Receiver<String>,
    /// The server's standard error up to the line that says that it is ready.
    pub(crate) startup_log: String,
    /// Locators of its coordinator and of the server itself.
    pub(crate) coordinator: String,
    pub(crate) listen: String,
}

impl ServerProcess {
    /// Starts a server and waits until it is ready. Without `-C` in `flags`, the server also runs a
    /// coordinator.
    ///
    /// # Errors
    /// The server's standard error and exit status, if it ended instead.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Result<Self, String> {
        let mut server = Self::spawn(data, flags);
        server.wait_ready().map(|()| server)
    }

    /// Starts the server through another program, such as `ip netns exec`, which then runs the
    /// command that follows its own arguments in the same process. Waits until the server is ready.
    ///
    /// # Errors
    /// For the reasons of [`start`](Self::start).
    pub(crate) fn start_within(
        program: &[&str],
        data: &Path,
        flags: &[&str],
    ) -> Result<Self, String> {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(env!("CARGO_BIN_EXE_sprat"));
        let mut server = Self::spawn_command(without_settings(command), data, flags);
        server.wait_ready().map(|()| server)
    }

    /// Starts a server and does not wait.
    pub(crate) fn spawn(data: &Path, flags: &[&str]) -> Self {
        let command = if flags.contains(&"-r") { leased_sprat() } else { sprat() };
        Self::spawn_command(command, data, flags)
    }

    fn spawn_command(mut command: Command, data: &Path, flags: &[&str]) -> Self {
        let given = |flag: &str| flags.contains(&flag);
        command.arg("server").arg("--data").arg(data);
        if !given("-C") {
            command.args(["-C", COORDINATOR, "--with-coordinator"]);
        }
        if !given("-L") {
            command.args(["-L", UDP]);
        }
        if flags.iter().any(|flag| flag.starts_with("fast+dpdk:")) && !given("--identity") {
            command.arg("--insecure"); // DPDK devices of tests are on private networks
        }
        if !given("--metrics") {
            command.args(["--metrics", "none"]);
        }
        command.args(flags).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let stderr = child.stderr.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            lines,
            startup_log: String::new(),
            coordinator: String::new(),
            listen: String::new(),
        }
    }

    /// Waits until the server is ready.
    ///
    /// # Errors
    /// The server's standard error and exit status, if it ended instead.
    pub(crate) fn wait_ready(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.startup_log += &line;
                    self.startup_log.push('\n');
                    let Some(rest) = line.strip_prefix("sprat: ready at ") else { continue };
                    let mut parts = rest.split("; ");
                    self.listen = parts.next().unwrap_or_default().to_owned();
                    let coordinator =
                        parts.next().and_then(|part| part.strip_prefix("coordinator at "));
                    self.coordinator = coordinator.expect("the line names both").to_owned();
                    return Ok(());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().expect("ours");
                    return Err(format!("{}{status}", self.startup_log));
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("neither ready nor ended; it said: {}", self.startup_log)
                }
            }
        }
    }

    /// Returns what the server has written to standard error since the last call. After the server
    /// has ended, returns all that remains.
    pub(crate) fn new_stderr(&mut self) -> String {
        let mut text = String::new();
        while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(100)) {
            text += &line;
            text.push('\n');
        }
        text
    }

    /// Kills the server with `SIGKILL`, and waits for its end.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().expect("ours");
    }

    /// Returns the server's process id.
    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Sends the server a signal. After `STOP` the server is stopped.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("it runs");
        if signal == rustix::process::Signal::STOP {
            sprat_testing::until_stopped(self.child.id());
        }
    }

    /// Interrupts the server, as Ctrl-C does, and waits for its end.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::INT);
        self.child.wait().expect("ours")
    }

    /// Returns whether the server still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("ours").is_none()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server said: {}", self.new_stderr());
        }
    }
}

/// Reads a whole file.
pub(crate) fn read_all(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .expect("it can be read");
    bytes
}

/// Runs `ip` in this thread's network namespace.
pub(crate) fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// Writes rows of float64 in the format of `numpy.save`.
pub(crate) fn save(path: &Path, columns: usize, numbers: &[f64]) {
    let shape = format!("({}, {columns})", numbers.len() / columns);
    let mut header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}");
    header.extend(std::iter::repeat_n(' ', 117 - header.len()));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(header.bytes());
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    std::fs::write(path, bytes).unwrap();
}
