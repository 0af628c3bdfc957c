//! Makes names from web servers safe as local file names.

/// Limit on the length of a name, in bytes. Common filesystems accept a name of this length
/// together with the ending of a part or of a journal. A longer name is shortened.
pub const MAX_NAME: usize = 200;

/// Limit on the length in bytes of an ending, with its dot, that is kept when a name is shortened
/// or numbered. A longer ending counts as part of the stem. A `.tar` before the ending is kept in
/// addition.
const MAX_ENDING: usize = 16;

/// Endings with a special meaning: those of our parts and journals, and of files that a desktop
/// executes.
const RESERVED_ENDINGS: [&str; 3] = [".sprat-part", ".sprat-journal", ".desktop"];

/// The ending appended to a name with a reserved ending.
const SAFE_ENDING: &str = ".download";

/// The name used instead of an empty name.
const DEFAULT_NAME: &str = "download";

/// Makes a name a single visible path component, without characters that disguise it. Leaves a safe
/// name unchanged.
#[must_use]
pub fn safe(name: &str) -> String {
    let marked: String =
        name.chars().map(|char| if is_unprintable(char) { '_' } else { char }).collect();
    let trimmed = trim(&marked);
    let mut safe = match trimmed.len() {
        0 => DEFAULT_NAME.to_owned(),
        1..=MAX_NAME => trimmed.to_owned(),
        _ => trim(&cut(trimmed, MAX_NAME - SAFE_ENDING.len())).to_owned(),
    };
    let lower = safe.to_ascii_lowercase();
    if RESERVED_ENDINGS.iter().any(|ending| lower.ends_with(ending)) {
        safe = cut(&safe, MAX_NAME - SAFE_ENDING.len()) + SAFE_ENDING;
    }
    safe
}

/// Inserts a number before the ending, because the name itself is taken. A safe name stays safe.
#[must_use]
pub fn numbered(name: &str, number: u32) -> String {
    let (stem, ending) = split(name);
    let behind = format!(" ({number}){ending}");
    let stem = floor(stem, MAX_NAME - behind.len());
    format!("{stem}{behind}")
}

/// Returns whether a character has a meaning in paths or affects a terminal.
fn is_unprintable(char: char) -> bool {
    sprat_flow::is_unprintable(char) || matches!(char, '/' | '\\')
}

/// Removes leading dots, which hide a file, trailing dots, which other systems drop, and white
/// space at both ends.
fn trim(name: &str) -> &str {
    name.trim_start_matches(|char: char| char == '.' || char.is_whitespace())
        .trim_end_matches(|char: char| char == '.' || char.is_whitespace())
}

/// Shortens a name to at most `most` bytes, keeping its ending.
fn cut(name: &str, most: usize) -> String {
    if name.len() <= most {
        return name.to_owned();
    }
    let (stem, ending) = split(name);
    format!("{}{ending}", floor(stem, most - ending.len()))
}

/// Splits a name into its stem and its ending, such as `.gz` or `.tar.gz`. The ending may be empty.
fn split(name: &str) -> (&str, &str) {
    let at = name.rfind('.').filter(|at| *at > 0 && name.len() - at <= MAX_ENDING);
    let Some(at) = at else { return (name, "") };
    let at = name[..at].strip_suffix(".tar").map_or(at, str::len);
    if at == 0 { (name, "") } else { name.split_at(at) }
}

/// Returns the longest prefix of at most `most` bytes that is valid UTF-8.
fn floor(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most.min(text.len()))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn safe_names_stay_and_unsafe_ones_change() {
        for (name, expected) in [
            ("big.iso", "big.iso"),
            ("ä b (1).tar.gz", "ä b (1).tar.gz"),
            ("../../etc/passwd", "_.._etc_passwd"),
            ("..\\x", "_x"),
            (".bashrc", "bashrc"),
            ("  . ", "download"),
            ("", "download"),
            ("photo\u{202e}gpj.exe", "photo_gpj.exe"),
            ("a\nb\0c", "a_b_c"),
            ("start.Desktop", "start.Desktop.download"),
            ("x.sprat-part", "x.sprat-part.download"),
            ("file. ", "file"),
        ] {
            assert_eq!(safe(name), expected);
        }
        assert!(safe(&format!("{}.iso", "ä".repeat(200))).ends_with("ä.iso"));
    }

    #[test]
    fn numbers_stand_before_the_ending() {
        for (name, expected) in [
            ("a.iso", "a (2).iso"),
            ("a.tar.gz", "a (2).tar.gz"),
            ("a", "a (2)"),
            ("v1.a long ending", "v1 (2).a long ending"),
        ] {
            assert_eq!(numbered(name, 2), expected);
        }
    }

    proptest! {
        #[test]
        fn any_name_becomes_one_that_is_safe(name in ".{0,300}", number in 1..1000u32) {
            for name in [safe(&name), numbered(&safe(&name), number)] {
                prop_assert!(!name.is_empty() && name.len() <= MAX_NAME, "{} B", name.len());
                prop_assert!(!name.starts_with('.') && !name.contains(['/', '\\', '\0']));
                prop_assert!(!name.ends_with(".sprat-part") && !name.ends_with(".sprat-journal"));
                prop_assert_eq!(safe(&name), name);
            }
        }

        #[test]
        fn so_does_one_of_awkward_parts(parts in prop::collection::vec(
            prop::sample::select(vec![
                ".", " ", "/", "a", "ä", ".desktop", ".sprat-part", ".tar.gz", "\u{202e}",
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            ]), 0..20),
            number in 1..1000u32) {
            let name = safe(&parts.concat());
            let other = numbered(&name, number);
            prop_assert_eq!(safe(&name), name);
            prop_assert_eq!(safe(&other), other);
        }
    }
}
