//! Makes Ansible's inventory of the hosts, in JSON, which is also YAML.

use crate::Host;
use serde_json::{Value, json};
use sprat_plan::Spec;
use sprat_plan::host::{Clock, Control, Storage};
use std::fmt::Write as _;

/// Name of the controlling host in the inventory.
const CONTROL: &str = "control";

/// Share of a server's memory that Slurm may give to jobs.
const JOBS_SHARE: f64 = 15.0 / 16.0;

/// Returns the inventory of a rack. The roles expect the files of each instance and service in a
/// folder next to the inventory.
#[must_use]
pub fn inventory(spec: &Spec, hosts: &[Host]) -> Value {
    let instance = |instance: &crate::Instance| {
        json!({
            "name": instance.name,
            "address": instance.address,
            "home": instance.home,
            "jmx_port": instance.jmx_port,
            "begun": instance.begun,
            // The instance's home is in a filesystem of its own, outside the folder for all data.
            "own_filesystem": !instance.home.starts_with(&spec.provision.base),
        })
    };
    let service = |service: &crate::Service| {
        json!({
            "name": service.name,
            "kind": service.kind,
            "home": service.home,
            "identity": service.has_identity(),
        })
    };
    let host = |host: &Host| {
        let (address, prefix) = host.address;
        let instances: Vec<Value> = host.instances.iter().map(instance).collect();
        let vars = json!({
            "ansible_host": address,
            "rack_address": address,
            "rack_prefix": prefix,
            "rack_gateway": host.gateway,
            "cassandra_instances": instances,
            "rack_services": host.services.iter().map(service).collect::<Vec<_>>(),
        });
        (host.name.clone(), vars)
    };
    let all: serde_json::Map<String, Value> = hosts.iter().map(host).collect();
    let mut names = String::new();
    for host in hosts {
        writeln!(names, "{} {}", host.address.0, host.name).expect("a string takes all");
        for instance in &host.instances {
            writeln!(names, "{} {}", instance.address, instance.name).expect("a string takes all");
        }
    }
    let provision = &spec.provision;
    // The kernel keeps some of the memory, so Slurm must not be given all of it.
    let for_jobs = spec.server.memory.times(JOBS_SHARE / 1_048_576.0).0.floor();
    let (control, etcd) = (spec.control.as_ref(), spec.etcd.as_ref());
    let controls: serde_json::Map<String, Value> = control
        .into_iter()
        .map(|control| (CONTROL.to_owned(), json!({ "ansible_host": control.address })))
        .collect();
    json!({
        // Only control.yml changes this host, which is not one of the rack's servers.
        "control": {
            "hosts": controls,
            "vars": {
                "ansible_user": provision.user,
                "rack_network": spec.addresses.v4,
                "control_proxy": control.and_then(|control| control.proxy),
                "control_clock": spec.clock.as_ref().is_some_and(|clock| clock.servers.is_empty()),
            },
        },
        "rack": {
            "hosts": all,
            "vars": {
                "ansible_user": provision.user,
                "rack_name": spec.name,
                "rack_names": names,
                "rack_base": provision.base,
                "rack_network": spec.addresses.v4,
                "rack_shared": provision.shared,
                "rack_storage": spec.storage.as_ref().map(|part| storage(part, &provision.base)),
                "rack_clock": spec.clock.as_ref().map(|part| clock(part, spec.control.as_ref())),
                "rack_environment": environment(spec.control.as_ref()),
                "cassandra_library": provision.library,
                "rack_cores": spec.server.cores,
                "rack_memory_mib": for_jobs,
                "etcd_program": etcd.and_then(|etcd| etcd.program.clone()).unwrap_or_default(),
                "jobs_slurm": spec.jobs.slurm,
                "jobs_libvirt": spec.jobs.libvirt,
            },
        },
    })
}

fn storage(spec: &Storage, base: &str) -> Value {
    json!({
        "arrays": spec.arrays(base),
        "filesystem": spec.filesystem.name(),
        "read_ahead_kb": spec.read_ahead,
        "erase": spec.erase,
    })
}

/// Returns the NTP servers to follow: those of the description, or the controlling host. If the
/// description has neither, the list is empty and the roles use the rack's first server.
fn clock(spec: &Clock, control: Option<&Control>) -> Value {
    let mut servers = spec.servers.clone();
    if let Some(control) = control.filter(|_| servers.is_empty()) {
        servers.push(control.address.to_string());
    }
    json!({ "servers": servers, "within_ms": spec.within.0 * 1e3 })
}

/// Returns the environment variables for the HTTP proxy. Programs reach the proxy's host itself
/// without the proxy.
fn environment(control: Option<&Control>) -> Value {
    let Some((address, port)) = control.and_then(|control| Some((control.address, control.proxy?)))
    else {
        return json!({});
    };
    let proxy = format!("http://{address}:{port}");
    let direct = format!("localhost,127.0.0.1,{address}");
    json!({ "http_proxy": proxy, "https_proxy": proxy, "no_proxy": direct })
}
