//! Commands of Redis clients: it makes no difference in which pieces the bytes arrive, and limits
//! hold.

use crate::input;
use sprat_resp::{CommandReader, Limits, Next};

const LIMITS: Limits = Limits { part: 64, command: 256, parts: 12 };

pub(crate) fn run(bytes: &[u8]) {
    let Some((piece, bytes)) = input::<(u8, &[u8])>(bytes) else { return };
    // Half of the inputs begin like a command.
    let begin: &[u8] = if piece % 2 == 0 { b"*2\r\n$3\r\nGET\r\n$" } else { b"" };
    let bytes = [begin, bytes].concat();
    assert_eq!(read(&bytes, bytes.len()), read(&bytes, 1 + usize::from(piece / 2)));
}

/// Returns the commands and errors on a connection on which bytes arrive in pieces of this length.
fn read(bytes: &[u8], piece: usize) -> Vec<String> {
    let mut reader = CommandReader::new(LIMITS);
    let mut found = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        reader.extend(piece);
        loop {
            match reader.next() {
                Ok(Next::Incomplete) => break,
                Ok(Next::Command(command)) => {
                    assert!(command.iter().all(|part| part.len() <= bytes.len()));
                    found.push(format!("{command:?}"));
                }
                Ok(Next::Refused(excess)) => found.push(excess.to_string()),
                Err(broken) => {
                    found.push(broken.to_string());
                    return found;
                }
            }
        }
    }
    found
}
