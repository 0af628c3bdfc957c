//! An instance of Cassandra: who it is, and the files in its folder.

use crate::settings::Settings;
use crate::{java, yaml};
use std::net::IpAddr;
use std::path::PathBuf;

/// Where the first instance of a host is asked by nodetool; those after it are each [`JMX_STEP`]
/// further.
pub const JMX_PORT: u16 = 7199;

/// See [`JMX_PORT`].
pub const JMX_STEP: u16 = 100;

/// An instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Its cluster's.
    pub cluster: String,
    /// Its datacenter's.
    pub datacenter: String,
    /// Its rack's: replicas go to different ones.
    pub rack: String,
    /// Its own address.
    pub address: IpAddr,
    /// Those whom it asks who else is there.
    pub seeds: Vec<IpAddr>,
    /// Its tokens; none: it picks one by itself.
    pub tokens: Vec<i64>,
    /// Where nodetool asks it, from its own host only.
    pub jmx_port: u16,
    /// Its folder on its host.
    pub home: PathBuf,
    /// Where Cassandra's jars are on its host.
    pub library: PathBuf,
    /// What it is set to.
    pub settings: Settings,
    /// Whether it came, or comes, to a ring that was there: it fetches its rows, and asks others
    /// who is there, never itself.
    pub joined: bool,
    /// Whether it has been up as a member of the ring: then it has rows, and without them it does
    /// not start.
    pub begun: bool,
    /// Whose place it takes, of an instance that is gone.
    pub replaces: Option<IpAddr>,
}

/// A file of an instance.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct File {
    /// Its path in the instance's folder.
    pub path: &'static str,
    /// Whether it is a program.
    pub program: bool,
    /// What is in it.
    pub text: String,
}

impl Instance {
    /// All its files.
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

/// What is logged into a file: ten of 20 MB, the oldest going first.
fn logback(file: &str) -> String {
    format!(
        "<configuration scan=\"false\">\n\
         \x20 <appender name=\"file\" class=\"ch.qos.logback.core.rolling.RollingFileAppender\">\n\
         \x20   <file>{file}</file>\n\
         \x20   <rollingPolicy class=\"ch.qos.logback.core.rolling.FixedWindowRollingPolicy\">\n\
         \x20     <fileNamePattern>{file}.%i</fileNamePattern><minIndex>1</minIndex><maxIndex>9</maxIndex>\n\
         \x20   </rollingPolicy>\n\
         \x20   <triggeringPolicy class=\"ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy\"><maxFileSize>20MB</maxFileSize></triggeringPolicy>\n\
         \x20   <encoder><pattern>%-5level [%thread] %date{{ISO8601}} %F:%L - %msg%n</pattern></encoder>\n\
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
