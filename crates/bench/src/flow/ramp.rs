//! A gigabyte from far away, by what people use and by ours, in turns: how long it takes, and what it costs.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use sprat_lab::line::Settings as Line;

use super::transfer::{Client, Fetched, Server, Serving, folder, make, median};
use crate::goals::Goal;
use crate::lab::host::Host;
use crate::lab::net::{Net, delayed, gigabits};
use crate::promises::{Findings, Settings};
use crate::table::Table;
use crate::units;

/// Bytes of the file; and without `--full`.
const BYTES_FULL: u64 = 1_000_000_000;
const BYTES: u64 = 250_000_000;

const ROUND_TRIP: Duration = Duration::from_millis(200);

/// Rate of the path: more than anything here fills, and yet one.
const RATE: f64 = 10.0;
const BUFFER: u64 = 128_000_000;

/// How Linux comes.
const PLAIN: [(&str, &str); 2] = [("ipv4/tcp_rmem", "4096 131072 6291456"), ("ipv4/tcp_wmem", "4096 16384 4194304")];

/// How much better than the peers' best, and than plain curl; and the share of their processor time.
const FASTER: f64 = 1.5;
const FASTER_THAN_PLAIN: f64 = 10.0;
const CHEAPER: f64 = 0.5;

/// A system, a server and a client.
#[derive(Clone, Copy, Debug)]
struct Turn {
    plain: bool,
    server: Server,
    client: Client,
}

/// See the module.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let bytes = if settings.full { BYTES_FULL } else { BYTES };
    let (_folder, at) = folder(settings)?;
    make(&at.join("file"), bytes)?;
    let there = Line { rate: gigabits(RATE), buffer: BUFFER, ..delayed(ROUND_TRIP / 2) };
    let each = |plain, server, client| Turn { plain, server, client };
    let turns = [
        each(false, Server::Sprat, Client::Sprat),
        each(false, Server::Nginx, Client::Curl),
        each(false, Server::Nginx, Client::Aria2),
        each(false, Server::Nginx, Client::Axel),
        each(false, Server::Nginx, Client::Rclone),
        each(false, Server::Sprat, Client::Curl),
        each(true, Server::Sprat, Client::Sprat),
        each(true, Server::Nginx, Client::Curl),
    ];
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

fn plain(host: &Host) -> Result<()> {
    host.run(|| {
        for (knob, value) in PLAIN {
            std::fs::write(format!("/proc/sys/net/{knob}"), value)?;
        }
        Ok(())
    })
}

fn tell(bytes: u64, turns: &[Turn], results: &[Vec<Fetched>], findings: &mut Findings) {
    let gigabytes = bytes as f64 / 1e9;
    let of = |at: usize, what: fn(&Fetched) -> f64| median(results[at].iter().map(what).collect());
    let rate = |at: usize| of(at, |run| run.seconds).map(|seconds| gigabytes * 8.0 / seconds);
    let sender = |at: usize| of(at, |run| run.sender).map(|seconds| seconds / gigabytes);
    let receiver = |at: usize| of(at, |run| run.receiver).map(|seconds| seconds / gigabytes);
    let mut table =
        Table::new(&["fetched by", "from", "system", "seconds", "Gb/s", "sender CPU s/GB", "receiver CPU s/GB"]);
    for (at, turn) in turns.iter().enumerate() {
        let figure = |figure: Option<f64>| figure.map_or("-".to_owned(), units::digits);
        table.row(vec![
            turn.client.name().to_owned(),
            if turn.server == Server::Sprat { "sprat share" } else { "nginx" }.to_owned(),
            if turn.plain { "as it comes" } else { "windows of 1 GB" }.to_owned(),
            figure(of(at, |run| run.seconds)),
            figure(rate(at)),
            figure(sender(at)),
            figure(receiver(at)),
        ]);
    }
    findings.table(&format!("{gigabytes} GB, 200 ms away, disk to disk"), table);
    let best =
        (1..=4).filter_map(rate).fold(None, |best: Option<f64>, rate| Some(best.map_or(rate, |best| best.max(rate))));
    let name = format!("{gigabytes} GB at 200 ms");
    findings.row(
        &format!("{name}: vs the best of curl, aria2, axel, rclone"),
        rate(0),
        best,
        "Gb/s",
        Goal::RatioAtLeast(FASTER),
    );
    findings.row(
        &format!("{name}: vs curl, systems as they come"),
        rate(6),
        rate(7),
        "Gb/s",
        Goal::RatioAtLeast(FASTER_THAN_PLAIN),
    );
    for (peer, name_of) in [(1, "curl"), (4, "rclone")] {
        let goal = Goal::RatioAtMost(CHEAPER);
        findings.row(&format!("{name}: receiver's processor, vs {name_of}"), receiver(0), receiver(peer), "s/GB", goal);
        findings.row(
            &format!("{name}: sender's processor, vs nginx to {name_of}"),
            sender(0),
            sender(peer),
            "s/GB",
            goal,
        );
    }
    findings.note("Processor time is of the processes alone: what the kernel does in interrupts for them is not counted, for anybody.".to_owned());
}
