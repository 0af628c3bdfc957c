//! Requests. A request that parses is encoded to a request that parses to an equal one. So is each
//! item of a batch.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sprat_wire::op::Request;

fuzz_target!(|bytes: &[u8]| {
    round_trip(bytes);
    if let Ok(Request::Batch { items }) = Request::parse(bytes) {
        items.for_each(round_trip);
    }
});

fn round_trip(bytes: &[u8]) {
    let Ok((request, id)) = Request::parse_with_id(bytes) else { return };
    let (header, key, value) = request.parts();
    let header = if id.is_some() { header.with_id() } else { header };
    let id_bytes = id.map_or(Vec::new(), |id| id.bytes().to_vec());
    let ttl_bytes = request.ttl_bytes().map_or(Vec::new(), |bytes| bytes.to_vec());
    let header = zerocopy::IntoBytes::as_bytes(&header);
    let again = [header, &id_bytes, &ttl_bytes, key, value].concat();
    assert_eq!(again.len(), bytes.len());
    let parsed = Request::parse_with_id(&again).expect("what we write, we read");
    // Compared as text, since an f64 that is NaN is not equal to itself.
    assert_eq!(format!("{parsed:?}"), format!("{:?}", (request, id)));
}
