//! Requests to a running box. Any bytes are an error or a request; a request is encoded to a line
//! with an equal meaning.

use sprat_lab::control::Request;

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(request) = Request::parse(bytes) {
        let line = request.line();
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        assert_eq!(Request::parse(&line).expect("it was written by us"), request);
    }
}
