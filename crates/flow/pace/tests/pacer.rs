//! The thread that paces connections.

use sprat_pace::path::{self, Path};
use sprat_pace::{Pace, Pacer};
use sprat_testing::{PATIENCE, until};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (to, listener.accept().unwrap().0)
}

#[test]
fn a_path_without_length_is_left_to_the_kernel() {
    let pacer = Pacer::start().unwrap();
    let (mut to, mut from) = pair();
    let before = path::congestion_control(&to).unwrap();
    let paced = pacer.add(&to, Pace::Auto).unwrap();
    to.write_all(&[7; 4096]).unwrap();
    from.read_exact(&mut [0; 4096]).unwrap();
    until("the state is reported", || paced.state().path.acked >= 4096);
    assert_eq!((paced.state().rate, paced.state().mode), (None, None));
    assert_eq!(path::congestion_control(&to).unwrap(), before);
}

#[test]
fn a_limit_holds_and_arrivals_are_reported() {
    let pacer = Pacer::start().unwrap();
    let (mut to, mut from) = pair();
    let paced = pacer.add(&to, Pace::Limit(4_000_000)).unwrap();
    let begun = Instant::now();
    let reader =
        std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()).unwrap());
    to.write_all(&vec![7; 2_000_000]).unwrap();
    until("the arrival rate is reported", || paced.state().arrival_rate > 0);
    assert_eq!(paced.state().rate, Some(4_000_000));
    drop(to);
    // A connection may be closed while it is paced. The pacer keeps its socket until the handle is
    // dropped.
    drop(paced);
    assert_eq!(reader.join().unwrap(), 2_000_000);
    assert!(begun.elapsed() > Duration::from_millis(350), "{:?}", begun.elapsed());
}

#[test]
fn what_is_no_longer_wanted_is_let_go() {
    let pacer = Pacer::start().unwrap();
    let (to, mut from) = pair();
    let paced = pacer.add(&to, Pace::Off).unwrap();
    drop(to);
    assert!(Path::of(&from).is_ok());
    drop(paced);
    // The other end sees the end of the connection once the pacer has also closed its socket.
    from.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(from.read(&mut [0]).unwrap(), 0);
}

#[test]
fn many_come_and_go() {
    let pacer = Pacer::start().unwrap();
    let pairs: Vec<_> = (0..200).map(|_| pair()).collect();
    let paced: Vec<_> = pairs.iter().map(|(to, _)| pacer.add(to, Pace::Auto).unwrap()).collect();
    for (mut to, mut from) in pairs {
        to.write_all(b"x").unwrap();
        from.read_exact(&mut [0]).unwrap();
    }
    until("all connections are sampled", || paced.iter().all(|paced| paced.state().path.sent > 0));
    drop(paced);
    drop(pacer);
}
