//! Which rights are needed, and whether they are there.

use super::Error;
use rustix::thread::{CapabilitySet, capabilities};

const NEEDED: [(CapabilitySet, &str); 2] = [
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN (interfaces, addresses)"),
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN (namespaces, mounts)"),
];

/// The needed capabilities that this thread lacks, by their names with what each is for.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let has = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    lacking(has)
}

fn lacking(has: CapabilitySet) -> Vec<&'static str> {
    NEEDED.iter().filter(|(needed, _)| !has.contains(*needed)).map(|&(_, name)| name).collect()
}

/// Whether hosts can be made.
///
/// # Errors
/// [`Error::Rights`], with what is missing.
pub fn check() -> Result<(), Error> {
    match missing() {
        missing if missing.is_empty() => Ok(()),
        missing => Err(Error::Rights { missing: missing.join(" and ") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_missing_and_nothing_else() {
        assert_eq!(
            lacking(CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN),
            Vec::<&str>::new()
        );
        assert!(lacking(CapabilitySet::NET_ADMIN)[0].starts_with("CAP_SYS_ADMIN"));
        assert_eq!(lacking(CapabilitySet::empty()).len(), 2);
    }
}
