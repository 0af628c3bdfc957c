//! What keeps a rack from being as its plan has it.

use crate::faults::Fault;
use std::io;
use std::path::PathBuf;

/// What went wrong, where, and the mend.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is not on this machine.
    #[error("there is no {program} on this machine: {mend}")]
    Missing {
        /// Its name.
        program: &'static str,
        /// Where it comes from.
        mend: &'static str,
    },
    /// A program failed.
    #[error("{program} failed ({status}): {told}")]
    Failed {
        /// Its name, and what it was to do.
        program: String,
        /// How it ended.
        status: String,
        /// Its last words.
        told: String,
    },
    /// A file or folder.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// No jars of Cassandra's where they were to be.
    #[error("no {agent} in {}: name the folder with Cassandra's jars", path.display())]
    Jars {
        /// Where they were to be.
        path: PathBuf,
        /// One that must be among them.
        agent: &'static str,
    },
    /// The end before its time.
    #[error(
        "ended in the middle of {play}: what was done by then stays done, and the same command goes on with the rest (all that was said: {})",
        log.display()
    )]
    Interrupted {
        /// Which play.
        play: String,
        /// Where all of it is.
        log: PathBuf,
    },
    /// Hosts that are not as they should be.
    #[error("{}\n(all that was said: {})", lines(faults), log.display())]
    Hosts {
        /// What went wrong, host by host.
        faults: Vec<Fault>,
        /// Where all of it is.
        log: PathBuf,
    },
    /// Somebody is on the ring with another address.
    #[error(
        "{name} is on the ring as {was}, and by the description it would be {is}: addresses follow from how many servers a chassis has, and \
         instances a server; add whole chassis, or servers while addresses.servers has room"
    )]
    Moved {
        /// Its name.
        name: String,
        /// Where it is.
        was: std::net::IpAddr,
        /// Where it would be.
        is: std::net::IpAddr,
    },
    /// Jars that were never brought.
    #[error("{}: nothing was brought to this rack yet: run `sprat rack up`", path.display())]
    Unwritten {
        /// What tells.
        path: PathBuf,
    },
    /// Somebody else is at it.
    #[error("{}: another run is at work on this rack: wait for it to end", path.display())]
    Busy {
        /// What tells.
        path: PathBuf,
    },
    /// Hosts on this machine.
    #[error(transparent)]
    Lab(#[from] sprat_lab::hosts::HostsError),
    /// A rack that cannot be on one machine.
    #[error("a rack on one machine has {most} servers at most, this one has {has}")]
    Servers {
        /// What it has.
        has: usize,
        /// What there may be.
        most: usize,
    },
    /// Disks that a guest cannot have.
    #[error("a guest has {most} disks at most, server.disks says {has}")]
    Disks {
        /// What it has.
        has: usize,
        /// What there may be.
        most: usize,
    },
    /// Guests that do not fit.
    #[error(
        "{guests} guests need {least} MiB each and leave a quarter of memory to others; {available} MiB are free: fewer servers, or end what has it"
    )]
    Memory {
        /// How many.
        guests: usize,
        /// What is free, MiB.
        available: u64,
        /// What each needs, MiB.
        least: u64,
    },
    /// What a guest started from is gone.
    #[error(
        "{} started from {}, which is gone: put it back, or remove the rack with `sprat rack down --purge`, and its data with it",
        folder.display(),
        image.display()
    )]
    Image {
        /// The image.
        image: PathBuf,
        /// The guest's folder.
        folder: PathBuf,
    },
    /// A host that does not answer.
    #[error("{host} does not answer over ssh within {seconds} s: {} says why", log.display())]
    Silent {
        /// Its name.
        host: String,
        /// How long it was waited for.
        seconds: u64,
        /// What its server said.
        log: PathBuf,
    },
}

impl Error {
    /// Of a file.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }
}

fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
