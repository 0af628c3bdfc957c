//! Fetches a file (250 MB, or a gigabyte with `--full`) over a long path with the usual programs
//! and with ours, alternately, and compares time and processor time.

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

/// Bytes of the file: with `--full`, and by default.
const BYTES_FULL: u64 = 1_000_000_000;
const BYTES: u64 = 250_000_000;

const ROUND_TRIP: Duration = Duration::from_millis(200);

/// Rate of the path in Gb/s: more than any program here fills.
const RATE: f64 = 10.0;
const BUFFER: u64 = 128_000_000;

/// Goals: our speed as a multiple of the best peer's, our speed as a multiple of curl's with
/// default system settings, and our processor time as a share of a peer's.
const FASTER: f64 = 1.5;
const FASTER_THAN_PLAIN: f64 = 10.0;
const CHEAPER: f64 = 0.5;

/// The peers, each with the settings that favour it.
const PEERS: [Client; 4] = [Client::Curl, Client::Aria2, Client::Axel, Client::Rclone];

/// Numbers of streams of our client. curl uses one stream, and the other peers use sixteen.
const STREAMS: [u8; 3] = [2, 4, 8];

/// A measurement: system settings, a server and a client.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    /// Whether the hosts have default settings instead of large TCP windows.
    plain: bool,
    server: Server,
    client: Client,
    /// Whether the server has sent the file before.
    again: bool,
}

impl Case {
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

/// Runs all cases and reports the results.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let bytes = if settings.full { BYTES_FULL } else { BYTES };
    let (_folder, at) = folder(settings)?;
    make(&at.join("file"), bytes)?;
    let there = Line { rate: gigabits(RATE), buffer: BUFFER, ..delayed(ROUND_TRIP / 2) };
    let mut cases = vec![Case::new(Server::Sprat, Client::Sprat)];
    cases.extend(STREAMS.map(|count| Case::new(Server::Sprat, Client::SpratStreams(count))));
    cases.extend(PEERS.map(|peer| Case::new(Server::Nginx, peer)));
    cases.extend([
        Case::new(Server::Sprat, Client::Curl),
        Case::again(Server::Sprat, Client::Sprat),
        Case::new(Server::Rclone, Client::Curl),
        Case::new(Server::Rclone, Client::Rclone),
        Case::plain(Server::Sprat, Client::Sprat),
        Case::plain(Server::Nginx, Client::Curl),
    ]);
    let mut results: Vec<Vec<Fetched>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 0..settings.lab.rounds {
        for (case, results) in cases.iter().zip(&mut results) {
            let net = Net::pair(there.clone(), delayed(ROUND_TRIP / 2))?;
            if case.plain {
                net.hosts.iter().try_for_each(plain)?;
            }
            let from: IpAddr = net.address(0, false);
            let program = &settings.program;
            let serving = Serving::start(case.server, &net.hosts[0], from, program, &at, &at)?;
            let to = at.join(format!("fetched-{round}"));
            if case.again {
                serving.fetch(case.client, &net.hosts[1], "file", Path::new("/dev/null"))?;
            }
            results.push(serving.fetch(case.client, &net.hosts[1], "file", &to)?);
            let same = std::fs::metadata(&to)?.len() == bytes;
            anyhow::ensure!(same, "{} fetched another length", case.client.name());
            std::fs::remove_file(&to)?;
            rustix::fs::sync(); // so that the next does not wait for these writes
        }
    }
    report(bytes, &cases, &results, findings);
    Ok(())
}

fn report(bytes: u64, cases: &[Case], results: &[Vec<Fetched>], findings: &mut Findings) {
    let gigabytes = bytes as f64 / 1e9;
    let of = |case: Case, what: fn(&Fetched) -> f64| {
        let at = cases.iter().position(|other| *other == case)?;
        median(results[at].iter().map(what).collect())
    };
    let rate = |case| of(case, |run| run.seconds).map(|seconds| gigabytes * 8.0 / seconds);
    let sender = |case| of(case, |run| run.sender).map(|seconds| seconds / gigabytes);
    let receiver = |case| of(case, |run| run.receiver).map(|seconds| seconds / gigabytes);
    let mut table = Table::new(&[
        "fetched by",
        "from",
        "system",
        "seconds",
        "Gb/s",
        "sender CPU s/GB",
        "receiver CPU s/GB",
    ]);
    for &case in cases {
        let figure = |figure: Option<f64>| figure.map_or("-".to_owned(), figure::digits);
        table.row(vec![
            case.client.name(),
            format!("{}{}", case.server.name(), if case.again { ", again" } else { "" }),
            if case.plain { "as it comes" } else { "windows of 1 GB" }.to_owned(),
            figure(of(case, |run| run.seconds)),
            figure(rate(case)),
            figure(sender(case)),
            figure(receiver(case)),
        ]);
    }
    findings.table(&format!("{gigabytes} GB, 200 ms away, disk to disk"), table);
    let ours = Case::new(Server::Sprat, Client::Sprat);
    let nginx = |client| Case::new(Server::Nginx, client);
    let best = PEERS.into_iter().filter_map(|peer| rate(nginx(peer))).reduce(f64::max);
    let several = STREAMS
        .map(|count| rate(Case::new(Server::Sprat, Client::SpratStreams(count))))
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
        rate(Case::plain(Server::Sprat, Client::Sprat)),
        rate(Case::plain(Server::Nginx, Client::Curl)),
        "Gb/s",
        Goal::RatioAtLeast(FASTER_THAN_PLAIN),
    );
    let goal = Goal::RatioAtMost(CHEAPER);
    for client in [Client::Curl, Client::Rclone] {
        let row = format!("{name}: receiver's processor, vs {}", client.name());
        findings.row(&row, receiver(ours), receiver(nginx(client)), "s/GB", goal);
    }
    let again = Case::again(Server::Sprat, Client::Sprat);
    for (how, ours) in [("", ours), (", a file that was sent before", again)] {
        for server in [Server::Nginx, Server::Rclone] {
            for client in [Client::Curl, Client::Rclone] {
                let row = format!(
                    "{name}{how}: sender's processor, vs {} to {}",
                    server.name(),
                    client.name()
                );
                findings.row(&row, sender(ours), sender(Case::new(server, client)), "s/GB", goal);
            }
        }
    }
    findings.note(
        "Processor time is of the processes alone: what the kernel does in interrupts \
        for them is not counted, for anybody."
            .to_owned(),
    );
}
