//! Describes what a server has below its services: disks, their filesystems and a clock; and the
//! host that controls the rack.

use crate::quantity::{Bytes, Seconds};
use crate::spec::{MAX_INSTANCES, MAX_PARTS, SpecError, plain_path, value, within};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// Limit on the NTP servers of a description.
const MAX_CLOCKS: usize = 8;

/// Limit on the read-ahead of disks, in bytes (16 MiB).
const MAX_READ_AHEAD: f64 = 16.0 * 1_048_576.0;

/// Name of a server's only array, and label of its filesystem.
const ARRAY: &str = "sprat";

/// `[storage]`: which disks become filesystems. By default the disks are joined into one filesystem
/// that holds all data. With `mounts`, each instance of Cassandra gets a filesystem of its own.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Storage {
    /// Names of the disks in `/dev` or `/dev/disk/by-id`, the same on all servers. The disks of one
    /// filesystem are joined as RAID-0.
    pub disks: Vec<String>,
    /// Mount points of the filesystems for the instances on a server. `disks` are dealt out to
    /// these filesystems evenly, in order. If empty, there is one filesystem, at `provision.base`.
    #[serde(default)]
    pub mounts: Vec<String>,
    /// The type of filesystem to make.
    #[serde(default)]
    pub filesystem: Filesystem,
    /// The kernel's read-ahead in KiB; the description gives it as `read-ahead = "8KiB"`.
    #[serde(default = "eight", deserialize_with = "kibibytes")]
    pub read_ahead: u32,
    /// Serial numbers of disks whose data may be erased, as `lsblk -o NAME,SERIAL` prints them.
    #[serde(default)]
    pub erase: Vec<String>,
}

/// A type of filesystem.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Filesystem {
    /// ext4.
    #[default]
    Ext4,
    /// XFS, which needs 300 MB or more.
    Xfs,
}

impl Filesystem {
    /// Returns the kernel's name of the filesystem.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}

/// One or several disks that together become one filesystem.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Array {
    /// Name of the array, and label of its filesystem.
    pub name: String,
    /// The mount point.
    pub base: String,
    /// The disks of the array. A single disk is used without RAID.
    pub disks: Vec<String>,
}

/// `[control]`: a host that controls the rack and is not one of its servers. Servers reach the
/// outside through this host, and follow its clock unless `[clock]` names other servers.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Control {
    /// The host's address in the rack's network.
    pub address: Ipv4Addr,
    /// The port of the host's HTTP proxy. If `None`, servers reach the outside without a proxy.
    pub proxy: Option<u16>,
}

/// `[clock]`: the NTP servers that the rack's servers follow.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Clock {
    /// Names or addresses of NTP servers. If empty, servers follow the control host, or the rack's
    /// first server if there is none.
    pub servers: Vec<String>,
    /// The largest accepted offset from the followed clock.
    pub within: Seconds,
}

impl Default for Clock {
    fn default() -> Self {
        Self { servers: Vec::new(), within: Seconds(0.01) }
    }
}

impl Storage {
    /// Returns the filesystems of a server. `base` is the mount point if there is only one
    /// filesystem.
    #[must_use]
    pub fn arrays(&self, base: &str) -> Vec<Array> {
        let array = |name: String, base: &str, disks: &[String]| Array {
            name,
            base: base.to_owned(),
            disks: disks.to_vec(),
        };
        if self.mounts.is_empty() {
            return vec![array(ARRAY.to_owned(), base, &self.disks)];
        }
        let parts = self.disks.chunks(self.disks.len() / self.mounts.len());
        let each = self.mounts.iter().zip(parts).enumerate();
        each.map(|(number, (mount, disks))| array(format!("{ARRAY}{number}"), mount, disks))
            .collect()
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        within("storage.disks", self.disks.len(), 1, MAX_PARTS)?;
        within("storage.mounts", self.mounts.len(), 0, MAX_INSTANCES)?;
        for (at, mount) in self.mounts.iter().enumerate() {
            plain_path("storage.mounts", mount)?;
            let inside = |other: &String| format!("{mount}/").starts_with(&format!("{other}/"));
            if mount == "/"
                || self.mounts.iter().enumerate().any(|(other, path)| other != at && inside(path))
            {
                return Err(value(
                    "storage.mounts",
                    format!("{mount:?}"),
                    "folders, none inside another",
                ));
            }
        }
        if !self.mounts.is_empty() && !self.disks.len().is_multiple_of(self.mounts.len()) {
            let want = format!("as many for each of the {} filesystems", self.mounts.len());
            return Err(value("storage.disks", format!("{} disks", self.disks.len()), want));
        }
        within("storage.erase", self.erase.len(), 0, 1 << 16)?;
        for disk in &self.disks {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:+/".contains(c);
            if disk.is_empty()
                || disk.len() > 256
                || !disk.chars().all(plain)
                || disk.contains("..")
            {
                let want = "a name in /dev or /dev/disk/by-id, such as nvme0n1";
                return Err(value("storage.disks", format!("{disk:?}"), want));
            }
        }
        if let Some(number) =
            self.disks.iter().enumerate().find(|(at, disk)| self.disks[..*at].contains(disk))
        {
            return Err(value("storage.disks", format!("{:?} twice", number.1), "each disk once"));
        }
        if let Some(empty) =
            self.erase.iter().find(|serial| serial.trim().is_empty() || serial.len() > 256)
        {
            return Err(value("storage.erase", format!("{empty:?}"), "a disk's serial number"));
        }
        Ok(())
    }
}

impl Clock {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        within("clock.servers", self.servers.len(), 0, MAX_CLOCKS)?;
        for server in &self.servers {
            // The name becomes a line of chrony's configuration.
            let plain = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
            if server.is_empty() || server.len() > 253 || !server.chars().all(plain) {
                return Err(value(
                    "clock.servers",
                    format!("{server:?}"),
                    "names or addresses of NTP servers",
                ));
            }
        }
        match (1e-5..=1.0).contains(&self.within.0) {
            true => Ok(()),
            false => Err(value("clock.within", self.within.to_string(), "10us to 1s")),
        }
    }
}

fn eight() -> u32 {
    8
}

fn kibibytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    use serde::de::Error as _;
    let bytes = Bytes::deserialize(from)?;
    if !(4_096.0..=MAX_READ_AHEAD).contains(&bytes.0) {
        return Err(D::Error::custom(format!("{bytes}: want 4KiB to 16MiB")));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "16 MiB at most")]
    Ok((bytes.0 / 1_024.0) as u32)
}

#[cfg(test)]
mod tests {
    use crate::Spec;

    fn spec(more: &str) -> Result<Spec, String> {
        let text = format!(
            "name = \"r\"\n[server]\ncores = 1\nmemory = \"1GiB\"\nport-rate = \"1Gb/s\"\n\
             [chassis]\nservers = 2\n{more}"
        );
        Spec::from_toml(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn missing_keys_get_defaults() {
        let found = spec("[storage]\ndisks = [\"nvme0n1\", \"/dev/disk/by-id/x-1\"]\n[clock]\n")
            .expect("fine");
        let storage = found.storage.expect("given");
        assert_eq!(
            (storage.filesystem.name(), storage.read_ahead, storage.erase.len()),
            ("ext4", 8, 0)
        );
        assert!((found.clock.expect("given").within.0 - 0.01).abs() < 1e-9);
        let none = spec("").expect("fine");
        assert!(none.storage.is_none() && none.clock.is_none());
    }

    #[test]
    fn errors_name_the_invalid_value() {
        for (more, word) in [
            ("[storage]\ndisks = [\"sda\"]\nmounts = [\"data\"]", "an absolute path"),
            (
                "[storage]\ndisks = [\"sda\", \"sdb\"]\nmounts = [\"/a\", \"/a/b\"]",
                "none inside another",
            ),
            (
                "[storage]\ndisks = [\"sda\", \"sdb\", \"sdc\"]\nmounts = [\"/a\", \"/b\"]",
                "as many for each",
            ),
            ("[storage]\ndisks = [\"sda\"]\nmounts = [\"/a\"]", "one for each of the 0 instances"),
            ("[control]\naddress = \"here\"", "address"),
            ("[storage]\ndisks = []", "storage.disks"),
            ("[storage]\ndisks = [\"a b\"]", "storage.disks"),
            ("[storage]\ndisks = [\"../etc/passwd\"]", "storage.disks"),
            ("[storage]\ndisks = [\"sda\", \"sda\"]", "twice"),
            ("[storage]\ndisks = [\"sda\"]\nerase = [\" \"]", "storage.erase"),
            ("[storage]\ndisks = [\"sda\"]\nread-ahead = \"1B\"", "4KiB"),
            ("[storage]\ndisks = [\"sda\"]\nfilesystem = \"fat\"", "fat"),
            ("[storage]\ndisks = [\"sda\"]\nraid = 1", "raid"),
            ("[clock]\nservers = [\"a\\nallow all\"]", "clock.servers"),
            ("[clock]\nwithin = \"1m\"", "within"),
            ("[clock]\nwithin = \"0ms\"", "clock.within"),
        ] {
            let error = spec(more).expect_err(more);
            assert!(error.contains(word), "{more}: {error}");
        }
    }
}
