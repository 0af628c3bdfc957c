//! Requests. A request that parses is encoded to a request that parses to an equal one. So is each
//! item of a batch.

use sprat_wire::op::Request;

pub(crate) fn run(bytes: &[u8]) {
    round_trip(bytes);
    if let Ok(Request::Batch { items }) = Request::parse(bytes) {
        items.for_each(round_trip);
    }
}

fn round_trip(bytes: &[u8]) {
    let Ok((request, id)) = Request::parse_with_id(bytes) else { return };
    let again = request.to_bytes(id.as_ref());
    assert_eq!(again.len(), bytes.len());
    let parsed = Request::parse_with_id(&again).expect("what we write, we read");
    // Compared as text, since an f64 that is NaN is not equal to itself.
    assert_eq!(format!("{parsed:?}"), format!("{:?}", (request, id)));
}
