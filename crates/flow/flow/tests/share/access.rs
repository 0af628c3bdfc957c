//! Tests tokens, tickets and TLS.

use super::support::{Shared, content};
use sprat_flow::share::{TokenError, Tokens, tls};
use std::process::Command;

const TOKEN: &str = "correct-horse-battery";

fn guarded() -> Shared {
    let shared = Shared::with(|options| {
        let file = options.root.join(".tokens");
        std::fs::write(&file, format!("# who may\n\nanother-token-of-ours\n  {TOKEN}\n")).unwrap();
        options.tokens = Tokens::read(&file).unwrap();
    });
    shared.write("file", b"x");
    shared
}

#[test]
fn without_a_token_there_is_nothing() {
    let shared = guarded();
    let refused = shared.get("/file", "");
    assert_eq!(
        (refused.status, refused.field("WWW-Authenticate")),
        (401, Some("Bearer realm=\"sprat\""))
    );
    let shown = |answer: &super::support::Answer| {
        let fields =
            answer.fields.iter().filter(|(name, _)| name != "Date").cloned().collect::<Vec<_>>();
        (answer.status, fields, answer.body.clone())
    };
    for (path, fields) in [
        ("/none", ""),
        ("/", ""),
        ("/.sprat/transfers", ""),
        ("/file?token=wrong-horse-battery", ""),
        ("/file?token=", ""),
        ("/file", "Authorization: Bearer wrong-horse-battery\r\n"),
        ("/file", "Authorization: Bearer\r\n"),
        ("/file", "Authorization: Basic correct-horse-battery\r\n"),
        ("/file", "Cookie: sprat-token=correct-horse-battery\r\n"),
    ] {
        let answer = shared.get(path, fields);
        assert_eq!(shown(&answer), shown(&refused), "{path} {fields} reveals nothing");
    }
    assert_eq!(shared.get("/file", &format!("Authorization: bearer {TOKEN}\r\n")).text(), "x");
    assert_eq!(shared.get("/file", "Authorization: Bearer another-token-of-ours\r\n").text(), "x");
    assert_eq!(shared.get(&format!("/file?token={TOKEN}"), "").text(), "x");
    assert!(
        shared.events.lock().unwrap().iter().all(|event| !event.path.contains("horse")),
        "tokens are not logged"
    );
}

#[test]
fn a_browsers_token_goes_from_the_address_into_a_cookie() {
    let shared = guarded();
    let answer = shared.get(&format!("/?token={TOKEN}"), "");
    assert_eq!((answer.status, answer.field("Location")), (303, Some("/")));
    let cookie = answer.field("Set-Cookie").unwrap();
    assert!(
        cookie.contains("HttpOnly")
            && cookie.contains("SameSite=Strict")
            && !cookie.contains(TOKEN)
    );
    let pair = cookie.split(';').next().unwrap();
    assert_eq!(shared.get("/", &format!("Cookie: other=1; {pair}\r\n")).status, 200);
    assert_eq!(shared.get("/file", &format!("Cookie: {pair}x\r\n")).status, 401);
    let (_, value) = pair.split_once('=').unwrap();
    assert_eq!(
        shared.get("/file", &format!("Authorization: Bearer {value}\r\n")).status,
        401,
        "a cookie is no token"
    );
}

#[test]
fn a_ticket_opens_one_file_and_nothing_else() {
    let shared = guarded();
    std::fs::create_dir(shared.path().join("sub")).unwrap();
    shared.write("sub/a b", b"y");
    let fields = format!("Authorization: Bearer {TOKEN}\r\nAccept: text/html\r\n");
    let page = shared.get("/sub/", &fields);
    assert_eq!(page.field("Cache-Control"), Some("no-store"));
    let link =
        page.text().split("<a href=\"").find(|rest| rest.contains("download=sprat")).unwrap();
    let link = link.split('"').next().unwrap().replace("&amp;", "&");
    let ticket = link.split("ticket=").nth(1).unwrap();
    assert!(
        page.text().contains(&format!("/sub/a%20b?ticket={ticket}' .</code>")),
        "the command has the ticket too"
    );
    let saved = shared.get(&format!("/sub/{}", &link[2..]), "");
    assert_eq!((saved.status, saved.text()), (200, "y"));
    for path in ["/sub/", "/sub", "/file", "/", "/.sprat/transfers"] {
        assert_eq!(shared.get(&format!("{path}?ticket={ticket}"), "").status, 401, "{path}");
    }
    assert_eq!(shared.get("/sub/a%20b?ticket=1-0", "").status, 401);
    assert_eq!(
        shared.get("/sub/a%20b?ticket=1-0", &format!("Authorization: Bearer {TOKEN}\r\n")).text(),
        "y"
    );
    assert!(
        shared.events.lock().unwrap().iter().all(|event| !event.path.contains("ticket")),
        "tickets are not logged"
    );
    // The ticket was for the file, not for a directory with its name.
    std::fs::remove_file(shared.path().join("sub/a b")).unwrap();
    std::fs::create_dir(shared.path().join("sub/a b")).unwrap();
    for slash in ["", "/"] {
        assert_eq!(shared.get(&format!("/sub/a%20b{slash}?ticket={ticket}"), "").status, 401);
    }
}

#[test]
fn files_of_tokens_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Tokens::read(&path)
    };
    assert!(matches!(read("# none\n"), Err(TokenError::Count { count: 0, .. })));
    assert!(matches!(read("long-enough-a-token\nshort\n"), Err(TokenError::Line { line: 2, .. })));
    assert!(matches!(read("with spaces in the token"), Err(TokenError::Line { line: 1, .. })));
    assert!(matches!(Tokens::read(&directory.path().join("none")), Err(TokenError::Io { .. })));
}

#[test]
fn curl_trusts_the_certificate_it_is_given() {
    let made = tls::self_signed(&["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let shared = Shared::with(|options| options.tls = Some(made.config.clone()));
    let file = content((3 << 20) + 5);
    shared.write("file", &file);
    let pem = shared.path().join("pem");
    std::fs::write(&pem, &made.pem).unwrap();
    let url = format!("https://{}/file", shared.address());
    let curl =
        |arguments: &[&str]| Command::new("curl").args(["-sS", &url]).args(arguments).output();
    let Ok(trusting) = curl(&["--cacert", pem.to_str().unwrap(), "-D", "/dev/stderr"]) else {
        return super::support::skip("curl is not installed: share with TLS was not tried with it");
    };
    assert!(trusting.status.success(), "{}", String::from_utf8_lossy(&trusting.stderr));
    assert!(trusting.stdout == file);
    assert_eq!(curl(&[]).unwrap().status.code(), Some(60), "curl does not trust the certificate");
    let range = curl(&["-k", "-r", "1048570-2097160"]).unwrap();
    assert!(range.stdout == file[1_048_570..2_097_161]);
    assert_eq!(made.fingerprint.split(':').count(), 32);
    // A client that does not use TLS gets no answer, and does no harm.
    let mut plain = shared.connect();
    plain.send("GET /file HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain.tcp, &mut rest);
    assert!(!rest.starts_with(b"HTTP"));
}

#[test]
fn certificates_come_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("cert"), tls::self_signed(&["localhost".to_owned()]).unwrap().pem).unwrap();
    let told =
        |chain: &str, key: &str| tls::load(&path(chain), &path(key)).unwrap_err().to_string();
    assert!(told("none", "cert").contains("none"));
    assert!(told("empty", "cert").contains("no certificate"));
    assert!(told("cert", "empty").contains("empty"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(path("chain"), made.cert.pem()).unwrap();
    std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
    tls::load(&path("chain"), &path("key")).unwrap();
    assert!(told("cert", "key").contains("certificate"), "the key is of another certificate");
}

#[test]
fn a_handshake_that_does_not_go_on_is_ended() {
    let made = tls::self_signed(&["localhost".to_owned()]).unwrap();
    let shared = Shared::with(|options| {
        options.tls = Some(made.config.clone());
        options.limits = super::support::impatient();
    });
    // The client sends nothing, the beginning of a greeting, or a greeting that states more bytes
    // than follow.
    for greeting in [&b""[..], &[22, 3, 1], &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]] {
        let mut client = shared.connect();
        std::io::Write::write_all(&mut client.tcp, greeting).unwrap();
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut client.tcp, &mut rest);
        assert!(!rest.starts_with(b"HTTP"));
    }
}

#[test]
fn a_name_that_leads_here_from_elsewhere_is_refused() {
    let shared = Shared::with(|options| options.names = vec!["nas.example".to_owned()]);
    shared.write("file", b"x");
    let ask = |method: &str, host: &str| {
        let mut client = shared.connect();
        client
            .send(&format!("{method} /file HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"));
        let answer = client.answer(false).unwrap();
        assert_eq!(answer.field("Cross-Origin-Resource-Policy"), Some("same-origin"));
        (answer.status, answer.text().to_owned())
    };
    for host in
        [&shared.address().to_string(), "localhost:8040", "nas.example", "192.168.7.7", "[::1]"]
    {
        assert_eq!(ask("GET", host).0, 200, "{host}");
    }
    for method in ["GET", "PUT", "OPTIONS"] {
        let (status, text) = ask(method, "rebound.evil.example:8040");
        assert!(status == 421 && text.contains("--host-name"), "{method}: {status} {text}");
    }
    // With a token any host name is accepted, because no page knows the token.
    let shared = guarded();
    let mut client = shared.connect();
    client.send(&format!(
        "GET /file HTTP/1.1\r\nHost: proxy.example\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    ));
    assert_eq!(client.answer(false).unwrap().status, 200);
}

#[test]
fn tokens_may_be_for_reading_alone_and_change_while_it_runs() {
    let (reads, writes) = ("a-token-that-reads", "a-token-that-writes");
    let shared = Shared::with(|options| {
        let file = options.root.join(".tokens");
        std::fs::write(&file, format!("{reads} read\n{writes} write\n{TOKEN}\n")).unwrap();
        (options.tokens, options.writable) = (Tokens::read(&file).unwrap(), Some(1 << 20));
    });
    shared.write("file", b"x");
    let status = |method: &str, path: &str, token: &str| {
        let fields = format!("Authorization: Bearer {token}\r\nContent-Length: 0\r\n");
        shared.ask(method, path, &fields).status
    };
    assert_eq!([reads, writes, TOKEN].map(|token| status("GET", "/file", token)), [200; 3]);
    assert_eq!((status("PUT", "/new", reads), status("PUT", "/new/", reads)), (403, 403));
    assert_eq!((status("PUT", "/one", writes), status("PUT", "/two", TOKEN)), (201, 201));
    let file = shared.path().join(".tokens");
    std::fs::write(&file, format!("{writes} read\nanother-token-of-ours\n")).unwrap();
    shared.share.set_tokens(Tokens::read(&file).unwrap());
    assert_eq!((status("GET", "/file", reads), status("GET", "/file", writes)), (401, 200));
    assert_eq!(
        (status("PUT", "/three", writes), status("PUT", "/three", "another-token-of-ours")),
        (403, 201)
    );
    std::fs::write(&file, format!("{TOKEN} delete\n")).unwrap();
    assert!(matches!(Tokens::read(&file), Err(TokenError::Line { line: 1, .. })));
}
