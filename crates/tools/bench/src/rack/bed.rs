//! A test bed: a rack with one Cassandra instance on this machine, optionally with a limited disk
//! and memory. The benchmark removes it at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::promises::Settings;
use crate::system::own_folder;

/// Folder of the control groups that limit memory.
const MEMORY: &str = "/sys/fs/cgroup/memory";

/// The default read-ahead of a disk in KiB.
const READ_AHEAD: &str = "128";

/// Limit on the characters of a failed program's output that are reported.
const MAX_OUTPUT: usize = 2_000;

/// Disk and memory of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Size of the server's disk in bytes.
    pub(super) disk: u64,
    /// The server's memory in bytes, including the page cache of its disk.
    pub(super) memory: u64,
}

/// A loop device for a disk image. The device's read-ahead setting outlives the device, so it is
/// restored.
#[derive(Debug)]
struct Device {
    path: String,
    read_ahead: PathBuf,
    read_ahead_before: String,
}

/// A test bed. Dropping this value takes the rack down and removes everything.
#[derive(Debug)]
pub(super) struct TestBed {
    program: PathBuf,
    name: String,
    folder: TempDir,
    device: Option<Device>,
    memory: Option<PathBuf>,
    up: bool,
}

impl TestBed {
    /// Starts a rack of one server with one instance. `cassandra` is the text of the `[cassandra]`
    /// section of the rack's description.
    ///
    /// # Errors
    /// When a file cannot be written, a program such as `losetup` is missing, this machine does not
    /// allow a limit or the hosts, or the instance does not start.
    pub(super) fn new(
        settings: &Settings,
        name: &str,
        cassandra: &str,
        limits: Option<Limits>,
    ) -> Result<Self> {
        let folder = own_folder(&settings.lab.setup.data, "rack")?;
        let name = format!("{name}{}", std::process::id() % 100_000);
        let mut bed = Self {
            program: settings.program.clone(),
            name,
            folder,
            device: None,
            memory: None,
            up: false,
        };
        let memory = limits.map_or(4 << 30, |limits| limits.memory) >> 20;
        let text = format!(
            "name = \"{}\"\n[server]\ncores = 2\nmemory = \"{memory}MiB\"\ndisks = \
             [\"8GB\"]\nport-rate = \"1Gb/s\"\n\
             [chassis]\nservers = 1\n[cassandra]\nreplication = 1\n\
             java = [\"-Dcassandra.skip_wait_for_gossip_to_settle=0\", \
             \"-Dcassandra.ring_delay_ms=1000\"]\n{cassandra}\n",
            bed.name
        );
        fs::write(bed.file("rack.toml"), text)?;
        fs::create_dir(bed.file("disk"))?;
        if let Some(limits) = limits {
            bed.set_limits(limits)?;
        }
        bed.up()?;
        Ok(bed)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a disk of the given size, and a control group with the given memory.
    fn set_limits(&mut self, limits: Limits) -> Result<()> {
        let image = self.file("disk.img");
        fs::File::create(&image)?.set_len(limits.disk)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        let device =
            run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        let path = device.trim().to_owned();
        let name = path.strip_prefix("/dev/").context("losetup tells a device")?;
        let read_ahead = PathBuf::from(format!("/sys/block/{name}/queue/read_ahead_kb"));
        let read_ahead_before =
            fs::read_to_string(&read_ahead).with_context(|| read_ahead.display().to_string())?;
        let device = self.device.insert(Device { path, read_ahead, read_ahead_before });
        device.set_read_ahead(READ_AHEAD)?;
        run(Command::new("mount").arg(&device.path).arg(self.folder.path().join("disk")))?;
        let group = Path::new(MEMORY).join(format!("sprat-{}", self.name));
        fs::create_dir(&group)
            .with_context(|| format!("{}: memory cannot be limited here", group.display()))?;
        self.memory = Some(group.clone());
        let limit = group.join("memory.limit_in_bytes");
        fs::write(&limit, limits.memory.to_string()).with_context(|| limit.display().to_string())
    }

    /// Sets the read-ahead of the server's disk in KiB.
    pub(super) fn set_read_ahead(&self, kib: &str) -> Result<()> {
        self.device.as_ref().context("it has a disk of its own")?.set_read_ahead(kib)
    }

    /// Prepares the command `sprat rack WHAT` for this rack.
    pub(super) fn sprat(&self, what: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["rack", what])
            .arg(self.file("rack.toml"))
            .args(["--local", "--state"])
            .arg(self.file("disk/rack"));
        command.args(args).stdin(Stdio::null());
        command
    }

    fn up(&mut self) -> Result<()> {
        self.up = true;
        match &self.memory {
            None => run(&mut self.sprat("up", &[]))?,
            Some(group) => {
                // A shell enters the control group; its descendants are then in the group too.
                let up = self.sprat("up", &[]);
                let mut inside = Command::new("sh");
                inside.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(group);
                run(inside.arg(up.get_program()).args(up.get_args()).stdin(Stdio::null()))?
            }
        };
        Ok(())
    }

    /// Runs a load and returns its report, even if the exit code is 7 because the rate was missed.
    pub(super) fn load(&self, args: &[&str]) -> Result<Value> {
        report(&self.sprat("load", args).arg("--json").output()?)
    }

    /// Prepares a command in the namespace from which the host can be reached. `program` is an
    /// absolute path. Files that the command makes in its working directory are removed with the
    /// bed.
    pub(super) fn beside(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &format!("{}-ctl", self.name)])
            .arg(program)
            .current_dir(self.file("."));
        command
    }

    /// Returns the instance's address and its process.
    pub(super) fn instance(&self) -> Result<(String, rustix::process::Pid)> {
        let status = run(&mut self.sprat("status", &["--json"]))?;
        let status: Value = serde_json::from_str(&status)?;
        let address = status["instances"][0]["address"]
            .as_str()
            .context("an instance has an address")?
            .to_owned();
        let name = status["instances"][0]["name"].as_str().context("an instance has a name")?;
        let home = self.file("disk/rack/hosts/c0-n1/srv/cassandra").join(name);
        let pid = fs::read_to_string(home.join("run/pid"))?.trim().parse()?;
        Ok((address, rustix::process::Pid::from_raw(pid).context("a process has a number")?))
    }

    /// Returns the path of a file that is removed with the bed.
    pub(super) fn scratch(&self, name: &str) -> PathBuf {
        self.file(name)
    }
}

impl Device {
    fn set_read_ahead(&self, kib: &str) -> Result<()> {
        fs::write(&self.read_ahead, kib).with_context(|| self.read_ahead.display().to_string())
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        if self.up {
            let _ = self.sprat("down", &[]).output();
        }
        if let Some(device) = &self.device {
            let _ = Command::new("umount").arg("--lazy").arg(self.file("disk")).output();
            let _ = device.set_read_ahead(device.read_ahead_before.trim());
            let _ = Command::new("losetup").args(["--detach", &device.path]).output();
        }
        if let Some(group) = &self.memory {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Parses the report of `rack load --json`.
pub(super) fn report(output: &Output) -> Result<Value> {
    if !matches!(output.status.code(), Some(0 | 7)) {
        bail!("rack load: {}", describe(output));
    }
    let mut all: Value = serde_json::from_slice(&output.stdout).context("what rack load said")?;
    Ok(all["report"].take())
}

pub(super) fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| program.clone())?;
    if !output.status.success() {
        bail!("{program}: {}", describe(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Describes a failure: the exit status and the end of standard error.
fn describe(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let from = text.char_indices().rev().take(MAX_OUTPUT).last().map_or(0, |(at, _)| at);
    format!("{}: {}", output.status, text[from..].trim())
}
