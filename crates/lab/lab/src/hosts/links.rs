//! Links, addresses and routes of one namespace, over netlink (rtnetlink(7)).

use super::plan::Route;
use super::{Interface, within};
use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

/// Length of an interface's transmit queue, in frames. A super-packet counts as one frame. The
/// kernel's default of 1,000 is only 4 ms of acknowledgements at 10 Gb/s.
const QUEUE_FRAMES: u32 = 10_000;

/// Limit on the messages that are read for a request before it fails.
const MAX_ANSWERS: usize = 64;

/// The interfaces of a namespace. The socket belongs to the namespace in which it was made,
/// whichever thread uses the socket.
#[derive(Debug)]
pub(crate) struct Links {
    socket: Socket,
    sequence: u32,
}

impl Links {
    pub(super) fn of(namespace: &File) -> io::Result<Self> {
        within(namespace, Self::here)?
    }

    /// Opens netlink in the calling thread's namespace.
    pub(crate) fn here() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Switches an interface on, with a transmit queue long enough for a box.
    pub(crate) fn set_up_for_box(&mut self, name: &str) -> io::Result<()> {
        let index = self.index(name)?;
        // An ioctl would need privileges on the whole machine.
        self.set_up(index, &[LinkAttribute::TxQueueLen(QUEUE_FRAMES)])
    }

    /// Makes a pair of joined interfaces, one here and one in another namespace.
    pub(super) fn pair(&mut self, here: &str, there: &str, namespace: &File) -> io::Result<()> {
        let mut peer = LinkMessage::default();
        peer.attributes.push(LinkAttribute::IfName(there.to_owned()));
        peer.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(here.to_owned()));
        let data = LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer)));
        link.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), data]));
        self.change(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sets an interface up, with its MTU and its addresses. Duplicate address detection is off,
    /// because no other host can have the same addresses.
    pub(super) fn configure(&mut self, interface: &Interface) -> io::Result<()> {
        let index = self.index(&interface.name)?;
        self.set_up(
            index,
            &[LinkAttribute::Mtu(interface.mtu), LinkAttribute::TxQueueLen(QUEUE_FRAMES)],
        )?;
        interface.addresses.iter().try_for_each(|&address| self.add_address(index, address))
    }

    /// Makes a bridge with these interfaces as its ports.
    pub(super) fn bridge(&mut self, name: &str, ports: &[Interface]) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        link.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        self.change(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)?;
        let bridge = self.index(name)?;
        ports.iter().try_for_each(|port| self.attach(name, port))?;
        self.set_up(bridge, &[])
    }

    /// Makes an interface a port of a bridge.
    pub(super) fn attach(&mut self, bridge: &str, port: &Interface) -> io::Result<()> {
        let bridge = self.index(bridge)?;
        let index = self.index(&port.name)?;
        self.set_up(index, &[LinkAttribute::Controller(bridge)])
    }

    pub(super) fn loopback(&mut self) -> io::Result<()> {
        let index = self.index("lo")?;
        self.set_up(index, &[])
    }

    pub(super) fn add_route(&mut self, route: &Route) -> io::Result<()> {
        let Route { to, via } = *route;
        let header = RouteHeader {
            address_family: family(via),
            destination_prefix_length: to.prefix_len(),
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Static,
            scope: RouteScope::Universe,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        let mut message = RouteMessage::default();
        message.header = header;
        message.attributes.push(RouteAttribute::Gateway(RouteAddress::from(via)));
        if to.prefix_len() > 0 {
            message.attributes.push(RouteAttribute::Destination(RouteAddress::from(to.network())));
        }
        self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    fn set_up(&mut self, index: u32, attributes: &[LinkAttribute]) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        link.attributes = attributes.to_vec();
        self.change(RouteNetlinkMessage::SetLink(link), 0)
    }

    fn add_address(&mut self, index: u32, address: IpNet) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address.addr());
        message.header.prefix_len = address.prefix_len();
        message.header.index = index;
        message.attributes.push(AddressAttribute::Local(address.addr()));
        message.attributes.push(AddressAttribute::Address(address.addr()));
        match address {
            // Without a broadcast address a host would not receive broadcast pings.
            IpNet::V4(net) => message.attributes.push(AddressAttribute::Broadcast(net.broadcast())),
            IpNet::V6(_) => message.header.flags = AddressHeaderFlags::Nodad,
        }
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    fn index(&mut self, name: &str) -> io::Result<u32> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.request(RouteNetlinkMessage::GetLink(link), NLM_F_REQUEST)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link.header.index),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.request(message, NLM_F_REQUEST | NLM_F_ACK | flags).map(drop)
    }

    /// Sends a request and reads the kernel's answer, which is available as soon as the send
    /// returns.
    fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        for _ in 0..MAX_ANSWERS {
            let (bytes, _) = self.socket.recv_from_full()?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes)
                .map_err(io::Error::other)?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::Error(error) if error.code.is_none() => Ok(None),
                NetlinkPayload::Error(error) => Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
                _ => continue,
            };
        }
        Err(io::Error::other("the kernel answers something else"))
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
