//! Looking ahead in a frame of many requests, so that their memory is near when their turn comes:
//! where a server keeps gigabytes, each would else wait twice for memory, some 100 ns each time.

use sprat_wire::packet::{self, Kind};

use crate::handler::Handler;

/// Packets of a frame that a handler is told of ahead.
const AHEAD: usize = 8;

/// Reads a frame ahead of its execution.
pub(crate) struct Scout<'a> {
    rest: &'a [u8],
    /// Packets between the one that is executed and what it has yet to read.
    lead: usize,
}

impl<'a> Scout<'a> {
    pub(crate) fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame, lead: 0 }
    }

    /// The next packet is about to be executed: tells the handler of those that come [`AHEAD`]
    /// behind it.
    #[inline]
    pub(crate) fn advance<H: Handler>(&mut self, handler: &mut H) {
        while self.lead <= AHEAD
            && let Ok((packet, behind)) = packet::split(self.rest)
        {
            self.rest = behind;
            let whole = packet.header.total.get() as usize == packet.payload.len();
            if self.lead > 0 && packet.kind == Kind::Request && whole {
                handler.expect(packet.payload);
            }
            self.lead += 1;
        }
        self.lead = self.lead.saturating_sub(1);
    }
}
