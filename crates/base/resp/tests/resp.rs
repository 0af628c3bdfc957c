//! Tests the parser of commands and the writer of replies.
#![allow(missing_docs, reason = "a test is no library")]

use proptest::prelude::*;
use sprat_resp::{
    CommandReader, Limits, MAX_ANNOUNCED, MAX_INLINE, MAX_PARTS, Next, Protocol, ReplyWriter,
};

const LIMITS: Limits = Limits { part: 100, command: 400, parts: MAX_PARTS };

/// What a reader returned, in a form that can be compared.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    Command(Vec<Vec<u8>>),
    Refused(String),
    Broken(String),
}

/// Reads all commands of a connection on which `bytes` arrive in pieces of these lengths, again and
/// again.
fn read(bytes: &[u8], pieces: &[usize]) -> Vec<Found> {
    let mut reader = CommandReader::new(LIMITS);
    let mut found = Vec::new();
    let (mut rest, mut lengths) = (bytes, pieces.iter().cycle());
    loop {
        match reader.next() {
            Ok(Next::Command(command)) => {
                assert!(command.len() > 0 && command.get(command.len()).is_none());
                found.push(Found::Command(command.iter().map(<[u8]>::to_vec).collect()));
            }
            Ok(Next::Refused(excess)) => found.push(Found::Refused(excess.to_string())),
            Ok(Next::Incomplete) if rest.is_empty() => return found,
            Ok(Next::Incomplete) => {
                let (piece, after) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
                reader.extend(piece);
                rest = after;
            }
            Err(broken) => {
                found.push(Found::Broken(broken.to_string()));
                return found;
            }
        }
    }
}

/// Reads what arrives at once, and in small pieces, which must make no difference.
fn read_all(bytes: &[u8]) -> Vec<Found> {
    let whole = read(bytes, &[usize::MAX]);
    assert_eq!(whole, read(bytes, &[1]), "one byte at a time");
    assert_eq!(whole, read(bytes, &[3, 17]));
    whole
}

fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ReplyWriter::new(&mut bytes, Protocol::Resp2);
    writer.array(parts.len());
    parts.iter().for_each(|part| writer.bulk(part));
    bytes
}

fn command(parts: &[&str]) -> Found {
    Found::Command(parts.iter().map(|part| part.as_bytes().to_vec()).collect())
}

fn broken(bytes: &[u8]) -> String {
    match read_all(bytes).pop() {
        Some(Found::Broken(why)) => why,
        other => panic!("{other:?} of {}", bytes.escape_ascii()),
    }
}

proptest! {
    #[test]
    fn commands_round_trip_in_pieces_of_any_length(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
            0..6,
        ),
        pieces in prop::collection::vec(1_usize..50, 1..8),
    ) {
        let bytes: Vec<u8> = commands.iter().flat_map(|parts| encode(parts)).collect();
        let found: Vec<_> = commands.into_iter().map(Found::Command).collect();
        prop_assert_eq!(read(&bytes, &pieces), found);
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
                Just(b'"'),
                Just(b'\\'),
                b'0'..=b'9',
            ],
            0..60,
        ),
        pieces in prop::collection::vec(1_usize..9, 1..8),
    ) {
        prop_assert_eq!(read(&bytes, &[usize::MAX]), read(&bytes, &pieces));
    }

    #[test]
    fn replies_stay_on_one_line(why in ".{0,40}") {
        let mut bytes = Vec::new();
        ReplyWriter::new(&mut bytes, Protocol::Resp3).error(why);
        prop_assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}

#[test]
fn inline_commands_are_words_with_quotes() {
    assert_eq!(read_all(b"PING\r\n"), [command(&["PING"])]);
    assert_eq!(
        read_all(b"  set a  b \nget\ta\r\n"),
        [command(&["set", "a", "b"]), command(&["get", "a"])]
    );
    assert_eq!(read_all(b"set \"a b\" 'c\"d'\r\n"), [command(&["set", "a b", "c\"d"])]);
    assert_eq!(
        read_all(b"echo \"\\x41\\n\\q\\xzz\" 'it\\'s'\r\n"),
        [command(&["echo", "A\nqxzz", "it's"])]
    );
    assert_eq!(read_all(b"echo \"\"\r\n"), [command(&["echo", ""])]);
    assert_eq!(read_all(b"\r\n\r\nPING\r\n"), [command(&["PING"])], "an empty line is nothing");
    for line in ["echo \"a\r\n", "echo 'a\r\n", "echo \"a\"b\r\n", "echo \"a\\\r\n"] {
        assert!(broken(line.as_bytes()).contains("unbalanced quotes"), "{line:?}");
    }
}

#[test]
fn empty_arrays_are_nothing() {
    assert_eq!(read_all(b"*0\r\n*-5\r\n*1\r\n$4\r\nPING\r\n"), [command(&["PING"])]);
}

#[test]
fn what_is_no_command_is_named_as_redis_names_it() {
    let cases: &[(&[u8], &str)] = &[
        (b"*x\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\n\xff", "expected '$'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$1x\r\n", "invalid bulk length"),
        (b"*1\r\n$1\r\nab\r\n", "announced length"),
        (b"*1\r\n$111111111111111111111111111111111111", "too big bulk count string"),
        (b"*111111111111111111111111111111111111", "too big mbulk count string"),
    ];
    for (bytes, why) in cases {
        let found = broken(bytes);
        assert!(found.starts_with("ERR Protocol error: ") && found.contains(why), "{found}");
    }
    let many = format!("*{}\r\n", MAX_PARTS + 1);
    assert!(broken(many.as_bytes()).contains("invalid multibulk length"));
    let long = format!("*1\r\n${}\r\n", MAX_ANNOUNCED + 1);
    assert!(broken(long.as_bytes()).contains("invalid bulk length"));
    let line = vec![b'a'; MAX_INLINE];
    assert_eq!(read(&line[1..], &[1000]), []);
    let [Found::Broken(why)] = &read(&line, &[1000])[..] else { panic!("a line without end") };
    assert!(why.contains("too big inline request"));
}

#[test]
fn a_command_above_a_limit_is_skipped_and_the_next_is_executed() {
    let ping = encode(&[b"PING".to_vec()]);
    let long = encode(&[b"SET".to_vec(), b"k".to_vec(), vec![b'v'; 101], b"more".to_vec()]);
    let refused = "ERR an argument has 101 bytes; the limit is 100".to_owned();
    assert_eq!(
        read_all(&[&long[..], &ping].concat()),
        [Found::Refused(refused), command(&["PING"])]
    );
    let many = encode(&vec![vec![b'x'; 90]; 6]);
    let found = read_all(&[&many[..], &ping].concat());
    assert!(
        matches!(&found[..], [Found::Refused(why), Found::Command(_)] if why.contains("400 bytes"))
    );
}

#[test]
fn a_long_part_that_is_skipped_takes_no_memory() {
    let mut reader = CommandReader::new(LIMITS);
    reader.extend(format!("*2\r\n$3\r\nGET\r\n${MAX_ANNOUNCED}\r\n").as_bytes());
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..MAX_ANNOUNCED / piece.len() {
        assert!(matches!(reader.next(), Ok(Next::Incomplete)));
        reader.extend(&piece);
        assert!(reader.held() <= 2 * piece.len(), "{} bytes", reader.held());
    }
    reader.extend(b"\r\n");
    assert!(matches!(reader.next(), Ok(Next::Refused(_))));
}

#[test]
fn replies_follow_the_version_of_the_protocol() {
    let write = |protocol| {
        let mut out = Vec::new();
        let mut writer = ReplyWriter::new(&mut out, protocol);
        writer.map(1);
        writer.simple("a");
        writer.null();
        writer.integer(-7);
        writer.bulk(b"\r\n");
        writer.error("ERR a\r\nb");
        String::from_utf8(out).unwrap()
    };
    let end = ":-7\r\n$2\r\n\r\n\r\n-ERR a  b\r\n";
    assert_eq!(write(Protocol::Resp2), format!("*2\r\n+a\r\n$-1\r\n{end}"));
    assert_eq!(write(Protocol::Resp3), format!("%1\r\n+a\r\n_\r\n{end}"));
}

#[test]
fn a_command_with_too_many_parts_is_skipped() {
    let mut reader = CommandReader::new(Limits { parts: 2, ..LIMITS });
    reader.extend(b"*3\r\n$3\r\nGET\r\n$1\r\na\r\n$1\r\nb\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
    let Ok(Next::Refused(excess)) = reader.next() else { panic!("it has three parts") };
    assert_eq!(excess.to_string(), "ERR the command has 3 parts; the limit is 2");
    assert!(matches!(reader.next(), Ok(Next::Command(command)) if command.len() == 2));
    // The limits may change between two commands.
    reader.set_limits(LIMITS);
    reader.extend(b"*3\r\n$3\r\nGET\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert!(matches!(reader.next(), Ok(Next::Command(command)) if command.len() == 3));
}

#[test]
fn numbers_have_seventeen_digits() {
    for (number, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (0.1, "0.10000000000000001"),
        (1e16, "10000000000000000"),
        (1e17, "1e+17"),
        (1e-4, "0.0001"),
        (1.5e-5, "1.5e-05"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        assert_eq!(sprat_resp::double_text(number), text);
    }
}
