//! Kills either end of a transfer at random moments. Checks that the file is then either exact or
//! absent.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Environment variable that sets how many processes are killed.
const KILLS: &str = "SPRAT_KILLS";

/// Number of kills if the variable is not set.
const FEW: u64 = 6;

/// Exit code of a copy if no server answers.
const UNREACHABLE: i32 = 5;

/// The two ends of a transfer, and the file that is moved between them.
pub(crate) struct Ends<'a> {
    /// Starts a server, always at the same address, and waits until it answers.
    pub(crate) serve: &'a dyn Fn() -> Child,
    /// Starts a client that moves the file in a second or two. The argument is the number of
    /// transfers that are complete.
    pub(crate) transfer: &'a dyn Fn(u64) -> Child,
    /// The file's content, and its destination. The destination's folder contains nothing else.
    pub(crate) content: &'a [u8],
    pub(crate) to: &'a Path,
}

/// Kills a random end repeatedly, until enough processes were killed and the file arrived complete
/// at least once.
pub(crate) fn kill_either_end(ends: &Ends<'_>) {
    let kills: u64 = std::env::var(KILLS).map_or(FEW, |text| text.parse().unwrap());
    let is_whole = || fs::read(ends.to).unwrap() == ends.content;
    let mut server = (ends.serve)();
    let (mut killed, mut whole) = ([0, 0], 0);
    while killed.iter().sum::<u64>() < kills || whole == 0 {
        let mut client = (ends.transfer)(whole);
        loop {
            let done = killed.iter().sum::<u64>();
            let chance = sprat_host::random();
            if done < kills {
                wait(chance % 700);
            }
            if done >= kills || client.try_wait().unwrap().is_some() {
                let output = client.wait_with_output().unwrap();
                if output.status.code() == Some(UNREACHABLE) {
                    // The server was killed before the client's first request. The client does not
                    // know that the server will restart, and gives up.
                    client = (ends.transfer)(whole);
                    continue;
                }
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "after {killed:?} kills: {stderr}");
                assert!(is_whole(), "after {killed:?} kills");
                let folder = fs::read_dir(ends.to.parent().unwrap()).unwrap();
                let left: Vec<_> = folder.map(|entry| entry.unwrap().file_name()).collect();
                assert_eq!(left, [ends.to.file_name().unwrap()]);
                fs::remove_file(ends.to).unwrap();
                whole += 1;
                break;
            }
            if chance & 1 << 40 == 0 {
                kill(&mut server);
                server = (ends.serve)();
                killed[0] += 1;
            } else {
                kill(&mut client);
                assert!(!ends.to.exists() || is_whole(), "after {killed:?} kills");
                killed[1] += 1;
                client = (ends.transfer)(whole);
            }
        }
    }
    kill(&mut server);
    eprintln!("{} servers and {} clients killed, {whole} files whole", killed[0], killed[1]);
}

/// Spawns a client. Its standard error is kept until its end.
pub(crate) fn client(mut command: std::process::Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn wait(milliseconds: u64) {
    #[expect(clippy::disallowed_methods, reason = "the test waits for other processes")]
    std::thread::sleep(Duration::from_millis(milliseconds));
}
