//! The messages that a host composes itself: ARP, neighbour discovery and echoes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32};

use super::headers::{
    ALL_NODES, ARP_REPLY, ARP_REQUEST, Arp, DISCOVERY_HOPS, Discovery, ETHERTYPE_ARP,
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, HOPS, ICMP_ECHO, ICMP_ECHO_REPLY, ICMPV6_ADVERTISE,
    ICMPV6_ECHO, ICMPV6_ECHO_REPLY, ICMPV6_SOLICIT, Icmp, OPTION_SOURCE, OPTION_TARGET, OVERRIDE,
    PROTOCOL_ICMP, PROTOCOL_ICMPV6, SOLICITED, Sum, multicast_mac, solicited_node,
};
use super::route::{ipv4, ipv6, put_ethernet};
use crate::Mac;

const BROADCAST: Mac = Mac([0xff; 6]);

/// The addresses from which a message is sent.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) mac: Mac,
    pub(super) address: IpAddr,
    pub(super) vlan: Option<u16>,
}

impl Sender {
    fn begin(&self, out: &mut Vec<u8>, to: Mac, ethertype: u16) {
        out.clear();
        put_ethernet(&mut |bytes| out.extend_from_slice(bytes), self.mac, to, self.vlan, ethertype);
    }

    /// Composes a request to all neighbours for the hardware address of `target`: a broadcast ARP
    /// request, or a multicast solicitation.
    pub(super) fn solicit(&self, out: &mut Vec<u8>, target: IpAddr) {
        match (self.address, target) {
            (IpAddr::V4(own), IpAddr::V4(target)) => {
                self.arp(out, ARP_REQUEST, own, BROADCAST, target)
            }
            (IpAddr::V6(own), IpAddr::V6(target)) => {
                let group = solicited_node(target);
                self.discovery(out, ICMPV6_SOLICIT, own, (multicast_mac(group), group), target);
            }
            _ => unreachable!("neighbours are of one family"),
        }
    }

    /// Composes a request to a neighbour's hardware address, to find out whether the neighbour is
    /// still reachable.
    pub(super) fn probe(&self, out: &mut Vec<u8>, target: IpAddr, mac: Mac) {
        match (self.address, target) {
            (IpAddr::V4(own), IpAddr::V4(target)) => self.arp(out, ARP_REQUEST, own, mac, target),
            (IpAddr::V6(own), IpAddr::V6(target)) => {
                self.discovery(out, ICMPV6_SOLICIT, own, (mac, target), target);
            }
            _ => unreachable!("neighbours are of one family"),
        }
    }

    /// Composes a reply to `to` that states the sender's hardware address.
    pub(super) fn advertise(&self, out: &mut Vec<u8>, to: IpAddr, mac: Mac) {
        match (self.address, to) {
            (IpAddr::V4(own), IpAddr::V4(to)) => self.arp(out, ARP_REPLY, own, mac, to),
            (IpAddr::V6(own), IpAddr::V6(to)) => {
                self.discovery(out, ICMPV6_ADVERTISE, own, (mac, to), own)
            }
            _ => unreachable!("neighbours are of one family"),
        }
    }

    /// Composes an announcement of the sender's address to all neighbours. For IPv4 this is an ARP
    /// request for the sender's own address, for IPv6 an unsolicited advertisement.
    pub(super) fn announce(&self, out: &mut Vec<u8>) {
        match self.address {
            IpAddr::V4(_) => self.solicit(out, self.address),
            IpAddr::V6(own) => {
                self.discovery(
                    out,
                    ICMPV6_ADVERTISE,
                    own,
                    (multicast_mac(ALL_NODES), ALL_NODES),
                    own,
                );
            }
        }
    }

    fn arp(&self, out: &mut Vec<u8>, operation: u16, own: Ipv4Addr, to: Mac, target: Ipv4Addr) {
        self.begin(out, to, ETHERTYPE_ARP);
        let target_mac = if operation == ARP_REQUEST { [0; 6] } else { to.0 };
        let message = Arp {
            hardware: U16::new(1),
            protocol: U16::new(ETHERTYPE_IPV4),
            hardware_len: 6,
            protocol_len: 4,
            operation: U16::new(operation),
            sender_mac: self.mac.0,
            sender_ip: own.octets(),
            target_mac,
            target_ip: target.octets(),
        };
        out.extend_from_slice(message.as_bytes());
    }

    fn discovery(
        &self,
        out: &mut Vec<u8>,
        kind: u8,
        own: Ipv6Addr,
        to: (Mac, Ipv6Addr),
        target: Ipv6Addr,
    ) {
        let (to_mac, to_ip) = to;
        let (option, flags) = match kind {
            ICMPV6_SOLICIT => (OPTION_SOURCE, 0),
            _ if to_ip.is_multicast() => (OPTION_TARGET, OVERRIDE),
            _ => (OPTION_TARGET, SOLICITED | OVERRIDE),
        };
        let icmp = Icmp { kind, code: 0, checksum: [0; 2], rest: U32::new(flags) };
        let mut message =
            Discovery { icmp, target: target.octets(), option, option_len: 1, mac: self.mac.0 };
        let len = size_of::<Discovery>();
        let sum = Sum::default()
            .pseudo(own.into(), to_ip.into(), PROTOCOL_ICMPV6, len)
            .add(message.as_bytes());
        message.icmp.checksum = sum.finish();
        self.begin(out, to_mac, ETHERTYPE_IPV6);
        out.extend_from_slice(
            ipv6(own.octets(), to_ip.octets(), len, PROTOCOL_ICMPV6, DISCOVERY_HOPS).as_bytes(),
        );
        out.extend_from_slice(message.as_bytes());
    }

    /// Composes an echo request or reply. `body` begins with the identifier and the sequence
    /// number.
    pub(super) fn echo(&self, out: &mut Vec<u8>, to: (Mac, IpAddr), is_reply: bool, body: &[u8]) {
        let (mac, to) = to;
        let len = 4 + body.len();
        match (self.address, to) {
            (IpAddr::V4(own), IpAddr::V4(to)) => {
                let head = [if is_reply { ICMP_ECHO_REPLY } else { ICMP_ECHO }, 0, 0, 0];
                let [a, b] = Sum::default().add(&head).add(body).finish();
                self.begin(out, mac, ETHERTYPE_IPV4);
                out.extend_from_slice(
                    ipv4(own.octets(), to.octets(), len, PROTOCOL_ICMP).as_bytes(),
                );
                out.extend_from_slice(&[head[0], 0, a, b]);
            }
            (IpAddr::V6(own), IpAddr::V6(peer)) => {
                let head = [if is_reply { ICMPV6_ECHO_REPLY } else { ICMPV6_ECHO }, 0, 0, 0];
                let sum = Sum::default().pseudo(self.address, to, PROTOCOL_ICMPV6, len).add(&head);
                let [a, b] = sum.add(body).finish();
                self.begin(out, mac, ETHERTYPE_IPV6);
                out.extend_from_slice(
                    ipv6(own.octets(), peer.octets(), len, PROTOCOL_ICMPV6, HOPS).as_bytes(),
                );
                out.extend_from_slice(&[head[0], 0, a, b]);
            }
            _ => unreachable!("packets are within a family"),
        }
        out.extend_from_slice(body);
    }
}
