//! Tests the parser of Redis commands.
#![allow(missing_docs, reason = "a test is no library")]

use proptest::prelude::*;
use sprat_bridge::{MAX_ARGUMENTS, MAX_COMMAND, RedisCommand, RedisReply, parse_command};

fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        RedisReply::Bulk(Some(part.clone())).encode(&mut bytes);
    }
    bytes
}

proptest! {
    #[test]
    fn commands_round_trip(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
        more in prop::collection::vec(any::<u8>(), 0..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = encode(&parts);
        let bytes = [&whole[..], &more].concat();
        let parsed = parse_command(&bytes).unwrap().unwrap();
        prop_assert_eq!(parsed.len, whole.len());
        prop_assert_eq!(parsed.parts.iter().map(|part| part.to_vec()).collect::<Vec<_>>(), parts);
        // An incomplete command is not yet a command.
        prop_assert_eq!(parse_command(&whole[..cut.index(whole.len())]), Ok(None));
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(
        bytes in prop::collection::vec(
            prop_oneof![
                any::<u8>(),
                Just(b'\r'),
                Just(b'\n'),
                Just(b'*'),
                Just(b'$'),
                b'0'..=b'9',
            ],
            0..60,
        ),
    ) {
        if let Ok(Some(parsed)) = parse_command(&bytes) {
            prop_assert!(parsed.len <= bytes.len());
            let _ = RedisCommand::from_parts(&parsed.parts);
        }
    }

    #[test]
    fn replies_stay_on_one_line(why in ".{0,40}") {
        let mut bytes = Vec::new();
        RedisReply::Error(why).encode(&mut bytes);
        prop_assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}

#[test]
fn commands_beyond_the_limits_are_errors() {
    let many = format!("*{}\r\n", MAX_ARGUMENTS + 1);
    assert!(parse_command(many.as_bytes()).unwrap_err().contains("1024"));
    let long = format!("*1\r\n${}\r\n", MAX_COMMAND + 1);
    assert!(parse_command(long.as_bytes()).unwrap_err().contains("longest value"));
    assert!(parse_command(b"*99999999999999999999\r\n").is_err());
    assert!(
        parse_command(b"*1\r\n*1\r\n").unwrap_err().contains("array of strings"),
        "no arrays within arrays"
    );
    assert!(parse_command(b"PING\r\n").is_err());
    assert!(parse_command(b"*-1\r\n").is_err());
    assert!(parse_command(b"*1\r\n$1\r\nab\r\n").unwrap_err().contains("length"));
}

#[test]
fn commands_are_those_of_redis() {
    let of = |text: &str| {
        let parts: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        RedisCommand::from_parts(&parts)
            .map_err(|error| error.clone())
            .map(|question| format!("{question:?}"))
    };
    assert_eq!(of("get a"), Ok(format!("{:?}", RedisCommand::Get(b"a"))));
    assert_eq!(of("SET a b"), Ok(format!("{:?}", RedisCommand::Set(b"a", b"b"))));
    assert!(of("SET a b EX 5").unwrap_err().contains("nothing expires here"));
    assert!(of("GET a b").unwrap_err().contains("wrong number of arguments for GET"));
    assert!(of("FLUSHALL").unwrap_err().contains("unknown command"));
    assert!(RedisCommand::from_parts(&[]).is_err());
}
