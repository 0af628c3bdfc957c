//! The playbooks and roles, which come with the program.

use crate::Error;
use std::fs;
use std::path::Path;

/// Paths, and texts.
const FILES: &[(&str, &str)] = &[
    ("site.yml", include_str!("../../../deploy/ansible/site.yml")),
    ("replace.yml", include_str!("../../../deploy/ansible/replace.yml")),
    ("rolling.yml", include_str!("../../../deploy/ansible/rolling.yml")),
    ("stop.yml", include_str!("../../../deploy/ansible/stop.yml")),
    ("roles/names/tasks/main.yml", include_str!("../../../deploy/ansible/roles/names/tasks/main.yml")),
    ("roles/java/tasks/main.yml", include_str!("../../../deploy/ansible/roles/java/tasks/main.yml")),
    ("roles/cassandra/tasks/main.yml", include_str!("../../../deploy/ansible/roles/cassandra/tasks/main.yml")),
    ("roles/cassandra/tasks/start.yml", include_str!("../../../deploy/ansible/roles/cassandra/tasks/start.yml")),
    ("jobs.yml", include_str!("../../../deploy/ansible/jobs.yml")),
    ("roles/slurm/tasks/main.yml", include_str!("../../../deploy/ansible/roles/slurm/tasks/main.yml")),
    ("roles/slurm/tasks/start.yml", include_str!("../../../deploy/ansible/roles/slurm/tasks/start.yml")),
    ("roles/slurm/tasks/check.yml", include_str!("../../../deploy/ansible/roles/slurm/tasks/check.yml")),
    ("roles/slurm/templates/slurm.conf", include_str!("../../../deploy/ansible/roles/slurm/templates/slurm.conf")),
    ("roles/libvirt/tasks/main.yml", include_str!("../../../deploy/ansible/roles/libvirt/tasks/main.yml")),
    ("roles/libvirt/tasks/own.yml", include_str!("../../../deploy/ansible/roles/libvirt/tasks/own.yml")),
];

/// Writes them into a folder.
pub(crate) fn write(folder: &Path) -> Result<(), Error> {
    for (name, text) in FILES {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(Error::file(parent))?;
        fs::write(&path, text).map_err(Error::file(&path))?;
    }
    Ok(())
}
