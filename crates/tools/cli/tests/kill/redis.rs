//! Kills the server while Redis clients count. After each restart, every counter is at least what
//! the last reply said, and at most what was sent. Some clients count a counter and a field of a
//! hash by transactions; these are equal after each restart.

use crate::support::ServerProcess;
use sprat_chance::Chance;
use sprat_testing::PATIENCE;
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

const KILLS: usize = 12;

/// Clients, each with a counter of its own.
const CLIENTS: usize = 3;

/// The first client that counts two counters by transactions; the clients after it do, too.
const FIRST_PAIR: usize = 1;

/// Increments that a client sends at once.
const AT_ONCE: usize = 8;

/// Exclusive limit on the random time after which the server is killed, in milliseconds.
const LONGEST_LIFE: u64 = 300;

/// What a client knows of its counter.
#[derive(Clone, Copy, Default)]
struct Count {
    /// The highest value in a reply.
    acknowledged: u64,
    /// The value if all that was sent took effect.
    sent: u64,
}

/// Returns the address at which a server serves Redis clients.
fn address(server: &ServerProcess) -> String {
    let said = server.startup_log.split_once("serving Redis clients at ").expect("it says so").1;
    said.split_once(';').expect("and how to try").0.to_owned()
}

/// Reads the next integer in the replies; `None` if the server has gone.
fn integer(replies: &mut impl BufRead) -> Option<u64> {
    loop {
        let mut line = String::new();
        replies.read_line(&mut line).ok()?;
        match line.strip_suffix("\r\n")? {
            // What comes before the numbers of a transaction.
            "+OK" | "+QUEUED" | "*2" => {}
            line => {
                let digits = line.strip_prefix(':');
                let digits = digits.unwrap_or_else(|| panic!("no number: {line:?}"));
                return Some(digits.parse().expect("a number"));
            }
        }
    }
}

type Connection = (TcpStream, BufReader<TcpStream>);

fn connect(address: &str) -> Connection {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    (stream.try_clone().expect("a descriptor"), BufReader::new(stream))
}

/// Counts until the server has gone.
fn count((mut stream, mut replies): Connection, client: usize, mut known: Count) -> Count {
    let counters = if client < FIRST_PAIR { 1 } else { 2 };
    let commands = match counters {
        1 => format!("INCR counter:{client}\r\n"),
        _ => format!("MULTI\r\nINCR counter:{client}\r\nHINCRBY others {client} 1\r\nEXEC\r\n"),
    }
    .repeat(AT_ONCE);
    loop {
        known.sent += AT_ONCE as u64;
        if stream.write_all(commands.as_bytes()).is_err() {
            return known;
        }
        for _ in 0..AT_ONCE * counters {
            let Some(value) = integer(&mut replies) else { return known };
            known.acknowledged = value;
        }
    }
}

#[test]
fn acknowledged_commands_of_redis_clients_survive_kills() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let flags = ["--redis", "127.0.0.1:0", "--memory", "64M", "--disk", "256M"];
    let mut random = Chance::new(27);
    let mut counts = [Count::default(); CLIENTS];
    for kill in 0..=KILLS {
        let mut server = ServerProcess::start(dir.path(), &flags).expect("it starts again");
        let address = address(&server);
        let (mut stream, mut replies) = connect(&address);
        for (client, known) in counts.iter_mut().enumerate() {
            write!(stream, "INCRBY counter:{client} 0\r\n").expect("it runs");
            let value = integer(&mut replies).expect("it runs");
            let Count { acknowledged, sent } = *known;
            assert!((acknowledged..=sent).contains(&value), "{acknowledged}..={sent}: {value}");
            *known = Count { acknowledged: value, sent: value };
            if client >= FIRST_PAIR {
                write!(stream, "HINCRBY others {client} 0\r\n").expect("it runs");
                assert_eq!(integer(&mut replies), Some(value), "half of a transaction");
            }
        }
        if kill == KILLS {
            assert!(counts.iter().all(|count| count.acknowledged > 0), "nothing was counted");
            assert!(server.stop().success());
            return;
        }
        let clients: Vec<_> = counts
            .into_iter()
            .enumerate()
            .map(|(client, known)| {
                let connection = connect(&address);
                thread::spawn(move || count(connection, client, known))
            })
            .collect();
        thread::park_timeout(Duration::from_millis(random.modulo(LONGEST_LIFE)));
        server.kill();
        for (known, client) in counts.iter_mut().zip(clients) {
            *known = client.join().expect("it counts until the end");
        }
    }
}
