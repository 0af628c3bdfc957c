//! `status`.

use crate::connect::{Connect, connect};
use crate::output::{print_json, print_line};
use crate::store::table::{json_of, shortage};
use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value, json};
use sprat_client::{Client, Counter};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    connect: Connect,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Milliseconds of silence after which a server is asked with less patience.
const SILENT_MS: u32 = 1_000;

/// How long a silent server may take to answer.
pub(super) const GLANCE: Duration = Duration::from_millis(500);

/// A server and what it tells of itself.
struct Told {
    id: u32,
    locator: String,
    rack: String,
    silent_ms: u32,
    counters: Result<Vec<Counter>, String>,
}

pub(crate) fn status(args: &StatusArgs) -> Result<ExitCode> {
    let mut client = connect(&args.connect)?;
    let tables = client.list_tables()?;
    let servers = servers(&mut client, args.connect.timeout)?;
    let (term, leader) = client.leader()?;
    if args.json {
        let servers: Vec<Value> = servers.iter().map(json_of_server).collect();
        let tables: Vec<Value> = tables.iter().map(json_of).collect();
        let mut all = json!({ "coordinator": args.connect.coordinator, "servers": servers, "tables": tables });
        if term > 0 {
            all["leader"] = json!({ "locator": leader, "term": term });
        }
        print_json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(&format!("coordinator {}", args.connect.coordinator))?;
    if term > 0 {
        print_line(&format!("leader {leader}, term {term}"))?;
    }
    for server in &servers {
        let rack =
            if server.rack.is_empty() { String::new() } else { format!("  rack {}", server.rack) };
        let Told { id, locator, silent_ms, .. } = server;
        print_line(&format!("server {id}  {locator}{rack}  heard {} ago", ago(*silent_ms)))?;
        match &server.counters {
            Ok(counters) => {
                print_line(&summary(counters))?;
                replicas(counters).iter().try_for_each(|line| print_line(line))?;
                devices(counters).iter().try_for_each(|device| print_line(device))?;
            }
            Err(error) => print_line(&format!("  {error}"))?,
        }
    }
    for table in &tables {
        let place = match &table.tablets[..] {
            [whole] => format!("server {}", whole.server),
            several => {
                let servers: BTreeSet<u32> = several.iter().map(|tablet| tablet.server).collect();
                format!("{} tablets on {} servers", several.len(), servers.len())
            }
        };
        print_line(&format!("table {:<24} id {:<6} {place}", table.name, table.id))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn servers(client: &mut Client, patience: Duration) -> Result<Vec<Told>> {
    let list = client.list_servers()?;
    let tell = |server: &sprat_client::ServerRecord| {
        if server.silent_ms > SILENT_MS {
            // It is gone, most likely; whoever asks wants to know how the others are doing.
            client.set_timeout(GLANCE.min(patience));
        }
        let counters = client.server_stats(&server.locator).map_err(|error| error.to_string());
        client.set_timeout(patience);
        let (locator, rack) = (server.locator.clone(), server.rack.clone());
        Told { id: server.id, locator, rack, silent_ms: server.silent_ms, counters }
    };
    Ok(list.iter().map(tell).collect())
}

fn ago(silent_ms: u32) -> String {
    if silent_ms == u32::MAX { "never".into() } else { format!("{silent_ms} ms") }
}

fn json_of_server(server: &Told) -> Value {
    let mut object = Map::new();
    object.insert("id".into(), server.id.into());
    object.insert("locator".into(), server.locator.clone().into());
    object.insert(
        "rack".into(),
        if server.rack.is_empty() { Value::Null } else { server.rack.clone().into() },
    );
    object.insert(
        "silent_ms".into(),
        if server.silent_ms == u32::MAX { Value::Null } else { server.silent_ms.into() },
    );
    match &server.counters {
        Ok(told) => {
            let counters: Map<_, _> =
                told.iter().map(|counter| (counter.name.clone(), counter.value.into())).collect();
            object.insert("counters".into(), counters.into());
            object.insert(
                "recoveries".into(),
                recoveries(told).iter().map(Recovering::json).collect(),
            );
        }
        Err(error) => drop(object.insert("error".into(), error.clone().into())),
    }
    object.into()
}

/// The counters that a person looks for first.
fn summary(counters: &[Counter]) -> String {
    let value = |name: &str| {
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    };
    let (memory, free) = (value("memory_bytes"), value("memory_free_bytes"));
    let percent = (memory.saturating_sub(free) * 100).checked_div(memory).unwrap_or(0);
    let troubles = disk_troubles(counters).into_iter().map(str::to_owned).chain(limits(counters));
    let told: String = troubles.map(|line| format!("\n  {line}")).collect();
    format!(
        "  {} objects; memory {percent} % of {} MiB; disk {} of {} frames; reads {}, writes {}{told}",
        value("objects"),
        memory >> 20,
        value("disk_frames_live"),
        value("disk_frames_max"),
        value("reads_total"),
        value("writes_total"),
    )
}

/// Limits that are reached, of those that all clients of a server have together.
fn limits(counters: &[Counter]) -> Vec<String> {
    let value = |name: &str| {
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    };
    let (sessions, most) = (value("rpc_sessions"), value("rpc_sessions_max"));
    let (bytes, most_bytes) = (value("rpc_reassembly_bytes"), value("rpc_reassembly_bytes_max"));
    let answers = (value("shares_scarce") > 0).then(|| {
        let held = value("values_pinned") + value("answers_made");
        let waiting = value("answers_waiting");
        format!(
            "LIMIT REACHED: {held} answers that clients have not taken, {waiting} that wait for the disk; each session is held to its \
             share"
        )
    });
    let full = (most > 0 && sessions >= most).then(|| {
        format!("LIMIT REACHED: {sessions} sessions; the longest idle give way to new ones")
    });
    let reassembly = (most_bytes > 0 && bytes >= most_bytes / 8 * 7).then(|| {
        let (bytes, most_bytes) = (bytes >> 20, most_bytes >> 20);
        format!(
            "LIMIT REACHED: {bytes} of {most_bytes} MiB for long requests; those with most give way"
        )
    });
    [answers, full, reassembly].into_iter().flatten().collect()
}

/// What is wrong with a server's disk, by its log and by what it keeps for others.
fn disk_troubles(counters: &[Counter]) -> Vec<&'static str> {
    let is = |name: &str| counters.iter().any(|counter| counter.name == name && counter.value > 0);
    let own = match (is("writes_stopped"), is("disk_full")) {
        (false, false) => None,
        (false, true) => Some(
            "DISK FULL: writes end when its frames are used up; remove objects, or make space on it",
        ),
        (true, false) => Some("WRITES STOPPED: the disk has failed; see the server's log"),
        (true, true) => {
            Some("WRITES STOPPED: the disk is full; make space on it, and start the server again")
        }
    };
    let kept =
        match (is("replica_writes_stopped"), is("replica_disk_full"), is("replica_frames_lacking"))
        {
            (false, false, false) => None,
            (false, true, false) => {
                Some("DISK FULL: takes replicas until its frames are used up; make space on it")
            }
            (false, true, true) => {
                Some("DISK FULL: takes no replicas; make space on it, or add servers")
            }
            (false, false, true) => Some(
                "TAKES NO REPLICAS: all its frames are in use; give it more --disk, or add servers",
            ),
            (true, false, _) => {
                Some("TAKES NO REPLICAS: the disk has failed; see the server's log")
            }
            (true, true, _) => Some(
                "TAKES NO REPLICAS: the disk is full; make space on it, and start the server again",
            ),
        };
    own.into_iter().chain(kept).collect()
}

/// What a server is bringing back of one that is gone.
struct Recovering {
    server: String,
    stage: String,
    tablets: u64,
    read: u64,
    left: u64,
    /// Why the attempt before failed: "lost" or "full".
    failed: Option<String>,
    /// The segment that was nowhere whole, and the backups that did not answer.
    lost_segment: Option<u64>,
    silent: Option<u64>,
}

impl Recovering {
    fn json(&self) -> Value {
        json!({
            "server": self.server.parse::<u32>().ok(),
            "stage": self.stage,
            "tablets": self.tablets,
            "segments_read": self.read,
            "segments_left": self.left,
            "failed": self.failed,
            "lost_segment": self.lost_segment,
            "backups_silent": self.silent,
        })
    }

    /// How far it is, and why the attempt before failed.
    fn lines(&self) -> Vec<String> {
        let Self { server, tablets, read, left, .. } = self;
        let far = match &*self.stage {
            "fencing" | "searching" => "looking for its log".to_owned(),
            "waiting" => "to be tried again".to_owned(),
            "replaying" => format!("{read} of {} segments read", read + left),
            _ => format!("{read} segments read, on their way to other servers"),
        };
        let far = format!("  brings back {tablets} tablets of server {server}: {far}");
        let failed = self.failed.as_ref().map(|why| match &**why {
            "lost" => {
                let segment = self.lost_segment.map(|segment| format!("segment {segment}"));
                let (lost, silent) = (segment.unwrap_or("its newest segment".to_owned()), self.silent.unwrap_or(0));
                format!(
                    "    NOT ALL OF ITS LOG IS THERE: {lost} is nowhere whole, {silent} backups do not answer; start those \
                     that keep it, or take what is whole out of their data by `sprat store export`"
                )
            }
            _ => "    NO ROOM: it does not fit into this server's memory; add servers".to_owned(),
        });
        [far].into_iter().chain(failed).collect()
    }
}

/// What a server is bringing back of others.
fn recoveries(counters: &[Counter]) -> Vec<Recovering> {
    let tasks = counters.iter().filter(|counter| counter.name.starts_with("recovery_tablets{"));
    let told = tasks.filter_map(|task| {
        let (server, stage) = (label(task, "server")?, label(task, "stage")?);
        let value = |name: &str| {
            let name = format!("{name}{{server=\"{server}\"}}");
            counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
        };
        let (read, left) = (value("recovery_segments_read"), value("recovery_segments_left"));
        let (lost_segment, silent) =
            (value("recovery_lost_segment"), value("recovery_backups_silent"));
        let failed = counters.iter().filter(|counter| counter.name.starts_with("recovery_failed{"));
        let failed = failed.filter(|failed| label(failed, "server").as_ref() == Some(&server));
        let failed = failed.filter_map(|failed| label(failed, "why")).next();
        let (tablets, read, left) = (task.value, read.unwrap_or(0), left.unwrap_or(0));
        Some(Recovering { server, stage, tablets, read, left, failed, lost_segment, silent })
    });
    told.collect()
}

/// What a person wants to know of a server's replicas while something is missing.
fn replicas(counters: &[Counter]) -> Vec<String> {
    let few = shortage(counters).map(|shortage| format!("  NO WRITE IS ACKNOWLEDGED: {shortage}"));
    let told = recoveries(counters).into_iter().flat_map(|task| task.lines());
    let short =
        counters.iter().find(|counter| counter.name == "segments_short" && counter.value > 0);
    let short = short
        .map(|short| format!("  {} segments have fewer replicas than they should", short.value));
    let in_few_racks = counters
        .iter()
        .find(|counter| counter.name == "segments_in_few_racks" && counter.value > 0);
    let in_few_racks = in_few_racks.map(|few| {
        format!("  {} segments have their replicas in fewer racks than there are", few.value)
    });
    few.into_iter().chain(told).chain(short).chain(in_few_racks).collect()
}

/// The value of a label in a counter's name.
fn label(counter: &Counter, label: &str) -> Option<String> {
    let value = counter.name.split_once(&format!("{label}=\""))?.1.split_once('"')?.0;
    Some(value.to_owned())
}

/// A line for each device of a server that drives some by itself.
fn devices(counters: &[Counter]) -> Vec<String> {
    let infos = counters.iter().filter(|counter| counter.name.starts_with("device_info{"));
    let told = infos.filter_map(|info| {
        let (device, driver, mac) = (label(info, "device")?, label(info, "driver")?, label(info, "mac")?);
        let known = |name: &str| {
            let name = format!("{name}{{device=\"{device}\"}}");
            counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
        };
        let value = |name: &str| known(name).unwrap_or(0);
        let steering = match known("device_steers") {
            None => "",
            Some(0) => "; shared, steering by software",
            Some(_) => "; shared, steering by rules",
        };
        Some(format!(
            "  device {device} ({driver}) {mac} {}; changes {}, missed {}, errors {}, no buffer {}{steering}",
            if value("device_up") == 1 { "up" } else { "DOWN" },
            value("device_changes_total"),
            value("device_missed_total"),
            value("device_errors_total"),
            value("device_no_buffer_total"),
        ))
    });
    told.collect()
}
