//! Certificates. A certificate that parses is encoded to the same bytes, and gives rights for any
//! table.

use sprat_wire::certificate::Certificate;

pub(crate) fn run(bytes: &[u8]) {
    if let Ok((certificate, signed, signature)) = Certificate::parse(bytes) {
        assert_eq!(certificate.encode().unwrap(), signed);
        assert_eq!([signed, signature].concat(), bytes);
        let table = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
        let _ = certificate.rights(&table);
    }
}
