//! Labs for users who are not root: the process moves into a user namespace in which it is root.
//!
//! The process also gets a network namespace, which is separate from the machine's network, and a
//! mount namespace with an empty `/run/netns`. All three namespaces disappear with the process and
//! its children.

use super::namespace;
use super::privilege::missing;
use super::{HostsError, StateDir};
use crate::netns::NAMES;
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    unmount,
};
use rustix::process::{getegid, geteuid};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::Path;

/// The system's directory for data of this boot, which contains `/run/netns`.
const RUN: &str = "/run";

/// If the process lacks the privileges to make hosts, moves it into namespaces of its own and
/// returns `true`. [`StateDir::usual`] stays the same. Call this before you start other threads:
/// the kernel refuses the move to a process with several threads.
///
/// # Errors
/// The kernel does not allow these namespaces to this user, or gives no privileges in them.
pub fn enter_own_namespaces() -> Result<bool, HostsError> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(false);
    }
    let missing = missing.join(" and ");
    let own = |step: &'static str| {
        let missing = missing.clone();
        move |error: io::Error| HostsError::Rootless { missing, step, error }
    };
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    StateDir::keep_usual();
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    unshare(flags).map_err(io::Error::from).map_err(own("making them"))?;
    // A user that gives up the right to set groups may map its own group.
    fs::write("/proc/self/setgroups", "deny").map_err(own("giving up groups"))?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).map_err(own("becoming root in them"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
        .map_err(own("becoming root in them"))?;
    mount_own_names().map_err(own("mounting /run/netns in them"))?;
    Ok(true)
}

/// Makes a network namespace with a name. Does nothing if the name is taken. If
/// [`enter_own_namespaces`] has returned `true`, the namespace disappears with this process and its
/// children; otherwise it stays.
///
/// # Errors
/// The namespace cannot be created or named: for example, privileges are missing.
pub fn make_own_namespace(name: &str) -> Result<(), HostsError> {
    if namespace::is_taken(name) {
        return Ok(());
    }
    namespace::make(name, |_| Ok(())).map(drop)
}

/// Gives the mount namespace an empty `/run/netns`.
fn mount_own_names() -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    if !Path::new(NAMES).is_dir() {
        replace_run()?;
    }
    mount("sprat", NAMES, "tmpfs", MountFlags::empty(), None)?;
    Ok(())
}

/// Replaces `/run` by a directory with the same content in which this process may make directories.
fn replace_run() -> io::Result<()> {
    // The new directory is prepared outside of `/run`. Only this mount namespace sees it.
    let made = Path::new("/tmp");
    mount("sprat", made, "tmpfs", MountFlags::empty(), None)?;
    for entry in fs::read_dir(RUN)? {
        let entry = entry?;
        let (from, to) = (entry.path(), made.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
            continue;
        }
        if kind.is_dir() {
            fs::create_dir(&to)?;
        } else {
            File::create(&to)?;
        }
        mount_bind_recursive(&from, &to)?;
    }
    DirBuilder::new().mode(0o755).create(made.join("netns"))?;
    mount_bind_recursive(made, RUN)?;
    unmount(made, UnmountFlags::DETACH)?;
    Ok(())
}
