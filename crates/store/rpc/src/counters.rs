//! Counters of an endpoint.

use sprat_net::Figure;

/// Counts of events since the endpoint was made. They never decrease.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Frames received, of any kind.
    pub frames_in: u64,
    /// Whole packets received.
    pub packets_in: u64,
    /// Frames of packets sent. Handshake messages and empty sealed frames do not count.
    pub frames_out: u64,
    /// Packets packed into frames. Those whose channel was not open were not sent, but count.
    pub packets_out: u64,

    /// Calls begun.
    pub calls: u64,
    /// Calls answered.
    pub answered: u64,
    /// Calls failed, for any reason.
    pub failed: u64,
    /// Requests sent again because no answer came in time; of a long request, its first packet.
    pub retransmissions: u64,
    /// `Retry` answers received to calls in progress.
    pub retries: u64,
    /// Responses that matched no outstanding call.
    pub stale_responses: u64,

    /// Requests handed to the handler; a request that is executed again counts again.
    pub requests: u64,
    /// Requests received again after they were executed, and answered with the retained response.
    pub repeats: u64,
    /// Packets of requests answered with `Busy`: sent again while the request was incomplete or was
    /// being executed, or sent while the slot's previous request was still being executed.
    pub busy: u64,
    /// Packets of requests dropped because a newer request had arrived in their slot, or because
    /// the response had been acknowledged.
    pub old_requests: u64,
    /// Answers dropped because the endpoint no longer knew their request.
    pub stale_answers: u64,
    /// `Retry` answers sent to clients.
    pub turned_away: u64,
    /// Sessions opened by clients.
    pub sessions_opened: u64,
    /// Sessions opened by clients that ended: they were closed, expired, made room for others, or
    /// were lost with their channels.
    pub sessions_ended: u64,
    /// `Refuse` packets sent.
    pub refused: u64,

    /// Fragments that had arrived before, or that state another length for their message than
    /// earlier fragments.
    pub duplicate_fragments: u64,
    /// Fragments dropped because the reassembly memory was full, or had too many messages.
    pub reassembly_full: u64,
    /// Incomplete requests dropped because the rest did not arrive.
    pub abandoned: u64,
    /// Incomplete requests dropped to give their memory to other requests, because their clients
    /// were silent or their sessions used more memory.
    pub reassembly_ceded: u64,
    /// Sessions ended to make room for new ones.
    pub sessions_ceded: u64,
    /// Responses dropped because their clients were silent.
    pub answers_dropped: u64,
    /// Missing ranges requested again.
    pub resends: u64,
    /// Grants sent.
    pub grants: u64,

    /// Frames that ended within the header of a packet or of a handshake message.
    pub malformed_short: u64,
    /// Packets whose header states more payload than the frame contains.
    pub malformed_truncated: u64,
    /// Packets of unknown kind.
    pub malformed_kind: u64,
    /// Packets of a kind that this role never receives, packets with a payload that does not fit
    /// the kind, refusals for an unknown reason, responses to requests that were not sent, and
    /// handshake messages of another version or length.
    pub malformed_meaning: u64,
    /// Fragments whose offset, length or total is impossible.
    pub malformed_fragment: u64,
    /// Packets for a slot that the session does not have.
    pub malformed_slot: u64,
    /// Packets whose session, token or sender is unknown here.
    pub unknown_session: u64,

    /// Handshakes answered.
    pub handshakes: u64,
    /// Handshakes not answered because there were too many.
    pub handshakes_late: u64,
    /// Channels opened, by either end.
    pub channels_opened: u64,
    /// Channels that ended because they expired, were unused, or made room for others; also
    /// handshakes that peers began and left incomplete for as long.
    pub channels_ended: u64,
    /// Handshake messages that did not decrypt: the sender lacks the keys, or the message was
    /// damaged.
    pub strangers: u64,
    /// Certificates rejected: malformed, signed by another root, for another key, expired or not
    /// yet valid, or not a server's where a server was called.
    pub untrusted: u64,
    /// Sealed frames that did not decrypt, or whose channel does not exist, is not open, has
    /// expired, or is of another address.
    pub sealed_forged: u64,
    /// Sealed frames that arrived before, or too late to know whether they did.
    pub sealed_repeated: u64,
    /// Frames dropped because they were not sealed, at an endpoint with credentials.
    pub unsealed: u64,
}

impl Counters {
    /// Appends the counters that a server's operator looks for.
    pub fn figures(&self, figures: &mut Vec<Figure>) {
        let named = [
            ("rpc_requests_total", self.requests),
            ("rpc_repeats_total", self.repeats),
            ("rpc_busy_total", self.busy),
            ("rpc_old_requests_total", self.old_requests),
            ("rpc_turned_away_total", self.turned_away),
            ("rpc_sessions_opened_total", self.sessions_opened),
            ("rpc_sessions_ended_total", self.sessions_ended),
            ("rpc_refused_total", self.refused),
            ("rpc_duplicate_fragments_total", self.duplicate_fragments),
            ("rpc_reassembly_full_total", self.reassembly_full),
            ("rpc_abandoned_total", self.abandoned),
            ("rpc_reassembly_ceded_total", self.reassembly_ceded),
            ("rpc_sessions_ceded_total", self.sessions_ceded),
            ("rpc_answers_dropped_total", self.answers_dropped),
            ("rpc_resends_total", self.resends),
            ("rpc_malformed_total", self.malformed()),
            ("rpc_unknown_session_total", self.unknown_session),
            ("rpc_handshakes_total", self.handshakes),
            ("rpc_handshakes_late_total", self.handshakes_late),
            ("rpc_channels_opened_total", self.channels_opened),
            ("rpc_channels_ended_total", self.channels_ended),
            ("rpc_strangers_total", self.strangers),
            ("rpc_untrusted_total", self.untrusted),
            ("rpc_sealed_forged_total", self.sealed_forged),
            ("rpc_sealed_repeated_total", self.sealed_repeated),
            ("rpc_unsealed_total", self.unsealed),
        ];
        figures.extend(named.map(|(name, value)| Figure::new(name, value)));
    }

    /// Returns the number of packets and frames that could not be parsed.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed_short
            + self.malformed_truncated
            + self.malformed_kind
            + self.malformed_meaning
            + self.malformed_fragment
            + self.malformed_slot
    }
}
