//! Tests the commands that the bridge has for Redis clients.
#![allow(missing_docs, reason = "a test is no library")]

use sprat_bridge::{COMMAND_LIMITS, MAX_ARGUMENTS, RedisCommand};
use sprat_resp::{CommandReader, Next};

fn of(line: &str) -> Result<String, String> {
    let mut reader = CommandReader::new(COMMAND_LIMITS);
    reader.extend(line.as_bytes());
    reader.extend(b"\r\n");
    let Ok(Next::Command(command)) = reader.next() else { panic!("no command: {line}") };
    RedisCommand::of(command).map(|command| format!("{command:?}"))
}

#[test]
fn commands_are_those_of_redis() {
    assert_eq!(of("get a"), Ok(format!("{:?}", RedisCommand::Get(b"a"))));
    assert_eq!(of("SET a b"), Ok(format!("{:?}", RedisCommand::Set(b"a", b"b"))));
    assert!(of("SET a b EX 5").unwrap_err().contains("nothing expires here"));
    assert!(of("GET a b").unwrap_err().contains("wrong number of arguments for GET"));
    assert!(of("FLUSHALL").unwrap_err().contains("unknown command"));
    let many = format!("MGET{}", " k".repeat(MAX_ARGUMENTS));
    assert!(of(&many).unwrap_err().contains("1024 parts"));
}
