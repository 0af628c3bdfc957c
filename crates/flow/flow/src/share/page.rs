//! The page of a directory. It shows the entries, each with a plain link and the command for an
//! accelerated transfer, and the transfers in progress.

use super::listing::{Entry, Kind, Listing};
use super::ticket::{PARAMETER, TicketKey};
use percent_encoding::percent_decode_str;
use sprat_http::date::Moment;
use sprat_http::server::target::Target;
use sprat_units::{figure, html};
use std::fmt::Write as _;

/// Limit on the entries of a page, because browsers become slow with more entries. For a directory
/// with more entries, the page has the first entries and a link to the complete listing.
pub const MAX_ROWS: usize = 5_000;

/// Content security policy of pages. Only our own script may run, and it may contact only this
/// server, so that no text can become code.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src \
    'self'; base-uri 'none'; \
                          form-action 'none'; frame-ancestors 'none'";

/// Content security policy of files that can contain scripts. If a browser displays such a file,
/// the scripts run in an origin of their own.
pub const FILE_POLICY: &str = "sandbox allow-scripts";

/// Resources of the pages: each with its path below the reserved name, its content type, and its
/// content.
pub const PARTS: [(&str, &str, &str); 2] = [
    ("live.js", "text/javascript; charset=utf-8", include_str!("page/live.js")),
    ("style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
];

/// The order of entries. Directories always come first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Order {
    Name,
    Size,
    Time,
}

/// Renders the page of a directory. `host` is the name by which the client reaches the server. With
/// a ticket key, links to files contain tickets.
#[must_use]
pub fn page(
    listing: &Listing,
    target: &Target,
    host: &str,
    tls: bool,
    key: Option<TicketKey>,
) -> String {
    let order = match target.parameter("sort").as_deref() {
        Some("size") => Order::Size,
        Some("time") => Order::Time,
        _ => Order::Name,
    };
    let down = target.parameter("order").as_deref() == Some("desc");
    let mut entries: Vec<&Entry> = listing.entries.iter().collect();
    match order {
        Order::Name => {}
        Order::Size => entries.sort_by_key(|entry| entry.size),
        Order::Time => entries.sort_by_key(|entry| entry.seconds),
    }
    if down {
        entries.reverse();
    }
    entries.sort_by_key(|entry| entry.kind);
    let title = percent_decode_str(&listing.path).decode_utf8_lossy();
    let scheme = if tls { "sprats" } else { "sprat" };
    let mut page = String::new();
    let mut put = |text: std::fmt::Arguments<'_>| page.write_fmt(text).expect("a string takes all");
    put(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><link rel=\"stylesheet\" \
         href=\"/.sprat/style.css\">\
         <script src=\"/.sprat/live.js\" \
         defer></script></head>\n<body><h1>{}</h1>\n<table><thead><tr>",
        escape(&title),
        trail(&listing.path)
    ));
    for (title, word, one, kind) in [
        ("Name", "name", Order::Name, ""),
        ("Size", "size", Order::Size, " class=\"number\""),
        ("Modified", "time", Order::Time, ""),
    ] {
        let (other, mark) = match (one == order, down) {
            (true, false) => ("desc", " \u{2191}"),
            (true, true) => ("asc", " \u{2193}"),
            (false, _) => ("asc", ""),
        };
        put(format_args!(
            "<th{kind}><a href=\"?sort={word}&amp;order={other}\">{title}</a>{mark}</th>"
        ));
    }
    put(format_args!("<th>Accelerated</th></tr></thead>\n<tbody>\n"));
    for entry in entries.iter().take(MAX_ROWS) {
        let (slash, size) = match entry.kind {
            Kind::Directory => ("/", String::new()),
            Kind::File => ("", figure::file_size(entry.size)),
        };
        let path = format!("{}{}", listing.path, entry.href);
        let (link, recursive, query) = match entry.kind {
            Kind::Directory => (String::new(), "-r ", String::new()),
            Kind::File => {
                let file = key.and_then(|key| Some((key, Target::parse(&path).ok()?)));
                let ticket = file.map(|(key, file)| format!("{PARAMETER}={}", key.ticket(&file)));
                // Our browser extension intercepts this link; any other browser saves the file.
                let more = ticket.as_ref().map_or_else(String::new, |ticket| format!("&{ticket}"));
                let link = escape(&format!("./{}?download=sprat{more}", entry.href));
                let query = ticket.map_or_else(String::new, |ticket| format!("?{ticket}"));
                (format!("<a href=\"{link}\">fetch</a> "), "", query)
            }
        };
        let address = escape(&format!("{scheme}://{host}{path}{query}"));
        put(format_args!(
            "<tr><td class=\"name\"><a href=\"./{}\">{}{slash}</a></td><td \
             class=\"number\">{size}</td><td class=\"soft\">{}</td>\
             <td>{link}<code>sprat cp {recursive}'{address}' .</code></td></tr>\n",
            escape(&entry.href),
            escape(&entry.name),
            date(entry.seconds),
        ));
    }
    put(format_args!("</tbody></table>\n"));
    if entries.len() > MAX_ROWS || listing.truncated {
        put(format_args!(
            "<p class=\"soft\">The page shows the first {MAX_ROWS} entries. <a \
             href=\"?format=jsonl\">All entries, as one JSON object per line</a></p>\n"
        ));
    }
    put(format_args!(
        "<section id=\"transfers\" \
         hidden><h2>Transfers</h2><table><thead><tr><th>File</th><th>To</th><th \
         class=\"number\">Sent</th>\
         <th class=\"number\">Rate</th><th>Over \
         time</th><th>RTT</th></tr></thead><tbody></tbody></table></section>\n</body></html>\n"
    ));
    page
}

/// Renders a path as links to all directories above it.
fn trail(path: &str) -> String {
    let mut trail = "<a href=\"/\">/</a>".to_owned();
    let mut so_far = "/".to_owned();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        so_far = format!("{so_far}{name}/");
        let name = percent_decode_str(name).decode_utf8_lossy();
        write!(trail, "<a href=\"{}\">{}/</a>", escape(&so_far), escape(&name))
            .expect("a string takes all");
    }
    trail
}

/// Escapes a text for HTML and its attributes. Replaces control characters, and characters that
/// would change the direction of writing.
#[must_use]
pub fn escape(text: &str) -> String {
    let turns = |char| matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    html::escape(&text.replace(|char: char| turns(char) || char.is_control(), "\u{fffd}"))
}

/// Formats a date like `22 Nov 2026 08:00:00`.
fn date(seconds: i64) -> String {
    let text = Moment { seconds, nanoseconds: 0 }.http();
    text.get(5..25).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_without_its_weekday() {
        assert_eq!(date(1_700_000_000), "14 Nov 2023 22:13:20");
    }

    #[test]
    fn no_text_becomes_a_mark() {
        assert_eq!(
            escape("<a href='x\"&\n\u{202e}"),
            "&lt;a href=&#39;x&quot;&amp;\u{fffd}\u{fffd}"
        );
    }
}
