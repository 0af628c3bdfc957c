//! Clients that must authenticate with a password.

use super::client::{RedisClient, RedisProcess, Reply};
use super::{Durability, Served, error, options};
use sprat_store::server::{RedisPassword, ServerOptions};
use std::net::SocketAddr;

/// What a client sends before and after the password.
const LINES: &[&str] = &[
    "GET a",
    "PING",
    "NONSENSE",
    "MULTI",
    "EXEC",
    "AUTH",
    "AUTH wrong",
    "AUTH other secret",
    "AUTH default wrong",
    "AUTH a b c",
    "HELLO 3",
    "HELLO 3 AUTH default wrong",
    "GET a",
    "AUTH secret",
    "GET a",
    "RESET",
    "GET a",
    "AUTH default secret",
    "SET a 1",
    "AUTH wrong",
    "GET a",
    "GET b c d e f g h i j k l m",
];

fn say_all(server: SocketAddr) -> Vec<String> {
    let mut client = RedisClient::connect(server);
    LINES.iter().map(|line| format!("{line}: {:?}", client.say(line))).collect()
}

/// Serves Redis clients that know the password.
fn serve(dir: &std::path::Path) -> Served {
    let file = dir.join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let password = RedisPassword::read(&file).unwrap();
    assert_eq!(format!("{password:?}"), "RedisPassword", "it is not shown");
    let options = options(&dir.join("data"), Durability::None);
    Served::start(&ServerOptions { redis_password: Some(password), ..options })
}

#[test]
fn clients_without_the_password_can_do_nothing() {
    let Some(redis) = RedisProcess::start_with(&["--requirepass", "secret"]) else {
        return sprat_testing::skip("redis-server is not installed");
    };
    let dir = tempfile::tempdir().unwrap();
    let served = serve(dir.path());
    for (our, their) in say_all(served.address).iter().zip(&say_all(redis.address)) {
        assert_eq!(our, their);
    }
    served.server.stop().unwrap();
}

#[test]
fn a_client_that_is_not_authenticated_holds_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let served = serve(dir.path());
    let mut client = served.client();
    let refused = client.ask(&[b"AUTH".to_vec(), vec![b'x'; 20_000]]);
    assert!(error(&refused).contains("20000 bytes; the limit is 16384"), "{refused:?}");
    let refused = client.ask(&["DEL"; 11]);
    assert_eq!(error(&refused), "ERR the command has 11 parts; the limit is 10");
    assert_eq!(client.say("AUTH secret"), Reply::ok());
    assert_eq!(client.ask(&["DEL"; 11]), Reply::Integer(0));
    assert_eq!(client.ask(&[b"SET".to_vec(), b"a".to_vec(), vec![0; 20_000]]), Reply::ok());
    served.server.stop().unwrap();
}

#[test]
fn a_password_is_one_line_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    for (text, why) in [("", "empty"), ("\n", "empty"), ("a\nb\n", "more than one line")] {
        std::fs::write(&file, text).unwrap();
        assert!(RedisPassword::read(&file).unwrap_err().to_string().contains(why), "{text:?}");
    }
    std::fs::write(&file, "x".repeat(513)).unwrap();
    assert!(RedisPassword::read(&file).unwrap_err().to_string().contains("512 bytes"));
    std::fs::write(&file, "secret\r\n").unwrap();
    let redis_password = Some(RedisPassword::read(&file).unwrap());
    let options = options(&dir.path().join("data"), Durability::None);
    let served = Served::start(&ServerOptions { redis_password, ..options });
    assert_eq!(served.client().say("AUTH secret"), Reply::ok());
    served.server.stop().unwrap();
}
