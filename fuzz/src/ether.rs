//! Frames of all kinds that arrive at a host on Ethernet, after a neighbour that it knows, and over
//! a link that fails.

use sprat_net::ether::{Checksums, EtherHost, FrameEvent, HostSettings, LinkSettings};
use sprat_net::{Counters, Mac, Nanos};

pub(crate) fn run(data: &[u8]) {
    let Some((&[family, vlan], mut rest)) = data.split_first_chunk() else { return };
    let address =
        if family & 1 == 0 { "10.0.0.1:7" } else { "[fd00::1]:7" }.parse().expect("an address");
    let vlan = (vlan & 1 != 0).then_some(7);
    let links = [1, 2]
        .map(|last| LinkSettings { mac: Mac([2, 0, 0, 0, 0, last]), checksums: Checksums::Spared });
    let settings = HostSettings { address, prefix: 8, gateway: None, vlan, mtu: 1500 };
    let mut host = EtherHost::new(settings, &links);
    let mut counters = Counters::default();
    while let Some((&[len, link], behind)) = rest.split_first_chunk() {
        let (frame, behind) = behind.split_at(usize::from(len).min(behind.len()));
        rest = behind;
        let link = usize::from(link & 1);
        match host.read(link, frame, false, &mut counters) {
            FrameEvent::Datagram { from, payload } => {
                assert!(payload.end <= frame.len());
                if let Ok(route) = host.route(from, || Nanos(0)) {
                    let mut answer = vec![0; route.len() + payload.len()];
                    route.finish(&mut answer);
                }
            }
            FrameEvent::Request => assert!(!host.reply().is_empty()),
            FrameEvent::EchoReply { .. } | FrameEvent::Nothing => {}
        }
        if frame.len() % 16 == 3 {
            host.set_link(link, frame.len() % 32 == 3);
        }
    }
}
