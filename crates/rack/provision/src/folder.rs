//! The folder of a rack on the machine that controls it.

use crate::{Error, roles};
use sprat_plan::Plan;
use sprat_rack::{
    Host, Instance, JAMM_JAR, hosts, inventory, service, unit, write_instance, write_service,
};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kind of Cassandra's units, and the name of the folder that has the homes of its instances.
const CASSANDRA: &str = "cassandra";

/// The folder of a rack on the controlling machine. It holds everything that Ansible needs: roles,
/// inventory, the files of each instance and service, units, packed jars, keys, and the list of
/// instances on the ring. Call [`Folder::lock`] before you change hosts. Then write the plan with
/// [`Folder::write`], or with [`Folder::rewrite`] if the jars are packed already.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Names a folder. The first write creates it.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file `name` in the folder.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Locks the rack until the returned file is dropped. Without a lock, two runs that change the
    /// same hosts would undo each other's work.
    ///
    /// # Errors
    /// [`Error::Busy`] if another run holds the lock; [`Error::File`] if the folder or the lock
    /// file cannot be made, or the file cannot be locked.
    pub fn lock(&self) -> Result<File, Error> {
        fs::create_dir_all(&self.path).map_err(Error::file(&self.path))?;
        let path = self.file("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::file(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(Error::Busy { path }),
            Err(TryLockError::Error(error)) => Err(Error::File { path, error }),
        }
    }

    /// Writes everything that follows from a plan: roles, inventory, units, keys, and the files of
    /// all instances and services. If the plan needs Cassandra's jars, packs them from `jars`
    /// unless the same jars are packed already. Returns the plan's hosts.
    ///
    /// # Errors [`Error::Jars`] if the plan has instances of Cassandra and `jars` lacks their jars;
    /// [`Error::File`] if a file cannot be read or written, or a key cannot be made;
    /// [`Error::Missing`] or [`Error::Failed`] if tar is missing or fails.
    pub fn write(&self, plan: &Plan, jars: &Path) -> Result<Vec<Host>, Error> {
        let mut hosts = hosts(plan);
        let cassandra = hosts.iter().any(|host| !host.instances.is_empty());
        if cassandra && !jars.join(JAMM_JAR).exists() {
            return Err(Error::Jars { path: jars.to_owned(), jar: JAMM_JAR });
        }
        fs::create_dir_all(&self.path).map_err(Error::file(&self.path))?;
        let mark = if cassandra { self.pack(jars)? } else { String::new() };
        self.put(plan, &mut hosts, mark)?;
        Ok(hosts)
    }

    /// Writes everything that follows from a plan, like [`Folder::write`], but with the jars that
    /// were packed before.
    ///
    /// # Errors
    /// [`Error::Unwritten`] if [`Folder::write`] has written no inventory before; [`Error::File`]
    /// if a file cannot be written, or a key cannot be made.
    pub fn rewrite(&self, plan: &Plan) -> Result<Vec<Host>, Error> {
        let path = self.file("inventory.json");
        let known = fs::read(&path)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
        let mark =
            known.as_ref().and_then(|known| known["rack"]["vars"]["cassandra_mark"].as_str());
        let mark = mark.ok_or(Error::Unwritten { path })?.to_owned();
        let mut hosts = hosts(plan);
        self.put(plan, &mut hosts, mark)?;
        Ok(hosts)
    }

    fn put(&self, plan: &Plan, hosts: &mut [Host], mark: String) -> Result<(), Error> {
        // Each version of the jars has a folder of its own, so that an instance changes to a new
        // version only when it restarts with new files.
        for instance in hosts.iter_mut().flat_map(|host| &mut host.instances) {
            instance.library = instance.library.join(&mark);
        }
        roles::write(&self.file("ansible"))?;
        let instances = self.file("instances");
        if instances.exists() {
            fs::remove_dir_all(&instances).map_err(Error::file(&instances))?; // removes old files
        }
        for instance in hosts.iter().flat_map(|host| &host.instances) {
            let folder = instances.join(&instance.name);
            write_instance(instance, &folder).map_err(Error::file(&folder))?;
        }
        let services = self.file("services");
        if services.exists() {
            fs::remove_dir_all(&services).map_err(Error::file(&services))?;
        }
        for service in hosts.iter().flat_map(|host| &host.services) {
            let folder = services.join(&service.name);
            write_service(service, &folder).map_err(Error::file(&folder))?;
        }
        if plan.spec.store.is_some() {
            crate::keys::make(self)?;
        }
        let units = self.file("units");
        if units.exists() {
            fs::remove_dir_all(&units).map_err(Error::file(&units))?;
        }
        fs::create_dir_all(&units).map_err(Error::file(&units))?;
        for kind in service::KINDS.into_iter().chain([CASSANDRA]) {
            let path = units.join(unit::name(kind));
            let text = unit::text(kind, &Path::new(&plan.spec.provision.base).join(kind));
            fs::write(&path, text).map_err(Error::file(&path))?;
        }
        let elsewhere =
            |instance: &&Instance| !instance.home.starts_with(&plan.spec.provision.base);
        for instance in hosts.iter().flat_map(|host| &host.instances).filter(elsewhere) {
            let folder = units
                .join(unit::name(CASSANDRA).replace('@', &format!("@{}", instance.name)) + ".d");
            fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
            let path = folder.join("home.conf");
            fs::write(&path, unit::own_home(&instance.home)).map_err(Error::file(&path))?;
        }
        let mut inventory = inventory(&plan.spec, hosts);
        let vars = &mut inventory["rack"]["vars"];
        vars["rack_folder"] = self.path.display().to_string().into();
        let program = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
        vars["store_program"] = program.display().to_string().into();
        vars["cassandra_mark"] = mark.into();
        let path = self.file("inventory.json");
        let text = serde_json::to_vec_pretty(&inventory).unwrap_or_default();
        fs::write(&path, text).map_err(Error::file(&path))
    }

    /// Writes an instance's files for a start after the loss of its data, in which it replaces its
    /// own former self.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn replacing(&self, instance: &Instance) -> Result<(), Error> {
        let folder = self.file("replacing").join(&instance.name);
        write_instance(&Instance { replaces: Some(instance.address), ..instance.clone() }, &folder)
            .map_err(Error::file(&folder))
    }

    /// Packs the jars into one archive, unless there is an archive of these jars already. Returns
    /// the name of the archive without `.tar`. The name contains a checksum of the names and sizes
    /// of the jars. The archive also contains a file of that name, which lists the jars.
    fn pack(&self, jars: &Path) -> Result<String, Error> {
        let (mut names, mut lines) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(jars).map_err(Error::file(jars))? {
            let entry = entry.map_err(Error::file(jars))?;
            if entry.path().extension().is_some_and(|ending| ending == "jar") {
                let bytes = entry.metadata().map_err(Error::file(entry.path()))?.len();
                lines.push(format!("{} {bytes}\n", entry.file_name().to_string_lossy()));
                names.push(entry.file_name());
            }
        }
        names.sort_unstable();
        lines.sort_unstable();
        let list = lines.concat();
        let mark = format!("jars-{}-{:08x}", names.len(), checksum(list.as_bytes()));
        // Each version of the jars has an archive of its own. An archive gets its final name only
        // when it is complete, so that the name never stands for half an archive or for other jars.
        let (archive, marked) = (self.file(&format!("{mark}.tar")), self.file(&mark));
        if archive.exists() {
            return Ok(mark);
        }
        fs::write(&marked, list).map_err(Error::file(&marked))?;
        let part = self.file(&format!("{mark}.tar.part"));
        let mut tar = Command::new("tar");
        tar.arg("--create").arg("--file").arg(&part);
        tar.arg("--directory").arg(jars).args(&names).arg("--directory").arg(&self.path).arg(&mark);
        crate::program::run("tar", &mut tar)?;
        fs::rename(&part, &archive).map_err(Error::file(&archive))?;
        Ok(mark)
    }
}

/// Returns the FNV-1a checksum (Fowler, Noll and Vo, 1991). It distinguishes lists, but does not
/// protect against an attacker.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_of_the_jars_is_packed_whole() {
        let home = tempfile::tempdir().expect("a folder");
        let (jars, folder) = (home.path().join("jars"), Folder::at(home.path()));
        fs::create_dir(&jars).expect("a folder");
        let pack = |text: &str| {
            fs::write(jars.join("a.jar"), text).expect("a jar");
            folder.pack(&jars).expect("packed")
        };
        let content = |mark: &str| {
            let listed = Command::new("tar")
                .arg("--extract")
                .arg("--to-stdout")
                .arg("--file")
                .arg(folder.file(&format!("{mark}.tar")))
                .arg("a.jar")
                .output();
            String::from_utf8(listed.expect("tar runs").stdout).expect("a text")
        };
        let old = pack("old");
        let new = pack("newer");
        assert_eq!(pack("old"), old, "back to the first version");
        assert_eq!((content(&old), content(&new)), ("old".into(), "newer".into()));
        // A run that was killed has left half an archive, under the name that is not used.
        fs::remove_file(folder.file(&format!("{new}.tar"))).expect("it is there");
        fs::write(folder.file(&format!("{new}.tar.part")), "half").expect("written");
        assert_eq!(pack("newer"), new);
        assert_eq!(content(&new), "newer");
    }
}
