//! Metadata in a real etcd: a read returns the rows that were written, and a deposed leader writes
//! nothing.

#[allow(dead_code, reason = "others use the rest")]
mod process;

use process::EtcdProcess;
use sprat_store::coordinator::etcd::{Etcd, EtcdError, EtcdPlace, MAX_CHANGES, MetadataEtcd};
use sprat_store::coordinator::{Catalog, Metadata, MetadataError, Refusal};
use sprat_testing::PATIENCE;
use sprat_wire::op::TableOptions;
use sprat_wire::tablet::Tablet;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Instant;

const HERE: &str = "tcp:host=127.0.0.1,port=1";

fn place(etcd: &EtcdProcess, name: &str) -> EtcdPlace {
    EtcdPlace::new(&etcd.url, name).unwrap().waiting(PATIENCE)
}

/// Takes over the leadership, and returns the term. etcd may have just started.
fn lead(etcd: &Etcd, life: u64) -> u64 {
    let until = Instant::now() + PATIENCE;
    loop {
        let over = match etcd.leader() {
            Ok(leader) => leader.map_or(0, |leader| leader.term),
            Err(error) if Instant::now() > until => panic!("{error}"),
            Err(_) => continue,
        };
        if let Ok(Some(term)) = etcd.claim(over, life, HERE) {
            return term;
        }
    }
}

fn row(key: &str, value: &[u8]) -> (String, Option<Vec<u8>>) {
    (key.to_owned(), Some(value.to_vec()))
}

#[test]
fn rows_are_what_was_written() {
    let Some(etcd) = EtcdProcess::start() else { return };
    let place = place(&etcd, "rows");
    let term = lead(&place.open().unwrap(), 1);
    let mut metadata = MetadataEtcd::new(place.open().unwrap(), term);
    assert!(metadata.load().unwrap().is_empty());
    let every: Vec<u8> = (0..=255).collect();
    metadata.apply(&[row("table/a", &every), row("table/b", b""), row("server/1", b"x")]).unwrap();
    metadata.apply(&[("server/1".into(), None), row("table/\u{e4}/\"", b"quoted")]).unwrap();
    let wanted = [("table/a", &every[..]), ("table/b", b""), ("table/\u{e4}/\"", b"quoted")];
    let wanted: BTreeMap<_, _> =
        wanted.into_iter().map(|(key, value)| (key.to_owned(), value.to_vec())).collect();
    assert_eq!(metadata.load().unwrap(), wanted);
    // Write as many changes as one call accepts. Then read a cluster whose name has this cluster's
    // name as a prefix: it has rows of its own.
    let many: Vec<_> =
        (0..MAX_CHANGES).map(|number| row(&format!("many/{number}"), &[7; 900])).collect();
    metadata.apply(&many).unwrap();
    assert_eq!(metadata.load().unwrap().len(), MAX_CHANGES + 3);
    let other = self::place(&etcd, "rows2");
    assert!(MetadataEtcd::new(other.open().unwrap(), 1).load().unwrap().is_empty());
}

#[test]
fn a_deposed_leader_changes_nothing() {
    let Some(etcd) = EtcdProcess::start() else { return };
    let place = place(&etcd, "fenced");
    let etcd = place.open().unwrap();
    let first = lead(&etcd, 1);
    let mut old = Catalog::open(MetadataEtcd::new(place.open().unwrap(), first), 7).unwrap();
    old.enlist(0, (HERE, ""), 2).unwrap();
    assert_eq!(
        etcd.claim(first - 1, 2, HERE).unwrap(),
        None,
        "the key was written since that term"
    );
    assert_eq!(etcd.claim(0, 2, HERE).unwrap(), None, "a leader exists");

    let second = etcd.claim(first, 2, HERE).unwrap().unwrap();
    assert!(second > first);
    let mut new = Catalog::open(MetadataEtcd::new(place.open().unwrap(), second), 8).unwrap();
    assert_eq!((new.cluster(), new.servers().count()), (7, 1));
    assert!(new.incarnation() > old.incarnation());

    assert!(matches!(old.create("table", TableOptions::of(1), &[1]), Err(Refusal::Lost(_))));
    assert!(old.lost().is_some());
    let fenced = MetadataEtcd::new(place.open().unwrap(), first).apply(&[row("x", b"")]);
    assert!(matches!(fenced, Err(MetadataError::Fenced { .. })), "{fenced:?}");
    // A new term of a coordinator also fences the earlier term of the same coordinator.
    let third = etcd.claim(second, 2, HERE).unwrap().unwrap();
    assert!(matches!(new.create("table", TableOptions::of(1), &[1]), Err(Refusal::Lost(_))));
    let mut new = Catalog::open(MetadataEtcd::new(place.open().unwrap(), third), 8).unwrap();
    assert_eq!(new.find_table("table"), None);
    new.create("table", TableOptions::of(1), &[1]).unwrap();
}

#[test]
fn many_tables_are_taken_over_in_portions() {
    let Some(etcd) = EtcdProcess::start() else { return };
    let place = place(&etcd, "portions");
    let term = lead(&place.open().unwrap(), 1);
    let open = || Catalog::open(MetadataEtcd::new(place.open().unwrap(), term), 7).unwrap();
    let mut catalog = open();
    let (gone, by) =
        (catalog.enlist(0, (HERE, ""), 2).unwrap(), catalog.enlist(0, (HERE, ""), 2).unwrap());
    let create =
        |table| catalog.create(&format!("table {table}"), TableOptions::of(1), &[gone]).unwrap().id;
    let tables: Vec<Tablet> = (0..300).map(create).map(Tablet::whole).collect();
    catalog.mark_dead(gone).unwrap();
    catalog.take_over(gone, &tables, by, 5).unwrap();
    for catalog in [catalog, open()] {
        assert_eq!(catalog.tablets_of(by).len(), 300);
        assert!(catalog.tablets_of(by).iter().all(|owned| owned.since == 5));
        assert!(catalog.server(gone).is_none(), "a dead server without tablets is removed");
    }
}

#[test]
fn an_unreachable_or_silent_etcd_is_named() {
    let Some(mut etcd) = EtcdProcess::start() else { return };
    let place = place(&etcd, "away");
    let term = lead(&place.open().unwrap(), 1);
    let mut metadata = MetadataEtcd::new(place.open().unwrap(), term);
    etcd.kill();
    let error = metadata.apply(&[row("x", b"1")]).unwrap_err();
    assert!(
        matches!(&error, MetadataError::Unavailable { .. })
            && error.to_string().contains(&etcd.url),
        "{error}"
    );

    // A listener takes the request and never responds: its outcome is unknown.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let silent_place = EtcdPlace::new(&url, "away").unwrap();
    let begun = Instant::now();
    let unknown = MetadataEtcd::new(silent_place.open().unwrap(), term).apply(&[row("x", b"1")]);
    assert!(matches!(unknown, Err(MetadataError::Unknown { .. })), "{unknown:?}");
    assert!(begun.elapsed() < PATIENCE, "the wait for the response ends");

    // One reachable URL of several is enough, and rows survive the restart.
    etcd.restart();
    let both = EtcdPlace::new(&format!("http://127.0.0.1:1,{}", etcd.url), "away")
        .unwrap()
        .waiting(PATIENCE);
    let mut metadata = MetadataEtcd::new(both.open().unwrap(), lead(&both.open().unwrap(), 1));
    metadata.apply(&[row("x", b"2")]).unwrap();
    assert_eq!(metadata.load().unwrap()["x"], b"2");
}

#[test]
fn invalid_urls_and_names_are_refused() {
    for (url, wanted) in [
        ("127.0.0.1:2379", "not a URL"),
        ("https://10.0.0.1:2379", "TLS"),
        ("http://root:secret@10.0.0.1:2379", "users"),
        ("http://10.0.0.1:2379/v3", "ends after the port"),
        ("http://10.0.0.1", "no port"),
        ("", "not a URL"),
    ] {
        let error = EtcdPlace::new(url, "x").unwrap_err().to_string();
        assert!(error.contains(wanted), "{url}: {error}");
    }
    assert!(EtcdPlace::new("http://[::1]:2379,http://etcd.example:2379", "a-b_c.9").is_ok());
    for name in ["", "a/b", "\u{e4}", &"x".repeat(65)] {
        assert!(
            matches!(EtcdPlace::new("http://[::1]:2379", name), Err(EtcdError::Name(_))),
            "{name}"
        );
    }
}
