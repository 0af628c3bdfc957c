//! Kills of either end of a transfer, at any moment: whatever happens, the file is exact, or not
//! there.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// How many processes are killed, if not as few as a test has time for.
const KILLS: &str = "SPRAT_KILLS";

/// The same where nobody says.
const FEW: u64 = 6;

/// What a copy ends with when nobody answers.
const NOBODY: i32 = 5;

/// A file's way from one end to the other.
pub(crate) struct Ends<'a> {
    /// Starts a server, and waits until it answers; always at the same address.
    pub(crate) serve: &'a dyn Fn() -> Child,
    /// Starts a client that moves the file in a second or two, so many having moved it before.
    pub(crate) transfer: &'a dyn Fn(u64) -> Child,
    /// What is moved, and the name that it gets, alone in its folder.
    pub(crate) content: &'a [u8],
    pub(crate) to: &'a Path,
}

/// Kills ends by chance until it was done often enough, and the file was whole once at least.
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
                if output.status.code() == Some(NOBODY) {
                    // Of a server that was killed before it was first asked nobody knows that it
                    // will be back.
                    client = (ends.transfer)(whole);
                    continue;
                }
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "after {killed:?} kills: {said}");
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

/// A client of the binary, with what it says kept for the end.
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
