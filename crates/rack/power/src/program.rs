//! Other programs: run to their end or until their time is up, with a bound on what they may say.

use crate::Trouble;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes that are taken of what a program says; the rest is read and dropped.
const MAX_OUTPUT: usize = 1 << 20;

/// Most bytes of last words.
const MAX_WORDS: usize = 300;

/// How often it is looked whether a program that closed its output has ended.
const LOOK: Duration = Duration::from_millis(10);

/// What a program says on its output until it ends.
///
/// # Errors
/// It is missing, fails, or its time is up; then it and all it started are ended.
pub(crate) fn run(name: &str, command: &mut Command, time: Duration) -> Result<String, Trouble> {
    let begun = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| missing(name, &error))?;
    let (out, err) = (gather(child.stdout.take()), gather(child.stderr.take()));
    let left = || time.saturating_sub(begun.elapsed());
    let said = out.recv_timeout(left()).ok().zip(err.recv_timeout(left()).ok());
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) if said.is_some() => break status,
            Ok(_) if begun.elapsed() < time && said.is_some() => {}
            _ => {
                end(&mut child);
                return Err(Trouble::Silent(format!("{}", time.as_secs_f64())));
            }
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a control thread that waits for another process"
        )]
        thread::sleep(LOOK);
    };
    let (out, err) = said.unwrap_or_default();
    if status.success() {
        return Ok(out);
    }
    let told: String = err.trim().chars().take(MAX_WORDS).collect();
    Err(Trouble::Failed { program: name.to_owned(), status: status.to_string(), told })
}

/// Ends a program and all that it started: they are a group.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Reads on a thread of its own to the end, which whoever waits may give up.
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

fn missing(name: &str, error: &std::io::Error) -> Trouble {
    if error.kind() != std::io::ErrorKind::NotFound {
        return Trouble::Failed {
            program: name.to_owned(),
            status: "not started".to_owned(),
            told: error.to_string(),
        };
    }
    let mend = match name {
        "ipmitool" => "install it (Debian: ipmitool)",
        "ssh" => "install an ssh client (Debian: openssh-client)",
        _ => "install it, or name it with its path",
    };
    Trouble::Missing { program: name.to_owned(), mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, time: Duration) -> Result<String, Trouble> {
        run("sh", Command::new("sh").args(["-c", script]), time)
    }

    #[test]
    fn a_program_that_ends_is_heard_and_one_that_does_not_is_ended() {
        let long = Duration::from_secs(20);
        assert_eq!(shell("echo 12; echo no >&2", long), Ok("12\n".to_owned()));
        let failed = shell("echo too bad >&2; exit 3", long);
        assert!(
            matches!(&failed, Err(Trouble::Failed { told, .. }) if told == "too bad"),
            "{failed:?}"
        );
        // Its child holds the output open, and is ended with it.
        let folder = tempfile::tempdir().expect("a folder");
        let pid = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", pid.display());
        assert_eq!(
            shell(&script, Duration::from_millis(700)),
            Err(Trouble::Silent("0.7".to_owned()))
        );
        let pid: u32 =
            std::fs::read_to_string(pid).expect("it had begun").trim().parse().expect("a number");
        // It was told to end; that is done when the kernel comes to it.
        let begun = Instant::now();
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while !(state().is_empty() || state().contains(") Z ")) {
            assert!(begun.elapsed() < long, "it goes on: {}", state());
            thread::yield_now();
        }
        assert!(matches!(
            run("no-such-thing", &mut Command::new("no-such-thing"), long),
            Err(Trouble::Missing { .. })
        ));
    }
}
