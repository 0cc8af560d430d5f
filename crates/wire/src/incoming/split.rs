//! A request's top-level members and the items of its history, as slices, in one pass.
//!
//! Nothing inside a value is read: texts are passed over at the speed of a search for their end, and brackets are
//! only counted. So a split proves nothing about the values, and a caller must know each value to be JSON: because it
//! was read, or because the very same bytes were read before. If every slice is JSON, the whole is.

use std::borrow::Cow;

use memchr::memchr;

use super::prefix_memo::MatchedPrefix;
use crate::{error::MAX_DEPTH, json::Json};

/// A slice of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestSlice<'a> {
    /// Its start in the body.
    pub(super) start: usize,
    /// Its bytes, without surrounding whitespace.
    pub(super) raw: &'a str,
}

/// A member of a request.
#[derive(Clone, Debug)]
pub(super) struct RequestMember<'a> {
    /// Its name.
    pub(super) key: Cow<'a, str>,
    /// Its value.
    pub(super) value: RequestSlice<'a>,
    /// Its value by elements, if it has the history's name and is a list.
    pub(super) list: Option<SlicedList<'a>>,
}

/// A list by its elements.
#[derive(Clone, Debug)]
pub(super) struct SlicedList<'a> {
    pub(super) elements: Vec<RequestSlice<'a>>,
    /// Its known beginning.
    pub(super) begun: Option<MatchedPrefix>,
}

/// Splits the object `body` into its members; `None` if it cannot be one, or is nested too deep. `begins` looks up
/// the known beginning of the list at the start of a text.
pub(super) fn members<'a>(
    body: &'a str,
    history: &str,
    begins: impl Fn(&str) -> Option<MatchedPrefix>,
) -> Option<Vec<RequestMember<'a>>> {
    let mut walk = JsonScanner { text: body, at: 0 };
    let mut members = Vec::new();
    walk.space();
    walk.take(b'{')?;
    while walk.goes_on(b'}', members.is_empty())? {
        let key = walk.key()?;
        walk.space();
        walk.take(b':')?;
        walk.space();
        let start = walk.at;
        let list = if key == history && walk.peek() == Some(b'[') {
            let begun = begins(body.get(start..)?);
            Some(SlicedList { elements: walk.elements(begun.as_ref())?, begun })
        } else {
            walk.value(1)?;
            None
        };
        members.push(RequestMember { key, value: walk.since(start)?, list });
    }
    walk.space();
    (walk.at == body.len()).then_some(members)
}

/// Splits a list into its elements; `None` if it is not one.
pub(super) fn elements(list: &str) -> Option<Vec<RequestSlice<'_>>> {
    let mut walk = JsonScanner { text: list, at: 0 };
    walk.elements(None)
}

/// A scanner over text that need not be valid JSON.
struct JsonScanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsonScanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn since(&self, start: usize) -> Option<RequestSlice<'a>> {
        Some(RequestSlice { start, raw: self.text.get(start..self.at)? })
    }

    /// Returns true if another element follows. Steps over the comma before it, or over the bracket after the last.
    fn goes_on(&mut self, bracket: u8, first: bool) -> Option<bool> {
        self.space();
        match self.peek()? {
            byte if byte == bracket => {
                self.at += 1;
                Some(false)
            }
            _ if first => Some(true),
            _ => {
                self.take(b',')?;
                self.space();
                // A bracket after a comma is not an element.
                (self.peek()? != bracket).then_some(true)
            }
        }
    }

    /// The elements of the list that begins here. The same bytes are split into the same elements.
    fn elements(&mut self, begun: Option<&MatchedPrefix>) -> Option<Vec<RequestSlice<'a>>> {
        let bracket = self.at;
        self.take(b'[')?;
        let known = begun.map_or(&[][..], |begun| begun.beginning.places());
        let mut elements = Vec::with_capacity(known.len() + 16);
        for place in known {
            self.at = bracket + place.end;
            elements.push(self.since(bracket + place.start)?);
        }
        while self.goes_on(b']', elements.is_empty())? {
            let start = self.at;
            self.value(2)?;
            elements.push(self.since(start)?);
        }
        Some(elements)
    }

    fn key(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at;
        self.string()?;
        let literal = self.since(start)?.raw;
        let plain = |byte: u8| byte >= b' ' && byte != b'\\';
        if literal.bytes().all(plain) {
            return literal.get(1..literal.len() - 1).map(Cow::Borrowed);
        }
        let key = Json::parse(literal, "a member's name").ok()?;
        key.as_text().map(|key| Cow::Owned(key.to_owned()))
    }

    /// Steps over the value that begins here, `depth` deep in the request.
    fn value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'"' => self.string(),
            b'[' | b'{' => self.nested(depth),
            _ => self.scalar(),
        }
    }

    fn scalar(&mut self) -> Option<()> {
        let start = self.at;
        while !matches!(self.peek(), None | Some(b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn nested(&mut self, outer: usize) -> Option<()> {
        let mut depth = outer;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' | b'{' => {
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return None;
                    }
                }
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == outer {
                return Some(());
            }
        }
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            let found = memchr(b'"', rest)?;
            // Searching only for quotes is quicker, since most escapes are of other characters. A quote is escaped if
            // the number of backslashes right before it is odd; those before an earlier quote were counted with it.
            let before = rest.get(..found).unwrap_or_default();
            let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
            self.at += found + 1;
            if backslashes % 2 == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    /// Returns true if every slice is JSON.
    fn holds(body: &str) -> bool {
        let is_json = |slice: &RequestSlice<'_>| serde_json::from_str::<&RawValue>(slice.raw).is_ok();
        members(body, "messages", |_| None).is_some_and(|members| {
            members.iter().all(|member| match &member.list {
                Some(list) => list.elements.iter().all(is_json),
                None => is_json(&member.value),
            })
        })
    }

    #[test]
    fn a_body_is_split_where_json_says() {
        let check = |body: &str, expect: &str| {
            let shown = members(body, "messages", |_| None).map(|members| {
                let show = |member: &RequestMember<'_>| match &member.list {
                    Some(list) => {
                        let raws: Vec<&str> = list.elements.iter().map(|element| element.raw).collect();
                        format!("{}={}", member.key, raws.join("|"))
                    }
                    None => format!("{}={}", member.key, member.value.raw),
                };
                members.iter().map(show).collect::<Vec<_>>().join(" ")
            });
            assert_eq!(shown.as_deref().unwrap_or("none"), expect, "{body}");
        };
        check(r#" { "a" : 1 , "messages" : [ {"x":"]\""} , "s",2] }"#, r#"a=1 messages={"x":"]\""}|"s"|2"#);
        check(r#"{"\u0061":[1,[2]],"messages":"text"}"#, r#"a=[1,[2]] messages="text""#);
        check("{}", "");
        check(r#"{"messages":[]}"#, "messages=");
        for broken in [
            "",
            "[]",
            "{",
            r#"{"a":1,}"#,
            r#"{"a":1}}"#,
            r#"{"a" 1}"#,
            r#"{"messages":[1,]}"#,
            r#"{"a":"#,
            "{\"a\n\":1}",
            r#"{"a":"\"#,
        ] {
            check(broken, "none");
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(members(&nested(MAX_DEPTH - 1), "messages", |_| None).is_some());
        assert!(members(&nested(MAX_DEPTH), "messages", |_| None).is_none());
        assert!(members(&nested(1_000_000), "messages", |_| None).is_none());
    }

    proptest! {
        #[test]
        fn if_every_slice_is_json_the_whole_is(
            body in r#"\{("(a|messages)":[\[\]{}":,0-9a-z\\ue+.\- ]{0,12},?){0,4}\}"#
        ) {
            let whole = serde_json::from_str::<&RawValue>(&body).is_ok();
            prop_assert_eq!(holds(&body), whole, "{}", body);
        }
    }
}
