//! The head of a server's answer. Whatever the head is, an accepted answer has the requested bytes.

use crate::input;
use sprat_flow::copy::answer::{Answer, FileRequest, judge};
use sprat_http::client::Head;

pub(crate) fn run(bytes: &[u8]) {
    let Some(input) = input::<(u32, u32, u32, bool, &[u8])>(bytes) else { return };
    let (first, bytes, more, whole, head) = input;
    let (first, end) = (u64::from(first) << 20, (u64::from(first) << 20) + u64::from(bytes) + 1);
    let range = (!whole).then_some(first..end);
    let asked = FileRequest {
        range: range.clone(),
        length: Some(end + u64::from(more)),
        ..FileRequest::default()
    };
    let Ok(Some((head, used))) = Head::parse(head) else { return };
    assert!(used <= input.4.len());
    if let Answer::Bytes(start) = judge(&head, &asked) {
        assert_eq!(start.first, range.as_ref().map_or(0, |range| range.start));
        if let Some(range) = range {
            assert_eq!(start.end, Some(range.end));
        }
        assert!(start.length.is_none_or(|length| Some(length) == asked.length));
    }
}
