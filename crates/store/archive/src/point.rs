//! A point: one backup, described in a file of the folder.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sprat_store::coordinator::{Catalog, MetadataMemory};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One backup: the whole store at a moment.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The point's name: when it was made, such as `20261129T035521Z`.
    pub name: String,
    /// When the logs were cut, in milliseconds since 1970, by the clock of the process that made
    /// the backup.
    pub made_ms: u64,
    /// Version of Sprat that made it.
    pub sprat: String,
    /// The cluster's id, in hexadecimal.
    pub cluster: String,
    /// The cluster's catalog at that moment, as servers keep it, in base64.
    pub catalog: String,
    /// The servers that had tablets.
    pub servers: Vec<PointServer>,
    /// Bytes of segments that this backup copied; the others were there.
    pub copied_bytes: u64,
}

/// A server's log in a point.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PointServer {
    /// The server's id.
    pub id: u32,
    /// The segments of its log, by ascending ids.
    pub segments: Vec<SegmentFile>,
}

/// A segment in a folder of backups.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentFile {
    /// The segment's id in its server's log.
    pub id: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Number of entries in it, dead ones included.
    pub entries: u64,
    /// The file's BLAKE3 hash, in hexadecimal.
    pub blake3: String,
}

impl SegmentFile {
    /// Returns the name of the segment's file. Contents of the same segment that differ, because
    /// the server had dropped dead entries meanwhile, have different names.
    #[must_use]
    pub fn name(&self, server: u32) -> String {
        let hash = self.blake3.get(..16).unwrap_or_default();
        format!("{server}-{}-{hash}", self.id)
    }
}

impl Point {
    /// Returns when the point was made.
    #[must_use]
    pub fn made(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.made_ms)
    }

    /// Returns the segments, each with its server.
    pub fn segments(&self) -> impl Iterator<Item = (u32, &SegmentFile)> {
        self.servers
            .iter()
            .flat_map(|server| server.segments.iter().map(|segment| (server.id, segment)))
    }

    /// Returns the bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments().map(|(_, segment)| segment.bytes).sum()
    }

    /// Reads the catalog. The error says what is wrong with it.
    pub(crate) fn catalog(&self) -> Result<Catalog<MetadataMemory>, String> {
        let bytes = STANDARD.decode(&self.catalog).map_err(|error| error.to_string())?;
        Catalog::<MetadataMemory>::from_copy(&bytes)
    }

    /// Encodes the point: a line with the hash of what follows, and JSON.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("it has only text and numbers");
        json.push(b'\n');
        [format!("blake3 {}\n", blake3::hash(&json)).as_bytes(), &json].concat()
    }

    /// Reads a point from the bytes of its file. The error says what is wrong with them.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let line = bytes.iter().position(|&byte| byte == b'\n').ok_or("it is cut short")?;
        let (line, json) = (&bytes[..line], &bytes[line + 1..]);
        let hash = line.strip_prefix(b"blake3 ").ok_or("it does not begin with its hash")?;
        if hash != blake3::hash(json).to_hex().as_bytes() {
            return Err("its hash differs: it is damaged, or was changed".to_owned());
        }
        let point: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let is_hash =
            |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let are_valid = point.segments().all(|(_, segment)| is_hash(&segment.blake3));
        match are_valid {
            true => Ok(point),
            false => Err("a segment has no valid hash".to_owned()),
        }
    }
}

/// Formats a time in UTC, such as `2026-11-29T03:55:21Z`.
#[must_use]
pub fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Counted from 1 March of a year that is a multiple of 400, so that a leap day ends a year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, if month < 10 { month + 3 } else { month - 9 });
    let year = if month <= 2 { year + 1 } else { year };
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(at(1_795_924_521), "2026-11-29T03:55:21Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
