//! An instance of Cassandra, and the files in its folder.

use crate::settings::Settings;
use crate::{java, yaml};
use std::net::IpAddr;
use std::path::PathBuf;

/// JMX port of a host's first instance, which nodetool uses. The ports of further instances are
/// [`JMX_STEP`] apart.
pub const JMX_PORT: u16 = 7199;

/// Distance between the JMX ports of instances on a host.
pub const JMX_STEP: u16 = 100;

/// The configuration of one instance of Cassandra. [`crate::hosts`] makes it from a plan, and
/// [`Instance::files`] gives the files to install in its folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Name of its cluster.
    pub cluster: String,
    /// Name of its datacenter.
    pub datacenter: String,
    /// Name of its rack. Cassandra puts replicas into different racks.
    pub rack: String,
    /// Its own address.
    pub address: IpAddr,
    /// Addresses of the seeds.
    pub seeds: Vec<IpAddr>,
    /// Its tokens. If empty, Cassandra picks one.
    pub tokens: Vec<i64>,
    /// Port for nodetool, open to its own host only.
    pub jmx_port: u16,
    /// Its folder on the host.
    pub home: PathBuf,
    /// The folder of Cassandra's jars on the host.
    pub library: PathBuf,
    /// Heap, threads and further settings.
    pub settings: Settings,
    /// Whether the instance joins, or has joined, an existing ring. If so, it streams its rows from
    /// others, and never uses itself as a seed.
    pub joined: bool,
    /// Whether the instance has ever been up on the ring. If so, its disk has rows, and it does not
    /// start without them.
    pub begun: bool,
    /// Address of the dead instance that it replaces.
    pub replaces: Option<IpAddr>,
}

/// A file to install.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct File {
    /// Its path in the folder of the instance or service.
    pub path: &'static str,
    /// Whether the file is executable.
    pub program: bool,
    /// Its content.
    pub text: String,
}

impl Instance {
    /// Returns all files of the instance.
    #[must_use]
    pub fn files(&self) -> Vec<File> {
        let file = |path, text| File { path, program: false, text };
        vec![
            file("conf/cassandra.yaml", yaml::text(self)),
            file(
                "conf/cassandra-rackdc.properties",
                format!("dc={}\nrack={}\n", self.datacenter, self.rack),
            ),
            file("conf/java.args", java::daemon(self)),
            file("conf/nodetool.args", java::nodetool(self)),
            file("conf/logback.xml", logback(&format!("{}/logs/system.log", self.home.display()))),
            file("conf/logback-tools.xml", logback_tools()),
            File {
                path: "instance",
                program: true,
                text: include_str!("../files/instance").to_owned(),
            },
            file("kind", include_str!("../files/cassandra").to_owned()),
            File {
                path: "nodetool",
                program: true,
                text: include_str!("../files/nodetool").to_owned(),
            },
        ]
    }
}

/// Configures logging to a file of 20 MB, of which ten are kept.
fn logback(file: &str) -> String {
    format!(
        "<configuration scan=\"false\">\n\
         \x20 <appender name=\"file\" class=\"ch.qos.logback.core.rolling.RollingFileAppender\">\n\
         \x20   <file>{file}</file>\n\
         \x20   <rollingPolicy class=\"ch.qos.logback.core.rolling.FixedWindowRollingPolicy\">\n\
         \x20     \
         <fileNamePattern>{file}.%i</fileNamePattern><minIndex>1</minIndex><maxIndex>9</maxIndex>\n\
         \x20   </rollingPolicy>\n\
         \x20   <triggeringPolicy \
         class=\"ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy\">\
         <maxFileSize>20MB</maxFileSize></triggeringPolicy>\n\
         \x20   <encoder><pattern>%-5level [%thread] %date{{ISO8601}} %F:%L - \
         %msg%n</pattern></encoder>\n\
         \x20 </appender>\n\
         \x20 <root level=\"INFO\"><appender-ref ref=\"file\"/></root>\n\
         </configuration>\n"
    )
}

fn logback_tools() -> String {
    "<configuration>\n\
     \x20 <appender name=\"err\" class=\"ch.qos.logback.core.ConsoleAppender\">\n\
     \x20   <target>System.err</target><encoder><pattern>%-5level %msg%n</pattern></encoder>\n\
     \x20 </appender>\n\
     \x20 <root level=\"WARN\"><appender-ref ref=\"err\"/></root>\n\
     </configuration>\n"
        .to_owned()
}
