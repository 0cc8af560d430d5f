//! One-line summary of a turn: the user's request, the tools called with their arguments and outcomes, and
//! the answer.

use std::collections::BTreeMap;

use crate::{
    context::{Segment, SegmentBody, VisibleOutcome},
    event::{ContentPart, Fact, ToolCall},
    reducers::{
        fetch_subject::{FetchKind, FetchSubject},
        stub_text::{calls, count},
    },
};

/// Most letters of each part of the line.
const ASKED: usize = 240;
const SAID: usize = 160;
const SAID_BESIDE_CALLS: usize = 80;
const TARGET: usize = 60;
const ERROR: usize = 100;
const SHORT_RESULT: usize = 40;

/// Number of calls that are listed one by one.
const CALLS: usize = 8;

/// Summary of the segments of a turn in a line.
pub(super) fn turn_summary(segments: &[Segment]) -> String {
    let mut told = Vec::new();
    tell(&mut told, "asked: ", ASKED, segments.iter().filter(|segment| segment.is_user()).flat_map(original));
    for segment in segments {
        told.extend(aside(segment));
    }
    let exchanges: Vec<&Segment> = segments.iter().filter(|segment| segment.call().is_some()).collect();
    told.extend(exchanges.iter().take(CALLS).filter_map(|segment| exchange(segment)));
    if let Some(more) = exchanges.get(CALLS..).filter(|more| !more.is_empty()) {
        let mut tools: BTreeMap<String, u64> = BTreeMap::new();
        for call in more.iter().filter_map(|segment| segment.call()) {
            *tools.entry(flat(&call.name.0, TARGET)).or_default() += 1;
        }
        told.push(format!("{} more: {}", count(more.len() as u64, "call", "calls"), calls(&tools)));
    }
    // The calls say more than the text about them: if the line is shortened, the text goes first.
    let room = if exchanges.is_empty() { SAID } else { SAID_BESIDE_CALLS };
    tell(&mut told, "said: ", room, segments.iter().filter_map(answer_part));
    if told.is_empty() {
        told.push(if segments.iter().any(is_reasoning) { "thought" } else { "said nothing" }.to_owned());
    }
    told.join("; ")
}

/// Adds the text of some parts, after a label.
fn tell<'a>(
    told: &mut Vec<String>,
    what: &str,
    room: usize,
    parts: impl IntoIterator<Item = &'a ContentPart>,
) {
    let mut words = String::new();
    for part in parts {
        if words.len() > room {
            break;
        }
        let text = match part {
            ContentPart::Text { text } | ContentPart::Refusal { text } => flat(text, room),
            ContentPart::Media(media) if media.mime.is_empty() => "<attachment>".to_owned(),
            ContentPart::Media(media) => format!("<{}>", flat(&media.mime, TARGET)),
            ContentPart::Opaque { name, .. } => format!("<{}>", flat(name, TARGET)),
            ContentPart::Reasoning { .. } | ContentPart::ToolCall(_) => continue,
        };
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(&text);
    }
    if !words.is_empty() {
        told.push(format!("{what}{}", flat(&words, room)));
    }
}

/// Text of a segment that is neither a user's request nor the model's answer.
fn aside(segment: &Segment) -> Option<String> {
    let mut told = Vec::new();
    match segment.body() {
        SegmentBody::User { event, .. } => match &event.event.fact {
            Fact::Injected { hook, parts, .. } => {
                tell(&mut told, &format!("{} added: ", flat(hook, TARGET)), TARGET, parts);
            }
            Fact::ToolReturned { parts, .. } => tell(&mut told, "beside: ", TARGET, parts),
            _ => {}
        },
        SegmentBody::Carried(event) => told.push(match &event.event.fact {
            Fact::Carried { kind } => flat(kind, TARGET),
            other => other.kind().to_owned(),
        }),
        SegmentBody::Prefix(_)
        | SegmentBody::Instruction(_)
        | SegmentBody::Answer { .. }
        | SegmentBody::Exchange { .. }
        | SegmentBody::Summary(_)
        | SegmentBody::Note(_) => {}
    }
    told.pop()
}

/// The user's original message, however much of it is still shown.
fn original(segment: &Segment) -> &[ContentPart] {
    match segment.body() {
        SegmentBody::User { event, .. } => event.event.fact.parts(),
        _ => &[],
    }
}

fn answer_part(segment: &Segment) -> Option<&ContentPart> {
    match segment.body() {
        SegmentBody::Answer { event, part } => event.event.fact.parts().get(*part),
        _ => None,
    }
}

fn is_reasoning(segment: &Segment) -> bool {
    matches!(answer_part(segment), Some(ContentPart::Reasoning { .. }))
}

/// `bash cargo test → 214 lines, test result: ok`
fn exchange(segment: &Segment) -> Option<String> {
    let call = segment.call()?;
    let fetched = FetchSubject::of(call);
    let kind = fetched.as_ref().map(|fetched| fetched.kind);
    let target = fetched.map_or_else(|| arguments(call), |fetched| fetched.target);
    let mut told = flat(&call.name.0, TARGET);
    if !target.is_empty() {
        told.push(' ');
        told.push_str(&match kind {
            Some(FetchKind::Read | FetchKind::Change) => tail_of(&target),
            _ => flat(&target, TARGET),
        });
    }
    told.push_str(" → ");
    told.push_str(&outcome(segment, kind));
    Some(told)
}

/// The end of a path, which says more than its beginning.
fn tail_of(path: &str) -> String {
    let Some((start, _)) = path.char_indices().rev().nth(TARGET - 1).filter(|(start, _)| *start > 0) else {
        return flat(path, TARGET);
    };
    let tail = &path[start..];
    // Between two folders, if one ends nearby.
    let tail = tail.find('/').filter(|at| *at < tail.len() / 2).map_or(tail, |at| &tail[at..]);
    format!("…{}", flat(tail, TARGET))
}

/// Arguments of a call to an unknown tool; empty ones add nothing.
fn arguments(call: &ToolCall) -> String {
    let arguments = call.arguments.trim();
    if arguments == "{}" { String::new() } else { flat(arguments, TARGET) }
}

/// Original result of a call, however much of it is still shown.
fn outcome(segment: &Segment, kind: Option<FetchKind>) -> String {
    let SegmentBody::Exchange { outcome: VisibleOutcome::Returned { event, index, .. }, .. } = segment.body()
    else {
        return "no result".to_owned();
    };
    let Some(result) = event.event.fact.results().get(*index) else { return "no result".to_owned() };
    if result.error {
        return error(&result.parts);
    }
    let (mut lines, mut last, mut others) = (0_u64, "", 0_u64);
    for part in &result.parts {
        match part {
            ContentPart::Text { text } => {
                lines += text.lines().count() as u64;
                last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(last);
            }
            _ => others += 1,
        }
    }
    let mut told = match (lines, flat(last, SHORT_RESULT)) {
        (0, _) if others == 0 => "nothing".to_owned(),
        (0, _) => String::new(),
        (1, last) if !last.ends_with('…') => last,
        // A command says at its end how it went.
        (lines, last) if kind == Some(FetchKind::Command) => {
            format!("{}, {last}", count(lines, "line", "lines"))
        }
        (lines, _) => count(lines, "line", "lines"),
    };
    if others > 0 {
        let apart = if told.is_empty() { "" } else { ", " };
        told = format!("{told}{apart}{}", count(others, "attachment", "attachments"));
    }
    told
}

/// Error message of a tool. Most outputs already say that they are an error.
fn error(parts: &[ContentPart]) -> String {
    let mut told = Vec::new();
    tell(&mut told, "", ERROR, parts);
    match told.pop() {
        Some(words) if words.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("error")) => words,
        Some(words) => format!("error: {words}"),
        None => "error".to_owned(),
    }
}

/// The beginning of a text in one line, at most `most` letters, with an ellipsis if there is more.
fn flat(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut letters = 0;
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
            letters += 1;
        }
        for letter in word.chars() {
            if letters == most {
                line.truncate(line.trim_end().len());
                line.push('…');
                return line;
            }
            line.push(letter);
            letters += 1;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::context;

    fn check(log: &str, expect: &str) {
        assert_eq!(turn_summary(context(log).segments()), expect, "{log}");
    }

    #[test]
    fn a_turn_says_what_was_asked_and_done_and_what_came_of_it() {
        check(
            r#"
user: Fix the parser.
  + image 640x480
inject memory: It is in Rust.
assistant: I will look at it first.
  thinking: Hm.
  call read_file {"path":"src/parser.rs"}
  -> 40 lines of "x"
  call bash {"command":"cargo test"}
  -> 9 lines of "test ok"
  call bash {"command":"ls"}
  -> src
  call edit_file {"path":"src/parser.rs"}
  !> no such text
  call get_order {"id":1}
  beside: Stop soon.
"#,
            "asked: Fix the parser. <image/png>; memory added: It is in Rust.; beside: Stop soon.; read_file \
             src/parser.rs → 40 lines; bash cargo test → 9 lines, test ok 9; bash ls → src; edit_file src/parser.rs → \
             error: no such text; get_order {\"id\":1} → no result; said: I will look at it first.",
        );
    }

    #[test]
    fn a_turn_that_says_little_is_told_all_the_same() {
        check("assistant:\n  thinking: Hm.\n", "thought");
        check("assistant:\n  call a {}\n  !> Error: 7\n", "a → Error: 7");
        check("carried: web_search_call\n", "web_search_call");
        check("assistant:\n  call a {}\n  -> image 640x480\n", "a → 1 attachment");
    }

    #[test]
    fn of_a_long_path_the_end_is_told() {
        let path = format!("/home{}/src/parser.rs", "/deep".repeat(20));
        let call = format!("assistant:\n  call read_file {{\"path\":\"{path}\"}}\n  -> x\n");
        check(&call, &format!("read_file …{}/src/parser.rs → x", "/deep".repeat(9)));
        let name = "é".repeat(70);
        let call = format!("assistant:\n  call read_file {{\"path\":\"{name}\"}}\n  -> x\n");
        check(&call, &format!("read_file …{} → x", "é".repeat(60)));
    }

    #[test]
    fn many_calls_are_counted() {
        let calls: Vec<String> =
            (0..11).map(|at| format!("  call read_file {{\"path\":\"{at}\"}}\n  -> x\n")).collect();
        let told = turn_summary(context(&format!("assistant:\n{}", calls.concat())).segments());
        assert!(told.ends_with("read_file 7 → x; 3 calls more: read_file ×3"), "{told}");
    }

    #[test]
    fn a_text_is_one_line_and_cut_between_letters() {
        assert_eq!(flat(" a\n b\t\u{2028}c ", 9), "a b c");
        assert_eq!(flat("größer als", 4), "größ…");
        assert_eq!(flat("größer als", 7), "größer…");
        assert_eq!(flat("abc", 3), "abc");
        assert_eq!(flat("", 0), "");
    }
}
