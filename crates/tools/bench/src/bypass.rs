//! `bench bypass`: how much a read gains by bypassing the kernel, and what share of its time is
//! then our own code.

use anyhow::Result;
use sprat_client::Mode;

use crate::breakdown;
use crate::distribution::causes::Exclusion;
use crate::distribution::{self, Subject, picture};
use crate::ours::Transport;
use crate::promises::{Chapter, Findings, Settings, rate, us};
use crate::scenarios::{self, DEPTH, LARGE_BYTES, Path, VALUE_BYTES};
use crate::system::System;
use sprat_measure::goals::Goal;
use sprat_measure::jitter;
use sprat_measure::target::Wait;

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] =
    &[("ladder", ladder), ("tail", tail), ("volume", volume), ("breakdown", breakdown::memif)];

const MEMIF: &str = "sprat fast+dpdk memif";
const VIRTIO: &str = "sprat fast+dpdk virtio";
const PACKET: &str = "sprat fast+dpdk af_packet";
const XDP: &str = "sprat fast+dpdk af_xdp";
const UDP: &str = "sprat fast+udp";
const TCP: &str = "sprat tcp";

/// Number of round trips over the lowest path of the ladder, which is shared memory alone.
const ROUND_TRIPS: u64 = 1_000_000;

/// Number of reads in the distribution: enough for a thousand beyond p99.9.
const TAIL_SAMPLES: u64 = 1_000_000;

/// Measures the ladder of paths, from shared memory to TCP between sleeping threads. For each path,
/// measures the bare round trip, and reads and writes over the path.
fn ladder(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let lab = settings.lab.undisturbed();
    let memory = scenarios::shared_memory(&lab, ROUND_TRIPS)?;
    let spin = |transport| settings.sprat(transport, Mode::Spin);
    let mut transports = vec![Transport::Virtio, Transport::Memif];
    match &settings.cables {
        Ok(cables) => {
            transports.extend([Transport::Packet(cables.packet), Transport::Xdp(cables.xdp)])
        }
        Err(why) => findings.note(format!("The rungs af_packet and af_xdp are left out: {why}.")),
    }
    transports.extend([Transport::Udp, Transport::Tcp]);
    let path = |system, pings| Path { system, pings };
    let systems: Vec<_> =
        transports.iter().map(|&transport| (spin(transport), transport.bypasses())).collect();
    let paths: Vec<_> =
        systems.iter().map(|(system, pings)| path(system as &dyn System, *pings)).collect();
    let spinning = scenarios::ladder(&lab, &paths, Wait::Spin)?;
    let sleep = |transport| settings.sprat(transport, Mode::Sleep);
    let (udp, tcp) = (sleep(Transport::Udp), sleep(Transport::Tcp));
    let sleeping =
        scenarios::ladder(&settings.lab, &[path(&udp, false), path(&tcp, false)], Wait::Sleep)?;

    let p50 = |label: &str| us(&spinning, label, 0.5);
    let asleep = |label: &str| us(&sleeping, label, 0.5);
    let of = |name: &str, what: &str| p50(&format!("{name} {what}"));
    let read = of(MEMIF, "read");
    let mut rung =
        |name: &str, path: Option<f64>| findings.row(name, path, None, "us", Goal::Shown);
    rung(
        "shared memory, two cache lines, round trip p50",
        Some(memory.quantile(0.5) as f64 / 1000.0),
    );
    rung("driver ping, virtio-user and vhost, p50", of(VIRTIO, "ping"));
    rung("driver ping, memif, p50", of(MEMIF, "ping"));
    if settings.cables.is_ok() {
        rung("driver ping, af_packet over a virtual cable, p50", of(PACKET, "ping"));
        rung("driver ping, af_xdp over a virtual cable, p50", of(XDP, "ping"));
    }
    rung("bare UDP echo, loopback, both spinning, p50", p50("echo udp"));
    rung("bare TCP echo, loopback, both spinning, p50", p50("echo tcp"));
    rung("bare UDP echo, loopback, both sleeping, p50", asleep("echo udp"));
    rung("bare TCP echo, loopback, both sleeping, p50", asleep("echo tcp"));
    for (name, ours, peer, goal) in [
        (
            "100 B read p50, memif, vs its driver ping",
            read,
            of(MEMIF, "ping"),
            Goal::RatioAtMost(1.5),
        ),
        (
            "100 B read p50, virtio, vs its driver ping",
            of(VIRTIO, "read"),
            of(VIRTIO, "ping"),
            Goal::Shown,
        ),
        ("100 B read p50, fast+udp, vs bare echo", of(UDP, "read"), p50("echo udp"), Goal::Shown),
        ("100 B read p50, tcp, vs bare echo", of(TCP, "read"), p50("echo tcp"), Goal::Shown),
        (
            "100 B read p50, memif, vs tcp between sleeping threads",
            read,
            asleep("sprat tcp read"),
            Goal::RatioAtMost(0.05),
        ),
        (
            "100 B read p50, memif, vs tcp between spinning threads",
            read,
            of(TCP, "read"),
            Goal::RatioAtMost(0.25),
        ),
        (
            "100 B read p50, memif, vs fast+udp between spinning threads",
            read,
            of(UDP, "read"),
            Goal::RatioAtMost(0.5),
        ),
        (
            "100 B write in memory p50, memif, vs its read",
            of(MEMIF, "write"),
            read,
            Goal::RatioAtMost(1.3),
        ),
        (
            "100 B write in memory p50, virtio, vs its read",
            of(VIRTIO, "write"),
            of(VIRTIO, "read"),
            Goal::Shown,
        ),
    ] {
        findings.row(name, ours, peer, "us", goal);
    }
    for (word, name) in [("af_packet", PACKET), ("af_xdp", XDP)] {
        if settings.cables.is_ok() {
            let (ping, read, write) = (of(name, "ping"), of(name, "read"), of(name, "write"));
            findings.row(
                &format!("100 B read p50, {word}, vs its driver ping"),
                read,
                ping,
                "us",
                Goal::Shown,
            );
            findings.row(
                &format!("100 B write in memory p50, {word}, vs its read"),
                write,
                read,
                "us",
                Goal::Shown,
            );
        }
    }
    let tail = us(&spinning, &format!("{MEMIF} ping"), 0.999);
    findings.row(
        "driver ping p99.9, memif, vs its p50, every sample",
        tail,
        of(MEMIF, "ping"),
        "us",
        Goal::Shown,
    );
    findings.note(
        "Most of the distance between sleeping and spinning threads is waking up, and no driver's \
         merit. The ping is an \
         ICMP echo that the far driver answers, sent by the client that reads, to the server it \
         reads from."
            .to_owned(),
    );
    if settings.cables.is_ok() {
        findings.note(
            "af_packet and af_xdp carry frames over a virtual Ethernet cable (veth) between two \
             interfaces of the kernel's, by \
             packet sockets and by XDP sockets: the kernel's driver is on their path, its UDP and \
             IP are not. All of it, the \
             loopback too, is in a network namespace of the benchmark's own."
                .to_owned(),
        );
    }
    findings.results(spinning);
    findings.results(sleeping);
    Ok(())
}

/// Measures the tail, and finds the causes that delayed the slowest thousandth of the reads.
fn tail(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let measured = distribution::Settings {
        lab: settings.lab.undisturbed(),
        samples: TAIL_SAMPLES,
        bytes: VALUE_BYTES,
        write: false,
        label: String::new(),
    };
    let over = Subject::Own(settings.program.clone(), vec![Transport::Memif]);
    let found = distribution::measure(&measured, &over, &mut |_| {})?;
    for path in &found.paths {
        for exclusion in Exclusion::ALL {
            let (latencies, which) = (path.samples.without(exclusion), exclusion.words());
            let us = |quantile| Some(latencies.quantile(quantile) as f64 / 1000.0);
            let goal =
                if exclusion == Exclusion::Core { Goal::RatioAtMost(3.0) } else { Goal::Shown };
            findings.row(
                &format!("100 B read p99.9, memif, vs its p50, {which}"),
                us(0.999),
                us(0.5),
                "us",
                goal,
            );
            if let Some(hit_by) = exclusion.hit_by() {
                let share = Some(path.samples.share(exclusion) * 100.0);
                findings.row(
                    &format!("share of those reads hit by {hit_by}"),
                    share,
                    None,
                    "%",
                    Goal::Shown,
                );
            }
        }
    }
    findings.table(&found.title(), found.quantiles());
    findings.figure("The share of reads that took longer", picture::ccdf(&[&found]));
    findings.table("Cliffs: steps in the tail, and what they come from", found.cliffs());
    findings
        .table("The machine without the store, by the jitter meter", jitter::table(&found.jitter));
    found.notes().into_iter().for_each(|note| findings.note(note));
    Ok(())
}

/// Measures the throughput of large and small reads.
fn volume(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let spin = |transport| settings.sprat(transport, Mode::Spin);
    let [virtio, memif, udp] = [Transport::Virtio, Transport::Memif, Transport::Udp].map(spin);
    let results =
        scenarios::volume(&settings.lab.undisturbed(), &[&virtio as &dyn System, &memif, &udp])?;
    let gbits = |name: &str, what: &str| {
        Some(rate(&results, &format!("{name} {what}"))? * LARGE_BYTES as f64 * 8.0 / 1e9)
    };
    for (what, depth) in [("1 MB", "one at a time"), ("1 MB x4", "four in flight")] {
        let peer = gbits(UDP, what);
        findings.row(
            &format!("1 MB reads, {depth}, memif, vs fast+udp"),
            gbits(MEMIF, what),
            peer,
            "Gb/s",
            Goal::AtLeast(40.0),
        );
        findings.row(
            &format!("1 MB reads, {depth}, virtio, vs fast+udp"),
            gbits(VIRTIO, what),
            peer,
            "Gb/s",
            Goal::Shown,
        );
    }
    let small = |name: &str| rate(&results, &format!("{name} 100 B"));
    let name = format!("100 B reads, {DEPTH} in flight, one server core, memif, vs fast+udp");
    findings.row(&name, small(MEMIF), small(UDP), "op/s", Goal::AtLeast(4e6));
    findings.row("the same, virtio", small(VIRTIO), small(UDP), "op/s", Goal::Shown);
    findings.results(results);
    Ok(())
}
