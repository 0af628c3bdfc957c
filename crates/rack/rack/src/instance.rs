//! An instance of Cassandra, and the files in its folder.

use crate::settings::Settings;
use crate::{java, yaml};
use std::net::IpAddr;
use std::path::PathBuf;

/// JMX port of a host's first instance, which nodetool uses. The port of each further instance is
/// [`JMX_STEP`] higher.
pub const JMX_PORT: u16 = 7199;

/// Distance between the JMX ports of instances on a host.
pub const JMX_STEP: u16 = 100;

/// The configuration of one instance of Cassandra. [`crate::hosts`] makes it from a plan, and
/// [`Instance::files`] gives the files to install in its folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// The instance's name.
    pub name: String,
    /// Name of the instance's cluster.
    pub cluster: String,
    /// Name of the instance's datacenter.
    pub datacenter: String,
    /// Name of the instance's rack. Cassandra puts replicas into different racks.
    pub rack: String,
    /// The instance's own address.
    pub address: IpAddr,
    /// Addresses of the seeds.
    pub seeds: Vec<IpAddr>,
    /// The instance's tokens. If empty, Cassandra chooses a token.
    pub tokens: Vec<i64>,
    /// JMX port for nodetool, which only the instance's own host can reach.
    pub jmx_port: u16,
    /// The instance's folder on the host.
    pub home: PathBuf,
    /// The folder of Cassandra's jars on the host.
    pub library: PathBuf,
    /// Heap, threads and further settings.
    pub settings: Settings,
    /// Whether the instance joins, or has joined, an existing ring. If so, it streams its rows from
    /// other instances, and never uses itself as a seed.
    pub joined: bool,
    /// Whether the instance has ever been up on the ring. If so, its disk has rows, and the
    /// instance must not start without them.
    pub begun: bool,
    /// Address of the dead instance that this instance replaces, if it replaces one.
    pub replaces: Option<IpAddr>,
}

/// A file to install.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct File {
    /// The file's path in the folder of the instance or service.
    pub path: &'static str,
    /// Whether the file is executable.
    pub program: bool,
    /// The content of the file.
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

/// Returns a configuration that logs to a file of 20 MB, of which ten are kept.
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
