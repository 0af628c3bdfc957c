//! The hosts as Ansible knows them: an inventory in JSON, which YAML takes as it is.

use crate::Host;
use serde_json::{Value, json};
use sprat_plan::Spec;
use sprat_plan::host::{Clock, Control, Storage};
use std::fmt::Write as _;

/// What the host that controls the others is called in the inventory.
const CONTROL: &str = "control";

/// Share of a server's memory that jobs are told of.
const JOBS_SHARE: f64 = 15.0 / 16.0;

/// The inventory of a rack. Instances' files lie beside it, in a folder for each; the roles bring
/// them to their hosts.
#[must_use]
pub fn inventory(spec: &Spec, hosts: &[Host]) -> Value {
    let instance = |instance: &crate::Instance| {
        json!({
            "name": instance.name,
            "address": instance.address,
            "home": instance.home,
            "jmx_port": instance.jmx_port,
            "begun": instance.begun,
            // Its home is in a filesystem of its own, not below the folder that all of its kind have.
            "own_filesystem": !instance.home.starts_with(&spec.provision.base),
        })
    };
    let service = |service: &crate::Service| json!({ "name": service.name, "kind": service.kind, "home": service.home, "identity": service.has_identity() });
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
    // Of a server's memory its kernel keeps some, and more than there is no job may be promised.
    let for_jobs = spec.server.memory.times(JOBS_SHARE / 1_048_576.0).0.floor();
    let control = spec.control.as_ref();
    let controls: serde_json::Map<String, Value> = control
        .into_iter()
        .map(|asked| (CONTROL.to_owned(), json!({ "ansible_host": asked.address })))
        .collect();
    json!({
        // It is none of the rack's servers, and no playbook but control.yml changes it.
        "control": {
            "hosts": controls,
            "vars": {
                "ansible_user": provision.user,
                "rack_network": spec.addresses.v4,
                "control_proxy": control.and_then(|asked| asked.proxy),
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
                "rack_storage": spec.storage.as_ref().map(|asked| storage(asked, &provision.base)),
                "rack_clock": spec.clock.as_ref().map(|asked| clock(asked, spec.control.as_ref())),
                "rack_environment": environment(spec.control.as_ref()),
                "cassandra_library": provision.library,
                "rack_cores": spec.server.cores,
                "rack_memory_mib": for_jobs,
                "etcd_program": spec.etcd.as_ref().and_then(|etcd| etcd.program.clone()).unwrap_or_default(),
                "jobs_slurm": spec.jobs.slurm,
                "jobs_libvirt": spec.jobs.libvirt,
            },
        },
    })
}

fn storage(asked: &Storage, base: &str) -> Value {
    json!({
        "arrays": asked.arrays(base),
        "filesystem": asked.filesystem.name(),
        "read_ahead_kb": asked.read_ahead,
        "erase": asked.erase,
    })
}

/// Whom servers follow: those that are named, or the host that controls them; none: the first
/// server.
fn clock(asked: &Clock, control: Option<&Control>) -> Value {
    let mut servers = asked.servers.clone();
    if let Some(control) = control.filter(|_| servers.is_empty()) {
        servers.push(control.address.to_string());
    }
    json!({ "servers": servers, "within_ms": asked.within.0 * 1e3 })
}

/// Variables by which programs on servers find the proxy; the rack itself is not behind it.
fn environment(control: Option<&Control>) -> Value {
    let Some((address, port)) = control.and_then(|asked| Some((asked.address, asked.proxy?)))
    else {
        return json!({});
    };
    let proxy = format!("http://{address}:{port}");
    json!({ "http_proxy": proxy, "https_proxy": proxy, "no_proxy": format!("localhost,127.0.0.1,{address}") })
}
