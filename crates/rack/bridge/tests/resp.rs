//! Questions as clients of Redis send them.
#![allow(missing_docs, reason = "a test is no library")]

use proptest::prelude::*;
use sprat_bridge::{Answer, MAX_ARGUMENTS, MAX_QUESTION, Question, parse};

fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        Answer::Bulk(Some(part.clone())).encode(&mut bytes);
    }
    bytes
}

proptest! {
    #[test]
    fn what_was_sent_is_what_is_parsed(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        more in prop::collection::vec(any::<u8>(), 0..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = encode(&parts);
        let bytes = [&whole[..], &more].concat();
        let parsed = parse(&bytes).unwrap().unwrap();
        prop_assert_eq!(parsed.len, whole.len());
        prop_assert_eq!(parsed.parts.iter().map(|part| part.to_vec()).collect::<Vec<_>>(), parts);
        // Less than all of it is not yet a question.
        prop_assert_eq!(parse(&whole[..cut.index(whole.len())]), Ok(None));
    }

    #[test]
    fn nothing_that_comes_does_harm(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'$'), b'0'..=b'9'], 0..60)) {
        if let Ok(Some(parsed)) = parse(&bytes) {
            prop_assert!(parsed.len <= bytes.len());
            let _ = Question::of(&parsed.parts);
        }
    }

    #[test]
    fn an_answer_is_framed_whatever_is_in_it(why in ".{0,40}") {
        let mut bytes = Vec::new();
        Answer::Error(why).encode(&mut bytes);
        prop_assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}

#[test]
fn limits_have_names() {
    let many = format!("*{}\r\n", MAX_ARGUMENTS + 1);
    assert!(parse(many.as_bytes()).unwrap_err().contains("1024"));
    let long = format!("*1\r\n${}\r\n", MAX_QUESTION + 1);
    assert!(parse(long.as_bytes()).unwrap_err().contains("longest value"));
    assert!(parse(b"*99999999999999999999\r\n").is_err());
    assert!(
        parse(b"*1\r\n*1\r\n").unwrap_err().contains("array of strings"),
        "no arrays within arrays"
    );
    assert!(parse(b"PING\r\n").is_err());
    assert!(parse(b"*-1\r\n").is_err());
    assert!(parse(b"*1\r\n$1\r\nab\r\n").unwrap_err().contains("end"));
}

#[test]
fn questions_are_those_of_redis() {
    let of = |text: &str| {
        let parts: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        Question::of(&parts).map_err(|error| error.clone()).map(|question| format!("{question:?}"))
    };
    assert_eq!(of("get a"), Ok(format!("{:?}", Question::Get(b"a"))));
    assert_eq!(of("SET a b"), Ok(format!("{:?}", Question::Set(b"a", b"b"))));
    assert!(of("SET a b EX 5").unwrap_err().contains("nothing expires here"));
    assert!(of("GET a b").unwrap_err().contains("wrong number of arguments for GET"));
    assert!(of("FLUSHALL").unwrap_err().contains("unknown command"));
    assert!(Question::of(&[]).is_err());
}
