//! Messages from the other end of a memory interface, over the socket.

use sprat_net::bypass::memif::message::Message;

pub(crate) fn run(data: &[u8]) {
    let Some(bytes) = data.first_chunk() else { return };
    if let Ok(message) = Message::parse(bytes) {
        let written = message.to_bytes();
        assert_eq!(
            Message::parse(&written),
            Ok(message),
            "what parses is written again as the same message"
        );
    }
}
