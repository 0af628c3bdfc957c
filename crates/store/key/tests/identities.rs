//! Roots, identities and their files: parts that belong together are accepted, and nothing else.

use sprat_key::{
    BadCertificate, FileError, Grant, Identity, Rights, Role, Root, Terms, Untrusted, verify,
};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

fn terms(role: Role, grants: &[(&str, Rights)]) -> Terms {
    let grants =
        grants.iter().map(|&(pattern, rights)| Grant { pattern: pattern.into(), rights }).collect();
    Terms { role, name: "somebody".into(), grants, valid: (1000, 2000) }
}

#[test]
fn members_trust_identities_of_their_root() {
    let root = Root::generate().unwrap();
    let one = root.issue(&terms(Role::Server, &[])).unwrap();
    let other = root.issue(&terms(Role::Client, &[("a*", Rights::Read)])).unwrap();
    let verified =
        one.verify_peer(other.certificate_bytes(), &other.certificate().key, 1500).unwrap();
    assert_eq!(&verified, other.certificate());
    assert_eq!(one.door_key(), other.door_key());
    assert_ne!(one.secret(), other.secret());
}

#[test]
fn certificates_of_another_root_key_or_time_are_rejected() {
    let (root, stranger) = (Root::generate().unwrap(), Root::generate().unwrap());
    let one = root.issue(&terms(Role::Server, &[])).unwrap();
    let other = stranger.issue(&terms(Role::Admin, &[])).unwrap();
    let key = |identity: &Identity| identity.certificate().key;
    assert_eq!(
        one.verify_peer(other.certificate_bytes(), &key(&other), 1500),
        Err(Untrusted::Root)
    );
    assert_eq!(one.verify_peer(one.certificate_bytes(), &key(&other), 1500), Err(Untrusted::Key));
    assert_eq!(one.verify_peer(one.certificate_bytes(), &key(&one), 999), Err(Untrusted::Early));
    assert_eq!(one.verify_peer(one.certificate_bytes(), &key(&one), 2000), Err(Untrusted::Expired));
    for at in 0..one.certificate_bytes().len() {
        let mut changed = one.certificate_bytes().to_vec();
        changed[at] ^= 4;
        assert!(verify(one.root(), &changed).is_err(), "byte {at}");
        assert!(verify(one.root(), &one.certificate_bytes()[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn invalid_terms_are_refused() {
    let root = Root::generate().unwrap();
    let refused = |terms: Terms| root.issue(&terms).unwrap_err().to_string();
    let asked = terms(Role::Admin, &[("a", Rights::Read)]);
    assert_eq!(refused(asked), BadCertificate::Grant.to_string());
    let asked = Terms { name: String::new(), ..terms(Role::Admin, &[]) };
    assert_eq!(refused(asked), BadCertificate::Name.to_string());
    let asked = Terms { valid: (5, 5), ..terms(Role::Admin, &[]) };
    assert_eq!(refused(asked), BadCertificate::Never.to_string());
    let long = "x".repeat(255);
    let asked = terms(Role::Client, &[(&*long, Rights::Read); 4]);
    assert!(refused(asked).contains("are not a certificate's length"));
}

#[test]
fn files_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let (at, root_at) = (dir.path().join("one"), dir.path().join("root"));
    let root = Root::generate().unwrap();
    root.save(&root_at).unwrap();
    assert_eq!(Root::load(&root_at).unwrap().public(), root.public());
    let one = Root::load(&root_at)
        .unwrap()
        .issue(&terms(Role::Client, &[("a*", Rights::Write)]))
        .unwrap();
    one.save(&at).unwrap();
    let again = Identity::load(&at).unwrap();
    assert_eq!(
        (again.secret(), again.door_key(), again.certificate_bytes()),
        (one.secret(), one.door_key(), one.certificate_bytes())
    );
    assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(one.save(&at), Err(FileError::System { .. })), "nothing is overwritten");
    // A root where an identity is expected, and the reverse.
    assert!(Identity::load(&root_at).unwrap_err().to_string().contains("expected an identity"));
    assert!(Root::load(&at).unwrap_err().to_string().contains("expected a cluster's root"));
}

#[test]
fn files_that_others_can_read_or_that_are_damaged_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("one");
    Root::generate().unwrap().issue(&terms(Role::Server, &[])).unwrap().save(&at).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Identity::load(&at), Err(FileError::Open { mode: 0o640, .. })));
    fs::set_permissions(&at, fs::Permissions::from_mode(0o600)).unwrap();
    let text = fs::read_to_string(&at).unwrap();
    for at_byte in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at_byte] = if bytes[at_byte] == b'A' { b'B' } else { b'A' };
        fs::write(&at, &bytes).unwrap();
        assert!(Identity::load(&at).is_err(), "byte {at_byte}");
        fs::write(&at, &text.as_bytes()[..at_byte]).unwrap();
        // Without only its last newline the file is complete.
        assert_eq!(Identity::load(&at).is_ok(), at_byte + 1 == text.len(), "cut at {at_byte}");
    }
}

#[test]
fn grants_are_by_name_and_the_best_counts() {
    let root = Root::generate().unwrap();
    let grants = [
        ("log-*", Rights::Read),
        ("log-*-mine", Rights::Write),
        ("*tail", Rights::Read),
        ("exact", Rights::Read),
    ];
    let client = root.issue(&terms(Role::Client, &grants)).unwrap();
    for (table, rights) in [
        ("log-", Some(Rights::Read)),
        ("log-a-b", Some(Rights::Read)),
        ("log-a-mine", Some(Rights::Write)),
        ("log-a-mine-mine", Some(Rights::Write)),
        ("log-a-miner", Some(Rights::Read)),
        ("log", None),
        ("retail", Some(Rights::Read)),
        ("tails", None),
        ("exact", Some(Rights::Read)),
        ("exactly", None),
        ("", None),
    ] {
        assert_eq!(client.certificate().rights(table), rights, "{table}");
    }
    let nobody = root.issue(&terms(Role::Client, &[])).unwrap();
    assert_eq!(nobody.certificate().rights("any"), None);
    let admin = root.issue(&terms(Role::Admin, &[])).unwrap();
    assert_eq!(admin.certificate().rights("any"), Some(Rights::Write));
}
