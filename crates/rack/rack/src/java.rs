//! What Java is started with, as a file of arguments (`java @FILE`): one a line, so that no shell
//! reads them.

use crate::{Collector, Instance};

/// What Cassandra reaches into on Java 17, and what its tools do.
const EXPORTS: [&str; 10] = [
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/java.lang.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
    "jdk.attach/sun.tools.attach",
];
const OPENS: [&str; 13] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.ref",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
];

/// What measures objects for Cassandra, by which a folder of its jars is known: the name is the
/// version's that comes with it.
pub const AGENT: &str = "jamm-0.4.0.jar";

/// Of an instance.
pub(crate) fn daemon(instance: &Instance) -> String {
    let set = &instance.settings;
    let home = instance.home.display();
    let mut all = vec![
        format!("-javaagent:{}/{AGENT}", instance.library.display()),
        format!("-Xms{}m", set.heap_mib),
        format!("-Xmx{}m", set.heap_mib),
        "-Xss256k".to_owned(),
        "-XX:+PerfDisableSharedMem".to_owned(),
        "-XX:+HeapDumpOnOutOfMemoryError".to_owned(),
        "-XX:+ExitOnOutOfMemoryError".to_owned(),
        format!("-XX:HeapDumpPath={home}/logs"),
        format!("-Xlog:gc*,safepoint:file={home}/logs/gc.log:time,uptime:filecount=4,filesize=10M"),
    ];
    all.extend(collector(set.collector, set.cores));
    if set.small() {
        all.extend(["-XX:TieredStopAtLevel=1", "-Dio.netty.eventLoopThreads=1"].map(str::to_owned));
    } else {
        all.push("-XX:+AlwaysPreTouch".to_owned());
    }
    all.extend(reach());
    let properties = [
        ("cassandra.config", format!("file://{home}/conf/cassandra.yaml")),
        (
            "cassandra.config.loader",
            "org.apache.cassandra.config.YamlConfigurationLoader".to_owned(),
        ),
        ("cassandra-rackdc.properties", format!("file://{home}/conf/cassandra-rackdc.properties")),
        ("cassandra.logdir", format!("{home}/logs")),
        ("cassandra.storagedir", home.to_string()),
        ("cassandra.jmx.local.port", instance.jmx_port.to_string()),
        ("cassandra-foreground", "yes".to_owned()),
        ("cassandra.available_processors", set.cores.to_string()),
        ("logback.configurationFile", format!("{home}/conf/logback.xml")),
        ("java.io.tmpdir", format!("{home}/tmp")),
        ("java.net.preferIPv4Stack", instance.address.is_ipv4().to_string()),
        ("jdk.attach.allowAttachSelf", "true".to_owned()),
        ("io.netty.tryReflectionSetAccessible", "true".to_owned()),
        ("io.netty.allocator.maxOrder", "11".to_owned()),
    ];
    all.extend(properties.into_iter().map(|(key, value)| format!("-D{key}={value}")));
    if let Some(address) = instance.replaces {
        all.push(format!("-Dcassandra.replace_address_first_boot={address}"));
    }
    all.extend(set.java.iter().cloned());
    all.extend(["-cp".to_owned(), format!("{home}/conf:{}/*", instance.library.display())]);
    all.push("org.apache.cassandra.service.CassandraDaemon".to_owned());
    lines(&all)
}

/// Of nodetool, for an instance: what it is to do is added behind.
pub(crate) fn nodetool(instance: &Instance) -> String {
    let home = instance.home.display();
    let mut all =
        ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"].map(str::to_owned).to_vec();
    all.extend(reach());
    all.push(format!("-Dcassandra.storagedir={home}/tmp"));
    all.push(format!("-Dlogback.configurationFile={home}/conf/logback-tools.xml"));
    all.extend(["-cp".to_owned(), format!("{}/*", instance.library.display())]);
    all.extend([
        "org.apache.cassandra.tools.NodeTool".to_owned(),
        "-p".to_owned(),
        instance.jmx_port.to_string(),
    ]);
    lines(&all)
}

fn collector(collector: Collector, cores: usize) -> Vec<String> {
    match collector {
        Collector::Serial => vec!["-XX:+UseSerialGC".to_owned()],
        Collector::G1 => vec!["-XX:+UseG1GC".to_owned(), "-XX:MaxGCPauseMillis=300".to_owned()],
        // The published set-up's 4 and 10 of its 16 cores, two instances on them.
        Collector::Z => vec![
            "-XX:+UseZGC".to_owned(),
            "-XX:+UseTransparentHugePages".to_owned(),
            format!("-XX:ConcGCThreads={}", (cores / 2).max(1)),
            format!("-XX:ParallelGCThreads={}", (cores + cores / 4).max(1)),
        ],
    }
}

fn reach() -> impl Iterator<Item = String> {
    let exports = EXPORTS.into_iter().map(|name| format!("--add-exports={name}=ALL-UNNAMED"));
    exports.chain(OPENS.into_iter().map(|name| format!("--add-opens={name}=ALL-UNNAMED")))
}

/// Arguments as Java reads them from a file: in quotes, with what a quote means escaped.
fn lines(all: &[String]) -> String {
    let quoted = |argument: &String| {
        format!("\"{}\"\n", argument.replace('\\', "\\\\").replace('"', "\\\""))
    };
    all.iter().map(quoted).collect()
}
