//! A request by its bytes: the parts around its history, and the byte range of each unit.

use std::{borrow::Cow, ops::Range};

use memchr::memmem;

use super::{IncomingRequest, api_keys, split};
use crate::{json::Json, request::RequestKeys};

/// Length above which a value is a piece of its own: system prompts and tools are the same in call after call.
const MIN_PIECE_BYTES: usize = 512;

/// A request by its bytes.
#[derive(Debug)]
pub struct RequestFrame<'a> {
    body: &'a str,
    /// Byte range of each unit.
    pub units: Vec<Range<usize>>,
    /// Bytes between any two items if they are always the same; a comma if not.
    pub between: &'a str,
    /// True if they are always the same.
    pub is_even: bool,
    /// Values that are split, or replaced by a form that may be recorded.
    values: Vec<FrameValue<'a>>,
}

#[derive(Debug)]
struct FrameValue<'a> {
    place: Range<usize>,
    /// The value without keys, if it contained any.
    blanked: Option<String>,
    raw: &'a str,
}

impl<'a> RequestFrame<'a> {
    /// The bytes before the history, in pieces.
    pub fn before(&self) -> Vec<Cow<'a, str>> {
        self.pieces(0..self.start())
    }

    /// The bytes after it, in pieces.
    pub fn after(&self) -> Vec<Cow<'a, str>> {
        self.pieces(self.end()..self.body.len())
    }

    /// The bytes before the history.
    pub fn head(&self) -> &'a str {
        &self.body[..self.start()]
    }

    /// The bytes after it.
    pub fn tail(&self) -> &'a str {
        &self.body[self.end()..]
    }

    /// Start of the first unit.
    pub fn start(&self) -> usize {
        self.units.first().map_or(self.body.len(), |unit| unit.start)
    }

    /// End of the last unit.
    pub fn end(&self) -> usize {
        self.units.last().map_or(self.body.len(), |unit| unit.end)
    }

    /// Returns true if its pieces and its units, with the separators, make up the whole request.
    pub fn is_whole(&self) -> bool {
        let follows = |pair: &[Range<usize>]| pair[0].end + self.between.len() == pair[1].start;
        self.is_even && self.units.windows(2).all(follows)
    }

    /// Returns true if it contains no keys, so that the recorded bytes are the ones sent.
    pub fn is_plain(&self) -> bool {
        self.values.iter().all(|value| value.blanked.is_none())
    }

    fn pieces(&self, within: Range<usize>) -> Vec<Cow<'a, str>> {
        let mut pieces = Vec::new();
        let mut from = within.start;
        for value in self.values.iter().filter(|value| within.start <= value.place.start) {
            if value.place.end > within.end {
                break;
            }
            pieces.push(Cow::Borrowed(&self.body[from..value.place.start]));
            match &value.blanked {
                Some(blanked) => pieces.push(Cow::Owned(blanked.clone())),
                None => pieces.extend(elements(value.raw)),
            }
            from = value.place.end;
        }
        pieces.push(Cow::Borrowed(&self.body[from..within.end]));
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

/// Splits a list into its elements, as far as these are long; anything else stays whole.
fn elements(raw: &str) -> Vec<Cow<'_, str>> {
    let Some(slices) = split::elements(raw) else { return vec![Cow::Borrowed(raw)] };
    let mut pieces = Vec::new();
    let mut from = 0;
    for slice in slices.iter().filter(|slice| slice.raw.len() > MIN_PIECE_BYTES) {
        let end = slice.start + slice.raw.len();
        pieces.push(Cow::Borrowed(&raw[from..slice.start]));
        pieces.push(Cow::Borrowed(&raw[slice.start..end]));
        from = end;
    }
    pieces.push(Cow::Borrowed(&raw[from..]));
    pieces
}

/// A frame with no units: the whole request stands before an empty history.
pub(super) fn unframed<'a>(seen: &IncomingRequest<'a>) -> RequestFrame<'a> {
    let names = RequestKeys::of(seen.format);
    let members = seen.members.iter().filter_map(|member| {
        let blanked = blanked(&member.key, member.value.raw, &names);
        (blanked.is_some() || member.value.raw.len() > MIN_PIECE_BYTES).then(|| value(member.value, blanked))
    });
    let mut values: Vec<FrameValue<'a>> = members.collect();
    values.sort_by_key(|value| value.place.start);
    RequestFrame { body: seen.body, units: Vec::new(), between: ",", is_even: true, values }
}

/// The frame of a request; `None` if its history is not a list, or has no unit that can be recognised.
pub(super) fn frame<'a>(seen: &IncomingRequest<'a>) -> Option<RequestFrame<'a>> {
    let names = RequestKeys::of(seen.format);
    let history = seen.members.iter().filter(|member| member.key == names.history);
    // Of repeated members the last counts, but no client writes them.
    let [member] = history.collect::<Vec<_>>()[..] else { return None };
    member.list.as_ref()?;
    let place = |at: usize| seen.items.get(at).map(|item| item.slice);
    let unit = |span: &Range<usize>| {
        let (first, last) = (place(span.start)?, place(span.end.checked_sub(1)?)?);
        Some(first.start..last.start + last.raw.len())
    };
    let units = seen.spans.iter().map(unit).collect::<Option<Vec<_>>>()?;
    if units.is_empty() {
        return None;
    }
    let first = seen.spans.first()?.start;
    let mut values: Vec<FrameValue<'a>> = seen
        .members
        .iter()
        .filter(|other| other.value.start != member.value.start && other.value.raw.len() > MIN_PIECE_BYTES)
        .map(|other| value(other.value, blanked(&other.key, other.value.raw, &names)))
        .collect();
    let short = seen.members.iter().filter(|other| other.value.raw.len() <= MIN_PIECE_BYTES);
    let keyed = |other: &split::RequestMember<'a>| {
        blanked(&other.key, other.value.raw, &names).map(|blanked| value(other.value, Some(blanked)))
    };
    values.extend(short.filter_map(keyed));
    let opening = seen.items.iter().take(first).filter(|item| item.slice.raw.len() > MIN_PIECE_BYTES);
    values.extend(opening.map(|item| value(item.slice, None)));
    values.sort_by_key(|value| value.place.start);
    let (between, is_even) = between(seen, first);
    Some(RequestFrame { body: seen.body, units, between, is_even, values })
}

fn value(slice: split::RequestSlice<'_>, blanked: Option<String>) -> FrameValue<'_> {
    FrameValue { place: slice.start..slice.start + slice.raw.len(), blanked, raw: slice.raw }
}

/// The bytes between any two items, and true if they are always the same.
fn between<'a>(seen: &IncomingRequest<'a>, first: usize) -> (&'a str, bool) {
    let mut gaps = seen.items.get(first..).unwrap_or_default().windows(2).map(|pair| {
        let end = pair[0].slice.start + pair[0].slice.raw.len();
        &seen.body[end..pair[1].slice.start]
    });
    let Some(between) = gaps.next() else { return (",", true) };
    if gaps.all(|gap| gap == between) { (between, true) } else { (",", false) }
}

/// A member's value without the keys in it, if there are any.
fn blanked(key: &str, raw: &str, names: &RequestKeys) -> Option<String> {
    let is_tools = key == names.tools;
    let may_hold = |name: &str| memmem::find(raw.as_bytes(), name.as_bytes()).is_some();
    if is_tools && (may_hold("\"authorization\"") || may_hold("\"headers\"")) {
        return api_keys::blanked_tools(&Json::parse(raw, "tools").ok()?);
    }
    if key == "mcp_servers" && may_hold("authorization_token") {
        return api_keys::blanked_servers(&Json::parse(raw, "servers").ok()?);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format::Format, incoming::MessageMemo};

    /// Before, units, after, between.
    type Pieces = (Vec<String>, Vec<String>, Vec<String>, String);

    fn pieces(format: Format, body: &str) -> Option<Pieces> {
        let memo = MessageMemo::default();
        let seen = IncomingRequest::read(format, body, &memo).unwrap();
        let frame = seen.frame()?;
        let owned = |pieces: Vec<Cow<'_, str>>| pieces.into_iter().map(Cow::into_owned).collect();
        let units = frame.units.iter().map(|unit| body[unit.clone()].to_owned()).collect();
        Some((owned(frame.before()), units, owned(frame.after()), frame.between.to_owned()))
    }

    #[test]
    fn a_frame_and_its_units_are_the_whole_request() {
        let long = "x".repeat(600);
        for body in [
            format!(
                r#"{{"model":"m","system":"{long}","messages":[{{"role":"user","content":"a"}}, {{"role":"assistant","content":"b"}}],"tools":[{{"name":"{long}"}},{{"name":"s"}}],"max_tokens":1}}"#
            ),
            r#" {"messages":[ {"role":"user","content":"a"} ] } "#.to_owned(),
        ] {
            let (before, units, after, between) = pieces(Format::Anthropic, &body).unwrap();
            let whole = before.concat() + &units.join(&between) + &after.concat();
            assert_eq!(whole, body);
        }
    }

    #[test]
    fn long_values_and_elements_are_pieces_of_their_own() {
        let long = "x".repeat(600);
        let system = format!(r#"{{"role":"system","content":"{long}"}}"#);
        let tool = format!(r#"{{"name":"{long}"}}"#);
        let body = format!(
            r#"{{"messages":[{system},{{"role":"user","content":"a"}}],"tools":[{{"name":"s"}},{tool}]}}"#
        );
        let (before, units, after, _) = pieces(Format::OpenaiChat, &body).unwrap();
        assert_eq!(before, [r#"{"messages":["#, &system, ","]);
        assert_eq!(units, [r#"{"role":"user","content":"a"}"#]);
        assert_eq!(after, [r#"],"tools":"#, r#"[{"name":"s"},"#, &tool, "]", "}"]);
    }

    #[test]
    fn keys_are_in_no_piece() {
        let check = |format: Format, body: &str| {
            let (before, _, after, _) = pieces(format, body).unwrap();
            let told = before.concat() + &after.concat();
            assert!(!told.contains("canary") && told.contains("[not recorded]"), "{told}");
        };
        check(
            Format::OpenaiResponses,
            r#"{"input":[{"role":"user","content":"a"}],"tools":[{"type":"mcp","authorization":"canary"}]}"#,
        );
        check(
            Format::Anthropic,
            r#"{"mcp_servers":[{"authorization_token":"canary"}],"messages":[{"role":"user","content":"a"}]}"#,
        );
    }

    #[test]
    fn a_request_without_units_is_whole_but_for_its_keys() {
        let long = "x".repeat(600);
        for (body, is_plain) in [
            (r#" {"input":"hi"} "#.to_owned(), true),
            (format!(r#"{{"input":"{long}","tools":[{{"name":"{long}"}}]}}"#), true),
            (r#"{"input":"hi","tools":[{"type":"mcp","authorization":"canary"}]}"#.to_owned(), false),
        ] {
            let memo = MessageMemo::default();
            let seen = IncomingRequest::read(Format::OpenaiResponses, &body, &memo).unwrap();
            let frame = seen.unframed();
            let told = frame.before().concat() + &frame.after().concat();
            assert_eq!((told == body, frame.is_plain()), (is_plain, is_plain), "{told}");
            assert!(!told.contains("canary"), "{told}");
        }
    }

    #[test]
    fn a_history_that_is_no_list_has_no_frame() {
        assert!(pieces(Format::OpenaiResponses, r#"{"input":"hi"}"#).is_none());
        assert!(pieces(Format::Anthropic, r#"{"messages":[]}"#).is_none());
    }

    #[test]
    fn what_stands_between_items_is_one_thing_or_a_comma() {
        let check = |history: &str, expect: &str| {
            let (.., between) = pieces(Format::Anthropic, &format!(r#"{{"messages":[{history}]}}"#)).unwrap();
            assert_eq!(between, expect, "{history}");
        };
        let (user, model) = (r#"{"role":"user","content":"a"}"#, r#"{"role":"assistant","content":"b"}"#);
        check(&format!("{user}, {model}, {user}"), ", ");
        check(&format!("{user}, {model},{user}"), ",");
        check(user, ",");
    }
}
