//! The messages between the extension and the host.

use super::name::{self, MAX_NAME};
use serde::{Deserialize, Serialize};
use sprat_http::Address;

/// Limit on the length of an address, in bytes. A longer address is invalid.
pub const MAX_SOURCE: usize = 16 << 10;

/// Limit on the length of an [`Id`], in bytes. A longer id is invalid.
pub const MAX_ID: usize = 64;

/// Limit on the length of a text for the user, in characters. A longer text is cut to this length,
/// and `...` is appended.
const MAX_TEXT: usize = 4096;

/// A request from the extension.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The first message: the version of the protocol.
    Hello {
        /// The version of the protocol that the extension uses.
        protocol: u32,
    },
    /// Download a file.
    Start {
        /// The id of the download from now on.
        id: Id,
        /// The address of the file.
        source: SourceAddress,
        /// The name that the file had in an earlier attempt, to resume it. With `None` the host
        /// chooses a free name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<FileName>,
    },
    /// Find out whether a server offers the verified form of a file.
    Probe {
        /// The id that the answer will have.
        id: Id,
        /// The address of the file.
        source: SourceAddress,
    },
    /// Cancel a download.
    Cancel {
        /// The download's id.
        id: Id,
        /// Whether to remove what was received, rather than keep it for resuming.
        discard: bool,
    },
    /// Remove what was received of a cancelled download.
    Discard {
        /// The download's id.
        id: Id,
        /// The name of the download's file.
        name: FileName,
    },
    /// Open the folder of downloads.
    Show {
        /// The id that the answer will have.
        id: Id,
    },
}

impl Request {
    /// Parses a message.
    /// # Errors
    /// If the message is not a valid request, returns the reason for an error message.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| format!("not a request: {error}"))
    }

    /// Encodes the message.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings, numbers and truths are JSON")
    }
}

/// A report from the host.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Report {
    /// The first message, which identifies the host.
    Hello {
        /// The version of the protocol.
        protocol: u32,
        /// The version of the program.
        version: &'static str,
        /// The folder in which downloads are stored.
        folder: UserText,
    },
    /// A download waits for other downloads to end.
    Waiting {
        /// The id of the download.
        id: Id,
    },
    /// The source has responded.
    Opened {
        /// The id of the download.
        id: Id,
        /// The name that the file will have.
        name: FileName,
        /// Length of the file in bytes, if known.
        bytes: Option<u64>,
        /// Whether the bytes are verified as they arrive.
        verified: bool,
        /// Bytes that an earlier attempt has received.
        resumed: u64,
    },
    /// Progress of a download.
    Progress {
        /// The id of the download.
        id: Id,
        /// Bytes of the file that are complete, including the bytes from an earlier attempt.
        done: u64,
        /// Length of the file in bytes, if known.
        bytes: Option<u64>,
        /// The rate over the last two seconds, in bytes per second.
        bytes_per_second: u64,
        /// Round-trip time in microseconds; 0 if unknown.
        rtt_us: u64,
    },
    /// A message for the user.
    Note {
        /// The id of the download that the message is about.
        id: Id,
        /// The text.
        text: UserText,
    },
    /// The download is complete, and the file has its final name.
    Done {
        /// The id of the download.
        id: Id,
        /// The file's name.
        name: FileName,
        /// Length of the file in bytes.
        bytes: u64,
        /// The file's BLAKE3 hash; `None` if the file was not fetched.
        blake3: Option<String>,
        /// Whether every byte was verified on arrival.
        verified: bool,
        /// Whether the file existed already and was not fetched.
        unchanged: bool,
    },
    /// The download was cancelled.
    Stopped {
        /// The id of the download.
        id: Id,
        /// Whether the bytes that were received are removed.
        discarded: bool,
    },
    /// The download failed.
    Failed {
        /// The id of the download.
        id: Id,
        /// The reason, for programs.
        code: FailureCode,
        /// The reason, for people.
        why: UserText,
    },
    /// A request was not understood, or is not possible now.
    Refused {
        /// The id in the request. `None` if the request was not understood or has no id, or if it
        /// came before a valid `hello`.
        id: Option<Id>,
        /// Why the request was refused.
        why: UserText,
    },
    /// The answer to a probe.
    Probed {
        /// The probe's id.
        id: Id,
        /// Whether the server offers the verified form.
        verified: bool,
    },
    /// The folder is being opened.
    Shown {
        /// The id of the request.
        id: Id,
    },
}

impl Report {
    /// Encodes the message.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings, numbers and truths are JSON")
    }
}

/// Why a download failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// The request is invalid.
    Usage,
    /// There is no such file.
    NotFound,
    /// The server denies us access. It may grant access to the browser.
    Denied,
    /// The server cannot be reached, or its connections keep breaking.
    Unreachable,
    /// The server's certificate is not trusted here; the browser may trust it.
    Untrusted,
    /// The server violates the protocol.
    Protocol,
    /// The file keeps changing.
    Changed,
    /// Received bytes do not match the file's hash.
    Corrupt,
    /// A file of that name exists, or another download is writing it.
    Exists,
    /// The file cannot be written.
    Unwritable,
}

/// The id of a download or of another request: 1 to [`MAX_ID`] letters, digits and dashes, chosen
/// by the extension.
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
pub struct SourceAddress(String);

impl SourceAddress {
    /// Returns the address as received.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the parsed address.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::parse(&self.0).expect("it was read before")
    }
}

impl TryFrom<String> for SourceAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.len() > MAX_SOURCE {
            return Err(format!("an address of {} B; the longest has {MAX_SOURCE}", text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err("an address with invalid characters".to_owned());
        }
        Address::parse(&text).map_err(|error| error.to_string())?;
        Ok(Self(text))
    }
}

/// The name of a file in the folder of downloads: one that [`name::safe`] leaves unchanged.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String")]
pub struct FileName(String);

impl FileName {
    /// Makes a name safe.
    #[must_use]
    pub fn safe(name: &str) -> Self {
        Self(name::safe(name))
    }

    /// Adds a number to the name.
    #[must_use]
    pub fn numbered(&self, number: u32) -> Self {
        Self(name::numbered(&self.0, number))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for FileName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let right = text.len() <= MAX_NAME && name::safe(&text) == text;
        if right { Ok(Self(text)) } else { Err("not a valid file name".to_owned()) }
    }
}

/// A text for the user, of bounded length.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct UserText(String);

impl From<String> for UserText {
    fn from(text: String) -> Self {
        match text.char_indices().nth(MAX_TEXT) {
            Some((at, _)) => Self(text[..at].to_owned() + "..."),
            None => Self(text),
        }
    }
}

impl From<&str> for UserText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}
