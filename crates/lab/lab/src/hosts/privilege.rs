//! The privileges that labs need, and whether this process has them.

use super::HostsError;
use rustix::thread::{CapabilitySet, capabilities};

const NEEDED: [(CapabilitySet, &str); 2] = [
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN (interfaces, addresses)"),
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN (namespaces, mounts)"),
];

/// Returns the capabilities that labs need and this thread lacks, each with its name and purpose.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let has = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    lacking(has)
}

fn lacking(has: CapabilitySet) -> Vec<&'static str> {
    NEEDED.iter().filter(|(needed, _)| !has.contains(*needed)).map(|&(_, name)| name).collect()
}

/// Checks that this thread may make hosts.
///
/// # Errors
/// [`HostsError::MissingPrivileges`] if this thread lacks a capability that it needs to make hosts.
/// The error names the missing capabilities.
pub fn check() -> Result<(), HostsError> {
    match missing() {
        missing if missing.is_empty() => Ok(()),
        missing => Err(HostsError::MissingPrivileges { missing: missing.join(" and ") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_privileges_are_named() {
        assert_eq!(
            lacking(CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN),
            Vec::<&str>::new()
        );
        assert!(lacking(CapabilitySet::NET_ADMIN)[0].starts_with("CAP_SYS_ADMIN"));
        assert_eq!(lacking(CapabilitySet::empty()).len(), 2);
    }
}
