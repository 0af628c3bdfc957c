//! Runs hosts as guests: virtual machines with kernels of their own. They use User-Mode Linux, a
//! kernel that runs as a process, with systemd, disks, a clock and an ssh server.
//!
//! A guest's folder has all its state: changes to the image (`root-*.cow`), a sparse file for each
//! disk, and the console's log. The guest's network card is the end of a cable in its namespace;
//! the namespace itself has no address on that cable.

use crate::program::{missing, run};
use crate::{Error, Folder};
use sprat_plan::Plan;
use sprat_rack::Host;
use std::fs::{self, File};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Limit on the guests of a rack on one machine.
pub(crate) const MAX_GUESTS: usize = 16;

/// Limit on the disks of a guest, not counting its root disk: the kernel supports eight in all, and
/// one carries the guest's identity.
pub(crate) const MAX_DISKS: usize = 6;

/// Lower and upper limit of a guest's memory in MiB. Between the limits, a guest has the memory
/// that the plan gives the server, or less if three quarters of this machine's free memory do not
/// suffice for all guests.
const LEAST_MEMORY: u64 = 192;
const MOST_MEMORY: u64 = 2_048;

/// The kernel's program, as Debian names it.
const KERNEL: &str = "linux.uml";

/// The script that makes the image, and the first program that a guest runs.
const IMAGE: &str = include_str!("../../../../deploy/guests/image");
const INIT: &str = include_str!("../../../../deploy/guests/init");

/// Returns whether this processor has AMX. The kernel of the guests has too little room for the
/// registers of such a processor, and panics when it starts its first program.
#[must_use]
pub fn has_amx() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" amx_tile"))
}

/// Starts the guests of a rack.
#[derive(Clone, Debug)]
pub(crate) struct Guests {
    /// The folder of images, which all racks share.
    images: PathBuf,
}

impl Guests {
    pub(crate) fn new(images: PathBuf) -> Self {
        Self { images }
    }

    /// Returns the image for new guests. If there is no image for this kernel and these scripts
    /// yet, makes one, which takes one or two minutes.
    pub(crate) fn image(&self) -> Result<PathBuf, Error> {
        if has_amx() {
            return Err(Error::Amx);
        }
        let version = run(KERNEL, Command::new(KERNEL).arg("--version"))?;
        let mark = crate::folder::checksum(format!("{version}\n{IMAGE}\n{INIT}").as_bytes());
        let image = self.images.join(format!("guest-{version}-{mark:08x}.ext4"));
        fs::create_dir_all(&self.images).map_err(Error::file(&self.images))?;
        let path = self.images.join("lock");
        let lock = File::create(&path).map_err(Error::file(&path))?;
        lock.lock().map_err(Error::file(&path))?; // another run may be making the image
        if image.exists() {
            return Ok(image);
        }
        let [script, init, made] =
            ["image.sh", "guest-init", "new.ext4"].map(|name| self.images.join(name));
        for (path, text) in [(&script, IMAGE), (&init, INIT)] {
            fs::write(path, text).map_err(Error::file(path))?;
        }
        // This fails with a clear error if the program is missing.
        run("mmdebstrap", Command::new("mmdebstrap").arg("--version"))?;
        run("making the guests' image", Command::new("sh").arg(&script).arg(&made).arg(&init))?;
        fs::rename(&made, &image).map_err(Error::file(&image))?;
        Ok(image)
    }

    /// Returns the memory in MiB that each of `guests` guests gets.
    pub(crate) fn memory(plan: &Plan, guests: usize) -> Result<u64, Error> {
        let available = sprat_host::memory("MemAvailable").unwrap_or(0);
        share(plan.spec.server.memory.0, available >> 20, guests)
    }

    /// Starts a guest in its namespace.
    pub(crate) fn start(&self, rack: &Folder, start: &Start<'_>) -> Result<(), Error> {
        let Start { plan, host, folder, prefix, memory } = *start;
        let image = self.of(folder)?;
        let key =
            image.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // The names are relative to the guest's folder, because the kernel accepts neither spaces
        // nor colons.
        let base = folder.join("base.ext4");
        let _ = fs::remove_file(&base);
        symlink(&image, &base).map_err(Error::file(&base))?;
        let config = folder.join("config.tar");
        identity(rack, folder, host, prefix, &config)?;
        let address = folder.join("address");
        fs::write(&address, host.address.0.to_string()).map_err(Error::file(&address))?;
        let _ = fs::remove_dir_all(folder.join("uml")); // a guest that was killed leaves this
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &format!("{}-{}", plan.spec.name, host.name),
            "setsid",
            KERNEL,
        ]);
        command.arg(format!("mem={memory}M")).arg(format!("ubd0=root-{key}.cow,base.ext4"));
        command.args(["root=/dev/ubda", "rw", "init=/usr/sbin/guest-init"]);
        for (number, size) in plan.spec.server.disks.iter().enumerate() {
            let disk = format!("disk{}", number + 1);
            sparse(&folder.join(&disk), size.0)?;
            command.arg(format!("ubd{}={disk},,{}", number + 1, serial(&host.name, number)));
        }
        let last = plan.spec.server.disks.len() + 1;
        let letter = char::from(b'a' + u8::try_from(last).unwrap_or(u8::MAX - b'a'));
        command.arg(format!("ubd{last}r=config.tar")).arg(format!("guest=/dev/ubd{letter}"));
        command
            .arg(format!("vec0:transport=raw,ifname=eth0,gro=1,mac={}", hardware(host.address.0)));
        command.args([
            "con=null",
            "con0=null,fd:1",
            "umid=guest",
            "uml_dir=uml",
            "selinux=0",
            "net.ifnames=0",
        ]);
        let log = folder.join("console.log");
        let open = || {
            File::options()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(&log)
                .map_err(Error::file(&log))
        };
        command.current_dir(folder).stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        // The guest ends with its namespace.
        command.spawn().map(drop).map_err(|error| missing("ip", error))
    }

    /// Returns the image of a guest: the image from which it was first started, or the newest image
    /// for a new guest.
    fn of(&self, folder: &Path) -> Result<PathBuf, Error> {
        let names = fs::read_dir(folder)
            .map_err(Error::file(folder))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let started = names
            .filter_map(|name| Some(name.strip_prefix("root-")?.strip_suffix(".cow")?.to_owned()))
            .next();
        let Some(started) = started else { return self.image() };
        let image = self.images.join(format!("{started}.ext4"));
        match image.exists() {
            true => Ok(image),
            false => Err(Error::Image { image, folder: folder.to_owned() }),
        }
    }
}

/// The parameters with which a guest is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) host: &'a Host,
    pub(crate) folder: &'a Path,
    /// Prefix length of the network.
    pub(crate) prefix: u8,
    /// Memory in MiB.
    pub(crate) memory: u64,
}

/// Returns the serial number of a guest's disk.
fn serial(host: &str, number: usize) -> String {
    format!("{host}-d{}", number + 1)
}

/// Returns the memory in MiB that each guest gets of the `available` MiB, if the plan gives it
/// `wanted` bytes. A quarter stays free for other programs. Fails if a guest would get less than
/// [`LEAST_MEMORY`].
fn share(wanted: f64, available: u64, guests: usize) -> Result<u64, Error> {
    let most = available * 3 / 4 / u64::try_from(guests.max(1)).unwrap_or(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float is cut to what there may be"
    )]
    let wanted = (wanted / f64::from(1 << 20)) as u64;
    match wanted.clamp(LEAST_MEMORY, MOST_MEMORY).min(most) {
        memory if memory < LEAST_MEMORY => {
            Err(Error::Memory { guests, available, least: LEAST_MEMORY })
        }
        memory => Ok(memory),
    }
}

/// Returns a guest's MAC address, which depends on its IP address.
fn hardware(address: IpAddr) -> String {
    let bytes = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => [12, 13, 14, 15].map(|at| address.octets()[at]),
    };
    let [a, b, c, d] = bytes;
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Creates a sparse file of this size, rounded down to whole 4 KiB, unless the file exists.
fn sparse(path: &Path, bytes: f64) -> Result<(), Error> {
    if path.exists() {
        return Ok(());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a plan's disks are far below it"
    )]
    let bytes = (bytes as u64) / 4_096 * 4_096;
    let file = File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::file(path))?;
    file.set_len(bytes).map_err(Error::file(path))
}

/// Packs a guest's identity into a file: its name, address and keys.
fn identity(
    rack: &Folder,
    folder: &Path,
    host: &Host,
    prefix: u8,
    archive: &Path,
) -> Result<(), Error> {
    let root = folder.join("config");
    let read =
        |name: &str| fs::read_to_string(rack.file(name)).map_err(Error::file(rack.file(name)));
    let files = [
        ("etc/hostname", format!("{}\n", host.name), 0o644),
        ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n".to_owned(), 0o644),
        (
            "etc/systemd/network/10-rack.network",
            format!(
                "[Match]\nName=vec0\n\n[Network]\nAddress={}/{prefix}\nLinkLocalAddressing=no\n",
                host.address.0
            ),
            0o644,
        ),
        ("etc/ssh/ssh_host_ed25519_key", read("host_key")?, 0o600),
        (
            "etc/ssh/sshd_config.d/rack.conf",
            "UseDNS no\nMaxSessions 64\nMaxStartups 64\n".to_owned(),
            0o644,
        ),
        ("root/.ssh/authorized_keys", read("authorized_keys")?, 0o600),
    ];
    for (name, text, mode) in files {
        let path = root.join(name);
        let parent = path.parent().unwrap_or(&root);
        fs::create_dir_all(parent).map_err(Error::file(parent))?;
        fs::write(&path, text).map_err(Error::file(&path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(Error::file(&path))?;
    }
    let mut tar = Command::new("tar");
    tar.args(["--create", "--owner=0", "--group=0", "--file"])
        .arg(archive)
        .arg("--directory")
        .arg(&root);
    run("tar", tar.args(["etc", "root/.ssh"])).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_and_bounded() {
        let gib = f64::from(1 << 30);
        assert_eq!(share(gib, 16_000, 2).expect("enough"), 1_024);
        assert_eq!(share(64.0 * gib, 16_000, 2).expect("enough"), MOST_MEMORY);
        assert_eq!(share(64.0 * gib, 4_000, 6).expect("enough"), 500);
        assert_eq!(share(1.0, 16_000, 2).expect("enough"), LEAST_MEMORY);
        assert!(matches!(
            share(gib, 1_000, 4),
            Err(Error::Memory { guests: 4, available: 1_000, .. })
        ));
    }

    #[test]
    fn mac_addresses_and_serial_numbers_are_distinct() {
        assert_eq!(hardware("10.1.2.255".parse().expect("an address")), "02:00:0a:01:02:ff");
        assert_eq!(hardware("fd00::a:ff".parse().expect("an address")), "02:00:00:0a:00:ff");
        assert_eq!(serial("c0-n2", 0), "c0-n2-d1");
    }
}
