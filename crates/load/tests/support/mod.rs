//! A real Cassandra as a child process: one node on a loopback address of its own.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest start: seconds on an idle machine, more beside other tests.
const START: Duration = Duration::from_secs(240);

/// The folder of its jars.
const JARS: &str = "SPRAT_CASSANDRA";

/// Packages of Java that Cassandra reaches into.
const EXPORTS: [&str; 8] = [
    "java.base/jdk.internal.misc",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.unsupported/sun.misc",
];

/// And those that it looks into by reflection.
const OPENS: [&str; 14] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
];

/// A node, whose process ends with it.
pub(crate) struct Node {
    child: Child,
    folder: TempDir,
    /// Where it answers.
    pub(crate) contact: String,
}

impl Node {
    /// Starts one, and waits until it answers. None, and counted, where there are no jars or no java.
    pub(crate) fn start() -> Option<Self> {
        let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/cassandra/lib");
        let jars = std::env::var_os(JARS).map_or_else(default, PathBuf::from);
        let Ok(jars) = jars.canonicalize() else {
            skip("load on a real Cassandra: its jars are not here (scripts/setup fetches them)");
            return None;
        };
        if Command::new("java").arg("-version").output().is_err() {
            skip("load on a real Cassandra: there is no java here");
            return None;
        }
        let id = std::process::id();
        let address = format!("127.{}.{}.{}", 128 + id / 62_500 % 120, id / 250 % 250, 1 + id % 250);
        let folder = tempfile::tempdir().expect("a folder");
        configure(folder.path(), &address);
        let child = java(folder.path(), &jars).spawn().expect("java runs");
        let mut node = Self { child, folder, contact: format!("{address}:9042") };
        node.wait();
        Some(node)
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        while TcpStream::connect(&self.contact).is_err() {
            assert!(begun.elapsed() < START, "it does not listen:\n{}", self.log());
            assert!(self.child.try_wait().expect("ours").is_none(), "it ended:\n{}", self.log());
            sleep(Duration::from_millis(100));
        }
        eprintln!("Cassandra listens after {:?}", begun.elapsed());
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).expect("it runs");
    }

    fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let log = read("system.log");
        let from = log.lines().count().saturating_sub(20);
        format!("{}\n{}", read("stdout.log"), log.lines().skip(from).collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A process that stands still takes this one, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("Cassandra said:\n{}", self.log());
        }
    }
}

fn configure(folder: &Path, address: &str) {
    let at = folder.display();
    let yaml = format!(
        "cluster_name: sprat-load\nnum_tokens: 4\npartitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
         data_file_directories: [{at}/data]\ncommitlog_directory: {at}/commitlog\nsaved_caches_directory: {at}/caches\n\
         hints_directory: {at}/hints\ncdc_raw_directory: {at}/cdc\n\
         commitlog_sync: periodic\ncommitlog_sync_period: 10000ms\ncommitlog_segment_size: 8MiB\n\
         commitlog_total_space: 64MiB\nfile_cache_size: 32MiB\nnetworking_cache_size: 16MiB\nauto_snapshot: false\n\
         auto_bootstrap: false\nlisten_address: {address}\nrpc_address: {address}\nstorage_port: 7000\n\
         native_transport_port: 9042\nendpoint_snitch: GossipingPropertyFileSnitch\nseed_provider:\n  \
         - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    parameters: [{{seeds: \"{address}\"}}]\n"
    );
    let logback = format!(
        "<configuration><appender name=\"F\" class=\"ch.qos.logback.core.FileAppender\"><file>{at}/system.log</file>\
         <encoder><pattern>%-5level %date{{ISO8601}} %F:%L - %msg%n</pattern></encoder></appender>\
         <root level=\"INFO\"><appender-ref ref=\"F\"/></root></configuration>"
    );
    let files = [("cassandra.yaml", yaml), ("rackdc", "dc=dc1\nrack=r1\n".to_owned()), ("logback.xml", logback)];
    files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).expect("it can be written"));
    fs::create_dir(folder.join("tmp")).expect("it can be made");
}

fn java(folder: &Path, jars: &Path) -> Command {
    let names: Vec<PathBuf> =
        fs::read_dir(jars).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    let is_jamm = |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("jamm-"));
    let jamm = names.iter().find(is_jamm).expect("jamm is among the jars").display();
    let at = folder.display();
    let mut command = Command::new("java");
    command.arg(format!("-javaagent:{jamm}"));
    // Seconds matter here, and not how fast it is in an hour.
    command.args(["-Xms256M", "-Xmx256M", "-Xss256k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
    command.args(["-XX:+PerfDisableSharedMem", "-Djava.net.preferIPv4Stack=true", "-Djdk.attach.allowAttachSelf=true"]);
    for (flag, names) in [("--add-exports", &EXPORTS[..]), ("--add-opens", &OPENS[..])] {
        command.args(names.iter().flat_map(|name| [flag.to_owned(), format!("{name}=ALL-UNNAMED")]));
    }
    for (key, value) in [
        ("cassandra.config", format!("file://{at}/cassandra.yaml")),
        ("cassandra-rackdc.properties", format!("file://{at}/rackdc")),
        ("logback.configurationFile", format!("{at}/logback.xml")),
        ("cassandra.logdir", at.to_string()),
        ("cassandra.storagedir", at.to_string()),
        ("java.io.tmpdir", format!("{at}/tmp")),
        ("cassandra.ring_delay_ms", "0".to_owned()),
        ("cassandra.skip_wait_for_gossip_to_settle", "0".to_owned()),
        ("cassandra.available_processors", "2".to_owned()),
        ("cassandra-foreground", "yes".to_owned()),
        ("io.netty.tryReflectionSetAccessible", "true".to_owned()),
    ] {
        command.arg(format!("-D{key}={value}"));
    }
    command.arg("-cp").arg(std::env::join_paths(names).expect("names without colons"));
    command.arg("org.apache.cassandra.service.CassandraDaemon");
    let out = File::create(folder.join("stdout.log")).expect("it can be made");
    let same = out.try_clone().expect("it can be told twice");
    command.stdin(Stdio::null()).stdout(out).stderr(same);
    command
}

/// Says that something cannot be tested on this machine, also to `make test`, which reads it out at its end.
fn skip(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(list) = std::env::var_os("SPRAT_SKIPS") {
        let list = File::options().create(true).append(true).open(list);
        let _ = list.and_then(|mut list| writeln!(list, "{why}"));
    }
}
