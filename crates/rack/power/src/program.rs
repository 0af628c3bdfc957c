//! Runs other programs with a bound on their time and output.

use crate::Cause;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Limit on the bytes that are kept of a program's standard output, and of its standard error.
/// Further bytes are read and dropped.
const MAX_OUTPUT: usize = 1 << 20;

/// Limit on the characters of standard error that an error quotes, from its beginning.
const MAX_WORDS: usize = 300;

/// Interval between checks whether a program that closed its output has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Runs a program, and returns its standard output.
///
/// # Errors
/// The program is not installed, cannot be started, exits with a status other than 0, or runs
/// longer than `time`. In the last case the program is killed with its process group.
pub(crate) fn run(name: &str, command: &mut Command, time: Duration) -> Result<String, Cause> {
    let begun = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| missing(name, &error))?;
    let (out, err) = (gather(child.stdout.take()), gather(child.stderr.take()));
    let left = || time.saturating_sub(begun.elapsed());
    let output = out.recv_timeout(left()).ok().zip(err.recv_timeout(left()).ok());
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) if output.is_some() => break status,
            Ok(_) if begun.elapsed() < time && output.is_some() => {}
            _ => {
                end(&mut child);
                return Err(Cause::Silent(format!("{}", time.as_secs_f64())));
            }
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a control thread that waits for another process"
        )]
        thread::sleep(LOOK);
    };
    let (out, err) = output.unwrap_or_default();
    if status.success() {
        return Ok(out);
    }
    let output: String = err.trim().chars().take(MAX_WORDS).collect();
    Err(Cause::Failed { program: name.to_owned(), status: status.to_string(), output })
}

/// Kills a program's process group.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Reads a pipe to its end on a thread of its own, so that the caller can stop waiting.
fn gather(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.by_ref().take(MAX_OUTPUT as u64).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut from, &mut std::io::sink());
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

fn missing(name: &str, error: &std::io::Error) -> Cause {
    if error.kind() != std::io::ErrorKind::NotFound {
        return Cause::Failed {
            program: name.to_owned(),
            status: "not started".to_owned(),
            output: error.to_string(),
        };
    }
    let remedy = match name {
        "ipmitool" => "install it (Debian: ipmitool)",
        "ssh" => "install an ssh client (Debian: openssh-client)",
        _ => "install it, or name it with its path",
    };
    Cause::Missing { program: name.to_owned(), remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, time: Duration) -> Result<String, Cause> {
        run("sh", Command::new("sh").args(["-c", script]), time)
    }

    #[test]
    fn programs_are_killed_after_their_timeout() {
        let long = Duration::from_secs(20);
        assert_eq!(shell("echo 12; echo no >&2", long), Ok("12\n".to_owned()));
        let failed = shell("echo too bad >&2; exit 3", long);
        assert!(
            matches!(&failed, Err(Cause::Failed { output, .. }) if output == "too bad"),
            "{failed:?}"
        );
        // A child process holds the output open, and is killed together with the program.
        let folder = tempfile::tempdir().expect("a folder");
        let pid = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", pid.display());
        assert_eq!(
            shell(&script, Duration::from_millis(700)),
            Err(Cause::Silent("0.7".to_owned()))
        );
        let pid: u32 =
            std::fs::read_to_string(pid).expect("it had begun").trim().parse().expect("a number");
        // The child has been killed, but the kernel may take a moment.
        let begun = Instant::now();
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while !(state().is_empty() || state().contains(") Z ")) {
            assert!(begun.elapsed() < long, "it goes on: {}", state());
            thread::yield_now();
        }
        assert!(matches!(
            run("no-such-thing", &mut Command::new("no-such-thing"), long),
            Err(Cause::Missing { .. })
        ));
    }
}
