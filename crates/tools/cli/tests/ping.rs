//! Tests that `bench ping`, by its binary, reports all rungs, over the kernel and with kernel
//! bypass.

use crate::support;
use serde_json::Value;
use support::{ServerProcess, run};

const SMALL: [&str; 4] = ["--memory", "256M", "--disk", "1G"];

/// Runs the benchmark. Returns the names of the rungs, the lowest first.
fn climb(args: &[&str]) -> Vec<String> {
    let ran = run(&[&["bench", "ping", "--seconds", "0.2", "--json"][..], args].concat());
    let found: Value = serde_json::from_str(ran.ok()).expect("JSON");
    let rungs = found["rungs"].as_array().expect("rungs");
    for rung in rungs {
        let of = |name: &str| rung[name].as_f64().expect("a time");
        assert!(rung["samples"].as_u64().expect("a count") >= 64, "{rung}");
        assert!(0.0 < of("min") && of("min") <= of("p50") && of("p50") <= of("p99"), "{rung}");
    }
    rungs
        .iter()
        .map(|rung| {
            rung["what"].as_str().expect("a name").split(',').next().expect("one").to_owned()
        })
        .collect()
}

#[test]
fn every_rung_is_climbed() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ServerProcess::start(&folder.path().join("kernel"), &SMALL)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(climb(&["-C", &server.coordinator, "--size", "5000"]), ["echo", "read"]);
    let tables = run(&["table", "list", "-C", &server.coordinator]);
    assert!(!tables.ok().contains("bench"), "its table is gone: {}", tables.ok());
    assert!(server.stop().success());

    let socket = folder.path().join("memif.sock");
    let device = |role: &str| {
        format!("dev=net_memif0,role={role},socket={},socket-abstract=no", socket.display())
    };
    let listen = format!("fast+dpdk:host=10.9.0.1,port=7,{}", device("server"));
    let local = format!("fast+dpdk:host=10.9.0.2,port=0,{}", device("client"));
    let flags = [&["-L", &listen][..], &SMALL].concat();
    let server = ServerProcess::start(&folder.path().join("past"), &flags)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        climb(&["-C", &server.coordinator, "--local", &local]),
        ["driver ping", "echo", "read"]
    );
    assert!(server.stop().success());
}

#[test]
fn a_cluster_that_is_not_there_is_named() {
    let ran = run(&["bench", "ping", "-C", "tcp:host=127.0.0.1,port=1", "--timeout", "200ms"]);
    assert_ne!(ran.code, Some(0));
    assert!(
        ran.stderr.contains("no cluster answers at tcp:host=127.0.0.1,port=1"),
        "{}",
        ran.stderr
    );
}
