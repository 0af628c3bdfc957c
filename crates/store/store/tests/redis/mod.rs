//! Redis clients of a whole server, over real sockets.

mod channels;
mod client;
mod commands;
mod hashes;
mod lists;
mod passwords;
mod random;
mod scripts;
mod transactions;
mod users;

use crate::common::clients::client_of;
use client::{RedisClient, Reply, encode};
use sprat_client::Client;
use sprat_store::server::{Durability, Server, ServerOptions};
use sprat_wire::value::Number;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

pub(crate) fn options(data: &Path, durability: Durability) -> ServerOptions {
    let redis = Some(([127, 0, 0, 1], 0).into());
    ServerOptions { redis, durability, ..ServerOptions::alone(data) }
}

/// A server, and its address for Redis clients.
struct Served {
    server: Server,
    address: SocketAddr,
}

impl Served {
    fn start(options: &ServerOptions) -> Self {
        let server = Server::start(options).unwrap();
        let address = server.redis.expect("as the options say");
        Self { server, address }
    }

    fn client(&self) -> RedisClient {
        RedisClient::connect(self.address)
    }

    fn native(&self) -> Client {
        client_of(&self.server)
    }
}

fn error(reply: &Reply) -> &str {
    match reply {
        Reply::Error(text) => text,
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn acknowledged_writes_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), Durability::Sync);
    let served = Served::start(&options);
    let mut client = served.client();
    assert_eq!(client.say("SET a 1"), Reply::ok());
    assert_eq!(client.say("SET gone 1"), Reply::ok());
    assert_eq!(client.say("SET later 1 EX 1000"), Reply::ok());
    assert_eq!(client.say("DEL gone"), Reply::Integer(1));
    assert_eq!(client.say("SELECT 3"), Reply::ok());
    assert_eq!(client.say("SET a 3"), Reply::ok());
    served.server.stop().unwrap();
    let served = Served::start(&options);
    let mut client = served.client();
    assert_eq!(client.say("GET a"), Reply::bulk("1"));
    assert_eq!(client.say("EXISTS gone"), Reply::Integer(0));
    let Reply::Integer(ttl) = client.say("TTL later") else { panic!("no number") };
    assert!((900..=1000).contains(&ttl), "{ttl}");
    assert_eq!(client.say("SELECT 3"), Reply::ok());
    assert_eq!(client.say("GET a"), Reply::bulk("3"));
    served.server.stop().unwrap();
}

#[test]
fn the_store_s_own_clients_see_the_same_objects() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let (mut client, mut native) = (served.client(), served.native());
    assert_eq!(client.say("SET a text"), Reply::ok());
    let table = native.table("redis-0").unwrap();
    assert_eq!(native.get(table, b"a").unwrap().unwrap().value, b"text");
    native.put(table, b"b", b"own").unwrap();
    assert_eq!(client.say("GET b"), Reply::bulk("own"));
    // A counter of the store stays one, and is a number to Redis clients.
    native.increment_i64(table, b"visits", 41).unwrap();
    assert_eq!(client.say("GET visits"), Reply::bulk("41"));
    assert_eq!(client.say("STRLEN visits"), Reply::Integer(2));
    assert_eq!(client.say("INCR visits"), Reply::Integer(42));
    let object = native.get(table, b"visits").unwrap().unwrap();
    assert_eq!(Number::of(object.value_type, &object.value), Some(Number::Integer(42)));
    assert_eq!(client.say("APPEND visits 0"), Reply::Integer(3));
    assert_eq!(client.say("GET visits"), Reply::bulk("420"));
    // A table that is dropped is made again, empty.
    native.drop_table("redis-0").unwrap();
    assert_eq!(client.say("GET a"), Reply::Null);
    assert_eq!(client.say("SET a again"), Reply::ok());
    served.server.stop().unwrap();
}

#[test]
fn replies_to_pipelined_commands_come_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::Sync));
    let mut client = served.client();
    let mut commands = Vec::new();
    for number in 0..500_i64 {
        commands.push(encode(&["SET", "n", &number.to_string()]));
        commands.push(encode(&["GET", "n"]));
        commands.push(encode(&["GET", "missing"]));
    }
    client.send(&commands.concat());
    for number in 0..500 {
        assert_eq!(client.reply(), Some(Reply::ok()));
        assert_eq!(client.reply(), Some(Reply::bulk(&number.to_string())));
        assert_eq!(client.reply(), Some(Reply::Null));
    }
    // What was sent before the client ended its half of the connection is answered.
    client.send(&encode(&["SET", "n", "last"]));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!((client.reply(), client.reply()), (Some(Reply::ok()), None));
    served.server.stop().unwrap();
}

#[test]
fn what_a_client_must_not_send_is_named_and_concerns_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut other = served.client();
    // A value or a key that is too long is refused, and the connection goes on.
    let mut client = served.client();
    let refused = client.ask(&[b"SET".to_vec(), b"k".to_vec(), vec![0; (1 << 20) + 1]]);
    assert_eq!(error(&refused), "ERR an argument has 1048577 bytes; the limit is 1048576");
    let refused = client.ask(&[b"GET".to_vec(), vec![b'k'; 70_000]]);
    assert!(error(&refused).contains("70000 bytes; the limit is"), "{refused:?}");
    assert_eq!(client.ask(&[b"SET".to_vec(), b"k".to_vec(), vec![7; 1 << 20]]), Reply::ok());
    assert!(error(&client.say("APPEND k x")).contains("maximum allowed size"));
    // Ten thousand arguments are fine, and half a gigabyte is announced in vain.
    let keys = vec!["k"; 10_000];
    assert_eq!(client.ask(&[&["EXISTS"][..], &keys].concat()), Reply::Integer(10_000));
    let refused = client.ask(&[&["MGET"][..], &keys].concat());
    assert!(error(&refused).contains("the reply is longer than 16777216 bytes"), "{refused:?}");
    let refused = client.ask(&[b"KEYS".to_vec(), vec![b'*'; 1025]]);
    assert_eq!(error(&refused), "ERR a pattern has 1025 bytes; the limit is 1024");
    client.send(b"*2\r\n$3\r\nGET\r\n$536870912\r\n");
    assert_eq!(other.say("PING"), Reply::Simple("PONG".into()));
    // What is no command ends the connection.
    for (sent, why) in [
        ("*2\r\n$3\r\nGET\r\n+k\r\n", "expected '$', got '+'"),
        ("*x\r\n", "invalid multibulk length"),
        ("GET \"k\r\n", "unbalanced quotes"),
        ("POST / HTTP/1.1\r\n", "unknown command"),
    ] {
        let mut client = served.client();
        client.send(sent.as_bytes());
        let refused = client.reply().expect("a reply");
        assert!(error(&refused).contains(why), "{refused:?}");
        assert_eq!(client.reply(), None, "closed after {sent:?}");
    }
    let mut client = served.client();
    client.send(b"set inline 'a b'\r\n\r\nget inline\r\nquit\r\n");
    assert_eq!(client.reply(), Some(Reply::ok()));
    assert_eq!(client.reply(), Some(Reply::bulk("a b")));
    assert_eq!((client.reply(), client.reply()), (Some(Reply::ok()), None));
    assert_eq!(other.say("GET inline"), Reply::bulk("a b"));
    served.server.stop().unwrap();
}

/// A client sends commands with long replies and takes none. The server stops executing its
/// commands, and serves others.
#[test]
fn a_client_that_takes_no_replies_stops_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut other = served.client();
    assert_eq!(other.ask(&[b"SET".to_vec(), b"k".to_vec(), vec![7; 100_000]]), Reply::ok());
    let mut slow = served.client();
    slow.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let get = encode(&["GET", "k"]);
    let mut sent = 0;
    loop {
        match slow.stream.write(&get[sent % get.len()..]) {
            Ok(len) => sent += len,
            // It takes no more, or the machine was busy for as long.
            Err(_) if sent > 4000 * get.len() => break,
            Err(_) => {}
        }
        assert!(sent < 1 << 30, "the server takes all commands");
    }
    for _ in 0..100 {
        assert_eq!(other.say("STRLEN k"), Reply::Integer(100_000));
    }
    // Once the client takes replies, its commands are executed.
    for _ in 0..1000 {
        assert!(matches!(slow.reply(), Some(Reply::Bulk(value)) if value.len() == 100_000));
    }
    drop(slow);
    assert_eq!(other.say("PING"), Reply::Simple("PONG".into()));
    served.server.stop().unwrap();
}

#[test]
fn a_server_that_is_no_complete_store_refuses_redis_clients() {
    let dir = tempfile::tempdir().unwrap();
    let alone = options(dir.path(), Durability::None);
    let refusal = |options: &ServerOptions| match Server::start(options) {
        Ok(_) => panic!("it starts"),
        Err(error) => error.to_string(),
    };
    let listen = vec![alone.listen[0].clone(); 2];
    assert!(refusal(&ServerOptions { listen, ..alone.clone() }).contains("one node"));
    let redis = Some(([0, 0, 0, 0], 0).into());
    assert!(refusal(&ServerOptions { redis, ..alone.clone() }).contains("--redis-password-file"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let redis = Some(taken.local_addr().unwrap());
    assert!(refusal(&ServerOptions { redis, ..alone }).contains("listen for Redis clients"));
}
