//! A gigabyte from far away, by what people use and by ours, in turns: how long it takes, and what
//! it costs.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use sprat_lab::line::LineSettings as Line;

use super::transfer::{Client, Fetched, Server, Serving, folder, make, median, plain};
use crate::lab::net::{Net, delayed, gigabits};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;
use sprat_units::figure;

/// Bytes of the file; and without `--full`.
const BYTES_FULL: u64 = 1_000_000_000;
const BYTES: u64 = 250_000_000;

const ROUND_TRIP: Duration = Duration::from_millis(200);

/// Rate of the path: more than anything here fills, and yet one.
const RATE: f64 = 10.0;
const BUFFER: u64 = 128_000_000;

/// How much better than the peers' best, and than plain curl; and the share of their processor
/// time.
const FASTER: f64 = 1.5;
const FASTER_THAN_PLAIN: f64 = 10.0;
const CHEAPER: f64 = 0.5;

/// What is measured beside, each with the settings that favour it.
const PEERS: [Client; 4] = [Client::Curl, Client::Aria2, Client::Axel, Client::Rclone];

/// Streams of ours, where the peers have sixteen.
const STREAMS: [u8; 3] = [2, 4, 8];

/// A system, a server and a client.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Turn {
    plain: bool,
    server: Server,
    client: Client,
    /// Whether the server has sent the file before.
    again: bool,
}

impl Turn {
    fn new(server: Server, client: Client) -> Self {
        Self { plain: false, server, client, again: false }
    }

    fn plain(server: Server, client: Client) -> Self {
        Self { plain: true, ..Self::new(server, client) }
    }

    fn again(server: Server, client: Client) -> Self {
        Self { again: true, ..Self::new(server, client) }
    }
}

/// See the module.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let bytes = if settings.full { BYTES_FULL } else { BYTES };
    let (_folder, at) = folder(settings)?;
    make(&at.join("file"), bytes)?;
    let there = Line { rate: gigabits(RATE), buffer: BUFFER, ..delayed(ROUND_TRIP / 2) };
    let mut turns = vec![Turn::new(Server::Sprat, Client::Sprat)];
    turns.extend(STREAMS.map(|count| Turn::new(Server::Sprat, Client::SpratStreams(count))));
    turns.extend(PEERS.map(|peer| Turn::new(Server::Nginx, peer)));
    turns.extend([
        Turn::new(Server::Sprat, Client::Curl),
        Turn::again(Server::Sprat, Client::Sprat),
        Turn::new(Server::Rclone, Client::Curl),
        Turn::new(Server::Rclone, Client::Rclone),
        Turn::plain(Server::Sprat, Client::Sprat),
        Turn::plain(Server::Nginx, Client::Curl),
    ]);
    let mut results: Vec<Vec<Fetched>> = turns.iter().map(|_| Vec::new()).collect();
    for round in 0..settings.lab.rounds {
        for (turn, results) in turns.iter().zip(&mut results) {
            let net = Net::pair(there.clone(), delayed(ROUND_TRIP / 2))?;
            if turn.plain {
                net.hosts.iter().try_for_each(plain)?;
            }
            let from: IpAddr = net.address(0, false);
            let program = &settings.program;
            let serving = Serving::start(turn.server, &net.hosts[0], from, program, &at, &at)?;
            let to = at.join(format!("fetched-{round}"));
            if turn.again {
                serving.fetch(turn.client, &net.hosts[1], "file", Path::new("/dev/null"))?;
            }
            results.push(serving.fetch(turn.client, &net.hosts[1], "file", &to)?);
            let same = std::fs::metadata(&to)?.len() == bytes;
            anyhow::ensure!(same, "{} fetched another length", turn.client.name());
            std::fs::remove_file(&to)?;
            rustix::fs::sync(); // what one has written is not for the next to wait for
        }
    }
    tell(bytes, &turns, &results, findings);
    Ok(())
}

fn tell(bytes: u64, turns: &[Turn], results: &[Vec<Fetched>], findings: &mut Findings) {
    let gigabytes = bytes as f64 / 1e9;
    let of = |turn: Turn, what: fn(&Fetched) -> f64| {
        let at = turns.iter().position(|other| *other == turn)?;
        median(results[at].iter().map(what).collect())
    };
    let rate = |turn| of(turn, |run| run.seconds).map(|seconds| gigabytes * 8.0 / seconds);
    let sender = |turn| of(turn, |run| run.sender).map(|seconds| seconds / gigabytes);
    let receiver = |turn| of(turn, |run| run.receiver).map(|seconds| seconds / gigabytes);
    let mut table = Table::new(&[
        "fetched by",
        "from",
        "system",
        "seconds",
        "Gb/s",
        "sender CPU s/GB",
        "receiver CPU s/GB",
    ]);
    for &turn in turns {
        let figure = |figure: Option<f64>| figure.map_or("-".to_owned(), figure::digits);
        table.row(vec![
            turn.client.name(),
            format!("{}{}", turn.server.name(), if turn.again { ", again" } else { "" }),
            if turn.plain { "as it comes" } else { "windows of 1 GB" }.to_owned(),
            figure(of(turn, |run| run.seconds)),
            figure(rate(turn)),
            figure(sender(turn)),
            figure(receiver(turn)),
        ]);
    }
    findings.table(&format!("{gigabytes} GB, 200 ms away, disk to disk"), table);
    let ours = Turn::new(Server::Sprat, Client::Sprat);
    let nginx = |client| Turn::new(Server::Nginx, client);
    let best = PEERS.into_iter().filter_map(|peer| rate(nginx(peer))).reduce(f64::max);
    let several = STREAMS
        .map(|count| rate(Turn::new(Server::Sprat, Client::SpratStreams(count))))
        .into_iter()
        .flatten();
    let name = format!("{gigabytes} GB at 200 ms");
    let mut vs_best = |how: &str, ours| {
        let name = format!("{name}{how}: vs the best of curl, aria2, axel, rclone");
        findings.row(&name, ours, best, "Gb/s", Goal::RatioAtLeast(FASTER));
    };
    vs_best("", rate(ours));
    vs_best(", the best of 2, 4 and 8 streams", several.reduce(f64::max));
    findings.row(
        &format!("{name}: vs curl, systems as they come"),
        rate(Turn::plain(Server::Sprat, Client::Sprat)),
        rate(Turn::plain(Server::Nginx, Client::Curl)),
        "Gb/s",
        Goal::RatioAtLeast(FASTER_THAN_PLAIN),
    );
    let goal = Goal::RatioAtMost(CHEAPER);
    for client in [Client::Curl, Client::Rclone] {
        let row = format!("{name}: receiver's processor, vs {}", client.name());
        findings.row(&row, receiver(ours), receiver(nginx(client)), "s/GB", goal);
    }
    let again = Turn::again(Server::Sprat, Client::Sprat);
    for (how, ours) in [("", ours), (", a file that was sent before", again)] {
        for server in [Server::Nginx, Server::Rclone] {
            for client in [Client::Curl, Client::Rclone] {
                let row = format!(
                    "{name}{how}: sender's processor, vs {} to {}",
                    server.name(),
                    client.name()
                );
                findings.row(&row, sender(ours), sender(Turn::new(server, client)), "s/GB", goal);
            }
        }
    }
    findings.note("Processor time is of the processes alone: what the kernel does in interrupts for them is not counted, for anybody.".to_owned());
}
