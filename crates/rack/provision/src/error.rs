//! Errors of this crate.

use crate::faults::Fault;
use std::io;
use std::path::PathBuf;

/// An error of provisioning. Messages name the host, file or program, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The processor cannot run guests.
    #[error(
        "guests cannot run on this machine: user-mode Linux has no room for the registers of a \
         processor with AMX; use another machine, or --local in place of --guests"
    )]
    Amx,
    /// A program is not installed on this machine.
    #[error("there is no {program} on this machine: {mend}")]
    Missing {
        /// Name of the program.
        program: &'static str,
        /// How to install it.
        mend: &'static str,
    },
    /// A program failed.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// The program, with what it was doing.
        program: String,
        /// The program's exit status, or `not started`.
        status: String,
        /// The program's standard error, the error of its start, or the end of Ansible's output.
        output: String,
    },
    /// A file or folder could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The path of the file or folder.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Cassandra's jars are missing.
    #[error("no {jar} in {}: name the folder with Cassandra's jars", path.display())]
    Jars {
        /// The folder in which the jars were expected.
        path: PathBuf,
        /// A jar that a folder of jars must have.
        jar: &'static str,
    },
    /// A play was interrupted.
    #[error(
        "interrupted during {play}: finished tasks stay done, and the same command continues with \
         the rest (full log: {})",
        log.display()
    )]
    Interrupted {
        /// Name of the play.
        play: String,
        /// The log of the whole run.
        log: PathBuf,
    },
    /// Tasks failed on hosts.
    #[error("{}\n(full log: {})", lines(faults), log.display())]
    Hosts {
        /// The failures, each with its host.
        faults: Vec<Fault>,
        /// The log of the whole run.
        log: PathBuf,
    },
    /// An instance on the ring would get another address.
    #[error(
        "{name} is on the ring as {was}, but the description gives it {is}: addresses depend on \
         the number of servers in a chassis, and of instances on a server; add whole chassis, or \
         servers while addresses.servers has room"
    )]
    Moved {
        /// Name of the instance.
        name: String,
        /// The instance's address on the ring.
        was: std::net::IpAddr,
        /// The instance's address in the plan.
        is: std::net::IpAddr,
    },
    /// Nothing has been written to the rack's folder yet.
    #[error("{}: this rack was never set up: run `sprat rack up`", path.display())]
    Unwritten {
        /// The file that is missing.
        path: PathBuf,
    },
    /// Another run holds the rack's lock.
    #[error("{}: another run is changing this rack: wait until it ends", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// Hosts on this machine could not be made or removed.
    #[error(transparent)]
    Lab(#[from] sprat_lab::hosts::HostsError),
    /// The rack has too many servers for one machine.
    #[error("a rack on one machine has {most} servers at most, this one has {has}")]
    Servers {
        /// Number of servers in the rack.
        has: usize,
        /// The largest number of servers.
        most: usize,
    },
    /// Servers have too many disks for a virtual machine.
    #[error("a virtual machine has {most} disks at most, server.disks lists {has}")]
    Disks {
        /// Number of disks of each server.
        has: usize,
        /// The largest number of disks.
        most: usize,
    },
    /// Virtual machines do not fit into this machine's memory.
    #[error(
        "{guests} virtual machines need {least} MiB each, and a quarter of memory must stay free; \
         {available} MiB are free: describe fewer servers, or stop programs that use memory"
    )]
    Memory {
        /// Number of virtual machines to start.
        guests: usize,
        /// Free memory, in MiB.
        available: u64,
        /// Memory that each virtual machine needs, in MiB.
        least: u64,
    },
    /// The image that a virtual machine was started from is gone.
    #[error(
        "{} started from {}, which is gone: restore it, or remove the rack with `sprat rack down \
         --purge`, and its data with it",
        folder.display(),
        image.display()
    )]
    Image {
        /// Path of the image.
        image: PathBuf,
        /// Folder of the virtual machine.
        folder: PathBuf,
    },
    /// A host does not answer.
    #[error("{host} does not answer over ssh within {seconds} s: see {}", log.display())]
    Silent {
        /// Name of the host.
        host: String,
        /// How long the host had to answer, in seconds.
        seconds: u64,
        /// The log of the host's ssh server, or of its console.
        log: PathBuf,
    },
}

impl Error {
    /// Returns a function that turns an I/O error into [`Error::File`] for this path.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }
}

fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
