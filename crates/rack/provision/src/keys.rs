//! Issues the keys of a rack's store on the controlling machine: its root, and identities for its
//! servers and its administrator.

use crate::{Error, Folder};
use sprat_key::{Identity, Role, Root, Terms};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 24 * 3_600;

/// Validity of an identity in seconds, and the remaining validity with which it is renewed.
const VALID: u64 = 365 * DAY;
const RENEW: u64 = 90 * DAY;

/// An identity is valid from this many seconds before its issue on, in case clocks differ.
const BEFORE: u64 = 3_600;

/// Creates the missing files in the folder's `keys`: `sprat.root`, `server.id`, `admin.id`. Renews
/// identities that expire within 90 days, or that another root issued.
///
/// # Errors
/// [`Error::File`] if a file cannot be read, written or removed, a file is not a root or identity,
/// or the system has no random bytes.
pub(crate) fn make(folder: &Folder) -> Result<(), Error> {
    let keys = folder.file("keys");
    if !keys.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(&keys).map_err(Error::file(&keys))?;
    }
    let root_file = keys.join("sprat.root");
    let root = match root_file.exists() {
        true => Root::load(&root_file).map_err(of(&root_file))?,
        false => {
            let root = Root::generate().map_err(|error| of(&root_file)(error))?;
            root.save(&root_file).map_err(of(&root_file))?;
            root
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for (name, role) in [("server", Role::Server), ("admin", Role::Admin)] {
        let path = keys.join(format!("{name}.id"));
        if path.exists() {
            let found = Identity::load(&path).map_err(of(&path))?;
            if found.certificate().until > now + RENEW && found.root() == &root.public() {
                continue;
            }
            fs::remove_file(&path).map_err(Error::file(&path))?;
        }
        let valid = (now.saturating_sub(BEFORE), now + VALID);
        let terms = Terms { role, name: name.to_owned(), grants: Vec::new(), valid };
        let identity = root.issue(&terms).map_err(|error| of(&path)(error))?;
        identity.save(&path).map_err(of(&path))?;
    }
    Ok(())
}

/// Returns a function that turns an error about a key into [`Error::File`].
fn of<E: std::error::Error + Send + Sync + 'static>(
    path: &Path,
) -> impl FnOnce(E) -> Error + use<'_, E> {
    move |error| Error::File { path: path.to_owned(), error: io::Error::other(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_and_renewed_before_they_expire() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = Folder::at(state.path().join("rack"));
        make(&folder).expect("keys");
        let read = |name: &str| fs::read(folder.file("keys").join(name)).expect("a file");
        let (root, server) = (read("sprat.root"), read("server.id"));
        make(&folder).expect("keys");
        assert!(read("sprat.root") == root && read("server.id") == server, "they do not change");

        // An identity that expires soon.
        let path = folder.file("keys").join("server.id");
        let known = Root::load(&folder.file("keys").join("sprat.root")).expect("the root");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        let valid = (now - 1, now + RENEW / 2);
        let ends = known.issue(&Terms {
            role: Role::Server,
            name: "server".to_owned(),
            grants: Vec::new(),
            valid,
        });
        fs::remove_file(&path).expect("it was there");
        ends.expect("an identity").save(&path).expect("a file");
        make(&folder).expect("keys");
        let found = Identity::load(&path).expect("an identity");
        assert!(
            found.certificate().until > now + RENEW && found.certificate().role == Role::Server
        );
        assert_eq!(
            Identity::load(&folder.file("keys").join("admin.id")).expect("an identity").root(),
            &known.public()
        );
    }
}
