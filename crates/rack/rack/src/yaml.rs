//! `cassandra.yaml`: one setting per line, with values in JSON, which is also YAML.

use crate::Instance;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Returns the file's text.
pub(crate) fn text(instance: &Instance) -> String {
    let mut settings = settings(instance);
    for (key, value) in &instance.settings.yaml {
        settings.insert(key.clone(), value.clone());
    }
    let mut text = format!("# {}: made from the rack's plan; change it there.\n", instance.name);
    for (key, value) in settings {
        writeln!(text, "{key}: {value}").expect("a string takes all");
    }
    text
}

fn settings(instance: &Instance) -> BTreeMap<String, Value> {
    let folder = |name: &str| instance.home.join(name).display().to_string();
    let set = &instance.settings;
    let tokens: Vec<String> = instance.tokens.iter().map(ToString::to_string).collect();
    // A seed streams nothing from other instances, so an instance that must stream uses only the
    // other seeds.
    let is_own_seed = instance.replaces.is_none() && !instance.joined;
    let others = instance.seeds.iter().filter(|seed| is_own_seed || **seed != instance.address);
    let mut seeds: Vec<String> = others.map(ToString::to_string).collect();
    if seeds.is_empty() {
        seeds.push(instance.address.to_string()); // a single instance is its own seed
    }
    let mut all = json!({
        "cluster_name": instance.cluster,
        "num_tokens": tokens.len().max(1),
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "GossipingPropertyFileSnitch",
        "seed_provider": [{
            "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
            "parameters": [{ "seeds": seeds.join(",") }],
        }],
        "listen_address": instance.address.to_string(),
        "rpc_address": instance.address.to_string(),
        "storage_port": 7000,
        "native_transport_port": 9042,
        "data_file_directories": [folder("data")],
        "commitlog_directory": folder("commitlog"),
        "hints_directory": folder("hints"),
        "saved_caches_directory": folder("saved_caches"),
        "cdc_raw_directory": folder("cdc"),
        // Each replica syncs an acknowledged write to its disk within this time. Until then the
        // write survives as long as the power stays on.
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "10000ms",
        "concurrent_reads": set.concurrent_reads,
        "concurrent_writes": set.concurrent_writes,
        "concurrent_counter_writes": set.concurrent_writes,
        // The new formats of Cassandra 5, tries in memory and on disk. The cluster has no older
        // version.
        "storage_compatibility_mode": "NONE",
        "memtable": {
            "configurations": {
                "trie": { "class_name": "TrieMemtable" },
                "default": { "inherits": "trie" },
            },
        },
        "sstable": { "selected_format": "bti" },
        "disk_access_mode": "mmap_index_only",
    });
    if set.small() {
        let small = json!({
            "memtable_heap_space": "32MiB",
            "memtable_offheap_space": "32MiB",
            "key_cache_size": "4MiB",
            "file_cache_size": "32MiB",
            "networking_cache_size": "16MiB",
            "commitlog_segment_size": "4MiB",
            "commitlog_total_space": "64MiB",
            "concurrent_compactors": 1,
        });
        merge(&mut all, small);
    }
    // An instance that replaces another takes the other's tokens, and streams their rows. An
    // instance with tokens of its own has nothing to stream in a new cluster, but streams when it
    // joins a ring.
    if instance.replaces.is_none() && !tokens.is_empty() {
        merge(
            &mut all,
            json!({ "initial_token": tokens.join(","), "auto_bootstrap": instance.joined }),
        );
    }
    let Value::Object(all) = all else { unreachable!("it was made as one") };
    all.into_iter().collect()
}

fn merge(all: &mut Value, more: Value) {
    if let (Value::Object(all), Value::Object(more)) = (all, more) {
        all.extend(more);
    }
}
