//! The browser extension's files, which are built into the program.

use anyhow::{Context as _, Result};
use std::io::{Cursor, Write as _};
use zip::write::{SimpleFileOptions, ZipWriter};

/// The extension's id in Firefox, as in its manifest.
pub(super) const GECKO_ID: &str = "browser@sprat";

/// The extension's id in Chromium, which derives it from the key in the manifest.
pub(super) const CHROMIUM_ID: &str = "nmfcekbbhphmppflmnbdkhmijiobiccl";

/// The extension's files: name and content.
pub(super) const FILES: [(&str, &[u8]); 11] = [
    ("manifest.json", include_bytes!("../../../../../../browser/extension/manifest.json")),
    ("background.js", include_bytes!("../../../../../../browser/extension/background.js")),
    ("host.js", include_bytes!("../../../../../../browser/extension/host.js")),
    ("list.js", include_bytes!("../../../../../../browser/extension/list.js")),
    ("words.js", include_bytes!("../../../../../../browser/extension/words.js")),
    ("popup.html", include_bytes!("../../../../../../browser/extension/popup.html")),
    ("popup.js", include_bytes!("../../../../../../browser/extension/popup.js")),
    ("popup.css", include_bytes!("../../../../../../browser/extension/popup.css")),
    ("icon.svg", include_bytes!("../../../../../../browser/extension/icon.svg")),
    ("icon-48.png", include_bytes!("../../../../../../browser/extension/icon-48.png")),
    ("icon-128.png", include_bytes!("../../../../../../browser/extension/icon-128.png")),
];

/// Packs the files into one archive, which Firefox installs. The archive is reproducible.
pub(super) fn packed() -> Result<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    for (name, content) in FILES {
        zip.start_file(name, options)
            .and_then(|()| Ok(zip.write_all(content)?))
            .context("cannot pack the extension")?;
    }
    Ok(zip.finish().context("cannot pack the extension")?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn manifest() -> Value {
        serde_json::from_slice(FILES[0].1).expect("JSON")
    }

    #[test]
    fn the_name_matches_the_manifest() {
        let manifest = manifest();
        assert_eq!(manifest["browser_specific_settings"]["gecko"]["id"], GECKO_ID);
        assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
        // Chromium's id is the first 16 bytes of the key's SHA-256, in hexadecimal with the digits
        // a to p.
        use base64::Engine as _;
        let key = manifest["key"].as_str().expect("a key");
        let key = base64::engine::general_purpose::STANDARD.decode(key).expect("base64");
        let digest = ring::digest::digest(&ring::digest::SHA256, &key);
        let digits = digest.as_ref()[..16].iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let id: String = digits.map(|digit| char::from(b'a' + digit)).collect();
        assert_eq!(id, CHROMIUM_ID);
    }

    #[test]
    fn it_may_do_no_more_than_the_page_about_it_says() {
        let page = include_str!("../../../../../../docs/browser.md");
        let manifest = manifest();
        let permissions = manifest["permissions"].as_array().expect("a list");
        for permission in permissions {
            let row = format!("| `{}` |", permission.as_str().expect("text"));
            assert!(page.contains(&row), "docs/browser.md does not say why: {row}");
        }
        for more in [
            "host_permissions",
            "optional_permissions",
            "optional_host_permissions",
            "content_scripts",
        ] {
            assert!(manifest[more].is_null(), "{more}: the extension sees no page");
        }
    }

    #[test]
    fn all_that_it_names_is_in_it() {
        let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        for (name, content) in
            FILES.iter().filter(|(name, _)| name.ends_with(".js") || name.ends_with(".html"))
        {
            let text = str::from_utf8(content).expect("text");
            for quoted in text.split('"').skip(1).step_by(2) {
                let file = quoted.trim_start_matches("./");
                let is_file = [".js", ".css", ".html"].iter().any(|ending| file.ends_with(ending))
                    && !file.contains(' ');
                assert!(!is_file || names.contains(&file), "{name} names {file}");
            }
        }
    }
}
