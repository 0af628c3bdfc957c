//! Named network namespaces, as `ip netns` makes them: a file in `/run/netns` on which the
//! namespace is mounted.

use super::HostsError;
use crate::netns::{NAMES, on_a_thread};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{AtFlags, CWD, FlockOperation, StatxAttributes, StatxFlags, flock, statx};
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// Time for processes to end after SIGTERM, before they get SIGKILL.
const GRACE: Duration = Duration::from_millis(500);

/// Limit on the time for processes to disappear after SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the path of a namespace, given its name.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(NAMES).join(name)
}

/// Returns whether a file of this name exists, even if it is not a namespace.
pub(super) fn is_taken(name: &str) -> bool {
    fs::symlink_metadata(path(name)).is_ok()
}

/// Makes a namespace and gives it a name. Before the namespace has a name, `record` is called with
/// its inode. If `record` or a step of the kernel fails, the namespace gets no name, but an empty
/// file of that name stays ([`Found::Bare`]).
///
/// # Errors
/// [`HostsError::Taken`] if the name is taken; otherwise the error of the kernel or of `record`.
pub(super) fn make(
    name: &str,
    record: impl FnOnce(u64) -> Result<(), HostsError> + Send,
) -> Result<File, HostsError> {
    let path = path(name);
    let refused = || HostsError::refused(format!("make the namespace {name}"));
    make_folder().map_err(refused())?;
    match File::options().write(true).create_new(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(HostsError::Taken { path });
        }
        file => drop(file.map_err(refused())?),
    }
    on_a_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from).map_err(refused())?;
        let own = File::open(OWN).map_err(refused())?;
        record(own.metadata().map_err(refused())?.ino())?;
        mount_bind(OWN, &path).map_err(io::Error::from).map_err(refused())?;
        Ok(own)
    })
    .map_err(refused())?
}

/// Makes the directory of names as `ip netns add` does: mounted on itself, and shared. If it were a
/// plain directory, `ip netns add` would later mount it on itself, together with all names in it.
/// Each namespace would then be mounted twice. The lower mount could not be reached, so the
/// namespace could not be removed before the next boot.
fn make_folder() -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(NAMES)?;
    let folder = File::open(NAMES)?;
    // `ip netns add` takes the same lock for the same purpose.
    flock(&folder, FlockOperation::LockExclusive)?;
    let found = statx(CWD, NAMES, AtFlags::empty(), StatxFlags::empty())?;
    if !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        mount_bind_recursive(NAMES, NAMES)?;
        mount_change(NAMES, MountPropagationFlags::SHARED | MountPropagationFlags::REC)?;
    }
    Ok(())
}

/// What a namespace's name refers to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Found {
    Nothing,
    /// A file on which no namespace is mounted, because its maker was stopped before it mounted
    /// one.
    Bare,
    Namespace(u64),
    Other,
}

pub(super) fn find(name: &str) -> io::Result<Found> {
    let file = match fs::symlink_metadata(path(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        file => file?,
    };
    // All namespaces are in one filesystem of the kernel.
    let kernel = fs::metadata(OWN)?.dev();
    Ok(match file.dev() == kernel {
        true => Found::Namespace(file.ino()),
        false if file.is_file() && file.len() == 0 => Found::Bare,
        false => Found::Other,
    })
}

/// Removes a namespace's name. The namespace disappears with its name, unless processes are still
/// in it or have it open.
pub(super) fn remove(name: &str) -> Result<(), HostsError> {
    let path = path(name);
    let refused = || HostsError::refused(format!("remove {}", path.display()));
    match unmount(&path, UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(error) => return Err(refused()(error.into())),
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(refused()),
    }
}

/// Ends all processes in the namespace with this inode, except this process: with SIGTERM, and
/// after [`GRACE`] with SIGKILL.
///
/// # Errors
/// Some processes remain, or `/proc` cannot be read.
pub(super) fn end_processes(inode: u64) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let residents = residents(inode)?;
        if residents.is_empty() {
            return Ok(());
        }
        let waited = begun.elapsed();
        if waited > GRACE + PATIENCE {
            return Err(io::Error::other(format!("processes {residents:?} do not end")));
        }
        let signal = if waited < GRACE { Signal::TERM } else { Signal::KILL };
        for pid in residents {
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            // Checks again: from now on the pidfd keeps the process number from being reused.
            if is_inside(pid, inode) {
                let _ = pidfd_send_signal(process, signal);
            }
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a control thread that waits for processes to end"
        )]
        thread::sleep(POLL_INTERVAL);
    }
}

fn residents(inode: u64) -> io::Result<Vec<Pid>> {
    let own = rustix::process::getpid();
    let numbers =
        fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let processes = numbers.filter_map(Pid::from_raw);
    Ok(processes.filter(|&pid| pid != own && is_inside(pid, inode)).collect())
}

fn is_inside(pid: Pid, inode: u64) -> bool {
    // The file does not exist for a process that has ended but was not waited for.
    fs::metadata(format!("/proc/{}/ns/net", pid.as_raw_nonzero()))
        .is_ok_and(|file| file.ino() == inode)
}
