//! What can go wrong with the control of a box.

use std::io;
use std::path::PathBuf;

/// An error. Each says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A name that no box can have.
    #[error(
        "{0:?} is no name of a box: use 1 to 32 of a-z, 0-9 and -, and LAB.BOX for a box of a lab"
    )]
    Name(String),
    /// A box of this name runs.
    #[error("a box called {name} runs already{}: give another --name, or end that one: sprat lab ctl {name} stop", by(*process))]
    Taken {
        /// Its name.
        name: String,
        /// Who runs it.
        process: Option<u32>,
    },
    /// The folder of the sockets is not its owner's alone.
    #[error("{} {why}: whoever enters it can change boxes; remove it, or name another with --state", path.display())]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No box of this name.
    #[error("no box {name} runs here ({}); {}", path.display(), running(running_boxes))]
    NoSuchBox {
        /// What was asked for.
        name: String,
        /// Where it was looked for.
        path: PathBuf,
        /// Those that run.
        running_boxes: Vec<String>,
    },
    /// No box at all.
    #[error("no box runs here ({}): start one with `sprat lab run` or `sprat lab up`", .0.display())]
    NoBox(PathBuf),
    /// Several boxes, and none was named.
    #[error("several boxes run: name one of {}", .0.join(", "))]
    Several(Vec<String>),
    /// The box refuses.
    #[error("{0}")]
    Refused(String),
    /// The box went away, or does not answer.
    #[error("box {name} does not answer ({error}): `sprat lab ls` shows those that run")]
    Lost {
        /// Its name.
        name: String,
        /// What the connection says.
        error: io::Error,
    },
    /// An answer that means nothing to us.
    #[error(
        "box {0} gives an answer that is not understood: use the same version of sprat for both"
    )]
    Answer(String),
    /// The system refused.
    #[error("{what}: {error}")]
    System {
        /// What was wanted, and where.
        what: String,
        /// What the system says.
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
