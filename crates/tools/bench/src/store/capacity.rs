//! Chapters about memory, restarts, idle CPU use and cleaning.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sprat_client::{AsyncClient, Mode, Options};

use crate::ours::{TABLE, Transport};
use crate::promises::{Findings, Settings, rate, us};
use crate::scenarios::{self, Idle, Memory, Restart};
use crate::system::{Durability, Memcached, Redis, Setup, System};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;
use sprat_measure::{cpu, usage};
use sprat_units::figure::{self, digits};

const UDP: &str = "sprat fast+udp";
const REDIS: Redis = Redis { unix: false };

/// Time over which the CPU use of idle servers and clients is measured.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// Measures the CPU use of an idle server and of an idle client, both of which wait in the default
/// way.
pub(super) fn idle(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let sprat = settings.sprat(Transport::Udp, Mode::Adaptive);
    let systems: [&dyn System; 2] = [&sprat, &REDIS];
    let found = scenarios::idle(&settings.lab, &systems, IDLE_TIME)?;
    let share = |name: &str| {
        found.iter().find(|idle: &&Idle| idle.system == name).map(|idle| idle.cores * 100.0)
    };
    findings.row(
        "CPU of an idle server with one client",
        share(UDP),
        share("redis"),
        "% of a core",
        Goal::AtMost(1.0),
    );
    let setup = Setup { durability: Durability::Memory, ..settings.lab.setup.clone() };
    let server = sprat.launch(&setup)?;
    let options = Options { coordinator: server.coordinator().to_owned(), ..Options::default() };
    let client = AsyncClient::connect(&options)?;
    let table = wait(client.create_table(TABLE))?;
    wait(client.get(table, b"anything"))?;
    cpu::pause(Duration::from_millis(500));
    let used = usage::cpu_share(std::process::id(), IDLE_TIME)?;
    findings.row(
        "CPU of an idle client with a thread of its own",
        Some(used * 100.0),
        None,
        "% of a core",
        Goal::AtMost(1.0),
    );
    Ok(())
}

/// Polls a future of the client until it completes. The client's own thread does the work.
fn wait<T>(future: impl Future<Output = Result<T, sprat_client::Error>>) -> Result<T> {
    let mut future = pin!(future);
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Ok(result?);
        }
        cpu::pause(Duration::from_millis(1));
    }
    bail!("no answer within ten seconds")
}

/// Measures the resident memory per object.
pub(super) fn memory(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let sprat = settings.sprat(Transport::Udp, Mode::Adaptive);
    let systems: [&dyn System; 3] = [&sprat, &REDIS, &Memcached];
    let found = scenarios::memory(&settings.lab, &systems, settings.objects)?;
    let bytes =
        |name: &str| found.iter().find(|memory| memory.system == name).map(Memory::per_object);
    let millions = settings.objects as f64 / 1e6;
    let name = format!("RSS an object of 30 B + 100 B, {millions} M objects, vs Redis");
    findings.row(&name, bytes(UDP), bytes("redis"), "B", Goal::AtMost(165.0));
    let mut table =
        Table::new(&["system", "objects", "RSS an object", "RSS empty", "RSS full", "filled at"]);
    for memory in &found {
        table.row(vec![
            memory.system.clone(),
            memory.objects.to_string(),
            format!("{} B", digits(memory.per_object())),
            figure::bytes(memory.empty_bytes as f64),
            figure::bytes(memory.full_bytes as f64),
            figure::rate(memory.fill_per_second),
        ]);
    }
    findings.table("Resident memory", table);
    Ok(())
}

/// Measures the objects replayed per second after a kill.
pub(super) fn restart(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let sprat = settings.sprat(Transport::Udp, Mode::Adaptive);
    let systems: [&dyn System; 2] = [&sprat, &REDIS];
    let found = scenarios::restart(&settings.lab, &systems, settings.objects)?;
    let get = |name: &str| found.iter().find(|restart| restart.system == name && restart.lost == 0);
    let (ours, redis) = (get(UDP), get("redis"));
    let per_cpu = |found: Option<&Restart>| found.map(|restart| restart.per_cpu_second() / 1e6);
    findings.row(
        "objects replayed a second of CPU after SIGKILL, vs Redis AOF",
        per_cpu(ours),
        per_cpu(redis),
        "M/s",
        Goal::AtLeast(2.0),
    );
    findings.row(
        "time from start to first answer, one core",
        ours.map(|restart| restart.seconds),
        redis.map(|restart| restart.seconds),
        "s",
        Goal::Shown,
    );
    let mut table = Table::new(&[
        "system",
        "objects",
        "to first answer",
        "CPU",
        "objects a CPU second",
        "lost of 1000 read",
    ]);
    for restart in &found {
        table.row(vec![
            restart.system.clone(),
            restart.objects.to_string(),
            format!("{} s", digits(restart.seconds)),
            format!("{} s", digits(restart.cpu_seconds)),
            figure::rate(restart.per_cpu_second()),
            restart.lost.to_string(),
        ]);
    }
    findings.table("Restart after SIGKILL, written with buffered durability", table);
    Ok(())
}

/// Measures the cost of cleaning for writes and reads.
pub(super) fn utilisation(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let sprat = settings.sprat(Transport::Udp, Mode::Spin);
    let found = scenarios::utilisation(&settings.lab.undisturbed(), &sprat)?;
    findings.row(
        "random overwrites in memory, 90 % full vs 50 % full",
        rate(&found.overwrites, "90 % full"),
        rate(&found.overwrites, "50 % full"),
        "op/s",
        Goal::RatioAtLeast(0.6),
    );
    let [without, with] = ["25 % full, no cleaning", "90 % full, cleaning"]
        .map(|label| us(&found.reads, label, 0.999));
    let with = with.filter(|_| found.moved[1] > 0);
    findings.row(
        "read p99.9 while cleaning vs without",
        with,
        without,
        "us",
        Goal::RatioAtMost(3.0),
    );
    findings.note(format!(
        "Utilisation: durability none. The cleaner moved {} during the reads without cleaning, \
         and {} during those with.",
        figure::bytes(found.moved[0] as f64),
        figure::bytes(found.moved[1] as f64)
    ));
    findings.results(found.overwrites);
    findings.results(found.reads);
    Ok(())
}
