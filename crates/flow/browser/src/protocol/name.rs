//! Names for files whose names come from somebody else.

/// Most bytes of a name: what every filesystem takes, with room for what is written beside the
/// file.
pub const MAX_NAME: usize = 200;

/// Most bytes behind a dot that are kept when a name is cut or numbered.
const MAX_ENDING: usize = 16;

/// Endings that would make the file something else than a file that was fetched: those of our own
/// parts and journals, and what a desktop starts.
const NOT_OURS_TO_GIVE: [&str; 3] = [".sprat-part", ".sprat-journal", ".desktop"];

/// What such a name gets, so that it is harmless.
const HARMLESS: &str = ".download";

/// What a name of nothing becomes.
const NAMELESS: &str = "download";

/// A name as a file here may have it: one part of a path, seen in listings, without marks that hide
/// what it is. A name that is so already stays what it is.
#[must_use]
pub fn safe(name: &str) -> String {
    let marked: String =
        name.chars().map(|char| if is_unprintable(char) { '_' } else { char }).collect();
    let trimmed = trim(&marked);
    let mut safe = match trimmed.len() {
        0 => NAMELESS.to_owned(),
        1..=MAX_NAME => trimmed.to_owned(),
        _ => trim(&cut(trimmed, MAX_NAME - HARMLESS.len())).to_owned(),
    };
    let lower = safe.to_ascii_lowercase();
    if NOT_OURS_TO_GIVE.iter().any(|ending| lower.ends_with(ending)) {
        safe = cut(&safe, MAX_NAME - HARMLESS.len()) + HARMLESS;
    }
    safe
}

/// The same name with a number, for when the first is taken; the ending stays. Of a safe name it
/// makes a safe name.
#[must_use]
pub fn numbered(name: &str, number: u32) -> String {
    let (stem, ending) = split(name);
    let behind = format!(" ({number}){ending}");
    let stem = floor(stem, MAX_NAME - behind.len());
    format!("{stem}{behind}")
}

/// Whether a character means something to a path or to a screen.
fn is_unprintable(char: char) -> bool {
    sprat_flow::is_unprintable(char) || matches!(char, '/' | '\\')
}

/// Without what hides a name, or what other systems drop from its end.
fn trim(name: &str) -> &str {
    name.trim_start_matches(|char: char| char == '.' || char.is_whitespace())
        .trim_end_matches(|char: char| char == '.' || char.is_whitespace())
}

/// A name of at most so many bytes, with its ending.
fn cut(name: &str, most: usize) -> String {
    if name.len() <= most {
        return name.to_owned();
    }
    let (stem, ending) = split(name);
    format!("{}{ending}", floor(stem, most - ending.len()))
}

/// A name as what is before its ending, and that: `.gz`, `.tar.gz`, or nothing.
fn split(name: &str) -> (&str, &str) {
    let at = name.rfind('.').filter(|at| *at > 0 && name.len() - at <= MAX_ENDING);
    let Some(at) = at else { return (name, "") };
    let at = name[..at].strip_suffix(".tar").map_or(at, str::len);
    if at == 0 { (name, "") } else { name.split_at(at) }
}

/// The longest beginning of at most so many bytes that is text.
fn floor(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most.min(text.len()))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_stay_what_they_are_unless_they_are_tricks() {
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
            prop::sample::select(vec![".", " ", "/", "a", "ä", ".desktop", ".sprat-part", ".tar.gz", "\u{202e}", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"]), 0..20),
            number in 1..1000u32) {
            let name = safe(&parts.concat());
            let other = numbered(&name, number);
            prop_assert_eq!(safe(&name), name);
            prop_assert_eq!(safe(&other), other);
        }
    }
}
