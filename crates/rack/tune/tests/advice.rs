//! Tests which changes are advised for hosts' facts and a description.

use sprat_plan::Spec;
use sprat_tune::{
    Change, Class, Facts, FactsError, MAX_ANSWER, Overlay, SCRIPT, candidates, chosen,
    is_kernel_file,
};
use std::process::Command;

const HOST: &str = "cores\t2\ndisk\tmd0\ndisk\tnvme0n1\n\
    value\t/sys/devices/virtual/block/md0/queue/read_ahead_kb\t8192\n\
    value\t/sys/devices/pci0/nvme/nvme0n1/queue/read_ahead_kb\t8192\n\
    value\t/sys/devices/pci0/nvme/nvme0n1/queue/scheduler\tnone [mq-deadline] kyber\n\
    value\t/sys/devices/pci0/nvme/nvme0n1/queue/rotational\t0\n\
    value\t/sys/kernel/mm/transparent_hugepage/enabled\talways [madvise] never\n\
    value\t/proc/sys/vm/swappiness\t60\n\
    value\t/proc/sys/net/ipv4/tcp_rmem\t4096 131072 6291456\n\
    irq\teth0\t30\nirq\teth0\t31\n\
    value\t/proc/irq/30/smp_affinity_list\t0\nvalue\t/proc/irq/31/smp_affinity_list\t0\n";

fn spec(cassandra: &str) -> Spec {
    let text = format!(
        "name = \"t\"\n[server]\ncores = 2\nmemory = \"4GiB\"\ndisks = [\"1TB\"]\nport-rate = \
         \"1Gb/s\"\n\
         [chassis]\nservers = 3\n[cassandra]\n{cassandra}"
    );
    Spec::from_toml(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn of(class: Class, spec: &Spec, facts: &[(String, Facts)]) -> Vec<Vec<Change>> {
    let all = candidates(spec, facts, &[]);
    all.into_iter()
        .filter(|candidate| candidate.class == class)
        .map(|candidate| candidate.changes)
        .collect()
}

fn host(path: &str, value: &str) -> Change {
    Change::Host { host: "a".to_owned(), path: path.to_owned(), value: value.to_owned() }
}

#[test]
fn advice_follows_from_facts() {
    let facts = [("a".to_owned(), Facts::parse(HOST).expect("an answer"))];
    let spec = spec("");
    let ahead = ["md0", "nvme0n1"]
        .map(|disk| host(&format!("/sys/block/{disk}/queue/read_ahead_kb"), "16"));
    assert_eq!(of(Class::ReadAhead, &spec, &facts), [ahead], "the array and what it is made of");
    assert_eq!(
        of(Class::Scheduler, &spec, &facts),
        [[host("/sys/block/nvme0n1/queue/scheduler", "none")]]
    );
    assert_eq!(
        of(Class::Memory, &spec, &facts),
        [[host("/proc/sys/vm/swappiness", "1")]],
        "madvise is chosen already"
    );
    assert_eq!(
        of(Class::Network, &spec, &facts),
        [[host("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 16777216")]]
    );
    assert_eq!(
        of(Class::Interrupts, &spec, &facts),
        [[host("/proc/irq/31/smp_affinity_list", "1")]]
    );
    // If irqbalance runs, interrupts are left to it. Kernel files that the facts lack are not
    // advised.
    let spread = Facts::parse(&format!("{HOST}irqbalance\n")).expect("an answer");
    assert!(of(Class::Interrupts, &spec, &[("a".to_owned(), spread)]).is_empty());
    assert!(of(Class::Governor, &spec, &facts).is_empty());
}

#[test]
fn a_small_heap_and_missing_limits_are_found() {
    let bad = spec(
        "heap = \"256MiB\"\ncollector = \"g1\"\nyaml = { compaction_throughput = \"0MiB/s\" }",
    );
    let heaps: Vec<_> = of(Class::Collector, &bad, &[])
        .into_iter()
        .map(|changes| match &changes[..] {
            [
                Change::Instances(Overlay {
                    heap_mib: Some(heap), collector: Some(collector), ..
                }),
            ] => (*heap, format!("{collector:?}")),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [(1024, "G1"), (1024, "Z"), (1024, "Serial"), (2048, "G1")]
        .map(|(heap, name)| (heap, name.to_owned()));
    assert_eq!(heaps, expected);
    let throttled = of(Class::Compaction, &bad, &[]);
    let Some([Change::Instances(overlay)]) = throttled.first().map(Vec::as_slice) else {
        panic!("{throttled:?}")
    };
    assert_eq!(overlay.yaml["compaction_throughput"], "64MiB/s");
    assert_eq!(of(Class::Compaction, &spec(""), &[]).len(), 1, "only the lower one is left to try");

    // Settings found take precedence over the description, and can be written as its lines.
    let adapted = overlay.adapt(bad.clone());
    assert_eq!(
        adapted.cassandra.as_ref().map(|cassandra| &cassandra.yaml["compaction_throughput"]),
        Some(&"64MiB/s".into())
    );
    assert_eq!(overlay.lines(), ["yaml = { compaction_throughput = \"64MiB/s\" }"]);
    let lines =
        Overlay { heap_mib: Some(512), ..Overlay::default() }.with(overlay).lines().join("\n");
    let described = spec(&lines);
    assert_eq!(
        described.cassandra.expect("it has one").heap.map(|heap| heap.0),
        Some(512.0 * 1_048_576.0)
    );
}

#[test]
fn overlays_are_kept_in_the_racks_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(Overlay::read(folder.path()).expect("none"), Overlay::default());
    let overlay =
        Overlay { heap_mib: Some(512), java: vec!["-Dx=y".to_owned()], ..Overlay::default() };
    overlay.write(folder.path()).expect("written");
    assert_eq!(Overlay::read(folder.path()).expect("there"), overlay);
    Overlay::default().write(folder.path()).expect("gone");
    assert!(!folder.path().join("tuned.json").exists());
    std::fs::write(folder.path().join("tuned.json"), "{\"heap\": 1}").expect("a file");
    let error = Overlay::read(folder.path()).expect_err("nobody knows `heap`").to_string();
    assert!(error.contains("tuned.json") && error.contains("heap"), "{error}");
}

#[test]
fn malformed_facts_are_refused() {
    for text in [
        "cores\t0",
        "cores\tmany",
        "cores",
        "value\t/etc/passwd\tx",
        "value\t/sys/../etc/passwd\tx",
        "disk\t../x",
        "irq\teth0\tx",
        "hello",
        "",
    ] {
        let parsed = Facts::parse(&format!("{text}\n"));
        assert!(matches!(parsed, Err(FactsError::Line { number: 1, .. })), "{text:?}: {parsed:?}");
    }
    assert_eq!(Facts::parse(&" ".repeat(MAX_ANSWER + 1)), Err(FactsError::Long(MAX_ANSWER + 1)));
    assert_eq!((chosen("a [b] c"), chosen(" 7 "), chosen("[x")), ("b", "7", "[x"));
    assert!(is_kernel_file("/proc/sys/vm/swappiness"));
    for path in ["/proc/1/mem", "/sys/a b", "/sys/$(x)", "sys/x", "/sys/x/../../etc"] {
        assert!(!is_kernel_file(path), "{path}");
    }
}

/// The script of facts runs on this machine, and its output can be parsed.
#[test]
fn the_script_works_on_this_machine() {
    let here = std::env::current_dir().expect("a folder");
    let output = Command::new("sh")
        .args(["-c", SCRIPT, "sh"])
        .arg(here.join("not/there/yet"))
        .output()
        .expect("a shell");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let facts = Facts::parse(&String::from_utf8_lossy(&output.stdout)).expect("an answer");
    assert_eq!(facts.cores, std::thread::available_parallelism().expect("cores").get());
    assert!(facts.value("/proc/sys/vm/max_map_count").is_some(), "{facts:?}");
}
