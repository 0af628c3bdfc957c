//! Advises settings of Cassandra's instances, from the description of their servers.

use crate::change::{Candidate, Change, Class};
use crate::overlay::{Overlay, name};
use serde_json::{Value, json};
use sprat_plan::Spec;
use sprat_plan::spec::Collector;
use sprat_rack::Settings;
use std::collections::BTreeMap;

/// Limit on the heap that is tried, in MiB.
const MOST_HEAP_MIB: u64 = 16 * 1_024;

/// The smallest heap with which the concurrent collector is tried, in MiB: it needs headroom.
const CONCURRENT_FROM_MIB: u64 = 1_024;

/// The largest number of cores with which the serial collector is tried.
const SERIAL_UP_TO: usize = 2;

/// Compaction throughput of an instance. It suffices for the writes of small servers; a higher
/// throughput would slow down reads.
const COMPACTION: &str = "64MiB/s";
const COMPACTION_LOW: &str = "16MiB/s";

const MIB: f64 = 1_048_576.0;

/// Returns the candidates for a description. The description includes the settings that tuning
/// found before.
#[must_use]
pub(crate) fn candidates(spec: &Spec) -> Vec<Candidate> {
    let Some(cassandra) = &spec.cassandra else { return Vec::new() };
    let present = Settings::of(spec, cassandra);
    // The settings that the plan chooses if the description names neither heap nor collector.
    let mut defaults = cassandra.clone();
    (defaults.heap, defaults.collector) = (None, None);
    let advised = Settings::of(spec, &defaults);
    let mut all = collectors(spec, &present, &advised, cassandra.instances);
    let mut yaml = |class, why, wanted: &[(&str, Value)], base: &[(&str, Value)]| {
        let is = |key: &str| {
            cassandra
                .yaml
                .get(key)
                .or_else(|| base.iter().find(|(known, _)| *known == key).map(|(_, value)| value))
                .cloned()
        };
        let different: BTreeMap<String, Value> = wanted
            .iter()
            .filter(|(key, value)| is(key).as_ref() != Some(value))
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();
        if !different.is_empty() {
            let describe = |key: &String| {
                format!("{key} {}", is(key).map_or("unset".to_owned(), |value| plain(&value)))
            };
            let present = different.keys().map(describe).collect::<Vec<_>>().join(", ");
            let proposed = different
                .iter()
                .map(|(key, value)| format!("{key} {}", plain(value)))
                .collect::<Vec<_>>()
                .join(", ");
            let changes =
                vec![Change::Instances(Overlay { yaml: different, ..Overlay::default() })];
            all.push(Candidate { class, proposed, present, why, changes });
        }
    };
    let compactors =
        (spec.server.disks.len() / cassandra.instances).clamp(1, (present.cores / 2).max(1));
    let base = [
        ("compaction_throughput", json!(COMPACTION)),
        ("concurrent_compactors", json!(compactors)),
    ];
    let slow = "compaction that uses all of a disk's bandwidth leaves none for reads";
    yaml(Class::Compaction, slow, &base, &base);
    yaml(Class::Compaction, slow, &[("compaction_throughput", json!(COMPACTION_LOW))], &base);
    let at_once = [
        ("concurrent_reads", advised.concurrent_reads),
        ("concurrent_writes", advised.concurrent_writes),
    ];
    let base = at_once.map(|(key, count)| (key, json!(count)));
    let why = "as many as disks and cores can do at once; more of them only slow each other down";
    yaml(Class::Concurrency, why, &base, &base);
    yaml(Class::Concurrency, why, &at_once.map(|(key, count)| (key, json!(count * 2))), &base);
    let off_heap = [("memtable_allocation_type", json!("offheap_objects"))];
    let base = [("memtable_allocation_type", json!("heap_buffers"))];
    yaml(Class::Memtable, "rows outside the heap need no garbage collection", &off_heap, &base);
    let trie = json!({
        "configurations": {
            "trie": { "class_name": "TrieMemtable" },
            "default": { "inherits": "trie" },
        },
    });
    let tries = [("memtable", trie), ("sstable", json!({ "selected_format": "bti" }))];
    yaml(
        Class::Memtable,
        "tries need fewer objects and fewer reads than the older formats",
        &tries,
        &tries,
    );
    let direct = [("commitlog_disk_access_mode", json!("direct"))];
    let base = [("commitlog_disk_access_mode", json!("legacy"))];
    yaml(
        Class::CommitLog,
        "the commit log is read only after a crash, and needs no page cache",
        &direct,
        &base,
    );
    all
}

/// Returns candidates for heap and collector.
fn collectors(
    spec: &Spec,
    present: &Settings,
    advised: &Settings,
    instances: usize,
) -> Vec<Candidate> {
    let share = spec.server.memory.0 / instances as f64 / MIB;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "memory of a server"
    )]
    let half = ((share / 2.0) as u64).min(MOST_HEAP_MIB);
    let heap = advised.heap_mib.max(present.heap_mib.min(half));
    let mut choices = vec![(heap, advised.collector)];
    let worth = |collector, heap: u64| match collector {
        Collector::Z => heap >= CONCURRENT_FROM_MIB,
        Collector::Serial => present.cores <= SERIAL_UP_TO,
        Collector::G1 => true,
    };
    for collector in [Collector::G1, Collector::Z, Collector::Serial] {
        if worth(collector, heap) {
            choices.push((heap, collector));
        }
    }
    if half > heap {
        choices.push((half, advised.collector));
    }
    let mut all: Vec<Candidate> = Vec::new();
    for (heap, collector) in choices {
        let overlay =
            Overlay { heap_mib: Some(heap), collector: Some(collector), ..Overlay::default() };
        let describe = |heap, collector| format!("{heap} MiB, {}", name(collector));
        let candidate = Candidate {
            class: Class::Collector,
            proposed: describe(heap, collector),
            present: describe(present.heap_mib, present.collector),
            why: "a larger heap is collected less often, and collectors differ in how long they \
                  stop the program",
            changes: vec![Change::Instances(overlay)],
        };
        if (heap, collector) != (present.heap_mib, present.collector) && !all.contains(&candidate) {
            all.push(candidate);
        }
    }
    all
}

/// Formats a value without JSON's quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
