//! Tests guests (hosts on this machine with kernels, disks and clocks of their own), and the roles
//! that need guests.

use crate::guest;
use guest::Rack;
use sprat_lab::hosts::missing_privileges;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const STORAGE: &str = "[storage]\ndisks = [\"ubdb\", \"/dev/disk/by-path/platform-uml-blkdev.2\"]\n\
                       read-ahead = \"16KiB\"\n";

/// A command that prints the state of a guest's disks. After the roles, it prints [`MADE`].
const STATE: &str = "grep -c raid0.*ubd /proc/mdstat; mdadm --detail /dev/md/sprat | grep -o \
                     'Chunk Size : 64K'; \
    findmnt --noheadings --raw --output FSTYPE,OPTIONS /srv/sprat | grep -o 'ext4 rw,noatime'; \
    cat /sys/block/md*/queue/read_ahead_kb /sys/block/ubd[bc]/queue/read_ahead_kb | xargs";
const MADE: &str = "1\nChunk Size : 64K\next4 rw,noatime\n16 16 16";

#[test]
#[ignore = "starts two guests: make test-rack"]
fn guests_have_kernels_disks_and_clocks_of_their_own() {
    let Some(rack) = Rack::up("") else { return };
    assert_eq!(rack.ask(1, "hostname"), "c0-n2");
    assert_eq!(rack.ask(0, "cat /proc/1/comm"), "systemd");
    let disks =
        rack.ask(1, "lsblk --noheadings --raw --nodeps --bytes --output SERIAL,SIZE | grep -- -d");
    assert_eq!(
        disks,
        "c0-n2-d1 268435456\nc0-n2-d2 268435456\nc0-n2-d3 67108864\nc0-n2-d4 67108864"
    );
    assert!(rack.ask(0, "ping -c 1 -W 10 10.0.0.3").contains("1 received"), "they are neighbours");

    // Each guest has a clock of its own.
    rack.ask(1, "date --set '2001-01-01 12:00:00'");
    assert_eq!(rack.ask(1, "date +%Y"), "2001");
    assert_ne!(rack.ask(0, "date +%Y"), "2001");

    // Data survives a stop and start of the rack.
    rack.ask(
        0,
        "echo kept >/root/note && echo kept | dd of=/dev/disk/by-id/ubd-c0-n1-d2 \
                 conv=notrunc status=none",
    );
    rack.local.down(rack.name()).unwrap_or_else(|error| panic!("{error}"));
    assert!(!rack.local.is_up(rack.name()));
    rack.local.up(&rack.plan, &rack.hosts).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rack.ask(0, "cat /root/note; head -c 4 /dev/disk/by-id/ubd-c0-n1-d2"), "kept\nkept");
}

#[test]
#[ignore = "starts two guests: make test-rack"]
fn disks_become_one_filesystem_and_none_with_data_is_touched() {
    let Some(mut rack) = Rack::up(STORAGE) else { return };
    // One of four disks has data, so no disk may be touched.
    rack.ask(1, "mkfs.ext4 -q -L precious /dev/ubdc");
    let output = rack.refused(&[]);
    for word in ["platform-uml-blkdev.2", "c0-n2-d2", "precious", "[storage] erase = [", "c0-n2"] {
        assert!(output.contains(word), "{word} in {output}");
    }
    assert_eq!(
        rack.ask(0, "blkid --probe /dev/ubdb /dev/ubdc; ls /dev/md* 2>/dev/null; ls /srv"),
        ""
    );
    assert_eq!(rack.ask(1, "blkid --probe --output value --match-tag LABEL /dev/ubdc"), "precious");

    // The description repeats the disk's serial number, but the disk is mounted.
    rack.describe(&format!("{STORAGE}erase = [\"c0-n2-d2\"]\n"));
    rack.ask(1, "mount /dev/ubdc /mnt");
    let output = rack.refused(&[]);
    assert!(output.contains("c0-n2-d2") && output.contains("mounted at /mnt"), "{output}");
    rack.ask(1, "umount /mnt");

    // A dry run reports what it would do, and changes nothing.
    let (output, recaps) = rack.run(&["--check", "--diff"]);
    recaps.unwrap_or_else(|error| panic!("{error}\n{output}"));
    for word in
        ["RAID-0 of", "stride=16,stripe-width=32", "/etc/fstab", "ext4 \\\"precious\\\" erased"]
    {
        assert!(
            output.contains(word) || output.contains(&word.replace('\\', "")),
            "{word} in \
            {output}"
        );
    }
    assert_eq!(
        rack.ask(0, "blkid --probe /dev/ubdb /dev/ubdc; ls /dev/md* 2>/dev/null; ls /srv"),
        ""
    );
    assert_eq!(rack.ask(1, "blkid --probe --output value --match-tag LABEL /dev/ubdc"), "precious");

    // A run that stopped after making the array of one host is continued.
    rack.ask(
        0,
        "mdadm --create /dev/md/sprat --run --metadata=1.2 --level=0 --chunk=64 --name=sprat \
         --raid-devices=2 /dev/ubdb /dev/ubdc 2>&1",
    );
    assert!(rack.changed(&[]).iter().all(|changed| *changed > 0));
    assert_eq!([0, 1].map(|host| rack.ask(host, STATE)), [MADE, MADE]);
    let stripes = rack.ask(
        1,
        "dumpe2fs -h /dev/md/sprat 2>/dev/null | grep -iE 'stride|stripe' | tr -d ' ' | xargs",
    );
    assert_eq!(stripes, "RAIDstride:16 RAIDstripewidth:32");
    // The serial numbers may stay in the description: the rack's own data are not erased.
    rack.ask(1, "echo ours >/srv/sprat/note");
    assert_eq!(rack.changed(&[]), [0, 0]);

    // A run that stopped after making the filesystem is continued, and the filesystem survives a
    // restart.
    rack.ask(0, "umount /srv/sprat && sed -i /srv.sprat/d /etc/fstab");
    rack.restart(1);
    assert_eq!(rack.ask(1, STATE), MADE);
    assert_eq!(rack.ask(1, "cat /srv/sprat/note"), "ours");
    assert_eq!(rack.changed(&[]), [1, 0]);
    assert_eq!(rack.ask(0, STATE), MADE);

    // A different filesystem type, or a different array, is refused.
    rack.describe(&format!("{STORAGE}filesystem = \"xfs\"\n"));
    assert!(rack.refused(&[]).contains("ext4"), "the filesystem stays");
    rack.describe("[storage]\ndisks = [\"ubdb\"]\nerase = [\"c0-n1-d1\", \"c0-n2-d1\"]\n");
    assert!(rack.refused(&[]).contains("part of /dev/md"), "the disk is in use");
    assert_eq!(rack.ask(1, "cat /srv/sprat/note"), "ours");
}

#[test]
#[ignore = "starts two guests: make test-rack"]
fn each_instance_has_an_array_of_its_own() {
    let storage = "[cassandra]\ninstances = 2\nreplication = 2\n[storage]\ndisks = [\"ubdb\", \
                   \"ubdc\", \"ubdd\", \"ubde\"]\n\
                   mounts = [\"/mnt/nvme0\", \"/mnt/nvme1\"]\n";
    let Some(rack) = Rack::up(storage) else { return };
    let hosts = |more: &[&str]| {
        let (output, recaps) = rack.only("hosts.yml", more);
        let recaps = recaps.unwrap_or_else(|error| panic!("{error}\n{output}"));
        recaps.iter().map(|recap| recap.changed).collect::<Vec<_>>()
    };
    assert!(hosts(&[]).iter().all(|changed| *changed > 0));
    let state = "grep -c 'active raid0' /proc/mdstat; for at in 0 1; do findmnt --noheadings --raw \
                 --output FSTYPE /mnt/nvme$at; \
                 mdadm --detail /dev/md/sprat$at | grep -o 'Chunk Size : 64K'; done; findmnt \
                 --noheadings /srv/sprat";
    let found =
        rack.try_ask(1, &format!("{state}; true")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        found, "2\next4\nChunk Size : 64K\next4\nChunk Size : 64K",
        "no filesystem at /srv/sprat"
    );
    rack.ask(1, "echo ours >/mnt/nvme1/note");
    assert_eq!(hosts(&[]), [0, 0], "nothing is left to change");
    rack.restart(1);
    assert_eq!(
        rack.ask(1, "cat /mnt/nvme1/note; findmnt --noheadings --output TARGET /mnt/nvme0"),
        "ours\n/mnt/nvme0"
    );
    assert_eq!(hosts(&[]), [0, 0], "nothing to change after a restart");
}

#[test]
#[ignore = "starts two guests: make test-rack"]
fn clocks_come_together() {
    let Some(mut rack) = Rack::up("") else { return };
    let off = |rack: &Rack| {
        let [first, other] =
            [0, 1].map(|host| rack.ask(host, "date +%s").parse::<i64>().expect("seconds"));
        other - first
    };
    // One clock is ten seconds ahead, and the description has no `[clock]`.
    rack.ask(1, "date --set '+10 seconds'");
    let output = rack.refused(&[]);
    assert!(
        output.contains("the clock of c0-n2 is at least ")
            && output.contains(
                "ahead of that of \
            c0-n1"
            ),
        "{output}"
    );
    assert!(output.contains("[clock]"), "the mend: {output}");

    // While Cassandra runs, the clock must not jump.
    rack.describe("[clock]\n");
    let daemon = "org.apache.cassandra.service.CassandraDaemon";
    rack.ask(
        1,
        &format!(
            "setsid python3 -c 'import time; time.sleep(900)' {daemon} >/dev/null \
                          2>&1 </dev/null & echo $! >/run/daemon"
        ),
    );
    let output = rack.refused(&[]);
    assert!(output.contains("c0-n2") && output.contains("Cassandra runs there"), "{output}");
    assert!(off(&rack) >= 8, "the clock did not jump");
    rack.ask(1, "kill $(cat /run/daemon)");

    // Without Cassandra the clock jumps once.
    rack.run(&["--check", "--diff"]).1.unwrap_or_else(|error| panic!("{error}"));
    assert!(off(&rack) >= 8, "a dry run sets no clock");
    assert!(rack.changed(&[]).iter().all(|changed| *changed > 0));
    assert!(off(&rack).abs() <= 5, "asking one after the other takes a while");
    let (output, again) = rack.run(&[]);
    let again = again.unwrap_or_else(|error| panic!("{error}\n{output}"));
    assert!(again.iter().all(|recap| recap.changed == 0), "{output}");
    assert!(output.contains("c0-n2 is ") && output.contains(" ms off its source"), "{output}");

    // The description now names the host, but nothing changes: the second host follows the first
    // already.
    rack.describe("[clock]\nservers = [\"10.0.0.2\"]\n");
    let (output, named) = rack.only("hosts.yml", &["--limit", "c0-n2"]);
    let named = named.unwrap_or_else(|error| panic!("{error}\n{output}"));
    assert!(named.iter().all(|recap| recap.changed == 0), "{output}");
}

#[test]
#[ignore = "starts two guests: make test-rack"]
fn addresses_stay() {
    let cassandra = "[cassandra]\ninstances = 1\nreplication = 2\n";
    let Some(mut rack) = Rack::up(cassandra) else { return };
    let hosts = |rack: &Rack, more: &[&str]| {
        let (output, recaps) = rack.only("hosts.yml", more);
        let recaps = recaps.unwrap_or_else(|error| panic!("{error}\n{output}"));
        (output, recaps.iter().map(|recap| recap.changed).collect::<Vec<_>>())
    };
    // First a dry run, then the run, then a restart.
    let instance = rack.hosts[1].instances[0].address;
    let has = |rack: &Rack| {
        rack.ask(1, "ip -brief -4 address show vec0").contains(&format!(" {instance}/"))
    };
    let (output, _) = hosts(&rack, &["--check", "--diff"]);
    assert!(output.contains(&format!("+vec0 has {instance}")) && !has(&rack), "{output}");
    assert_eq!(hosts(&rack, &[]).1, [1, 1]);
    assert!(has(&rack));
    rack.restart(1);
    assert!(has(&rack), "the address survives a restart");
    assert_eq!(hosts(&rack, &[]).1, [0, 0]);
    // An address that the plan no longer has is removed. The second host is left out, since its
    // address changes too.
    let first = rack.hosts[0].instances[0].address;
    rack.describe("");
    assert_eq!(hosts(&rack, &["--limit", "c0-n1"]).1, [1]);
    assert!(
        !rack.ask(0, "ip -brief -4 address show vec0").contains(&format!(" {first}/")),
        "the instance's address is gone"
    );
}

#[test]
#[ignore = "starts two guests: make test-rack"]
fn what_a_server_lacks_has_a_name() {
    let Some(rack) = Rack::up("[cassandra]\ninstances = 1\nreplication = 2\n") else { return };
    let output = |why: &str| {
        let error = rack.run(&[]).1.expect_err(why).to_string();
        eprintln!("{why}: {error}");
        error
    };

    // No source can provide Java here.
    let _ = [0, 1]
        .map(|host| rack.ask(host, "dpkg --purge --force-depends openjdk-17-jre-headless 2>&1"));
    let said = output("no Java");
    for word in [
        "c0-n1: ",
        "c0-n2: ",
        "there is no Java",
        "install 17 or newer there (Debian: openjdk-17-jre-headless; Rocky",
    ] {
        assert!(said.contains(word), "{word} in {said}");
    }

    rack.ask(1, "mv /usr/bin/python3 /usr/bin/python3-away");
    let said = output("no Python");
    assert!(
        said.contains("c0-n2: ")
            && said.contains("it has no Python 3, which Ansible needs: install"),
        "{said}"
    );
    rack.ask(1, "mv /usr/bin/python3-away /usr/bin/python3");

    let java = |version: &str| {
        let script = format!("#!/bin/sh\\necho \\'openjdk version \"{version}\"\\' >&2\\n");
        let script = script.replace("\\'", "'\\''");
        for host in [0, 1] {
            rack.ask(
                host,
                &format!("printf '{script}' >/usr/local/bin/java; chmod 755 /usr/local/bin/java"),
            );
        }
    };
    java("11.0.2");
    let said = output("an old Java");
    assert!(
        said.contains("Cassandra 5 needs Java 17, here is openjdk version \"11.0.2\": remove it"),
        "{said}"
    );

    java("17.0.1");
    rack.ask(
        1,
        "fallocate -l $(( $(stat -f -c '%f * %S' /) )) /root/all 2>&1 || dd if=/dev/zero \
                 of=/root/all bs=1M 2>&1 | tail -n 1",
    );
    let said = output("a full disk");
    assert!(said.contains("c0-n2: ") && said.contains("its disk is full"), "{said}");
    rack.ask(1, "rm /root/all");

    rack.ask(1, "rm /etc/ssh/ssh_host_*; ssh-keygen -A >/dev/null; systemctl restart ssh");
    let said = output("another key");
    assert!(
        said.contains("c0-n2: ssh: its host key is not the known one: if the host was reinstalled"),
        "{said}"
    );
}

/// If NetworkManager manages the interface, its profile must have the addresses. Guests have no
/// NetworkManager, so the test uses a substitute in a network namespace.
#[test]
fn network_managers_profile_keeps_addresses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../..")
        .canonicalize()
        .expect("the repository");
    let tools = root.join("target/tools/ansible");
    let missing = missing_privileges();
    if !missing.is_empty() || !tools.join("bin/ansible").exists() {
        return sprat_testing::skip(
            "addresses in NetworkManager's profile: it needs root, and ansible (scripts/setup \
             fetches it)",
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    let nmcli = folder.path().join("nmcli");
    std::fs::write(
        &nmcli,
        "#!/bin/sh\n[ \"$1\" = -g ] && echo lan || echo \"$@\" >>\"${0%/*}/log\"\n",
    )
    .expect("a program");
    std::fs::set_permissions(&nmcli, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let script = "set -e\nmount -t tmpfs tmpfs /var/lib\nip link set lo up\nip link add vp0 type \
                  veth peer name vp1\n\
        ip address add 10.9.9.2/24 dev vp0\nip link set vp0 up\n\
        go() { python3 $TOOLS/bin/ansible localhost -c local -e \
        ansible_python_interpreter=/usr/bin/python3 -m rack_addresses \
        -a \"{\\\"own\\\":\\\"10.9.9.2\\\",\\\"addresses\\\":$1}\" | grep -o '\"changed\": \
        [a-z]*'; }\n\
        go '[\"10.9.9.101\",\"10.9.9.102\"]'\ngo '[\"10.9.9.101\",\"10.9.9.102\"]'\ngo \
        '[\"10.9.9.102\"]'\n\
        ip -brief -4 address show vp0 | grep -o '10.9.9.10.'\n";
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "--propagation", "private", "sh", "-c", script]);
    unshare
        .env("PATH", path)
        .env("TOOLS", &tools)
        .env("PYTHONPATH", &tools)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    unshare.env("ANSIBLE_LIBRARY", root.join("deploy/ansible/roles/network/library"));
    let done = unshare.output().expect("unshare");
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    let (yes, no) = ("\"changed\": true", "\"changed\": false");
    let failed = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(output, format!("{yes}\n{no}\n{yes}\n10.9.9.102\n"), "{failed}");
    let log = std::fs::read_to_string(folder.path().join("log")).expect("it was asked");
    let modify = "connection modify lan";
    let expected = [
        "+ipv4.addresses 10.9.9.101/24",
        "+ipv4.addresses 10.9.9.102/24",
        "-ipv4.addresses 10.9.9.101/24",
    ];
    assert_eq!(log, expected.map(|what| format!("{modify} {what}\n")).concat());
}
