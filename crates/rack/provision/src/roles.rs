//! The playbooks and roles, which are compiled into the program.

use crate::Error;
use std::fs;
use std::path::Path;

/// Paths of the files, and their contents.
const FILES: &[(&str, &str)] = &[
    ("site.yml", include_str!("../../../../deploy/ansible/site.yml")),
    ("family.yml", include_str!("../../../../deploy/ansible/family.yml")),
    ("control.yml", include_str!("../../../../deploy/ansible/control.yml")),
    (
        "roles/control/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/control/tasks/main.yml"),
    ),
    (
        "roles/outside/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/outside/tasks/main.yml"),
    ),
    ("hosts.yml", include_str!("../../../../deploy/ansible/hosts.yml")),
    (
        "roles/clock/tasks/look.yml",
        include_str!("../../../../deploy/ansible/roles/clock/tasks/look.yml"),
    ),
    (
        "roles/clock/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/clock/tasks/main.yml"),
    ),
    (
        "roles/network/library/rack_addresses.py",
        include_str!("../../../../deploy/ansible/roles/network/library/rack_addresses.py"),
    ),
    (
        "roles/network/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/network/tasks/main.yml"),
    ),
    (
        "roles/storage/library/rack_storage.py",
        include_str!("../../../../deploy/ansible/roles/storage/library/rack_storage.py"),
    ),
    (
        "roles/storage/tasks/look.yml",
        include_str!("../../../../deploy/ansible/roles/storage/tasks/look.yml"),
    ),
    (
        "roles/storage/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/storage/tasks/main.yml"),
    ),
    ("add.yml", include_str!("../../../../deploy/ansible/add.yml")),
    ("remove.yml", include_str!("../../../../deploy/ansible/remove.yml")),
    ("replace.yml", include_str!("../../../../deploy/ansible/replace.yml")),
    ("rolling.yml", include_str!("../../../../deploy/ansible/rolling.yml")),
    ("stop.yml", include_str!("../../../../deploy/ansible/stop.yml")),
    (
        "roles/names/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/names/tasks/main.yml"),
    ),
    (
        "roles/java/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/java/tasks/main.yml"),
    ),
    (
        "roles/cassandra/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/cassandra/tasks/main.yml"),
    ),
    (
        "roles/cassandra/tasks/start.yml",
        include_str!("../../../../deploy/ansible/roles/cassandra/tasks/start.yml"),
    ),
    (
        "roles/cassandra/tasks/aside.yml",
        include_str!("../../../../deploy/ansible/roles/cassandra/tasks/aside.yml"),
    ),
    ("unit.yml", include_str!("../../../../deploy/ansible/unit.yml")),
    ("store.yml", include_str!("../../../../deploy/ansible/store.yml")),
    (
        "roles/services/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/services/tasks/main.yml"),
    ),
    (
        "roles/services/tasks/start.yml",
        include_str!("../../../../deploy/ansible/roles/services/tasks/start.yml"),
    ),
    (
        "roles/services/tasks/etcd.yml",
        include_str!("../../../../deploy/ansible/roles/services/tasks/etcd.yml"),
    ),
    ("jobs.yml", include_str!("../../../../deploy/ansible/jobs.yml")),
    (
        "roles/slurm/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/slurm/tasks/main.yml"),
    ),
    (
        "roles/slurm/tasks/start.yml",
        include_str!("../../../../deploy/ansible/roles/slurm/tasks/start.yml"),
    ),
    (
        "roles/slurm/tasks/check.yml",
        include_str!("../../../../deploy/ansible/roles/slurm/tasks/check.yml"),
    ),
    (
        "roles/slurm/templates/slurm.conf",
        include_str!("../../../../deploy/ansible/roles/slurm/templates/slurm.conf"),
    ),
    (
        "roles/libvirt/tasks/main.yml",
        include_str!("../../../../deploy/ansible/roles/libvirt/tasks/main.yml"),
    ),
    (
        "roles/libvirt/tasks/own.yml",
        include_str!("../../../../deploy/ansible/roles/libvirt/tasks/own.yml"),
    ),
];

/// Writes the playbooks and roles into a folder.
pub(crate) fn write(folder: &Path) -> Result<(), Error> {
    for (name, text) in FILES {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(Error::file(parent))?;
        fs::write(&path, text).map_err(Error::file(&path))?;
    }
    Ok(())
}
