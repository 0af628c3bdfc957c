//! Looks ahead in a frame of many requests, so that the handler can prefetch their memory. In a
//! server with gigabytes of objects each request would otherwise wait twice for a cache miss of
//! some 100 ns.

use sprat_wire::packet::{self, Kind};

use crate::handler::Handler;

/// Number of packets of a frame that are announced to the handler before they are executed.
const AHEAD: usize = 8;

/// Reads the packets of a frame ahead of their execution.
pub(crate) struct Lookahead<'a> {
    rest: &'a [u8],
    /// Number of packets read ahead of the one being executed.
    lead: usize,
}

impl<'a> Lookahead<'a> {
    pub(crate) fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame, lead: 0 }
    }

    /// Announces requests to the handler, up to [`AHEAD`] packets beyond the one that is to be
    /// executed next. Must be called before each packet is executed.
    #[inline]
    pub(crate) fn advance<H: Handler>(&mut self, handler: &mut H) {
        while self.lead <= AHEAD
            && let Ok((packet, behind)) = packet::split(self.rest)
        {
            self.rest = behind;
            let whole = packet.header.total.get() as usize == packet.payload.len();
            if self.lead > 0 && packet.kind == Kind::Request && whole {
                handler.prefetch(packet.payload);
            }
            self.lead += 1;
        }
        self.lead = self.lead.saturating_sub(1);
    }
}
