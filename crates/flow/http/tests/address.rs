//! Addresses: what they contain, how they are displayed, and where redirects may lead.

use sprat_http::{Address, Error};

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

#[test]
fn addresses_parse_to_host_port_and_target() {
    for (text, host, port, target, tls, verified) in [
        ("http://h/a", "h", 80, "/a", false, false),
        ("https://h/a?b=c#d", "h", 443, "/a?b=c", true, false),
        ("sprat://h/a", "h", 8040, "/a", false, true),
        ("sprat://h:80/a", "h", 80, "/a", false, true),
        ("sprats://h:443/a", "h", 443, "/a", true, true),
        ("sprat://[::1]:9/a b", "::1", 9, "/a%20b", false, true),
        ("sprat://10.0.0.7", "10.0.0.7", 8040, "/", false, true),
        ("http://\u{e9}/x/../y", "xn--9ca", 80, "/y", false, false),
    ] {
        let found = address(text);
        assert_eq!(
            (found.host(), found.port(), &found.target(false)[..]),
            (host, port, target),
            "{text}"
        );
        assert_eq!((found.is_tls(), found.wants_verified()), (tls, verified), "{text}");
    }
    for text in [
        "",
        "file",
        "ftp://h/a",
        "http://",
        "sprat:///a",
        "http://h:99999/",
        "sprat://h:x/a",
        "http://a b/",
    ] {
        assert!(matches!(Address::parse(text), Err(Error::Usage(_))), "{text:?}");
    }
}

#[test]
fn secrets_are_sent_and_never_shown() {
    let named = address("http://user:p%40ss@h/a");
    assert_eq!(named.authorization(), Some("Basic dXNlcjpwQHNz"));
    assert_eq!(named.to_string(), "http://h/a");
    assert_eq!(
        address("http://h/a?download=sprat&ticket=1-2").to_string(),
        "http://h/a?download=sprat"
    );
    let token = address("http://h/a?token=secret&b=c");
    assert_eq!(
        (token.to_string(), token.target(false)),
        ("http://h/a?b=c".to_owned(), "/a?token=secret&b=c".to_owned())
    );
    for text in ["ftp://user:secret@h/a", "ftp://user:p@secret@h/a", "ftp://user:p/secret@h"] {
        let wrong = Address::parse(text).unwrap_err().to_string();
        assert!(!wrong.contains("secret"), "{wrong}");
    }
}

#[test]
fn redirects_lead_to_http_and_never_out_of_tls() {
    let from = address("sprats://h/a/b").with_token(Some("t"));
    let near = from.redirected("../c").unwrap();
    assert_eq!(
        (near.to_string(), near.authorization()),
        ("https://h:8040/c".to_owned(), Some("Bearer t"))
    );
    assert!(near.wants_verified(), "a redirect keeps the demand for the verified form");
    for elsewhere in ["https://other:8040/a", "https://h/a", "//other/a", "https://user:x@other/a"]
    {
        assert_eq!(from.redirected(elsewhere).unwrap().authorization(), None, "{elsewhere}");
    }
    for nowhere in
        ["http://h:8040/a", "ftp://h/a", "file:///etc/passwd", "https://", "data:text/plain,x"]
    {
        assert!(matches!(from.redirected(nowhere), Err(Error::Protocol { .. })), "{nowhere}");
    }
}

#[test]
fn a_name_is_one_that_a_file_can_have() {
    for (text, name) in [
        ("http://h/a/b%20c", Some("b c")),
        ("http://h/caf%C3%A9?x", Some("caf\u{e9}")),
        ("http://h/a/", None),
    ] {
        assert_eq!(address(text).name().as_deref(), name, "{text}");
    }
    for text in ["http://h/%2e%2e%2fx", "http://h/a%2Fb", "http://h/a%00b", "http://h/%ff"] {
        assert_eq!(address(text).name(), None, "{text}");
    }
    assert_eq!(address("http://h/a/b/").folder_name().as_deref(), Some("b"));
}
