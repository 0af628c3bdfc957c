//! Tests what the server says of its commands, beside Redis.

use super::client::{RedisClient, RedisProcess, Reply};
use super::{Durability, Served, options};
use std::collections::BTreeSet;

/// `COMMAND` says of the keys and flags what Redis says, so that clients find the keys.
#[test]
fn commands_describe_themselves_as_redis_does() {
    let Some(redis) = RedisProcess::start() else {
        return sprat_testing::skip("redis-server is not installed");
    };
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let (mut ours, mut theirs) = (served.client(), RedisClient::connect(redis.address));
    let Reply::Many(_, names) = ours.say("COMMAND LIST") else { panic!("no list") };
    let (mut compared, mut differences) = (0, Vec::new());
    for name in names {
        let Reply::Bulk(name) = name else { panic!("no name") };
        let ask = [b"COMMAND".to_vec(), b"INFO".to_vec(), name.clone()];
        let [our, their] = [&mut ours, &mut theirs].map(|client| client.ask(&ask).elements());
        let [Reply::Many(_, our)] = &our[..] else { panic!("no command") };
        let [Reply::Many(_, their)] = &their[..] else { continue };
        let is_keyed = |info: &[Reply]| info[3] != Reply::Integer(0);
        let moves = format!("{:?}", their[2]).contains("movablekeys");
        if !is_keyed(our) && !is_keyed(their) && !moves {
            continue;
        }
        compared += 1;
        let about = |info: &[Reply]| {
            let flags = info[2].clone().elements().into_iter().map(|flag| format!("{flag:?}"));
            let flags = flags
                .filter(|flag| !["noscript", "skip", "busy"].iter().any(|it| flag.contains(it)));
            format!("{:?} {:?} {:?}", info[1], &info[3..6], flags.collect::<BTreeSet<_>>())
        };
        if about(our) != about(their) {
            let name = String::from_utf8_lossy(&name);
            differences.push(format!("{name}: {} here, {}", about(our), about(their)));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(compared > 100, "{compared} commands");
    served.server.stop().unwrap();
}

#[test]
fn the_keys_of_a_command_are_those_that_redis_finds() {
    let Some(redis) = RedisProcess::start() else {
        return sprat_testing::skip("redis-server is not installed");
    };
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let (mut ours, mut theirs) = (served.client(), RedisClient::connect(redis.address));
    for command in [
        "ping x",
        "nosuch x",
        "get",
        "get a b",
        "zunionstore d 9 a b c",
        "zunionstore d x a b c",
        "zinter 0 a",
        "zinter 2 a",
        "sort a by x store b",
        "sort a store",
        "blpop a b 0",
        "lmpop 1 a LEFT",
        "dbsize x",
        "mset a 1 b",
        "mset a 1 b 2",
        "watch a b",
        "publish a b",
        "zinterstore d 1 a",
        "copy a b",
    ] {
        let ask = format!("COMMAND GETKEYS {command}");
        assert_eq!(ours.say(&ask), theirs.say(&ask), "{ask}");
    }
    served.server.stop().unwrap();
}

/// What an error advises works.
#[test]
fn commands_with_subcommands_explain_them() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    for name in ["CLIENT", "COMMAND", "CONFIG", "PUBSUB", "SCRIPT"] {
        let expected = format!("ERR unknown subcommand 'nonsense'. Try {name} HELP.");
        assert_eq!(client.say(&format!("{name} nonsense")), Reply::Error(expected));
        let lines = client.say(&format!("{name} HELP")).elements();
        assert_eq!(lines.last(), Some(&Reply::Simple("    Print this help.".into())));
        let expected = format!(
            "ERR wrong number of arguments for '{}|help' command",
            name.to_ascii_lowercase()
        );
        assert_eq!(client.say(&format!("{name} HELP more")), Reply::Error(expected));
    }
    served.server.stop().unwrap();
}
