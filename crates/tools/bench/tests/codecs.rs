//! Decodes the peers' protocols from pieces, and rejects malformed bytes.

use proptest::prelude::*;
use sprat_bench::peers::memcached::Meta;
use sprat_bench::peers::redis::Resp;
use sprat_bench::peers::stream::{Codec, Decoded, PendingRequest};
use sprat_measure::target::{Op, Outcome};

const PENDING: PendingRequest =
    PendingRequest { tag: 0, read: true, is_transaction: false, request_bytes: 10 };

fn resp(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Ok { bytes } => {
            [format!("${bytes}\r\n").as_bytes(), &vec![b'\n'; bytes], b"\r\n"].concat()
        }
        Outcome::Miss => b"$-1\r\n".to_vec(),
        Outcome::Full => unreachable!("Redis says it as any other error"),
        Outcome::Error => b"-OOM command not allowed\r\n".to_vec(),
    }
}

fn meta(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Ok { bytes } => {
            [format!("VA {bytes}\r\n").as_bytes(), &vec![b'\r'; bytes], b"\r\n"].concat()
        }
        Outcome::Miss => b"EN\r\n".to_vec(),
        Outcome::Full => unreachable!("memcached says it as any other error"),
        Outcome::Error => b"SERVER_ERROR out of memory storing object\r\n".to_vec(),
    }
}

/// Decodes `stream` as it grows byte by byte. Checks that every answer is decoded once, in order,
/// and that the decoder never asks for bytes beyond the stream's end.
fn check(codec: &impl Codec, stream: &[u8], expected: &[Outcome]) {
    let (mut parsed, mut found) = (0, Vec::new());
    for end in 1..=stream.len() {
        match codec.decode(&stream[parsed..end], &PENDING).expect("well formed") {
            Decoded::Reply { consumed, outcome } => {
                assert_eq!(consumed, end - parsed, "an answer ends where its last byte is");
                parsed = end;
                found.push(outcome);
            }
            Decoded::Need(bytes) => assert!(bytes > end - parsed && parsed + bytes <= stream.len()),
        }
    }
    assert_eq!(found, expected);
    assert_eq!(parsed, stream.len());
}

fn outcomes() -> impl Strategy<Value = Vec<Outcome>> {
    let one = prop_oneof![
        (0..300_usize).prop_map(|bytes| Outcome::Ok { bytes }),
        Just(Outcome::Miss),
        Just(Outcome::Error)
    ];
    prop::collection::vec(one, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn answers_survive_any_split(outcomes in outcomes()) {
        let stream = |encode: fn(Outcome) -> Vec<u8>| -> Vec<u8> {
            outcomes.iter().flat_map(|&outcome| encode(outcome)).collect()
        };
        check(&Resp, &stream(resp), &outcomes);
        check(&Meta, &stream(meta), &outcomes);
    }

    #[test]
    fn answers_of_many_values_survive_any_split(
        sizes in prop::collection::vec(0..300_usize, 1..8),
    ) {
        let expected = [Outcome::Ok { bytes: sizes.iter().sum() }, Outcome::Miss];
        let mut redis = format!("*{}\r\n", sizes.len()).into_bytes();
        let mut memcached = Vec::new();
        for &bytes in &sizes {
            redis.extend(resp(Outcome::Ok { bytes }));
            memcached.extend_from_slice(format!("VALUE key 0 {bytes}\r\n").as_bytes());
            memcached.extend(vec![b'\r'; bytes]);
            memcached.extend_from_slice(b"\r\n");
        }
        // One of two keys has no object; no key of all has one.
        redis.extend_from_slice(b"*2\r\n$-1\r\n$1\r\nx\r\n");
        memcached.extend_from_slice(b"END\r\nEND\r\n");
        check(&Resp, &redis, &expected);
        check(&Meta, &memcached, &expected);
    }

    #[test]
    fn nonsense_never_panics(
        input in prop::collection::vec(
            prop_oneof![any::<u8>(), Just(b'$'), Just(b'9'), Just(b'\r'), Just(b'\n')],
            0..64,
        ),
    ) {
        for decoded in [Resp.decode(&input, &PENDING), Meta.decode(&input, &PENDING)] {
            match decoded {
                Ok(Decoded::Reply { consumed, .. }) => {
                    prop_assert!((1..=input.len()).contains(&consumed));
                }
                Ok(Decoded::Need(bytes)) => prop_assert!(bytes > input.len()),
                Err(_) => {}
            }
        }
    }
}

#[test]
fn malformed_answers_are_refused() {
    for bad in [
        &b"$12x\r\n"[..],
        b"$\r\n",
        b"$99999999999\r\n",
        b":1\r\n",
        b"+OK\n",
        b"*x\r\n",
        b"*1\r\n*1\r\n",
        b"$1\r\nabc",
        b"\r\n",
        &[b'x'; 5000],
    ] {
        assert!(Resp.decode(bad, &PENDING).is_err(), "{bad:?}");
    }
    for bad in [
        &b"VA\r\n"[..],
        b"VA x\r\n",
        b"HDX\r\n",
        b"HD\n",
        b"VA 1\r\nabc",
        b"VALUE key 1\r\n",
        b"VALUE key 0 1\r\nabc",
        &[b'x'; 5000],
    ] {
        assert!(Meta.decode(bad, &PENDING).is_err(), "{bad:?}");
    }
}

#[test]
fn requests_are_as_the_protocols_have_them() {
    let mut out = Vec::new();
    Resp.encode(&Op::Put { key: b"key", value: b"four" }, &mut out);
    assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$4\r\n");
    out.clear();
    Resp.encode(&Op::Get { key: b"key" }, &mut out);
    assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
    out.clear();
    Meta.encode(&Op::Put { key: b"key", value: b"four" }, &mut out);
    Meta.encode(&Op::Get { key: b"key" }, &mut out);
    assert_eq!(out, b"ms key 4\r\nmg key v\r\n");
    let two = Op::GetMany { keys: b"onetwo", key_bytes: 3 };
    out.clear();
    Resp.encode(&two, &mut out);
    assert_eq!(out, b"*3\r\n$4\r\nMGET\r\n$3\r\none\r\n$3\r\ntwo\r\n");
    out.clear();
    Meta.encode(&two, &mut out);
    assert_eq!(out, b"get one two\r\n");
    out.clear();
    let (keys, key_bytes) = (b"onetwo", 3);
    Resp.encode(&Op::Transact { keys, key_bytes, value: Some(b"four") }, &mut out);
    let one = b"*3\r\n$3\r\nSET\r\n$3\r\none\r\n$4\r\nfour\r\n";
    let other = b"*3\r\n$3\r\nSET\r\n$3\r\ntwo\r\n$4\r\nfour\r\n";
    let (multi, exec) = (b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n");
    assert_eq!(out, [&multi[..], one, other, exec].concat());
}

#[test]
fn the_answers_to_a_transaction_are_one() {
    let pending = PendingRequest { is_transaction: true, read: false, ..PENDING };
    let stream = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n";
    for end in 0..stream.len() {
        let part = Resp.decode(&stream[..end], &pending).expect("well formed");
        assert!(matches!(part, Decoded::Need(bytes) if bytes > end), "{end}: {part:?}");
    }
    let whole = Decoded::Reply { consumed: stream.len(), outcome: Outcome::Ok { bytes: 0 } };
    assert_eq!(Resp.decode(stream, &pending), Ok(whole));
}
