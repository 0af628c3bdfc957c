//! `status`: shows servers, tables and counters.

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
#[command(after_help = "Examples:
  sprat status
  sprat status --json | jq '.servers[].counters.objects'

Shows the coordinator, each server with its most important counters, and each table. Lines in
capitals name troubles, with what to do. --json has all counters.

Exit codes:
  5  no answer in time, or no coordinator at the address
  8  the identity does not permit it")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    connect: Connect,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Limit on the milliseconds since the coordinator's last contact with a server. A server that
/// exceeds it gets the shorter timeout [`SILENT_TIMEOUT`].
const SILENT_MS: u32 = 1_000;

/// Timeout for an answer of a server that may be dead.
pub(super) const SILENT_TIMEOUT: Duration = Duration::from_millis(500);

/// A server with its counters, or with the error of the request for the counters.
struct ServerStatus {
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
        let mut all = json!({
            "coordinator": args.connect.coordinator, "servers": servers, "tables": tables,
        });
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
        let ServerStatus { id, locator, silent_ms, .. } = server;
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

fn servers(client: &mut Client, patience: Duration) -> Result<Vec<ServerStatus>> {
    let list = client.list_servers()?;
    let query = |server: &sprat_client::ServerRecord| {
        if server.silent_ms > SILENT_MS {
            // The server is most likely dead, and must not delay the status of the others.
            client.set_timeout(SILENT_TIMEOUT.min(patience));
        }
        let counters = client.server_stats(&server.locator).map_err(|error| error.to_string());
        client.set_timeout(patience);
        let (locator, rack) = (server.locator.clone(), server.rack.clone());
        ServerStatus { id: server.id, locator, rack, silent_ms: server.silent_ms, counters }
    };
    Ok(list.iter().map(query).collect())
}

fn ago(silent_ms: u32) -> String {
    if silent_ms == u32::MAX { "never".into() } else { format!("{silent_ms} ms") }
}

fn json_of_server(server: &ServerStatus) -> Value {
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
        Ok(counters) => {
            let by_name: Map<_, _> = counters
                .iter()
                .map(|counter| (counter.name.clone(), counter.value.into()))
                .collect();
            object.insert("counters".into(), by_name.into());
            object.insert(
                "recoveries".into(),
                recoveries(counters).iter().map(RecoveryStatus::json).collect(),
            );
        }
        Err(error) => drop(object.insert("error".into(), error.clone().into())),
    }
    object.into()
}

/// Renders the most important counters, and a line for each problem.
fn summary(counters: &[Counter]) -> String {
    let value = |name: &str| {
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    };
    let (memory, free) = (value("memory_bytes"), value("memory_free_bytes"));
    let percent = (memory.saturating_sub(free) * 100).checked_div(memory).unwrap_or(0);
    let troubles = disk_troubles(counters).into_iter().map(str::to_owned).chain(limits(counters));
    let lines: String = troubles.map(|line| format!("\n  {line}")).collect();
    format!(
        "  {} objects; memory {percent} % of {} MiB; disk {} of {} frames; reads {}, writes \
         {}{lines}",
        value("objects"),
        memory >> 20,
        value("disk_frames_live"),
        value("disk_frames_max"),
        value("reads_total"),
        value("writes_total"),
    )
}

/// Returns a line for each limit that the clients of a server share and have reached, or, for the
/// memory of long requests, nearly reached.
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
            "LIMIT REACHED: clients have not received {held} answers, and {waiting} wait for the \
             disk; each session is limited to its share"
        )
    });
    let full = (most > 0 && sessions >= most).then(|| {
        format!("LIMIT REACHED: {sessions} sessions; new ones replace those longest idle")
    });
    let reassembly = (most_bytes > 0 && bytes >= most_bytes / 8 * 7).then(|| {
        let (bytes, most_bytes) = (bytes >> 20, most_bytes >> 20);
        format!(
            "LIMIT REACHED: long requests use {bytes} of {most_bytes} MiB; the largest users are \
             interrupted"
        )
    });
    [answers, full, reassembly].into_iter().flatten().collect()
}

/// Describes the problems of a server's disk, concerning the server's own log or the replicas that
/// it keeps.
fn disk_troubles(counters: &[Counter]) -> Vec<&'static str> {
    let is = |name: &str| counters.iter().any(|counter| counter.name == name && counter.value > 0);
    let own = match (is("writes_stopped"), is("disk_full")) {
        (false, false) => None,
        (false, true) => Some(
            "DISK FULL: writes will fail when its frames are used up; remove objects, or free \
             space on the disk",
        ),
        (true, false) => {
            Some("WRITES STOPPED: the disk has failed (see the server's log); restart the server")
        }
        (true, true) => {
            Some("WRITES STOPPED: the disk is full; free space on it, then restart the server")
        }
    };
    let kept =
        match (is("replica_writes_stopped"), is("replica_disk_full"), is("replica_frames_lacking"))
        {
            (false, false, false) => None,
            (false, true, false) => {
                Some("DISK FULL: accepts replicas until its frames are used up; free disk space")
            }
            (false, true, true) => {
                Some("DISK FULL: accepts no replicas; free disk space, or add servers")
            }
            (false, false, true) => Some(
                "TAKES NO REPLICAS: all its frames are in use; give it more --disk, or add servers",
            ),
            (true, false, _) => {
                Some("TAKES NO REPLICAS: the disk has failed; see the server's log")
            }
            (true, true, _) => Some(
                "TAKES NO REPLICAS: the disk is full; free space on it, then restart the server",
            ),
        };
    own.into_iter().chain(kept).collect()
}

/// A recovery of a dead server's tablets, as its recovery master reports it.
struct RecoveryStatus {
    server: String,
    stage: String,
    tablets: u64,
    read: u64,
    left: u64,
    /// Why the previous attempt failed: "lost" or "full".
    failed: Option<String>,
    /// The segment of which no complete replica was found. `None` if it is the newest segment, or
    /// if no segment is lost.
    lost_segment: Option<u64>,
    /// Number of backups that did not answer.
    silent: Option<u64>,
}

impl RecoveryStatus {
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

    /// Describes the progress, and why the previous attempt failed.
    fn lines(&self) -> Vec<String> {
        let Self { server, tablets, read, left, .. } = self;
        let far = match &*self.stage {
            "fencing" | "searching" => "searching for its log".to_owned(),
            "waiting" => "waiting to try again".to_owned(),
            "replaying" => format!("{read} of {} segments read", read + left),
            _ => format!("{read} segments read, being replicated to other servers"),
        };
        let far = format!("  recovering {tablets} tablets of server {server}: {far}");
        let failed = self.failed.as_ref().map(|why| match &**why {
            "lost" => {
                let segment = self.lost_segment.map(|segment| format!("segment {segment}"));
                let (lost, silent) =
                    (segment.unwrap_or("its newest segment".to_owned()), self.silent.unwrap_or(0));
                format!(
                    "    LOG INCOMPLETE: no backup that answers has all of {lost}, and {silent} \
                     backups do not answer; start them, or export what is left of their data with \
                     `sprat store export`"
                )
            }
            _ => "    NO ROOM: the tablets do not fit into this server's memory; add servers"
                .to_owned(),
        });
        [far].into_iter().chain(failed).collect()
    }
}

/// Returns the recoveries that a server works on, read from its counters.
fn recoveries(counters: &[Counter]) -> Vec<RecoveryStatus> {
    let tasks = counters.iter().filter(|counter| counter.name.starts_with("recovery_tablets{"));
    let recoveries = tasks.filter_map(|task| {
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
        Some(RecoveryStatus { server, stage, tablets, read, left, failed, lost_segment, silent })
    });
    recoveries.collect()
}

/// Renders a line for each problem with the replicas of a server's log, and lines for its
/// recoveries.
fn replicas(counters: &[Counter]) -> Vec<String> {
    let few = shortage(counters).map(|shortage| format!("  CANNOT WRITE: {shortage}"));
    let recoveries = recoveries(counters).into_iter().flat_map(|task| task.lines());
    let short =
        counters.iter().find(|counter| counter.name == "segments_short" && counter.value > 0);
    let short = short
        .map(|short| format!("  {} segments have fewer replicas than they should", short.value));
    let in_few_racks = counters
        .iter()
        .find(|counter| counter.name == "segments_in_few_racks" && counter.value > 0);
    let in_few_racks = in_few_racks
        .map(|few| format!("  {} segments have replicas in fewer racks than there are", few.value));
    few.into_iter().chain(recoveries).chain(short).chain(in_few_racks).collect()
}

/// Returns the value of a label in a counter's name.
fn label(counter: &Counter, label: &str) -> Option<String> {
    let value = counter.name.split_once(&format!("{label}=\""))?.1.split_once('"')?.0;
    Some(value.to_owned())
}

/// Renders a line for each kernel-bypass device that a server uses.
fn devices(counters: &[Counter]) -> Vec<String> {
    let infos = counters.iter().filter(|counter| counter.name.starts_with("device_info{"));
    let lines = infos.filter_map(|info| {
        let (device, driver, mac) =
            (label(info, "device")?, label(info, "driver")?, label(info, "mac")?);
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
            "  device {device} ({driver}) {mac} {}; changes {}, missed {}, errors {}, no buffer \
             {}{steering}",
            if value("device_up") == 1 { "up" } else { "DOWN" },
            value("device_changes_total"),
            value("device_missed_total"),
            value("device_errors_total"),
            value("device_no_buffer_total"),
        ))
    });
    lines.collect()
}
