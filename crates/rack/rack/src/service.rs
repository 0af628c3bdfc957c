//! Services of etcd and of Sprat: coordinators, storage servers, and the files in their folders.

use crate::instance::File;
use sprat_plan::Plan;
use sprat_plan::layout::Layout;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Ports of etcd: the first for clients, the second for the other members.
const ETCD_PORT: u16 = 2379;
const ETCD_PEER_PORT: u16 = 2380;

/// Ports: the first for coordinators, the second for storage servers.
const COORDINATOR_PORT: u16 = 11100;
const STORE_PORT: u16 = 11101;

/// Kinds of services in the order in which they start: each needs the earlier ones.
pub const KINDS: [&str; 3] = ["etcd", "coordinator", "store"];

/// One service on a host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Service {
    /// The service's name: the host's name and the kind.
    pub name: String,
    /// The service's kind, one of [`KINDS`].
    pub kind: &'static str,
    /// The host's address.
    pub address: IpAddr,
    /// The service's folder on the host.
    pub home: PathBuf,
    /// Path of the service's program on the host.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Addresses at which the service listens over TCP. The first one of etcd also answers health
    /// checks.
    pub ports: Vec<String>,
}

impl Service {
    /// Returns the files of the service. Its identity `conf/server.id`, if it has one, is not among
    /// them.
    #[must_use]
    pub fn files(&self) -> Vec<File> {
        let file = |path, text: String| File { path, program: false, text };
        let lines = |all: &[String]| all.iter().map(|line| format!("{line}\n")).collect();
        vec![
            file("conf/program", format!("{}\n", self.program.display())),
            file("conf/arguments", lines(&self.arguments)),
            file("conf/ports", lines(&self.ports)),
            file("kind", include_str!("../files/program").to_owned()),
            File {
                path: "instance",
                program: true,
                text: include_str!("../files/instance").to_owned(),
            },
        ]
    }

    /// Returns whether the service proves its identity to others with `conf/server.id`.
    #[must_use]
    pub fn has_identity(&self) -> bool {
        self.kind != "etcd"
    }
}

/// Returns the locators of a plan's coordinators, as `sprat -C` takes them.
#[must_use]
pub fn coordinators(plan: &Plan) -> String {
    let layout = plan.layout();
    let locator =
        |server: &usize| locator("tcp", own_address(plan, &layout, *server), COORDINATOR_PORT);
    plan.services.coordinators.iter().map(locator).collect::<Vec<_>>().join(",")
}

/// Returns the services on one server, by its number.
pub(crate) fn services_on(plan: &Plan, layout: &Layout<'_>, server: usize) -> Vec<Service> {
    let services = &plan.services;
    let (address, base) = (own_address(plan, layout, server), Path::new(&plan.spec.provision.base));
    let host =
        layout.server(server / plan.spec.chassis.servers, server % plan.spec.chassis.servers).name;
    let service = |kind: &'static str, program: PathBuf, ports: &[u16]| {
        let name = format!("{host}-{kind}");
        let home = base.join(kind).join(&name);
        let ports = ports.iter().map(|port| socket_address(address, *port)).collect();
        Service { name, kind, address, home, program, arguments: Vec::new(), ports }
    };
    let mut all = Vec::new();
    let etcd = |port: u16, server: &usize| {
        format!("http://{}", socket_address(own_address(plan, layout, *server), port))
    };
    if services.etcd.contains(&server) {
        let given = plan.spec.etcd.as_ref().is_some_and(|etcd| etcd.program.is_some());
        let program = if given { base.join("bin/etcd") } else { PathBuf::from("/usr/bin/etcd") };
        let mut one = service("etcd", program, &[ETCD_PORT, ETCD_PEER_PORT]);
        let name = |server: &usize| format!("m{server}={}", etcd(ETCD_PEER_PORT, server));
        let members: Vec<String> = services.etcd.iter().map(name).collect();
        one.arguments = vec![
            format!("--name=m{server}"),
            format!("--data-dir={}/data", one.home.display()),
            format!("--listen-client-urls={}", etcd(ETCD_PORT, &server)),
            format!("--advertise-client-urls={}", etcd(ETCD_PORT, &server)),
            format!("--listen-peer-urls={}", etcd(ETCD_PEER_PORT, &server)),
            format!("--initial-advertise-peer-urls={}", etcd(ETCD_PEER_PORT, &server)),
            format!("--initial-cluster={}", members.join(",")),
            format!("--initial-cluster-token={}", plan.spec.name),
        ];
        all.push(one);
    }
    let Some(store) = &plan.spec.store else { return all };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let sprat = base.join("bin/sprat");
    if services.coordinators.contains(&server) {
        let mut one = service("coordinator", sprat.clone(), &[COORDINATOR_PORT]);
        let home = one.home.display().to_string();
        one.arguments = words(&[
            "coordinator",
            "-C",
            &locator("tcp", address, COORDINATOR_PORT),
            "--identity",
            &format!("{home}/conf/server.id"),
        ]);
        one.arguments.extend(match services.etcd.is_empty() {
            true => words(&["--data", &format!("{home}/data")]),
            false => {
                let all: Vec<String> =
                    services.etcd.iter().map(|server| etcd(ETCD_PORT, server)).collect();
                words(&["--etcd", &all.join(","), "--name", &plan.spec.name])
            }
        });
        all.push(one);
    }
    if services.stores.contains(&server) {
        let mut one = service("store", sprat, &[]); // a store listens over UDP
        let home = one.home.display().to_string();
        let (bytes, replicas) = (|bytes: f64| format!("{bytes:.0}"), store.replicas.to_string());
        one.arguments = words(&[
            "server",
            "-C",
            &coordinators(plan),
            "-L",
            &locator("fast+udp", address, STORE_PORT),
        ]);
        one.arguments.extend(words(&[
            "--memory",
            &bytes(store.memory.0),
            "--durability",
            store.durability.name(),
            "-r",
            &replicas,
        ]));
        one.arguments.extend(words(&[
            "--data",
            &format!("{home}/data"),
            "--identity",
            &format!("{home}/conf/server.id"),
        ]));
        if let Some(disk) = store.disk {
            one.arguments.extend(words(&["--disk", &bytes(disk.0)]));
        }
        // The servers of a chassis share a switch and fail together. With a single chassis, each
        // server counts as a rack of its own.
        if plan.fabric.stations > 1 {
            one.arguments
                .extend(words(&["--rack", &plan.fabric.name(server / plan.spec.chassis.servers)]));
        }
        one.arguments.extend(store.arguments.iter().cloned());
        all.push(one);
    }
    all
}

/// Returns a server's own address.
fn own_address(plan: &Plan, layout: &Layout<'_>, server: usize) -> IpAddr {
    layout
        .server(server / plan.spec.chassis.servers, server % plan.spec.chassis.servers)
        .v4
        .0
        .into()
}

fn socket_address(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

fn locator(driver: &str, address: IpAddr, port: u16) -> String {
    format!("{driver}:host={address},port={port}")
}
