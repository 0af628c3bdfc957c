//! Certificates: they round-trip, and invalid ones are refused.

use proptest::prelude::*;
use sprat_wire::certificate::{BadCertificate, Certificate, Grant, MAX_CERTIFICATE, Rights, Role};

fn grants() -> impl Strategy<Value = Vec<Grant>> {
    let grant = ("[a-z*]{1,20}", any::<bool>()).prop_map(|(pattern, write)| Grant {
        pattern,
        rights: if write { Rights::Write } else { Rights::Read },
    });
    proptest::collection::vec(grant, 0..8)
}

proptest! {
    #[test]
    fn certificates_round_trip(
        name in "[a-zäö]{1,20}",
        grants in grants(),
        role in 1..=3u8,
        from in 0..1000u64,
        key in any::<[u8; 32]>(),
    ) {
        let role = [Role::Admin, Role::Server, Role::Client][usize::from(role) - 1];
        let grants = if role == Role::Client { grants } else { Vec::new() };
        let certificate = Certificate { role, name, key, from, until: from + 1, grants };
        let mut bytes = certificate.encode().unwrap();
        bytes.extend_from_slice(&[7; 64]);
        let (again, signed, signature) = Certificate::parse(&bytes).unwrap();
        prop_assert_eq!(&again, &certificate);
        prop_assert_eq!((signed.len(), signature), (bytes.len() - 64, &[7; 64]));
        for len in 0..bytes.len() {
            prop_assert!(Certificate::parse(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn a_parsed_certificate_encodes_to_its_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        small in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if small && bytes.len() >= 4 {
            // Without these two bytes hardly any input parses.
            (bytes[0], bytes[1]) = (1, 1 + bytes[1] % 3);
            (bytes[2], bytes[3]) = (bytes[2] % 64, bytes[3] % 3);
        }
        if let Ok((certificate, signed, _)) = Certificate::parse(&bytes) {
            prop_assert_eq!(certificate.encode().unwrap(), signed);
        }
    }

    #[test]
    fn patterns_match_as_they_would_piece_by_piece(pattern in "[ab*]{1,8}", name in "[ab]{0,10}") {
        let grant = Grant { pattern: pattern.clone(), rights: Rights::Read };
        let certificate = Certificate {
            role: Role::Client,
            name: "x".into(),
            key: [0; 32],
            from: 0,
            until: 1,
            grants: vec![grant],
        };
        prop_assert_eq!(
            certificate.rights(&name).is_some(),
            slowly(pattern.as_bytes(), name.as_bytes())
        );
    }
}

fn slowly(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [] => name.is_empty(),
        [b'*', rest @ ..] => (0..=name.len()).any(|taken| slowly(rest, &name[taken..])),
        [byte, rest @ ..] => name.first() == Some(byte) && slowly(rest, &name[1..]),
    }
}

#[test]
fn long_ones_are_refused() {
    let grant = Grant { pattern: "x".repeat(255), rights: Rights::Read };
    let mut certificate = Certificate {
        role: Role::Client,
        name: "x".into(),
        key: [0; 32],
        from: 0,
        until: 1,
        grants: vec![grant; 4],
    };
    assert_eq!(certificate.encode(), Err(BadCertificate::Length(52 + 1 + 4 * 257 + 64)));
    certificate.grants.truncate(3);
    assert!(certificate.encode().unwrap().len() + 64 <= MAX_CERTIFICATE);
    assert_eq!(
        Certificate::parse(&[0; MAX_CERTIFICATE + 1]).unwrap_err(),
        BadCertificate::Length(MAX_CERTIFICATE + 1)
    );
}
