//! Lua's patterns.
//!
//! Lua's own functions for them may take years for a short text, and nothing can end them: `a?`
//! twenty-five times, and then `a` as often, is tried in every possible way. These do the same, and
//! look at the time.

use crate::functions::{Function, Given, Refusal, Returned};
use mlua::Value;

/// Limit on the captures of a pattern, as in Lua.
const MAX_CAPTURES: usize = 32;

/// Limit on the parts of a pattern that are tried within one another, as in later versions of Lua.
const MAX_DEPTH: usize = 200;

/// Steps after which the time is looked at.
const STEPS: u32 = 1 << 14;

/// Characters that mean something in a pattern.
const SPECIALS: &[u8] = b"^$*+?.([%-";

/// Why there is no result.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// The pattern is wrong.
    Pattern(&'static str),
    /// The script has ended.
    Ended,
}

/// A part of the text that a pattern captures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Capture {
    /// It begins here; its end is not found yet.
    Open(usize),
    /// A part of the text.
    Part(usize, usize),
    /// A position.
    Position(usize),
}

/// A match: where it begins and ends, and its captures.
#[derive(Debug, Eq, PartialEq)]
struct Match {
    begin: usize,
    end: usize,
    captures: Vec<Capture>,
}

/// A text and a pattern without the `^` in front.
struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Capture>,
    depth: usize,
    steps: u32,
    is_over: &'a dyn Fn() -> bool,
}

impl<'a> Matcher<'a> {
    fn new(text: &'a [u8], pattern: &'a [u8], is_over: &'a dyn Fn() -> bool) -> Self {
        // As in Lua 5.1, a pattern ends at a zero byte.
        let pattern = pattern.split(|byte| *byte == 0).next().unwrap_or_default();
        Self { text, pattern, captures: Vec::new(), depth: 0, steps: 0, is_over }
    }

    /// Finds the first match that begins at `from` or, unless `anchored`, behind it.
    fn search(&mut self, from: usize, anchored: bool) -> Result<Option<Match>, Fault> {
        for begin in from..=self.text.len() {
            self.captures.clear();
            if let Some(end) = self.matches(begin, 0)? {
                let captures = std::mem::take(&mut self.captures);
                return Ok(Some(Match { begin, end, captures }));
            }
            if anchored {
                break;
            }
        }
        Ok(None)
    }

    fn step(&mut self) -> Result<(), Fault> {
        self.steps += 1;
        match self.steps.is_multiple_of(STEPS) && (self.is_over)() {
            true => Err(Fault::Ended),
            false => Ok(()),
        }
    }

    /// Returns where the text ends that matches the pattern from `p` on and begins at `s`.
    fn matches(&mut self, s: usize, p: usize) -> Result<Option<usize>, Fault> {
        if self.depth == MAX_DEPTH {
            return Err(Fault::Pattern("pattern too complex"));
        }
        self.depth += 1;
        let found = self.match_parts(s, p);
        self.depth -= 1;
        found
    }

    fn match_parts(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>, Fault> {
        loop {
            self.step()?;
            let Some(&byte) = self.pattern.get(p) else { return Ok(Some(s)) };
            let next = self.pattern.get(p + 1).copied();
            match (byte, next) {
                (b'(', Some(b')')) => return self.capture(s, p + 2, Capture::Position(s)),
                (b'(', _) => return self.capture(s, p + 1, Capture::Open(s)),
                (b')', _) => return self.end_capture(s, p + 1),
                (b'%', Some(b'b')) => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => {
                    let set = p + 2;
                    if self.pattern.get(set) != Some(&b'[') {
                        return Err(Fault::Pattern("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(set)?;
                    let before = if s == 0 { 0 } else { self.text[s - 1] };
                    let here = self.text.get(s).copied().unwrap_or(0);
                    if self.is_in_set(before, set, end) || !self.is_in_set(here, set, end) {
                        return Ok(None);
                    }
                    p = end;
                }
                (b'%', Some(digit @ b'0'..=b'9')) => {
                    let part = usize::from(digit).checked_sub(usize::from(b'1'));
                    let part = part.and_then(|at| self.captures.get(at));
                    let Some(part) = part.filter(|part| !matches!(part, Capture::Open(_))) else {
                        return Err(Fault::Pattern("invalid capture index"));
                    };
                    let &Capture::Part(begin, end) = part else { return Ok(None) };
                    if !self.text[s..].starts_with(&self.text[begin..end]) {
                        return Ok(None);
                    }
                    (s, p) = (s + end - begin, p + 2);
                }
                (b'$', None) => return Ok((s == self.text.len()).then_some(s)),
                _ => {
                    let end = self.class_end(p)?;
                    let is_one = self.is_one(s, p, end);
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if is_one && let Some(found) = self.matches(s + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        Some(b'*') => return self.most(s, p, end),
                        Some(b'+') if is_one => return self.most(s + 1, p, end),
                        Some(b'+') => return Ok(None),
                        Some(b'-') => return self.least(s, p, end),
                        _ if is_one => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn capture(&mut self, s: usize, p: usize, capture: Capture) -> Result<Option<usize>, Fault> {
        if self.captures.len() >= MAX_CAPTURES {
            return Err(Fault::Pattern("too many captures"));
        }
        let level = self.captures.len();
        self.captures.push(capture);
        let found = self.matches(s, p)?;
        if found.is_none() {
            self.captures.truncate(level);
        }
        Ok(found)
    }

    fn end_capture(&mut self, s: usize, p: usize) -> Result<Option<usize>, Fault> {
        let open = self.captures.iter().rposition(|it| matches!(it, Capture::Open(_)));
        let open = open.ok_or(Fault::Pattern("invalid pattern capture"))?;
        let before = self.captures[open];
        let Capture::Open(begin) = before else { unreachable!("it is open") };
        self.captures[open] = Capture::Part(begin, s);
        let found = self.matches(s, p)?;
        if found.is_none() {
            self.captures[open] = before;
        }
        Ok(found)
    }

    /// Returns the end of what begins with the character at `p`, and ends with the one behind it
    /// that belongs to it.
    fn balanced(&mut self, s: usize, p: usize) -> Result<Option<usize>, Fault> {
        let Some(&[open, close]) = self.pattern.get(p..p + 2) else {
            return Err(Fault::Pattern("unbalanced pattern"));
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for at in s + 1..self.text.len() {
            self.step()?;
            if self.text[at] == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if self.text[at] == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// Matches as many characters of the class from `p` to `end` as possible, and then the rest.
    fn most(&mut self, s: usize, p: usize, end: usize) -> Result<Option<usize>, Fault> {
        let mut last = s;
        while self.is_one(last, p, end) {
            self.step()?;
            last += 1;
        }
        for at in (s..=last).rev() {
            if let Some(found) = self.matches(at, end + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Matches as few characters of the class from `p` to `end` as possible, and then the rest.
    fn least(&mut self, mut s: usize, p: usize, end: usize) -> Result<Option<usize>, Fault> {
        loop {
            if let Some(found) = self.matches(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_one(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    /// Returns the end of the class of characters that begins at `p`.
    fn class_end(&self, p: usize) -> Result<usize, Fault> {
        let at = |p: usize| self.pattern.get(p).copied();
        match at(p) {
            Some(b'%') => match at(p + 1) {
                Some(_) => Ok(p + 2),
                None => Err(Fault::Pattern("malformed pattern (ends with '%')")),
            },
            Some(b'[') => {
                let mut end = p + 1 + usize::from(at(p + 1) == Some(b'^'));
                loop {
                    // The first character is one of the set, also if it is `]`.
                    let Some(byte) = at(end) else {
                        return Err(Fault::Pattern("malformed pattern (missing ']')"));
                    };
                    end += 1 + usize::from(byte == b'%' && at(end + 1).is_some());
                    if at(end) == Some(b']') {
                        return Ok(end + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Returns whether the character at `s` is in the class from `p` to `end`.
    fn is_one(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            b'%' => is_in_class(byte, self.pattern[p + 1]),
            b'[' => self.is_in_set(byte, p, end),
            other => other == byte,
        }
    }

    /// Returns whether a character is in the set from `p` to `end`, with its brackets.
    fn is_in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let set = &self.pattern[p + 1..end - 1];
        let (is_member, mut set) = match set.strip_prefix(b"^") {
            Some(rest) => (false, rest),
            None => (true, set),
        };
        while let Some((&first, rest)) = set.split_first() {
            let (is_here, rest) = match (first, rest) {
                (b'%', [class, rest @ ..]) => (is_in_class(byte, *class), rest),
                (low, [b'-', high, rest @ ..]) => ((low..=*high).contains(&byte), rest),
                (one, rest) => (one == byte, rest),
            };
            if is_here {
                return is_member;
            }
            set = rest;
        }
        !is_member
    }
}

/// Returns whether a character is in a class such as `%a`.
fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

/// Splits the `^` off a pattern that begins with it.
fn anchored(pattern: &[u8]) -> (bool, &[u8]) {
    match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    }
}

pub(crate) const FUNCTIONS: &[Function] =
    &[("find", |given| find(given, true)), ("match", |given| find(given, false))];

/// What the sandbox makes `string.gmatch` and `string.gsub` of.
pub(crate) const STEPS_OF: &[Function] =
    &[("gmatch", next_match), ("gsub", search), ("substitute", substitute)];

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Pattern(text) => text.into(),
            Fault::Ended => Self::Ended,
        }
    }
}

/// Returns the offset at which a search begins, of a position that counts from the end if negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is within the text"
)]
fn offset(position: f64, len: usize) -> usize {
    let from_begin = if position < 0.0 { position + len as f64 } else { position - 1.0 };
    from_begin.clamp(0.0, len as f64) as usize
}

/// Returns a number for Lua.
fn index(at: usize) -> Value {
    Value::Number(at as f64)
}

/// Returns a capture of a match. The first one of a pattern without any is the whole match.
fn capture(given: &Given<'_>, text: &[u8], found: &Match, at: usize) -> Result<Value, Refusal> {
    let (begin, end) = match found.captures.get(at) {
        Some(Capture::Open(_)) => return Err("unfinished capture".into()),
        Some(Capture::Position(position)) => return Ok(index(position + 1)),
        Some(Capture::Part(begin, end)) => (*begin, *end),
        None if at == 0 => (found.begin, found.end),
        None => return Err("invalid capture index".into()),
    };
    given.text(&text[begin..end])
}

/// Returns all captures of a match; or the whole match.
fn captured(given: &Given<'_>, text: &[u8], found: &Match) -> Returned {
    (0..found.captures.len().max(1)).map(|at| capture(given, text, found, at)).collect()
}

/// `string.find` and `string.match`.
fn find(given: &Given<'_>, is_find: bool) -> Returned {
    let (subject, pattern) = (&*given.bytes(0)?, &*given.bytes(1)?);
    let from = offset(given.optional_number(2)?.unwrap_or(1.0), subject.len());
    let is_plain = !matches!(given.value(3), Value::Nil | Value::Boolean(false));
    if is_find && (is_plain || !pattern.iter().any(|byte| SPECIALS.contains(byte))) {
        let found = memchr::memmem::find(&subject[from..], pattern).map(|at| from + at);
        return Ok(match found {
            Some(at) => vec![index(at + 1), index(at + pattern.len())],
            None => vec![Value::Nil],
        });
    }
    let (is_anchored, pattern) = anchored(pattern);
    let is_over = || given.clock.is_over();
    let mut matcher = Matcher::new(subject, pattern, &is_over);
    let Some(found) = matcher.search(from, is_anchored)? else { return Ok(vec![Value::Nil]) };
    let mut values = Vec::new();
    if is_find {
        values.extend([index(found.begin + 1), index(found.end)]);
    }
    if !is_find || !found.captures.is_empty() {
        values.extend(captured(given, subject, &found)?);
    }
    Ok(values)
}

/// Returns the third argument, an offset that was returned before.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is an offset in the text, or behind it"
)]
fn given_offset(given: &Given<'_>) -> Result<usize, Refusal> {
    Ok(given.number(2)?.max(0.0) as usize)
}

/// Returns where the next step begins: behind an empty match, one character later.
fn after(found: &Match) -> usize {
    found.end + usize::from(found.end == found.begin)
}

/// A step of `string.gmatch`: returns where the next one begins, and the captures.
fn next_match(given: &Given<'_>) -> Returned {
    let (subject, pattern) = (&*given.bytes(0)?, &*given.bytes(1)?);
    let is_over = || given.clock.is_over();
    let found = Matcher::new(subject, pattern, &is_over).search(given_offset(given)?, false)?;
    let Some(found) = found else { return Ok(vec![Value::Nil]) };
    Ok([index(after(&found))].into_iter().chain(captured(given, subject, &found)?).collect())
}

/// A step of `string.gsub`: returns the first and the last position of the match, where the next
/// step begins, and the captures; only the first one if the fourth argument says so.
fn search(given: &Given<'_>) -> Returned {
    let (subject, pattern) = (&*given.bytes(0)?, &*given.bytes(1)?);
    let (is_anchored, pattern) = anchored(pattern);
    let is_over = || given.clock.is_over();
    let mut matcher = Matcher::new(subject, pattern, &is_over);
    let found = matcher.search(given_offset(given)?, is_anchored)?;
    let Some(mut found) = found else { return Ok(vec![Value::Nil]) };
    if given.value(3) == Value::Boolean(true) {
        found.captures.truncate(1);
    }
    let places = [found.begin + 1, found.end, after(&found)].map(index);
    Ok(places.into_iter().chain(captured(given, subject, &found)?).collect())
}

/// `string.gsub` with a string in place of the matches: returns the text and their number.
fn substitute(given: &Given<'_>) -> Returned {
    let (subject, pattern) = (&*given.bytes(0)?, &*given.bytes(1)?);
    let by = &*given.bytes(2)?;
    let limit = given.optional_number(3)?.unwrap_or(f64::INFINITY);
    let (is_anchored, pattern) = anchored(pattern);
    let is_over = || given.clock.is_over();
    let mut matcher = Matcher::new(subject, pattern, &is_over);
    let (mut result, mut from, mut count) = (Vec::new(), 0, 0);
    while (count as f64) < limit && from <= subject.len() {
        let Some(found) = matcher.search(from, is_anchored)? else { break };
        result.extend_from_slice(&subject[from..found.begin]);
        expand(given, by, subject, &found, &mut result)?;
        if result.len() > crate::MAX_MEMORY {
            return Err("not enough memory".into());
        }
        count += 1;
        if found.end == found.begin {
            result.extend(subject.get(found.end));
        }
        from = after(&found);
        if is_anchored {
            break;
        }
    }
    result.extend_from_slice(subject.get(from..).unwrap_or_default());
    Ok(vec![given.text(result)?, index(count)])
}

/// Appends what stands for a match: `%1` is its first capture, `%0` the whole of it.
fn expand(
    given: &Given<'_>,
    by: &[u8],
    subject: &[u8],
    found: &Match,
    result: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let mut rest = by.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            result.push(byte);
            continue;
        }
        match rest.next() {
            None => result.push(0),
            Some(b'0') => result.extend_from_slice(&subject[found.begin..found.end]),
            Some(digit @ b'1'..=b'9') => {
                let value = capture(given, subject, found, usize::from(digit - b'1'))?;
                let text = given.lua.coerce_string(value)?.expect("a string or a number");
                result.extend_from_slice(&text.as_bytes());
            }
            Some(other) => result.push(*other),
        }
    }
    Ok(())
}
