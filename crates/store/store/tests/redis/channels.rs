//! Subscribers and publishers.

use super::client::{RedisClient, RedisProcess, Reply, encode};
use super::{Durability, Served, error, options};
use std::net::SocketAddr;

/// What two clients say in turns, and how many replies each then receives.
const DIALOGUE: &[(usize, &str, usize)] = &[
    (0, "SUBSCRIBE a b a", 3),
    (0, "PSUBSCRIBE a* *", 2),
    (1, "PUBLISH a hello", 1),
    (0, "", 3),
    (1, "PUBLISH c hello", 1),
    (0, "", 1),
    (1, "PUBSUB CHANNELS a*", 1),
    (1, "PUBSUB CHANNELS b*", 1),
    (1, "PUBSUB NUMSUB a b c", 1),
    (1, "PUBSUB NUMPAT", 1),
    (1, "PUBSUB", 1),
    (0, "PING", 1),
    (0, "PING there", 1),
    (0, "SUBSCRIBE", 1),
    (0, "PUNSUBSCRIBE a* *", 2),
    (0, "PUNSUBSCRIBE", 1),
    (0, "UNSUBSCRIBE none a", 2),
    (1, "PUBLISH a unheard", 1),
    (1, "MULTI", 1),
    (1, "PUBLISH b one", 1),
    (1, "SET key value", 1),
    (1, "PUBLISH b two", 1),
    (1, "EXEC", 1),
    (0, "", 2),
    (0, "UNSUBSCRIBE", 1),
    (0, "UNSUBSCRIBE", 1),
    (0, "GET key", 1),
    (1, "PUBLISH b unheard", 1),
    (0, "SUBSCRIBE z", 1),
    (0, "RESET", 1),
    (1, "PUBLISH z unheard", 1),
    (0, "PING", 1),
];

/// Holds the dialogue with a server; returns all replies.
fn hold(server: SocketAddr, protocol: &str) -> Vec<String> {
    let mut clients = [0; 2].map(|_| RedisClient::connect(server));
    for client in &mut clients {
        client.ask(&["HELLO", protocol]);
    }
    let mut replies = Vec::new();
    for (client, says, count) in DIALOGUE {
        let client = &mut clients[*client];
        if !says.is_empty() {
            client.send(&encode(&says.split(' ').collect::<Vec<_>>()));
        }
        let mut received: Vec<_> =
            (0..*count).map(|_| format!("{says}: {:?}", client.reply().unwrap())).collect();
        // The order of channels and patterns is not defined.
        received.sort_unstable();
        replies.append(&mut received);
    }
    replies
}

#[test]
fn subscribers_get_what_redis_gives_them() {
    let Some(redis) = RedisProcess::start() else {
        return sprat_testing::skip("redis-server is not installed");
    };
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::Sync));
    for protocol in ["2", "3"] {
        let (ours, theirs) = (hold(served.address, protocol), hold(redis.address, protocol));
        for (our, their) in ours.iter().zip(&theirs) {
            assert_eq!(our, their, "protocol {protocol}");
        }
    }
    served.server.stop().unwrap();
}

#[test]
fn a_subscriber_may_not_send_other_commands_in_resp2() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    client.say("SUBSCRIBE a");
    assert!(error(&client.say("GET a")).contains("only (P|S)SUBSCRIBE"));
    assert!(error(&client.say("HELLO 3")).contains("Can't execute 'hello'"));
    let long = "x".repeat(1025);
    assert!(error(&client.ask(&["SUBSCRIBE", &long])).contains("1025 bytes; the limit is 1024"));
    let mut client = served.client();
    client.say("HELLO 3");
    client.say("SUBSCRIBE a");
    assert_eq!(client.say("GET a"), Reply::Null);
    served.server.stop().unwrap();
}

/// Subscribers that take nothing lose their connection, and the others get all messages.
#[test]
fn a_slow_subscriber_is_disconnected_and_the_others_get_all_messages() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let (mut slow, mut good, mut publisher) = (served.client(), served.client(), served.client());
    for client in [&mut slow, &mut good] {
        client.say("SUBSCRIBE news");
    }
    let payload = vec![b'x'; 1 << 20];
    let mut sent = 0;
    loop {
        let publish = [b"PUBLISH".to_vec(), b"news".to_vec(), payload.clone()];
        let Reply::Integer(receivers) = publisher.ask(&publish) else { panic!("no number") };
        sent += 1;
        assert!(matches!(good.reply(), Some(Reply::Many(b'*', parts)) if parts.len() == 3));
        if receivers == 1 {
            break;
        }
        assert!(sent < 100, "it keeps {sent} messages for a client that takes none");
    }
    // The slow one gets what it was sent, and then the end of the connection.
    let mut got = 0;
    while slow.reply().is_some() {
        got += 1;
    }
    assert!(got < sent, "{got} of {sent}");
    served.server.stop().unwrap();
}

/// A message that a client gets for many subscriptions is more than it may leave untaken. It is
/// disconnected before it was given the last copy.
#[test]
fn a_message_for_many_subscriptions_of_a_client_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let (mut greedy, mut publisher) = (served.client(), served.client());
    let patterns = ["n*", "*s", "ne*", "*ws", "new*", "*ews", "news*", "*news", "n?ws", "ne?s"];
    let patterns = [&patterns[..], &["?ews", "new?"]].concat();
    for pattern in &patterns {
        greedy.say(&format!("PSUBSCRIBE {pattern}"));
    }
    let publish = [b"PUBLISH".to_vec(), b"news".to_vec(), vec![b'x'; 1 << 20]];
    assert_eq!(publisher.ask(&publish), Reply::Integer(patterns.len().try_into().unwrap()));
    assert_eq!(publisher.ask(&publish), Reply::Integer(0), "it is gone");
    while greedy.reply().is_some() {}
    served.server.stop().unwrap();
}
