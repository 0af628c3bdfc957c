//! A lab of a user who is not root: in a user namespace of its own, in which that user is.
//!
//! With it come a network namespace, so that nothing is of the machine's network, and a mount
//! namespace, in which `/run/netns` is empty and ours. All three go with the process and what runs
//! in it.

use super::namespace;
use super::privilege::missing;
use super::{Error, StateDir};
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

/// Where a system keeps what is of this run of it; the folder of the names of namespaces is in it.
const RUN: &str = "/run";

/// Moves this process into namespaces of its own if it lacks the rights to make hosts, and says
/// whether it did. [`StateDir::usual`] stays what it was before. Call it before there are other
/// threads: the kernel refuses it to a process that has some.
///
/// # Errors
/// The kernel lets this user have none, or gives no rights in them.
pub fn enter_own() -> Result<bool, Error> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(false);
    }
    let missing = missing.join(" and ");
    let own = |step: &'static str| {
        let missing = missing.clone();
        move |error: io::Error| Error::Rootless { missing, step, error }
    };
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    StateDir::keep_usual();
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    unshare(flags).map_err(io::Error::from).map_err(own("making them"))?;
    // Whoever may not set groups may map its own.
    fs::write("/proc/self/setgroups", "deny").map_err(own("giving up groups"))?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).map_err(own("becoming root in them"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
        .map_err(own("becoming root in them"))?;
    own_names().map_err(own("mounting /run/netns in them"))?;
    Ok(true)
}

/// Makes a network namespace that goes with this process, unless there is one of the name.
///
/// # Errors
/// What the kernel refuses.
pub fn make_own(name: &str) -> Result<(), Error> {
    if namespace::is_taken(name) {
        return Ok(());
    }
    namespace::make(name, |_| Ok(())).map(drop)
}

/// Gives the mount namespace a folder of names of its own.
fn own_names() -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    if !Path::new(NAMES).is_dir() {
        own_run()?;
    }
    mount("sprat", NAMES, "tmpfs", MountFlags::empty(), None)?;
    Ok(())
}

/// Puts a folder in the place of `/run` that has all that is there, and where we may make others.
fn own_run() -> io::Result<()> {
    // Any folder that is not below it will do to prepare it in: nothing there is seen but by us.
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
