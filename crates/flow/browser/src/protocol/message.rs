//! The messages.

use super::name::{self, MAX_NAME};
use serde::{Deserialize, Serialize};
use sprat_http::Address;

/// Most bytes of an address.
pub const MAX_SOURCE: usize = 16 << 10;

/// Most bytes of a download's number.
pub const MAX_ID: usize = 64;

/// Most characters of a text for people.
const MAX_TEXT: usize = 4096;

/// What the extension asks for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The first: which version of the messages it speaks.
    Hello {
        /// That version.
        protocol: u32,
    },
    /// Fetch a file.
    Start {
        /// What the download is called from now on.
        id: Id,
        /// Where from.
        source: Source,
        /// The name that it had before, to go on from there; without one the host finds a name
        /// that is free.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<FileName>,
    },
    /// Say whether a server has the verified form of a file.
    Probe {
        /// What the answer is called.
        id: Id,
        /// The file.
        source: Source,
    },
    /// Stop a download.
    Cancel {
        /// Which.
        id: Id,
        /// Whether what has arrived goes too, or stays to go on from.
        discard: bool,
    },
    /// Throw away what there is of a download that was stopped.
    Discard {
        /// Which.
        id: Id,
        /// Its name.
        name: FileName,
    },
    /// Show the folder of the downloads.
    Show {
        /// What the answer is called.
        id: Id,
    },
}

impl Request {
    /// Reads a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| format!("not a request: {error}"))
    }

    /// The message.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings, numbers and truths are JSON")
    }
}

/// What the host reports.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Report {
    /// The first: who we are.
    Hello {
        /// The version of the messages.
        protocol: u32,
        /// That of the program.
        version: &'static str,
        /// Where files go.
        folder: Text,
    },
    /// A download waits for others to end.
    Waiting {
        /// Which.
        id: Id,
    },
    /// Its source has answered.
    Opened {
        /// Which.
        id: Id,
        /// What the file will be called.
        name: FileName,
        /// Its length, bytes, if that is known.
        bytes: Option<u64>,
        /// Whether it is verified on the way.
        verified: bool,
        /// Bytes that were here already.
        resumed: u64,
    },
    /// How far it is.
    Progress {
        /// Which.
        id: Id,
        /// Bytes that are here.
        done: u64,
        /// Its length, bytes, if that is known.
        bytes: Option<u64>,
        /// The rate of late.
        bytes_per_second: u64,
        /// The round-trip time, microseconds; 0 when not known.
        rtt_us: u64,
    },
    /// Something that the user should know.
    Note {
        /// About which.
        id: Id,
        /// What.
        text: Text,
    },
    /// It is whole, and has its name.
    Done {
        /// Which.
        id: Id,
        /// What the file is called.
        name: FileName,
        /// Its length, bytes.
        bytes: u64,
        /// Its BLAKE3 hash; none when it was there already.
        blake3: Option<String>,
        /// Whether it was verified on the way.
        verified: bool,
        /// Whether it was there already.
        unchanged: bool,
    },
    /// It was stopped.
    Stopped {
        /// Which.
        id: Id,
        /// Whether what had arrived is gone.
        discarded: bool,
    },
    /// It failed.
    Failed {
        /// Which.
        id: Id,
        /// Why, for programs.
        code: Code,
        /// Why, for people.
        why: Text,
    },
    /// A request was not understood, or not now.
    Refused {
        /// About which download, if that is known.
        id: Option<Id>,
        /// Why.
        why: Text,
    },
    /// The answer to a probe.
    Probed {
        /// Its name.
        id: Id,
        /// Whether the server has the verified form.
        verified: bool,
    },
    /// The folder is shown, or at least somebody was asked to.
    Shown {
        /// The request's name.
        id: Id,
    },
}

impl Report {
    /// The message.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings, numbers and truths are JSON")
    }
}

/// Why a download failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// It makes no sense to us.
    Usage,
    /// There is no such file.
    NotFound,
    /// The server does not give it to us; it may give it to the browser.
    Denied,
    /// Nobody there, or not for long enough.
    Unreachable,
    /// We do not trust the server's certificate; the browser may.
    Untrusted,
    /// The server does something that we do not understand.
    Protocol,
    /// The file keeps changing.
    Changed,
    /// What comes is not what was sent.
    Corrupt,
    /// A file of that name is there.
    Exists,
    /// It cannot be written.
    Unwritable,
}

/// What a download is called: 1 to [`MAX_ID`] letters, digits and dashes, as the extension chose
/// them.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String")]
pub struct Id(String);

impl TryFrom<String> for Id {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let right = (1..=MAX_ID).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if right {
            Ok(Self(text))
        } else {
            Err(format!("want an id of 1 to {MAX_ID} letters, digits and dashes"))
        }
    }
}

/// The address of a file on a server: `http`, `https`, `sprat` or `sprats`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String")]
pub struct Source(String);

impl Source {
    /// As it came.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Read.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::parse(&self.0).expect("it was read before")
    }
}

impl TryFrom<String> for Source {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.len() > MAX_SOURCE {
            return Err(format!("an address of {} B; the longest has {MAX_SOURCE}", text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err("an address with characters that none has".to_owned());
        }
        Address::parse(&text).map_err(|error| error.to_string())?;
        Ok(Self(text))
    }
}

/// The name of a file in the folder of the downloads: one that [`name::safe`] leaves as it is.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String")]
pub struct FileName(String);

impl FileName {
    /// A name that is made safe.
    #[must_use]
    pub fn safe(name: &str) -> Self {
        Self(name::safe(name))
    }

    /// The same with a number.
    #[must_use]
    pub fn numbered(&self, number: u32) -> Self {
        Self(name::numbered(&self.0, number))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for FileName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let right = text.len() <= MAX_NAME && name::safe(&text) == text;
        if right { Ok(Self(text)) } else { Err("not a name that files get here".to_owned()) }
    }
}

/// A text for people, of bounded length.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Text(String);

impl From<String> for Text {
    fn from(text: String) -> Self {
        match text.char_indices().nth(MAX_TEXT) {
            Some((at, _)) => Self(text[..at].to_owned() + "..."),
            None => Self(text),
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}
