//! Checks the files and the inventory that a plan gives, without hosts.

use sprat_plan::racks::ready;
use sprat_plan::ring::RingMember;
use sprat_plan::{Plan, Spec};
use sprat_rack::{Host, hosts, inventory};
use std::collections::{BTreeMap, HashSet};

fn plan(more: &str) -> Plan {
    let text = ready("cassandra-6").expect("it is there").toml.replace("[claims]", more);
    Plan::from_toml(text.split("servers = \"6\"").next().expect("a text"))
        .unwrap_or_else(|error| panic!("{error}"))
}

fn six(more: &str) -> Vec<Host> {
    hosts(&plan(more))
}

#[track_caller]
fn file(host: &Host, instance: usize, path: &str) -> String {
    let files = host.instances[instance].files();
    files.into_iter().find(|file| file.path == path).unwrap_or_else(|| panic!("no {path}")).text
}

#[test]
fn instances_have_distinct_names_addresses_and_tokens() {
    let hosts = six("");
    assert_eq!(hosts.len(), 6);
    let all: Vec<_> = hosts.iter().flat_map(|host| &host.instances).collect();
    assert_eq!(all.len(), 12);
    let different = |of: &dyn Fn(&sprat_rack::Instance) -> String| {
        let values: HashSet<String> = all.iter().map(|instance| of(instance)).collect();
        assert_eq!(values.len(), 12, "{values:?}");
    };
    different(&|instance| instance.name.clone());
    different(&|instance| instance.address.to_string());
    different(&|instance| instance.home.display().to_string());
    let tokens: HashSet<i64> = all.iter().flat_map(|instance| instance.tokens.clone()).collect();
    assert_eq!(tokens.len(), 12 * 16);
    for host in &hosts {
        assert_eq!(
            host.instances.iter().map(|instance| instance.jmx_port).collect::<Vec<_>>(),
            [7199, 7299]
        );
        assert!(
            host.instances
                .iter()
                .all(|instance| instance.rack == host.name && instance.seeds == all[0].seeds)
        );
    }
    let seeds: Vec<_> = [0, 1, 2].map(|host: usize| hosts[host].instances[0].address).to_vec();
    assert_eq!(all[0].seeds, seeds, "on three servers");
}

#[test]
fn settings_are_the_published_ones_unless_described() {
    let hosts = six("");
    let yaml = file(&hosts[0], 0, "conf/cassandra.yaml");
    for line in [
        "cluster_name: \"cassandra-6\"",
        "concurrent_reads: 32",
        "concurrent_writes: 64",
        "num_tokens: 16",
        "auto_bootstrap: false",
        "listen_address: \"10.0.0.3\"",
        "data_file_directories: [\"/srv/sprat/cassandra/c0-n1-i1/data\"]",
        "sstable: {\"selected_format\":\"bti\"}",
    ] {
        assert!(yaml.lines().any(|found| found == line), "no {line:?} in\n{yaml}");
    }
    let java = file(&hosts[0], 0, "conf/java.args");
    for line in [
        "\"-Xmx8192m\"",
        "\"-XX:+UseZGC\"",
        "\"-XX:ConcGCThreads=4\"",
        "\"-XX:ParallelGCThreads=10\"",
        "\"-XX:+AlwaysPreTouch\"",
    ] {
        assert!(java.lines().any(|found| found == line), "no {line} in\n{java}");
    }
    assert_eq!(file(&hosts[3], 1, "conf/cassandra-rackdc.properties"), "dc=dc1\nrack=c0-n4\n");

    let described = "datacenter = \"tokyo\"\ncollector = \"g1\"\njava = [\"-Dx=a \\\"b\\\"\"]\n\
                     yaml = { concurrent_reads = 7, sstable = { selected_format = \"big\" } }\n\
                [provision]\nbase = \"/data\"\n";
    let hosts = six(described);
    let yaml = file(&hosts[0], 0, "conf/cassandra.yaml");
    assert!(
        yaml.contains("\nconcurrent_reads: 7\n")
            && yaml.contains("\nsstable: {\"selected_format\":\"big\"}\n"),
        "{yaml}"
    );
    assert!(yaml.contains("/data/cassandra/c0-n1-i1/hints"), "{yaml}");
    let java = file(&hosts[0], 0, "conf/java.args");
    assert!(
        java.contains("\"-Dx=a \\\"b\\\"\"\n")
            && java.contains("UseG1GC")
            && !java.contains("UseZGC"),
        "{java}"
    );
    assert_eq!(file(&hosts[0], 0, "conf/cassandra-rackdc.properties"), "dc=tokyo\nrack=c0-n1\n");
}

#[test]
fn replacements_name_the_replaced_address() {
    let mut hosts = six("");
    let gone = hosts[2].instances[0].address;
    hosts[2].instances[0].replaces = Some(gone);
    let java = file(&hosts[2], 0, "conf/java.args");
    assert!(java.contains(&format!("\"-Dcassandra.replace_address_first_boot={gone}\"")), "{java}");
    let yaml = file(&hosts[2], 0, "conf/cassandra.yaml");
    assert!(
        !yaml.contains("initial_token") && !yaml.contains("auto_bootstrap"),
        "it takes another's tokens and rows: {yaml}"
    );
    let others = [0, 1].map(|host: usize| hosts[host].instances[0].address.to_string()).join(",");
    assert!(
        yaml.contains(&format!("[{{\"seeds\":\"{others}\"}}]")),
        "it is no longer a seed: {yaml}"
    );
}

#[test]
fn an_existing_ring_keeps_its_tokens() {
    let before = six("");
    let known = |one: &sprat_rack::Instance| {
        (one.name.clone(), RingMember { tokens: one.tokens.clone(), ..RingMember::default() })
    };
    let mut members: BTreeMap<String, RingMember> =
        before.iter().flat_map(|host| &host.instances).map(known).collect();
    let with = |members: &BTreeMap<String, RingMember>| {
        Plan::new(Spec { members: Some(members.clone()), ..plan("").spec })
    };
    assert_eq!(
        hosts(&with(&members).expect("a plan")),
        before,
        "a list of members changes nothing"
    );

    // The first server leaves with both of its instances; one of the instances comes back.
    members.remove("c0-n1-i1");
    members.remove("c0-n1-i2");
    let fewer = hosts(&with(&members).expect("a plan"));
    assert_eq!(
        fewer.iter().map(|host| &host.name[..]).collect::<Vec<_>>(),
        ["c0-n2", "c0-n3", "c0-n4", "c0-n5", "c0-n6"]
    );
    assert_eq!(fewer[0].instances[0].tokens, before[1].instances[0].tokens);
    assert_eq!(
        fewer[0].instances[0].seeds,
        [1, 2, 3].map(|host: usize| before[host].instances[0].address),
        "seeds are instances on the ring"
    );
    members.insert("c0-n1-i2".to_owned(), RingMember { joined: true, ..RingMember::default() });
    let back = hosts(&with(&members).expect("a plan"));
    let one = &back[0].instances[0];
    assert_eq!(
        (back.len(), back[0].instances.len(), &one.name[..], one.tokens.len()),
        (6, 1, "c0-n1-i2", 16)
    );
    assert_eq!(back[1].instances[0].tokens, before[1].instances[0].tokens);
    let yaml = file(&back[0], 0, "conf/cassandra.yaml");
    assert!(
        yaml.contains("auto_bootstrap: true\n") && yaml.contains("initial_token: "),
        "it streams its rows: {yaml}"
    );
    let seeds = yaml.lines().find(|line| line.starts_with("seed_provider")).expect("seeds");
    assert!(
        !seeds.contains(&format!("{},", one.address))
            && !seeds.contains(&format!(",{}", one.address)),
        "it is not its own seed: {seeds}"
    );

    members.insert("c9-n1-i1".to_owned(), RingMember::default());
    let error = with(&members).expect_err("nobody is there").to_string();
    assert!(error.contains("c9-n1-i1 is on the ring, but no longer in the description"), "{error}");
}

#[test]
fn reserved_addresses_do_not_move() {
    let with =
        |more: &str| hosts(&plan(&format!("[addresses]\nv4 = \"10.0.0.0/8\"\n{more}\n[claims]\n")));
    let addresses =
        |hosts: &[Host]| hosts.iter().map(|host| host.address.0.to_string()).collect::<Vec<_>>();
    let (usual, roomy) = (addresses(&with("")), addresses(&with("instances = 4")));
    assert_eq!((&usual[1][..], &roomy[1][..]), ("10.0.0.5", "10.0.0.7"));
    assert_eq!(with("servers = 40")[0].address.1, 25, "a larger network for each chassis");
    let text = ready("cassandra-6")
        .expect("it is there")
        .toml
        .replace("[claims]", "[addresses]\ninstances = 1\n[claims]");
    let error = Plan::from_toml(&text).expect_err("too few").to_string();
    assert!(error.contains("addresses.instances = 1: want 2 to 16"), "{error}");
}

/// Checks the published cluster ("IPU-based Cassandra cluster", SNIA Storage Developer Conference,
/// 2024) file by file.
#[test]
fn the_published_cluster_gets_its_published_files() {
    let plan = Plan::from_toml(ready("ipu-6").expect("it is there").toml)
        .unwrap_or_else(|error| panic!("{error}"));
    let hosts = hosts(&plan);
    let all: Vec<_> = hosts.iter().flat_map(|host| (0..2).map(move |at| (host, at))).collect();
    assert_eq!((hosts.len(), all.len()), (6, 12), "six servers, two instances each");
    for (number, (host, at)) in all.iter().enumerate() {
        let instance = &host.instances[*at];
        let (address, mount) = (format!("10.3.29.{}", 101 + number), format!("/mnt/nvme{at}/"));
        assert_eq!(instance.address.to_string(), address, "consecutive over the instances");
        assert_eq!(instance.jmx_port, [7199, 7299][*at]);
        assert!(instance.home.starts_with(&mount), "{}", instance.home.display());
        let home = instance.home.display();
        let yaml = file(host, *at, "conf/cassandra.yaml");
        let tokens: Vec<&str> =
            yaml.lines().filter(|line| line.starts_with("initial_token: ")).collect();
        assert_eq!(tokens[0].split(',').count(), 16);
        for line in [
            "num_tokens: 16".to_owned(),
            "seed_provider: \
             [{\"class_name\":\"org.apache.cassandra.locator.SimpleSeedProvider\",\"parameters\":[{\"seeds\":\"10.3.29.101\"}]}]".to_owned(),
            "storage_port: 7000".to_owned(),
            format!("listen_address: \"{address}\""),
            format!("rpc_address: \"{address}\""),
            "concurrent_reads: 32".to_owned(),
            "concurrent_writes: 64".to_owned(),
            format!("data_file_directories: [\"{home}/data\"]"),
            format!("commitlog_directory: \"{home}/commitlog\""),
            format!("hints_directory: \"{home}/hints\""),
            format!("saved_caches_directory: \"{home}/saved_caches\""),
            format!("cdc_raw_directory: \"{home}/cdc\""),
        ] {
            assert!(yaml.lines().any(|found| found == line), "no {line:?} in\n{yaml}");
        }
        let java = file(host, *at, "conf/java.args");
        for line in [
            "-Xms8192m",
            "-Xmx8192m",
            "-XX:+UseZGC",
            "-XX:ConcGCThreads=4",
            "-XX:ParallelGCThreads=10",
            "-XX:+UseTransparentHugePages",
            "-XX:SurvivorRatio=6",
            "-XX:MaxTenuringThreshold=4",
            "-XX:+AlwaysPreTouch",
            &format!("-Dcassandra.jmx.local.port={}", instance.jmx_port),
        ] {
            assert!(
                java.lines().any(|found| found == format!("\"{line}\"")),
                "no {line} in\n{java}"
            );
        }
        let nodetool = file(host, *at, "conf/nodetool.args");
        assert!(nodetool.ends_with(&format!("\"-p\"\n\"{}\"\n", instance.jmx_port)), "{nodetool}");
        assert_eq!(
            file(host, *at, "conf/cassandra-rackdc.properties"),
            format!("dc=dc1\nrack={}\n", host.name)
        );
        assert!(
            file(host, *at, "conf/logback.xml")
                .contains(&format!("<file>{home}/logs/system.log</file>"))
        );
        let unit = sprat_rack::unit::own_home(&instance.home);
        assert!(unit.contains(&format!("\nRequiresMountsFor={home}\n")), "{unit}");
        assert!(
            unit.ends_with(&format!("\nExecStart=\nExecStart={home}/instance run\n")),
            "{unit}"
        );
    }
    let inventory = inventory(&plan.spec, &hosts);
    let vars = &inventory["rack"]["vars"];
    let array = |number: usize| {
        let disks = [2 * number, 2 * number + 1].map(|disk| format!("nvme{disk}n1"));
        serde_json::json!({
            "name": format!("sprat{number}"),
            "base": format!("/mnt/nvme{number}"),
            "disks": disks,
        })
    };
    assert_eq!(
        vars["rack_storage"]["arrays"],
        serde_json::json!([array(0), array(1)]),
        "two SSDs for each instance"
    );
    assert_eq!(vars["rack_storage"]["filesystem"], "ext4");
    assert_eq!(
        vars["rack_clock"]["servers"],
        serde_json::json!(["10.3.29.100"]),
        "the host that controls the others"
    );
    assert_eq!(vars["rack_environment"]["https_proxy"], "http://10.3.29.100:3128");
    assert_eq!(vars["rack_network"], "10.3.29.0/24");
    let names = vars["rack_names"].as_str().expect("names");
    assert!(names.lines().any(|line| line == "10.3.29.112 c0-n6-i2"), "{names}");
    let one = &inventory["rack"]["hosts"]["c0-n6"];
    assert_eq!(
        (&one["rack_prefix"], &one["cassandra_instances"][1]["own_filesystem"]),
        (&24.into(), &true.into())
    );
    let control = &inventory["control"];
    assert_eq!(control["hosts"]["control"]["ansible_host"], "10.3.29.100");
    assert_eq!(
        (&control["vars"]["control_proxy"], &control["vars"]["control_clock"]),
        (&3128.into(), &true.into())
    );
    assert!(
        plan.summary
            .claims
            .iter()
            .all(|claim| claim.verdict == sprat_plan::claims::Verdict::Follows)
    );
}

#[test]
fn listed_addresses_are_assigned_in_order() {
    let ipu = ready("ipu-6").expect("it is there").toml;
    let with = |list: &str| Plan::from_toml(&ipu.replace("[\"10.3.29.101-10.3.29.112\"]", list));
    let any = "[\"10.3.29.200\", \"10.3.29.90-10.3.29.99\", \"10.3.29.50\", \"10.3.29.51\"]";
    let hosts = hosts(&with(any).unwrap_or_else(|error| panic!("{error}")));
    let addresses: Vec<_> =
        hosts.iter().flat_map(|host| &host.instances).map(|one| one.address.to_string()).collect();
    assert_eq!(
        (&addresses[0][..], &addresses[1][..], &addresses[11][..]),
        ("10.3.29.200", "10.3.29.90", "10.3.29.50")
    );
    assert_eq!(hosts[5].address.0.to_string(), "10.3.29.7", "servers have the first addresses");
    for (list, why) in [
        ("[\"10.3.29.101-10.3.29.111\"]", "11 are listed, and there are 12 instances"),
        (
            "[\"10.3.29.101-10.3.29.111\", \"10.3.29.105\"]",
            "10.3.29.105 is c0-n6-i2's, and another's too",
        ),
        ("[\"10.3.29.7-10.3.29.18\"]", "10.3.29.7 is c0-n6's, and another's too"),
        ("[\"10.3.28.101-10.3.28.112\"]", "not in its network, 10.3.29.0/24"),
        ("[\"10.3.29.244-10.3.29.255\"]", "10.3.29.255 is c0-n6-i2's, and not in its network"),
        ("[\"10.3.29.112-10.3.29.101\"]", "want an address, or a range"),
        ("[\"0.0.0.0-255.255.255.255\"]", "65536 addresses in all at most"),
        ("[\"ten\"]", "want an address, or a range"),
    ] {
        let error = with(list).map(|plan| plan.summary).expect_err(why).to_string();
        assert!(error.contains(why), "want {why:?}: {error}");
    }
}

#[test]
fn services_get_their_arguments() {
    let text = "name = \"s\"\n[server]\ncores = 2\nmemory = \"1GiB\"\nport-rate = \"1Gb/s\"\n\
                [chassis]\nservers = 4\n[etcd]\n\
                [store]\nmemory = \"128MB\"\ncoordinators = [\"c0-n4\", \"c0-n1\"]\nservers = \
                [\"c0-n2\", \"c0-n3\", \"c0-n4\"]\narguments = [\"--idle\", \"sleep\"]\n";
    let hosts = hosts(&Plan::from_toml(text).unwrap_or_else(|error| panic!("{error}")));
    let names = |host: &Host| host.services.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&hosts[0]), ["c0-n1-etcd", "c0-n1-coordinator"]);
    assert_eq!(names(&hosts[3]), ["c0-n4-coordinator", "c0-n4-store"]);
    let files = |host: usize, at: usize, path: &str| {
        let files = hosts[host].services[at].files();
        files.into_iter().find(|file| file.path == path).unwrap_or_else(|| panic!("no {path}")).text
    };
    let etcd = files(1, 0, "conf/arguments");
    assert!(
        etcd.contains("\n--initial-cluster=m0=http://10.0.0.2:2380,m1=http://10.0.0.3:2380,m2=http://10.0.0.4:2380\n"),
        "{etcd}"
    );
    assert_eq!(files(1, 0, "conf/program"), "/usr/bin/etcd\n");
    let coordinator = files(3, 0, "conf/arguments");
    let etcds = "http://10.0.0.2:2379,http://10.0.0.3:2379,http://10.0.0.4:2379";
    assert!(
        coordinator.starts_with("coordinator\n-C\ntcp:host=10.0.0.5,port=11100\n")
            && coordinator.contains(&format!("--etcd\n{etcds}\n")),
        "{coordinator}"
    );
    let store = files(3, 1, "conf/arguments");
    let begins = "server\n-C\ntcp:host=10.0.0.5,port=11100,tcp:host=10.0.0.2,port=11100\n-L\n\
                  fast+udp:host=10.0.0.5,port=11101\n";
    assert!(
        store.starts_with(begins)
            && store.ends_with("--idle\nsleep\n")
            && !store.contains("--rack"),
        "{store}"
    );
    assert!(store.contains("\n--memory\n128000000\n") && store.contains("\n-r\n2\n"), "{store}");
}

#[test]
fn the_inventory_has_every_host() {
    let plan = plan("");
    let hosts = hosts(&plan);
    let inventory = inventory(&plan.spec, &hosts);
    let all = inventory["rack"]["hosts"].as_object().expect("hosts");
    assert_eq!(all.len(), 6);
    assert_eq!(all["c0-n2"]["cassandra_instances"][1]["jmx_port"], 7299);
    let names = inventory["rack"]["vars"]["rack_names"].as_str().expect("names");
    assert_eq!((names.lines().count(), names.lines().next()), (18, Some("10.0.0.2 c0-n1")));
    assert_eq!(inventory["rack"]["vars"]["cassandra_library"], "/opt/sprat/cassandra/lib");
    assert_eq!(
        (&inventory["rack"]["vars"]["jobs_slurm"], &inventory["rack"]["vars"]["jobs_libvirt"]),
        (&false.into(), &false.into())
    );
}
