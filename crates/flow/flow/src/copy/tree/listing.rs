//! The listing of a folder on a server. It has a line of JSON for each entry, and a last line that
//! marks the end.

use crate::copy::answer::{FileRequest, Form};
use crate::copy::client::{Client, Reply, wrong};
use crate::copy::error::{Trouble, fault};
use crate::file::Attributes;
use serde::Deserialize;
use sprat_http::client::Body;
use sprat_http::date::time;
use sprat_http::{Address, Cancel};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Limit on the entries of a folder and all folders below it. A copy of a larger folder fails.
const MAX_ENTRIES: usize = 4_000_000;

/// Limit on the bytes of an unfinished line of a listing. The copy fails if the server sends more
/// without ending the line.
const MAX_LINE: usize = 64 << 10;

/// The media type of a listing.
const LINES: &str = "application/jsonl";

/// A line as received: an entry, or the end.
#[derive(Deserialize)]
struct Line {
    href: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    size: u64,
    mtime: Option<String>,
    mode: Option<String>,
    etag: Option<String>,
    #[serde(default)]
    end: bool,
    #[serde(default)]
    left_out: Vec<String>,
    #[serde(default)]
    hidden: u64,
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::copy) struct Entry {
    /// The percent-encoded path of the entry within the folder.
    pub(in crate::copy) href: String,
    /// The local path of the entry within the folder.
    pub(in crate::copy) path: PathBuf,
    pub(in crate::copy) is_folder: bool,
    pub(in crate::copy) bytes: u64,
    pub(in crate::copy) attributes: Attributes,
    pub(in crate::copy) tag: Option<String>,
}

/// The content of a folder.
#[derive(Debug, Default)]
pub(in crate::copy) struct Listing {
    pub(in crate::copy) entries: Vec<Entry>,
    /// Entries that the server does not offer, each a text with the quoted name and the reason.
    pub(in crate::copy) left_out: Vec<String>,
    /// The number of names that begin with a dot and are not listed.
    pub(in crate::copy) hidden: u64,
}

/// Fetches the listing of a folder. Also returns the folder's address after redirects.
pub(in crate::copy) fn fetch(
    client: &Client,
    folder: &Address,
    recursive: bool,
    cancel: &Cancel,
) -> Result<(Address, Listing), Trouble> {
    let query = if recursive { "format=jsonl&recursive=1" } else { "format=jsonl" };
    let file_request = FileRequest { form: Some(Form::Plain), ..FileRequest::default() };
    let (address, reply) = client.ask_following(
        &folder.with_path(folder.path(), Some(query)),
        &file_request,
        cancel,
    )?;
    let Reply { mut wire, head, start } = reply;
    if head.kind != LINES {
        let why = format!(
            "does not list folders as `sprat share` does: it sent {:?}; name the files one by one",
            head.kind
        );
        return Err(wrong(folder, why));
    }
    let mut body = Body::new(&mut wire, start.framing);
    let mut listing = Listing::default();
    let mut text = Vec::new();
    let mut block = vec![0; 256 << 10];
    loop {
        let count = body.fill(&mut block).map_err(|error| fault(&folder.to_string(), error))?;
        text.extend(&block[..count]);
        let mut begun = 0;
        while let Some(length) = text[begun..].iter().position(|byte| *byte == b'\n') {
            let line = &text[begun..begun + length];
            begun += length + 1;
            if listing.take(line).map_err(|why| wrong(folder, why))? {
                return Ok((address.with_path(address.path(), None), listing));
            }
        }
        text.drain(..begun);
        if text.len() > MAX_LINE {
            return Err(wrong(folder, format!("lists something in more than {MAX_LINE} B")));
        }
        if count < block.len() {
            return Err(Trouble::Transient("the listing ended in the middle".to_owned(), None));
        }
    }
}

impl Listing {
    /// Parses a line. Returns whether it is the last line.
    fn take(&mut self, line: &[u8]) -> Result<bool, String> {
        let line: Line = serde_json::from_slice(line)
            .map_err(|error| format!("its listing is malformed: {error}"))?;
        if line.end {
            self.left_out.extend(line.left_out);
            self.hidden = line.hidden;
            return Ok(true);
        }
        if self.entries.len() == MAX_ENTRIES {
            return Err(format!(
                "has more than {MAX_ENTRIES} entries; copy its folders one by one"
            ));
        }
        let href = line.href.ok_or("its listing has an entry without an address")?;
        let is_folder = line.kind.as_deref() == Some("directory");
        let Some(path) = local(href.strip_suffix('/').filter(|_| is_folder).unwrap_or(&href))
        else {
            return Err(format!("lists {href:?}, which is not a name in a folder"));
        };
        let mode = line.mode.and_then(|text| u32::from_str_radix(&text, 8).ok());
        let modified = line.mtime.as_deref().and_then(time);
        let attributes = Attributes { mode, modified, ..Attributes::default() };
        self.entries.push(Entry {
            href,
            path,
            is_folder,
            bytes: line.size,
            attributes,
            tag: line.etag,
        });
        Ok(false)
    }
}

/// Returns the name at the beginning of a text of `left_out`: `"dir/name" why`.
pub(in crate::copy) fn left_out_name(text: &str) -> Option<String> {
    let mut escaped = false;
    let end = text.strip_prefix('"')?.find(|char| {
        let is_end = char == '"' && !escaped;
        escaped = char == '\\' && !escaped;
        is_end
    })?;
    serde_json::from_str(&text[..end + 2]).ok()
}

/// Decodes the path of an address to a local path. `None` if a part of the path is not a name or
/// leads out of the folder.
pub(in crate::copy) fn local(href: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in href.split('/') {
        let name: Vec<u8> = percent_encoding::percent_decode_str(part).collect();
        if name.is_empty()
            || name == b"."
            || name == b".."
            || name.iter().any(|byte| matches!(byte, b'/' | 0))
        {
            return None;
        }
        path.push(OsStr::from_bytes(&name));
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_paths_stay_in_their_folder() {
        for (href, path) in [
            ("a/b%20c", "a/b c"),
            ("%2e%2ehidden", "..hidden"),
            ("caf%C3%A9", "café"),
            ("a%0Ab", "a\nb"),
        ] {
            assert_eq!(local(href), Some(PathBuf::from(path)));
        }
        for href in [
            "",
            "/etc/passwd",
            "..",
            "a/../b",
            "%2e%2e/x",
            "a//b",
            "a%2Fb",
            "%2Fetc",
            "a%00b",
            ".",
            "a/",
        ] {
            assert_eq!(local(href), None, "{href:?}");
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_refused() {
        let mut listing = Listing::default();
        for line in [
            "",
            "7",
            "{}",
            r#"{"kind":"file","size":1}"#,
            r#"{"href":"../x","kind":"file"}"#,
            r#"{"href":"x","size":-1}"#,
        ] {
            assert!(listing.take(line.as_bytes()).is_err(), "{line}");
        }
        let line = concat!(
            r#"{"href":"d/x","kind":"file","size":9,"mtime":"5.000000001","#,
            r#""mode":"0640","etag":"\"t\"","new":1}"#,
        );
        assert_eq!(listing.take(line.as_bytes()), Ok(false));
        assert_eq!(listing.take(br#"{"end":true,"entries":1,"left_out":["y"]}"#), Ok(true));
        let entry = &listing.entries[0];
        assert_eq!((entry.bytes, entry.attributes.mode, entry.is_folder), (9, Some(0o640), false));
        assert_eq!(listing.left_out, ["y"]);
    }
}
