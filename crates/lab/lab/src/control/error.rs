//! Errors of the control of a box.

use std::io;
use std::path::PathBuf;

/// An error of the control of a box. Each message says what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The text does not have the form of a box's name.
    #[error(
        "{0:?} is not a name of a box: use 1 to 32 of a-z, 0-9 and -, and LAB.BOX for a box of a \
         lab"
    )]
    Name(String),
    /// A box of this name is already running.
    #[error("a box called {name} runs already{}: give another --name, or end that one: sprat lab \
             ctl {name} stop", by(*process))]
    Taken {
        /// The box's name.
        name: String,
        /// The process that runs it, if known.
        process: Option<u32>,
    },
    /// The directory of the sockets is not private: it belongs to another user, other users can
    /// access it, or it is no directory.
    #[error("{} {why}: others could change boxes through it; remove it, or name another with \
         --state", path.display())]
    NotPrivate {
        /// The directory's path.
        path: PathBuf,
        /// What is wrong with the directory.
        why: &'static str,
    },
    /// No box of this name is running.
    #[error("no box {name} runs here ({}); {}", path.display(), running(running_boxes))]
    NoSuchBox {
        /// The name that was given.
        name: String,
        /// The directory in which sprat looked for the box.
        path: PathBuf,
        /// The names of the boxes that are running.
        running_boxes: Vec<String>,
    },
    /// No box is running. Contains the directory in which sprat looked.
    #[error("no box runs here ({}): start one with `sprat lab run` or `sprat lab \
             up`", .0.display())]
    NoBox(PathBuf),
    /// Several boxes are running, and no name was given, or several boxes match the name.
    #[error("several boxes run: name one of {}", .0.join(", "))]
    Several(Vec<String>),
    /// The box refuses the request, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The box is gone, or does not answer.
    #[error("box {name} does not answer ({error}): `sprat lab ls` shows those that run")]
    Lost {
        /// The box's name.
        name: String,
        /// The error of the connection.
        error: io::Error,
    },
    /// The answer cannot be decoded.
    #[error(
        "box {0} sent a response that sprat cannot parse: use the same version of sprat for both"
    )]
    Answer(String),
    /// The system refused an operation.
    #[error("{what}: {error}")]
    System {
        /// The operation that failed, and its object.
        what: String,
        /// The system's error.
        error: io::Error,
    },
}

impl ControlError {
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |error| Self::System { what, error }
    }
}

fn by(process: Option<u32>) -> String {
    process.map_or_else(String::new, |process| format!(" (process {process})"))
}

fn running(boxes: &[String]) -> String {
    match boxes {
        [] => "none does: start one with `sprat lab run` or `sprat lab up`".to_owned(),
        boxes => format!("those that do: {}", boxes.join(", ")),
    }
}
