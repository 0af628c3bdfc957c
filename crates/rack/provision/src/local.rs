//! Runs a rack on one machine: each host is a network namespace with its own name, folders and ssh
//! server, or a guest (a virtual machine) in such a namespace.

use crate::ansible::SshAccess;
use crate::guests::{Guests, MAX_DISKS, MAX_GUESTS, Start};
use crate::program::{missing, run};
use crate::{Error, Folder};
use ipnet::IpNet;
use sprat_host::wait_until;
use sprat_lab::hosts::{
    Cable, CableEnd, HostsPlan, Interface, LabHosts, MAX_INTERFACES, StateDir, down, join,
};
use sprat_plan::{Plan, Spec};
use sprat_rack::Host;
use std::fs::{self, File};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Limit on the servers of a rack in namespaces: the ports of the switch, less the port of the
/// controlling host.
pub(crate) const MAX_SERVERS: usize = MAX_INTERFACES - 1;

/// Names of the controlling host and of the switch.
const CONTROL: &str = "ctl";
const SWITCH: &str = "switch";
const BRIDGE: &str = "br0";

/// How long a host may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a guest may take to answer: it boots a kernel first, and many guests boot at once on
/// few cores.
const BOOT_PATIENCE: Duration = Duration::from_secs(180);

/// How long guests may take to shut down.
const HALT_PATIENCE: Duration = Duration::from_secs(30);

const LOOK: Duration = Duration::from_millis(50);

const SSH_PORT: u16 = 22;

/// Path of Debian's ssh server.
const SSHD: &str = "/usr/sbin/sshd";

/// A rack on this machine. [`Local::up`] makes the hosts, which run until [`Local::down`];
/// [`Local::ssh_access`] returns how to reach them. The hosts' data stay in the rack's folder.
#[derive(Clone, Debug)]
pub struct Local {
    folder: Folder,
    labs: StateDir,
    guests: Option<Guests>,
}

impl Local {
    /// Describes a rack of namespaces whose state is in `folder`. Makes no host yet.
    #[must_use]
    pub fn new(folder: &Folder) -> Self {
        Self { folder: folder.clone(), labs: StateDir::at(folder.file("labs")), guests: None }
    }

    /// Describes a rack of guests, which are virtual machines with kernels of their own. Their
    /// images are in the folder `images`, which all racks share. Makes no host yet.
    #[must_use]
    pub fn with_guests(folder: &Folder, images: impl Into<PathBuf>) -> Self {
        Self { guests: Some(Guests::new(images.into())), ..Self::new(folder) }
    }

    /// Adapts a description to this machine. The ssh user becomes root, and this machine the
    /// controlling host. Without guests, the hosts' folders are moved into the rack's folder, and
    /// no disk is mounted.
    #[must_use]
    pub fn adapt(&self, spec: Spec) -> Spec {
        let mut spec = spec;
        let path = |name: &str| self.folder.file(name).display().to_string();
        spec.provision.user = "root".to_owned();
        spec.control = None; // this machine controls the rack
        if self.guests.is_some() {
            return spec;
        }
        spec.provision.shared = true;
        // The disks of this machine are not changed.
        spec.storage.iter_mut().for_each(|storage| storage.mounts.clear());
        spec.provision.base = path("srv");
        spec.provision.library = path("opt/lib");
        spec
    }

    /// Returns whether the hosts of the rack `name` run.
    #[must_use]
    pub fn is_up(&self, name: &str) -> bool {
        self.labs.list().is_ok_and(|labs| labs.iter().any(|lab| lab.name == name))
    }

    /// Returns how to reach the hosts of the rack `name`.
    #[must_use]
    pub fn ssh_access(&self, name: &str) -> SshAccess {
        SshAccess {
            namespace: Some(format!("{name}-{CONTROL}")),
            key: Some(self.folder.file("key")),
            known_hosts: Some(self.folder.file("known_hosts")),
            ..SshAccess::default()
        }
    }

    /// Makes the hosts, and waits until they answer. They run until [`Local::down`].
    ///
    /// # Errors
    /// There are too many servers, or with guests too many disks or too little memory; rights or
    /// programs are missing; a file cannot be written; or a host does not answer in time. In each
    /// case everything that was made is removed again, except files.
    pub fn up(&self, plan: &Plan, hosts: &[Host]) -> Result<(), Error> {
        let most = if self.guests.is_some() { MAX_GUESTS } else { MAX_SERVERS };
        if hosts.len() > most {
            return Err(Error::Servers { has: hosts.len(), most });
        }
        fs::create_dir_all(self.folder.path()).map_err(Error::file(self.folder.path()))?;
        self.keys()?;
        let memory = self.memory(plan, hosts.len())?; // this is checked before anything is made
        let mut standing = LabHosts::make(self.lab(plan, hosts), &self.labs)?;
        standing.configure()?;
        let all: Vec<&Host> = hosts.iter().collect();
        let control = standing.plan().position(CONTROL).unwrap_or(0);
        self.begin(plan, &all, memory, standing.namespace(control).as_fd())?;
        standing.leave();
        Ok(())
    }

    /// Adds the missing hosts of a plan to a rack that runs, and gives hosts that run the addresses
    /// of their new instances.
    ///
    /// # Errors
    /// The errors of [`Local::up`]. Hosts that were made before the error stay.
    pub fn grow(&self, plan: &Plan, hosts: &[Host]) -> Result<(), Error> {
        let most = if self.guests.is_some() { MAX_GUESTS } else { MAX_SERVERS };
        let name = &plan.spec.name;
        let standing =
            self.labs.list()?.into_iter().find(|lab| lab.name == *name).map(|lab| lab.namespaces);
        let standing = standing.unwrap_or_default();
        // Hosts whose instances left the ring still run.
        let is_up = |host: &&Host| standing.contains(&format!("{name}-{}", host.name));
        let (there, new): (Vec<&Host>, Vec<&Host>) = hosts.iter().partition(is_up);
        let has = standing.len() + new.len();
        if has > most + 2 {
            return Err(Error::Servers { has: has - 2, most });
        }
        if self.guests.is_none() {
            for (host, instance) in
                there.iter().flat_map(|host| host.instances.iter().map(move |one| (host, one)))
            {
                let net = format!("{}/{}", instance.address, plan.spec.addresses.v4.prefix_len());
                let (namespace, mut ip) = (format!("{name}-{}", host.name), Command::new("ip"));
                run("ip", ip.args(["-n", &namespace, "address", "replace", &net, "dev", "eth0"]))?;
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        let memory = self.memory(plan, new.len())?;
        for (number, host) in new.iter().enumerate() {
            let port = interface(&format!("p{}", standing.len() + number), Vec::new());
            join(name, &self.labs, &self.namespace(plan, host), (SWITCH, BRIDGE), &port)?;
        }
        let path = PathBuf::from(format!("/run/netns/{name}-{CONTROL}"));
        let control = File::open(&path).map_err(Error::file(&path))?;
        self.begin(plan, &new, memory, control.as_fd())
    }

    /// Checks that hosts can be started. Returns the memory of each guest in MiB; 0 without guests.
    fn memory(&self, plan: &Plan, hosts: usize) -> Result<u64, Error> {
        let Some(guests) = &self.guests else {
            let mend = "install an ssh server (Debian: openssh-server)";
            return if Path::new(SSHD).exists() {
                Ok(0)
            } else {
                Err(Error::Missing { program: "sshd", mend })
            };
        };
        if plan.spec.server.disks.len() > MAX_DISKS {
            return Err(Error::Disks { has: plan.spec.server.disks.len(), most: MAX_DISKS });
        }
        guests.image()?;
        Guests::memory(plan, hosts)
    }

    /// Starts hosts, and waits until they answer from the namespace `control`.
    fn begin(
        &self,
        plan: &Plan,
        hosts: &[&Host],
        memory: u64,
        control: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        let prefix = plan.spec.addresses.v4.prefix_len();
        for host in hosts {
            match &self.guests {
                None => self.start(plan, host)?,
                Some(guests) => {
                    let folder = self.of(host);
                    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
                    guests.start(
                        &self.folder,
                        &Start { plan, host, folder: &folder, prefix, memory },
                    )?;
                }
            }
        }
        let (patience, log) = match &self.guests {
            None => (PATIENCE, "sshd.log"),
            Some(_) => (BOOT_PATIENCE, "console.log"),
        };
        let begun = Instant::now();
        for host in hosts {
            let answers = || {
                TcpStream::connect_timeout(
                    &(host.address.0, SSH_PORT).into(),
                    Duration::from_secs(1),
                )
                .is_ok()
            };
            let left = patience.saturating_sub(begun.elapsed());
            if !wait_until(left, LOOK, || {
                sprat_lab::hosts::within(control, answers).unwrap_or(false)
            }) {
                let log = self.of(host).join(log);
                return Err(Error::Silent {
                    host: host.name.clone(),
                    seconds: patience.as_secs(),
                    log,
                });
            }
        }
        Ok(())
    }

    /// Ends everything that runs in the hosts, and removes them. Guests are shut down first. The
    /// hosts' data stay in the folder.
    ///
    /// # Errors
    /// The rack does not run, or processes in it do not end.
    pub fn down(&self, name: &str) -> Result<(), Error> {
        if self.guests.is_some() {
            self.halt(name);
        }
        down(name, &self.labs)?;
        Ok(())
    }

    /// Shuts guests down and waits for a while, since data that are not written to their disks yet
    /// would be lost.
    fn halt(&self, name: &str) {
        let known = fs::read_dir(self.folder.file("hosts")).into_iter().flatten().flatten();
        let access = self.ssh_access(name);
        let address = |guest: &fs::DirEntry| fs::read_to_string(guest.path().join("address")).ok();
        let guests: Vec<_> =
            known.filter_map(|guest| Some((guest.file_name(), address(&guest)?))).collect();
        thread::scope(|scope| {
            for (_, address) in &guests {
                // A guest that does not answer is killed later.
                scope.spawn(|| access.run_command("root", address, "poweroff"));
            }
        });
        let runs = |guest: &std::ffi::OsString| {
            let namespace = format!("{name}-{}", guest.to_string_lossy());
            run("ip", Command::new("ip").args(["netns", "pids", &namespace]))
                .is_ok_and(|pids| !pids.is_empty())
        };
        wait_until(HALT_PATIENCE, LOOK, || !guests.iter().any(|(guest, _)| runs(guest)));
    }

    /// Returns a host's folder.
    fn of(&self, host: &Host) -> PathBuf {
        self.folder.file("hosts").join(&host.name)
    }

    /// Creates two keys unless they exist: one of the controlling host, and one that all hosts
    /// share. Writes the files with which ssh checks them.
    fn keys(&self) -> Result<(), Error> {
        for name in ["key", "host_key"] {
            let path = self.folder.file(name);
            if !path.exists() {
                let mut keygen = Command::new("ssh-keygen");
                keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "sprat", "-f"]).arg(&path);
                run("ssh-keygen", &mut keygen)?;
            }
        }
        let read = |name: &str| {
            fs::read_to_string(self.folder.file(name)).map_err(Error::file(self.folder.file(name)))
        };
        let known = format!("* {}", read("host_key.pub")?);
        for (name, text) in [("known_hosts", known), ("authorized_keys", read("key.pub")?)] {
            let path = self.folder.file(name);
            fs::write(&path, text).map_err(Error::file(&path))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
                .map_err(Error::file(&path))?;
        }
        Ok(())
    }

    /// Describes the network, in which all hosts are at one switch.
    fn lab(&self, plan: &Plan, hosts: &[Host]) -> HostsPlan {
        let mut all: Vec<_> = hosts.iter().map(|host| self.namespace(plan, host)).collect();
        // The controlling host gets the address of the first chassis's switch. There is no such
        // switch here.
        let prefix = plan.spec.addresses.v4.prefix_len();
        let control = hosts
            .first()
            .and_then(|host| IpNet::new(host.gateway, prefix).ok())
            .into_iter()
            .collect();
        all.push(sprat_lab::hosts::Host {
            name: CONTROL.to_owned(),
            interfaces: vec![interface("eth0", control)],
            ..Default::default()
        });
        let switch = all.len();
        let port = |number: usize| format!("p{number}");
        let cable = |host: usize| Cable {
            ends: [
                CableEnd { host, interface: "eth0".to_owned() },
                CableEnd { host: switch, interface: port(host) },
            ],
        };
        let cables = (0..switch).map(cable).collect();
        all.push(sprat_lab::hosts::Host {
            name: SWITCH.to_owned(),
            interfaces: (0..switch).map(|number| interface(&port(number), Vec::new())).collect(),
            bridge: Some(BRIDGE.to_owned()),
            ..Default::default()
        });
        HostsPlan { name: plan.spec.name.clone(), hosts: all, cables }
    }

    /// Describes the namespace of a host.
    fn namespace(&self, plan: &Plan, host: &Host) -> sprat_lab::hosts::Host {
        let all = std::iter::once(host.address.0)
            .chain(host.instances.iter().map(|instance| instance.address));
        let prefix = plan.spec.addresses.v4.prefix_len();
        // A guest configures its addresses itself, so its namespace has none.
        let all = all.filter(|_| self.guests.is_none());
        let interfaces = vec![interface(
            "eth0",
            all.filter_map(|address| IpNet::new(address, prefix).ok()).collect(),
        )];
        sprat_lab::hosts::Host { name: host.name.clone(), interfaces, ..Default::default() }
    }

    /// Starts a host's ssh server in the host's namespace, with a name and folders of its own.
    fn start(&self, plan: &Plan, host: &Host) -> Result<(), Error> {
        let folder = self.of(host);
        let opt =
            Path::new(&plan.spec.provision.library).parent().unwrap_or(Path::new("/")).to_owned();
        let srv = PathBuf::from(&plan.spec.provision.base);
        for path in [folder.join("srv"), folder.join("opt"), srv.clone(), opt.clone()] {
            fs::create_dir_all(&path).map_err(Error::file(&path))?;
        }
        let config = folder.join("sshd.conf");
        let text = format!(
            "Port {SSH_PORT}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPermitRootLogin \
             prohibit-password\n\
             PasswordAuthentication no\nUsePAM no\nUseDNS no\nMaxSessions 64\nMaxStartups 64\n\
             PidFile none\nSubsystem sftp internal-sftp\n",
            self.folder.file("host_key").display(),
            self.folder.file("authorized_keys").display()
        );
        fs::write(&config, text).map_err(Error::file(&config))?;
        let names = folder.join("hosts");
        fs::write(&names, "127.0.0.1 localhost\n::1 localhost\n").map_err(Error::file(&names))?;
        let script = "hostname \"$1\" && mount -t tmpfs tmpfs /run && mkdir /run/sshd && mount \
                      --bind \"$2/srv\" \"$3\" && \
                      mount --bind \"$2/opt\" \"$4\" && \
                      mount --bind \"$2/hosts\" /etc/hosts && \
                      exec \"$5\" -D -e -f \"$2/sshd.conf\"";
        let log = folder.join("sshd.log");
        let open = || {
            File::options()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(&log)
                .map_err(Error::file(&log))
        };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-{}", plan.spec.name, host.name)]);
        command.args([
            "setsid",
            "unshare",
            "--mount",
            "--uts",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            "sh",
        ]);
        command.arg(&host.name).arg(&folder).arg(&srv).arg(&opt).arg(SSHD);
        command.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        // The ssh server ends with its namespace.
        command.spawn().map(drop).map_err(|error| missing("ip", error))
    }
}

fn interface(name: &str, addresses: Vec<IpNet>) -> Interface {
    Interface { name: name.to_owned(), addresses, mtu: 1_500 }
}
