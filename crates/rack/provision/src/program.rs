//! Runs other programs to their end.

use crate::Error;
use std::process::Command;

/// Runs a program to its end, and returns its output.
pub(crate) fn run(program: &str, command: &mut Command) -> Result<String, Error> {
    let ended = command.output().map_err(|error| missing(program, error))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if ended.status.success() {
        return Ok(text(&ended.stdout));
    }
    let output = text(&ended.stderr);
    Err(Error::Failed { program: program.to_owned(), status: ended.status.to_string(), output })
}

/// Describes why a program could not be started, and how to install it.
pub(crate) fn missing(program: &str, error: std::io::Error) -> Error {
    let known = [
        ("ansible-playbook", "install ansible-core, by pip or your system's packages"),
        ("ssh", "install an ssh client (Debian: openssh-client)"),
        ("ssh-keygen", "install an ssh client (Debian: openssh-client)"),
        ("tar", "install tar"),
        ("ip", "install iproute2"),
        ("linux.uml", "install User-Mode Linux (Debian: user-mode-linux)"),
        ("mmdebstrap", "install mmdebstrap"),
    ];
    let found = known.into_iter().find(|(name, _)| *name == program);
    match found.filter(|_| error.kind() == std::io::ErrorKind::NotFound) {
        Some((program, mend)) => Error::Missing { program, mend },
        None => Error::Failed {
            program: program.to_owned(),
            status: "not started".to_owned(),
            output: error.to_string(),
        },
    }
}
