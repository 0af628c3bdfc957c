//! Adds a host to a lab that exists.

use super::links::Links;
use super::namespace::{self, Found};
use super::standing::{exists_already, lock_with_retries};
use super::state::{Entry, State, StateDir};
use super::{Host, HostsError, HostsPlan, Interface, MAX_HOSTS, kernel, privilege, within};
use std::fs::File;
use std::os::fd::AsFd as _;

/// Makes a host in a lab that has no running owner ([`super::LabHosts::leave`]), and connects it to
/// a switch of the lab. `switch` names the switch's host and the bridge in it. A cable leads from
/// the first interface of `host` to `port`, a new port of that bridge. The host is removed with the
/// lab.
///
/// # Errors
/// There is no such lab, its owner runs, or it is full. The host is invalid, or its name is taken.
/// Privileges are missing, or the kernel refuses a step. The parts of the host that were already
/// made are removed.
///
/// # Panics
/// The host has no interface.
pub fn join(
    lab: &str,
    dir: &StateDir,
    host: &Host,
    switch: (&str, &str),
    port: &Interface,
) -> Result<(), HostsError> {
    let (switch, bridge) = switch;
    let first = host.interfaces.first().expect("a host that a cable leads to has an interface");
    HostsPlan { name: lab.to_owned(), hosts: vec![host.clone()], cables: Vec::new() }.check()?;
    privilege::check()?;
    let Some(_lock) = lock_with_retries(dir, lab)? else { return Err(exists_already(dir, lab)) };
    let unknown = || HostsError::Unknown { lab: lab.to_owned(), path: dir.file(lab) };
    let mut state = dir.read(lab)?.ok_or_else(unknown)?;
    if state.namespace.len() == MAX_HOSTS {
        return Err(HostsError::refused(format!(
            "host.{}: join a lab of {MAX_HOSTS} hosts",
            host.name
        ))(std::io::Error::other("it is full")));
    }
    let there = open(&state, &format!("{lab}-{switch}")).ok_or_else(unknown)?;
    let name = format!("{lab}-{}", host.name);
    if namespace::is_taken(&name) {
        return Err(HostsError::Taken { path: namespace::path(&name) });
    }
    state.namespace.push(Entry { name: name.clone(), inode: None });
    dir.write(&state)?;
    let made = make(&mut state, dir, host, first, &there, bridge, port);
    if made.is_err() {
        let entry = state.namespace.pop();
        if let Some(inode) = entry.and_then(|entry| entry.inode) {
            namespace::end_processes(inode)
                .map_err(HostsError::refused(format!("empty the namespace {name}")))?;
            namespace::remove(&name)?;
        }
        dir.write(&state)?;
    }
    made
}

fn make(
    state: &mut State,
    dir: &StateDir,
    host: &Host,
    first: &Interface,
    there: &File,
    bridge: &str,
    port: &Interface,
) -> Result<(), HostsError> {
    let number = state.namespace.len() - 1;
    let name = state.namespace[number].name.clone();
    let namespace = namespace::make(&name, |inode| {
        state.namespace[number].inode = Some(inode);
        dir.write(state)
    })?;
    let refused = |what| HostsError::refused(format!("host.{}: {what}", host.name));
    within(namespace.as_fd(), || kernel::set(host)).map_err(refused("enter its namespace"))??;
    let mut links = Links::of(&namespace).map_err(refused("open netlink"))?;
    links.loopback().map_err(refused("set up lo"))?;
    links.pair(&first.name, &port.name, there).map_err(refused("make its cable"))?;
    for interface in &host.interfaces {
        links.configure(interface).map_err(refused("set up its interfaces"))?;
    }
    for route in &host.routes {
        links.add_route(route).map_err(refused("make its routes"))?;
    }
    let mut switch = Links::of(there).map_err(refused("open netlink at the switch"))?;
    switch
        .configure(port)
        .and_then(|()| switch.attach(bridge, port))
        .map_err(refused("make its cable a port"))
}

/// Opens a namespace of a lab, if it is still the one that the lab made.
fn open(state: &State, name: &str) -> Option<File> {
    let entry = state.namespace.iter().find(|entry| entry.name == name)?;
    match namespace::find(name).ok()? {
        Found::Namespace(inode) if Some(inode) == entry.inode => {
            File::open(namespace::path(name)).ok()
        }
        _ => None,
    }
}
