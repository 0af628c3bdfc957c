//! Machines for a test. Each is a network namespace with an interface. A router between them can
//! lose packets in one direction. Dropping the network removes them.

use crate::partitions::support::{ip, skip};
use sprat_lab::hosts::{
    Cable, CableEnd, Host, HostsPlan, Interface, LabHosts, Route, StateDir, missing_privileges,
    within,
};
use std::fs::File;
use std::os::fd::AsFd as _;

/// Index of the router among the hosts.
const ROUTER: usize = 0;

/// Limit on the bytes of a packet.
const MTU: u32 = 1_500;

/// A network. Dropping this value removes it.
pub(crate) struct Network {
    standing: LabHosts,
    lab: String,
    _state: tempfile::TempDir,
}

impl Network {
    /// Makes a router, and machines with these names. If this machine does not allow it, returns
    /// `None` and prints why.
    pub(crate) fn make(test: &str, machines: &[String]) -> Option<Self> {
        let missing = missing_privileges();
        if !missing.is_empty() {
            skip(&format!("clusters in network namespaces: needs {}", missing.join(" and ")));
            return None;
        }
        let state = tempfile::tempdir().expect("a directory");
        let lab = format!("p{}-{test}", std::process::id());
        let mut router = Host { name: "router".to_owned(), ..Host::default() };
        router.sysctls.insert("ipv4.ip_forward".to_owned(), "1".to_owned());
        let (mut hosts, mut cables) = (vec![router], Vec::new());
        let interface = |name: String, address: String| Interface {
            name,
            addresses: vec![format!("{address}/24").parse().expect("an address")],
            mtu: MTU,
        };
        for (number, name) in (1..).zip(machines) {
            let port = format!("e{number}");
            hosts[ROUTER].interfaces.push(interface(port.clone(), format!("10.97.{number}.1")));
            hosts.push(Host {
                name: name.clone(),
                interfaces: vec![interface("eth0".to_owned(), address(number))],
                routes: vec![Route {
                    to: "0.0.0.0/0".parse().expect("a network"),
                    via: format!("10.97.{number}.1").parse().expect("an address"),
                }],
                ..Host::default()
            });
            let end = |host, interface| CableEnd { host, interface };
            cables.push(Cable { ends: [end(ROUTER, port), end(number, "eth0".to_owned())] });
        }
        let plan = HostsPlan { name: lab.clone(), hosts, cables };
        let mut standing =
            LabHosts::make(plan, &StateDir::at(state.path().join("labs"))).expect("a lab");
        standing.configure().expect("interfaces");
        Some(Self { standing, lab, _state: state })
    }

    /// Returns a machine's name in `ip netns`.
    pub(crate) fn namespace(&self, machine: usize) -> String {
        format!("{}-{}", self.lab, self.standing.plan().hosts[machine].name)
    }

    /// Returns a handle that runs code on a machine.
    pub(crate) fn handle(&self, machine: usize) -> NamespaceHandle {
        NamespaceHandle(self.standing.namespace(machine).try_clone().expect("a descriptor"))
    }

    /// Puts a machine's cable back if `in_it`, otherwise pulls it.
    pub(crate) fn plug(&self, machine: usize, in_it: bool) {
        let (port, state) = (format!("e{machine}"), if in_it { "up" } else { "down" });
        ip(&["-n", &self.namespace(ROUTER), "link", "set", &port, state]).expect("it is ours");
    }

    /// If `cut`, loses all packets from one machine to another; otherwise stops losing them.
    /// Packets in the other direction are not affected.
    pub(crate) fn cut(&self, from: usize, to: usize, cut: bool) {
        let (word, router) = (if cut { "add" } else { "delete" }, self.namespace(ROUTER));
        ip(&["-n", &router, "rule", word, "from", &address(from), "to", &address(to), "blackhole"])
            .expect("a rule");
    }
}

/// A handle of a machine's network namespace.
pub(crate) struct NamespaceHandle(File);

impl NamespaceHandle {
    /// Runs `work` in the namespace, on a separate thread.
    pub(crate) fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        within(self.0.as_fd(), work).expect("its namespace can be entered")
    }
}

/// Returns a machine's address. Machines are numbered from 1.
pub(crate) fn address(machine: usize) -> String {
    format!("10.97.{machine}.2")
}
