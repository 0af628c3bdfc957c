//! Tests listings of directories, for programs and for people.

use super::support::{Shared, content};
use serde_json::Value;
use std::collections::BTreeMap;

/// Creates a directory with every kind of entry that could cause trouble for a listing.
fn tree() -> Shared {
    let shared = Shared::new();
    let root = shared.path();
    std::fs::create_dir_all(root.join("sub/deep")).unwrap();
    shared.write("b & <i>.txt", b"12345");
    shared.write("ä", b"");
    shared.write(".hidden", b"x");
    shared.write("sub/x", b"1");
    shared.write("sub/deep/y", b"22");
    std::os::unix::fs::symlink("sub/x", root.join("link")).unwrap();
    std::os::unix::fs::symlink("sub", root.join("linked")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("out")).unwrap();
    std::os::unix::fs::symlink("..", root.join("sub/up")).unwrap();
    std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    shared
}

fn names(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
fn programs_get_json() {
    let shared = tree();
    let answer = shared.get("/?format=json", "");
    assert_eq!(answer.field("Content-Type"), Some("application/json"));
    assert_eq!(shared.get("/", "Accept: application/json\r\n").body, answer.body);
    let listing: Value = serde_json::from_slice(&answer.body).unwrap();
    let entries = listing["entries"].as_array().unwrap();
    assert_eq!(
        names(entries),
        ["b & <i>.txt", "link", "linked", "sub", "ä"],
        "links that lead out and special files are not listed"
    );
    let kinds: Vec<_> = entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["file", "file", "directory", "directory", "file"]);
    for entry in entries.iter().filter(|entry| entry["kind"] == "file") {
        let file = shared.ask(
            "HEAD",
            &format!("/{}", entry["href"].as_str().unwrap()),
            "Accept: application/vnd.sprat.verified\r\n",
        );
        assert_eq!(file.status, 200);
        assert_eq!(file.field("ETag"), entry["etag"].as_str());
        assert_eq!(file.field("Sprat-Mode"), entry["mode"].as_str());
        assert_eq!(file.field("Sprat-Mtime"), entry["mtime"].as_str());
        assert_eq!(file.field("Sprat-Length"), Some(&entry["size"].to_string()[..]));
    }
}

#[test]
fn a_whole_tree_comes_in_lines() {
    let shared = tree();
    let lines = |answer: &super::support::Answer| -> Vec<Value> {
        assert!(!answer.cut);
        answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let answer = shared.get("/?format=jsonl&recursive=1", "");
    let all = lines(&answer);
    let (end, entries) = all.split_last().unwrap();
    let expected = ["b & <i>.txt", "link", "sub", "sub/deep", "sub/deep/y", "sub/x", "ä"];
    assert_eq!(
        names(entries),
        expected,
        "each directory before its entries, and linked directories not entered"
    );
    assert_eq!(end["end"], true);
    assert_eq!(end["entries"], entries.len());
    let left_out: Vec<_> =
        end["left_out"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let expected = [
        r#""linked" is a symbolic link to a folder"#,
        r#""out" is a symbolic link whose target is not shared"#,
        r#""socket" is a socket"#,
        r#""sub/up" is a symbolic link to a folder"#,
    ];
    assert_eq!((left_out, &end["hidden"]), (expected.to_vec(), &1.into()));
    for entry in entries.iter().filter(|entry| entry["kind"] == "file") {
        assert_eq!(shared.get(&format!("/{}", entry["href"].as_str().unwrap()), "").status, 200);
    }
    assert_eq!(lines(&shared.get("/sub/?format=jsonl", "")).len(), 4, "deep, up, x and the end");
    assert_eq!(lines(&shared.get("/sub/?format=jsonl&recursive=1", ""))[1]["name"], "deep/y");
    // HTTP/1.0 clients get the lines without chunks.
    let mut client = shared.connect();
    client.send("GET /?format=jsonl HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut client.tcp, &mut text).unwrap();
    assert!(
        text.contains("Connection: close\r\n") && text.ends_with("is a socket\"]}\n"),
        "{text}"
    );
}

#[test]
fn many_entries_are_all_listed() {
    let shared = Shared::new();
    std::fs::create_dir(shared.path().join("many")).unwrap();
    let expected: BTreeMap<_, _> =
        (0..6000).map(|number| (format!("file-{number}"), number)).collect();
    for name in expected.keys() {
        shared.write(&format!("many/{name}"), b"");
    }
    let answer = shared.get("/?format=jsonl&recursive=1", "");
    let lines = answer.text().lines().filter(|line| line.contains("file-")).count();
    assert_eq!((answer.cut, lines), (false, 6000));
    let page = shared.get("/many/", "");
    assert_eq!(page.text().matches("<tr><td").count(), 5000);
    assert!(page.text().contains("?format=jsonl"), "the page links to the full list");
}

#[test]
fn people_get_a_page_that_is_only_text() {
    let shared = tree();
    shared.write("\"><script>alert(1)", b"");
    let answer = shared.get("/", "Accept: text/html,*/*\r\n");
    assert_eq!(answer.field("Content-Type"), Some("text/html; charset=utf-8"));
    let policy = answer.field("Content-Security-Policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
    let page = answer.text();
    assert_eq!(page.matches("<script").count(), 1, "our own");
    assert!(
        page.contains("b &amp; &lt;i&gt;.txt") && page.contains("href=\"./b%20%26%20%3Ci%3E.txt\"")
    );
    assert!(page.contains("sprat cp 'sprat://here/%C3%A4' .</code>"), "{page}");
    assert!(page.contains("sprat cp -r 'sprat://here/sub/' .</code>"));
    assert!(
        page.contains("<a href=\"./%C3%A4?download=sprat\">"),
        "a link that the browser's extension takes over"
    );
    let saved = shared.get("/%C3%A4?download=sprat", "");
    assert!(
        saved.field("Content-Disposition").is_some_and(|how| how.starts_with("attachment")),
        "a browser without the extension saves the file"
    );
    assert!(page.find(">sub/<").unwrap() < page.find(">b &amp;").unwrap(), "directories first");
    let order = |query: &str| {
        let page = shared.get(&format!("/{query}"), "");
        let (five, none) =
            (page.text().find("&lt;i&gt;").unwrap(), page.text().find(">ä<").unwrap());
        five < none
    };
    assert!(!order("?sort=size") && order("?sort=size&order=desc") && order("?sort=name"));
    shared.write("page.html", b"<script>alert(1)</script>");
    assert_eq!(
        shared.get("/page.html", "").field("Content-Security-Policy"),
        Some("sandbox allow-scripts")
    );
    for part in ["/.sprat/live.js", "/.sprat/style.css"] {
        assert_eq!(shared.get(part, "").status, 200);
        assert!(page.contains(part));
    }
    assert_eq!(shared.get("/.sprat/", "").status, 404);
    assert_eq!(shared.get("/.sprat/none", "").status, 404);
}

#[test]
fn a_directory_has_a_slash() {
    let shared = tree();
    let answer = shared.get("/sub?format=json", "");
    assert_eq!((answer.status, answer.field("Location")), (301, Some("/sub/?format=json")));
    assert_eq!(shared.get("/%C3%A4/", "").status, 404, "the path of a file has no slash");
    assert_eq!(shared.get("/?format=xml", "").status, 400);
}

#[test]
fn what_is_sent_can_be_watched() {
    let shared = Shared::new();
    shared.write("small", &content(10));
    std::fs::File::create(shared.path().join("large")).unwrap().set_len(4 << 30).unwrap();
    assert_eq!(shared.get("/small", "").status, 200);
    let mut client = shared.connect();
    client.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    client.tcp.peek(&mut [0]).unwrap();
    let seen = loop {
        let answer = shared.get("/.sprat/transfers", "");
        assert_eq!(answer.field("Cache-Control"), Some("no-store"));
        let seen: Value = serde_json::from_slice(&answer.body).unwrap();
        let moving = seen["live"][0]["sent"].as_u64().is_some_and(|sent| sent > 0);
        if moving && seen["past"][0].is_object() {
            break seen;
        }
    };
    assert_eq!(
        (&seen["live"][0]["path"], &seen["live"][0]["total"]),
        (&"/large".into(), &(4u64 << 30).into())
    );
    assert!(!seen["live"][0]["history"].as_array().unwrap().is_empty());
    assert_eq!(
        (&seen["past"][0]["path"], &seen["past"][0]["ended"]),
        (&"/small".into(), &"done".into())
    );
    drop(client);
    let ended = || shared.share.transfers().snapshot().1.iter().any(|past| past.path == "/large");
    while !ended() {
        super::support::wait(10);
    }
    let (live, past) = shared.share.transfers().snapshot();
    assert!(
        live.is_empty() && past[0].ended.as_deref().is_some_and(|how| how.contains("connection"))
    );
}
