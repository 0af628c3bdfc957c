//! Arguments for the JVM as an argument file (`java @FILE`), one per line, so that no shell
//! interprets them.

use crate::{Collector, Instance};

/// Module exports that Cassandra and its tools need on Java 17.
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

/// The jar of jamm, Cassandra's memory meter, by which a folder of Cassandra's jars is recognized.
/// Each version of Cassandra has a version of jamm of its own.
pub const JAMM_JAR: &str = "jamm-0.4.0.jar";

/// Returns the arguments that start an instance.
pub(crate) fn daemon(instance: &Instance) -> String {
    let set = &instance.settings;
    let home = instance.home.display();
    let mut all = vec![
        format!("-javaagent:{}/{JAMM_JAR}", instance.library.display()),
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
    all.extend(module_options());
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
    argument_file(&all)
}

/// Returns the arguments that start nodetool for an instance. The caller appends the command.
pub(crate) fn nodetool(instance: &Instance) -> String {
    let home = instance.home.display();
    let mut all =
        ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"].map(str::to_owned).to_vec();
    all.extend(module_options());
    all.push(format!("-Dcassandra.storagedir={home}/tmp"));
    all.push(format!("-Dlogback.configurationFile={home}/conf/logback-tools.xml"));
    all.extend(["-cp".to_owned(), format!("{}/*", instance.library.display())]);
    all.extend([
        "org.apache.cassandra.tools.NodeTool".to_owned(),
        "-p".to_owned(),
        instance.jmx_port.to_string(),
    ]);
    argument_file(&all)
}

fn collector(collector: Collector, cores: usize) -> Vec<String> {
    match collector {
        Collector::Serial => vec!["-XX:+UseSerialGC".to_owned()],
        Collector::G1 => vec!["-XX:+UseG1GC".to_owned(), "-XX:MaxGCPauseMillis=300".to_owned()],
        // Scaled from the published set-up: its two instances use 4 and 10 of 16 cores.
        Collector::Z => vec![
            "-XX:+UseZGC".to_owned(),
            "-XX:+UseTransparentHugePages".to_owned(),
            format!("-XX:ConcGCThreads={}", (cores / 2).max(1)),
            format!("-XX:ParallelGCThreads={}", (cores + cores / 4).max(1)),
        ],
    }
}

fn module_options() -> impl Iterator<Item = String> {
    let exports = EXPORTS.into_iter().map(|name| format!("--add-exports={name}=ALL-UNNAMED"));
    exports.chain(OPENS.into_iter().map(|name| format!("--add-opens={name}=ALL-UNNAMED")))
}

/// Formats arguments for an argument file: quoted, with quotes and backslashes escaped.
fn argument_file(all: &[String]) -> String {
    let quoted = |argument: &String| {
        format!("\"{}\"\n", argument.replace('\\', "\\\\").replace('"', "\\\""))
    };
    all.iter().map(quoted).collect()
}
