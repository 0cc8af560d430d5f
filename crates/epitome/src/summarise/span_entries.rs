//! A span as a summariser reads it: one entry for each event, in order, by the number of the event.
//!
//! Content that a summary leaves out anyway is not shown in full. Each kind of text has a share; recent
//! content and failures get more, and longer texts lose their middle. Facts that are no messages (usage,
//! settings, the prompt and the tools, which stay in the session's own prefix) are left out. Secrets are not
//! filtered here: the session's model has seen them, and the gate keeps them out of the summary.

use std::{collections::HashMap, sync::Arc};

use epitome_core::{
    ContentPart, Fact, LoggedEvent, Seq, Tokens,
    client_text::{ClientTextKind, is_user_speaking, spans_of},
    draft_gate::{NumberedSentences, SentenceNumber},
    event::{InstructionKind, Pin, Summary, ToolCall, ToolResult},
    media::{Media, MediaLocation},
    meter::Meter,
    pairing::{CallOutcome, pair},
    summary::tools::failure,
    turn::TurnBuilder,
};

use super::shorten::{FavouredEnd, cut};

/// Text of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpanEntry {
    /// Turn of the span that the event belongs to.
    pub(super) turn: usize,
    /// The event.
    pub(super) seq: Seq,
    /// Speaker of the text.
    pub(super) speaker: String,
    /// The text.
    pub(super) body: String,
    /// Its sentences that may be chosen, a line each.
    pub(super) sentences: String,
    /// Tokens of the entry, its heading and its sentences included.
    pub(super) tokens: Tokens,
}

/// Characters of a sentence that are shown where it may be chosen: its number stands for all of it.
const SENTENCE: usize = 200;

/// Characters of a sentence that must be left after its message was cut, for the sentence to be offered.
const BEGINNING: usize = 40;

/// Most tokens of the number and the code in a heading.
const HEADING: Tokens = Tokens(28);

/// Most tokens of each kind of text; recent events get twice as many. Users' messages and failures get the
/// most, because a summary has to repeat them.
mod share {
    pub(super) const USER: u64 = 3_000;
    pub(super) const ANSWER: u64 = 1_200;
    pub(super) const THOUGHT: u64 = 240;
    pub(super) const CALL: u64 = 320;
    pub(super) const RESULT: u64 = 400;
    pub(super) const FAILURE: u64 = 1_200;
    pub(super) const NOTE: u64 = 600;
    pub(super) const BLOCK: u64 = 80;
    /// Smallest share, however short the room.
    pub(super) const LEAST: u64 = 24;
}

/// Limits on the length of a span's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryLimits {
    /// Most tokens of an entry.
    pub(super) entry: Tokens,
    /// Number of times that the shares are halved.
    pub(super) halved: u32,
}

/// Makes the entries of a span. Offered sentences are listed with their numbers, so that they may be chosen.
pub(super) fn entries(
    span: &[Arc<LoggedEvent>],
    offered: &NumberedSentences,
    room: EntryLimits,
    meter: &Meter,
) -> Vec<SpanEntry> {
    let turns: Vec<Seq> =
        TurnBuilder::of(span.iter().map(|event| &**event)).iter().map(|turn| turn.last).collect();
    let facts = span.iter().map(|event| (event.id.seq, &event.event.fact));
    let mut calls: HashMap<*const ToolResult, &ToolCall> = HashMap::new();
    for exchange in pair(facts).exchanges {
        if let CallOutcome::Returned { result, .. } = exchange.outcome {
            calls.insert(std::ptr::from_ref(result), exchange.call);
        }
    }
    let recent_from = span.len() - span.len() / 4;
    let entry = |(index, event): (usize, &Arc<LoggedEvent>)| {
        let writer = EntryWriter { room, recent: index >= recent_from, meter, calls: &calls };
        let (speaker, body) = writer.told(&event.event.fact)?;
        let body = cut(&body, room.entry.less(HEADING), FavouredEnd::Head, meter).into_owned();
        let seq = event.id.seq;
        let own =
            offered.range(SentenceNumber { at: seq, place: 0 }..SentenceNumber { at: seq.next(), place: 0 });
        let size = meter.text(&body);
        let left = room.entry.less(HEADING).less(size);
        let sentences = listed(own.filter(|(_, text)| body.contains(&line(text, BEGINNING))), left, meter);
        let tokens = size + meter.text(&sentences) + meter.text(&speaker) + HEADING;
        Some(SpanEntry {
            turn: turns.partition_point(|last| *last < seq),
            seq,
            speaker,
            body,
            sentences,
            tokens,
        })
    };
    span.iter().enumerate().filter_map(entry).filter(|entry| !entry.body.trim().is_empty()).collect()
}

/// Lists sentences that may be chosen, each on a line behind its number, as many as there is room for.
pub(super) fn listed<'s>(
    sentences: impl IntoIterator<Item = (&'s SentenceNumber, &'s String)>,
    room: Tokens,
    meter: &Meter,
) -> String {
    let mut list = String::new();
    let mut used = Tokens(0);
    for (number, text) in sentences {
        let told = format!("{number} {}\n", line(text, SENTENCE));
        used += meter.text(&told);
        if used > room {
            break;
        }
        list.push_str(&told);
    }
    list
}

struct EntryWriter<'w> {
    room: EntryLimits,
    recent: bool,
    meter: &'w Meter,
    calls: &'w HashMap<*const ToolResult, &'w ToolCall>,
}

impl EntryWriter<'_> {
    /// Speaker and text of a fact, if it is part of the conversation.
    fn told(&self, fact: &Fact) -> Option<(String, String)> {
        let by = |speaker: &str, body: String| Some((speaker.to_owned(), body));
        match fact {
            Fact::UserSaid { parts } if is_user_speaking(fact) => by("user", self.spoken(parts)),
            Fact::UserSaid { parts } | Fact::Instructed { what: InstructionKind::Message, parts } => {
                by("note of the application", self.parts(parts, share::NOTE, FavouredEnd::Head))
            }
            Fact::AssistantSaid { parts, .. } => {
                by("assistant", self.parts(parts, share::ANSWER, FavouredEnd::Head))
            }
            Fact::ToolReturned { results, parts } => {
                let mut body: Vec<String> = results.iter().map(|result| self.result(result)).collect();
                body.push(self.parts(parts, share::NOTE, FavouredEnd::Head));
                body.retain(|piece| !piece.is_empty());
                by("tools", body.join("\n"))
            }
            Fact::Injected { hook, parts, .. } => {
                let hook = line(hook, 80);
                by(&format!("added by the hook {hook}"), self.parts(parts, share::NOTE, FavouredEnd::Head))
            }
            Fact::Pinned { pin: Pin::Text(text) } => {
                by("pinned", self.text(text, share::NOTE, FavouredEnd::Head))
            }
            // A structured summary is told item by item, from the data.
            Fact::Compacted(compaction) => match &compaction.summary {
                Summary::Text(text) => by("earlier summary", self.text(text, share::USER, FavouredEnd::Head)),
                Summary::Structured { .. } | Summary::Encrypted(_) => None,
            },
            // All other facts are bookkeeping.
            _ => None,
        }
    }

    /// A result under the name of its tool. A summary must repeat the text of a failure, so failures get more
    /// room.
    fn result(&self, result: &ToolResult) -> String {
        let call = self.calls.get(&std::ptr::from_ref(result));
        let failed = result.error || call.is_some_and(|call| failure(call, result).is_some());
        let name = call.map(|call| &call.name).or(result.name.as_ref());
        let name = name.map_or_else(|| "a tool".to_owned(), |name| line(&name.0, 80));
        let (how, share) = if failed { (" failed", share::FAILURE) } else { ("", share::RESULT) };
        format!("result of {name}{how}:\n{}", self.parts(&result.parts, share, FavouredEnd::Tail))
    }

    /// A user's message, followed by the client's additions, which are marked: no instruction in them is the
    /// user's.
    fn spoken(&self, parts: &[ContentPart]) -> String {
        let (mut own, mut added) = (Vec::new(), Vec::new());
        for (part, spans) in parts.iter().zip(spans_of(parts)) {
            let ContentPart::Text { text } = part else {
                own.push(part.clone());
                continue;
            };
            for span in spans {
                let said = ContentPart::text(text.get(span.range).unwrap_or_default());
                match span.kind {
                    None => own.push(said),
                    Some(ClientTextKind::UserWordsFrame) => {}
                    Some(_) => added.push(said),
                }
            }
        }
        let own = self.parts(&own, share::USER, FavouredEnd::Head);
        match self.parts(&added, share::NOTE, FavouredEnd::Head) {
            added if added.is_empty() => own,
            added => format!("{own}\n(added by the application) {added}"),
        }
    }

    fn parts(&self, parts: &[ContentPart], share: u64, lean: FavouredEnd) -> String {
        let told: Vec<String> =
            parts.iter().map(|part| self.part(part, share, lean)).filter(|text| !text.is_empty()).collect();
        told.join("\n")
    }

    fn part(&self, part: &ContentPart, share: u64, lean: FavouredEnd) -> String {
        match part {
            ContentPart::Text { text } => self.text(text, share, lean),
            ContentPart::Reasoning { text, .. } if text.trim().is_empty() => String::new(),
            ContentPart::Reasoning { text, .. } => {
                format!("(thought) {}", self.text(text, share::THOUGHT, FavouredEnd::Tail))
            }
            ContentPart::ToolCall(call) => {
                let arguments = self.text(&call.arguments, share::CALL, FavouredEnd::Head);
                format!("called {} with {arguments}", line(&call.name.0, 80))
            }
            ContentPart::Refusal { text } => format!("(refused) {}", self.text(text, share, lean)),
            ContentPart::Media(media) => medium(media),
            ContentPart::Opaque { name, json } => {
                format!("({}) {}", line(name, 80), self.text(json, share::BLOCK, FavouredEnd::Head))
            }
        }
    }

    fn text(&self, text: &str, share: u64, lean: FavouredEnd) -> String {
        let share = if self.recent { share * 2 } else { share };
        let share = share.checked_shr(self.room.halved).unwrap_or(0).max(share::LEAST);
        cut(text.trim(), Tokens(share).min(self.room.entry), lean, self.meter).into_owned()
    }
}

/// An image or other medium in one line.
fn medium(media: &Media) -> String {
    let mime = if media.mime.is_empty() { "a file".to_owned() } else { line(&media.mime, 80) };
    let size = media.dimensions.map_or_else(String::new, |(width, height)| format!(", {width}×{height}"));
    match &media.place {
        MediaLocation::Inline { size: bytes, .. } => format!("({mime}{size}, {bytes} bytes)"),
        MediaLocation::Elsewhere(reference) => format!("({mime}{size}, at {})", line(reference, 160)),
    }
}

/// Beginning of a text, on one line.
fn line(text: &str, most: usize) -> String {
    let flat = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    flat.take(most).collect()
}

#[cfg(test)]
mod tests {
    use epitome_core::{
        draft_gate::offered_sentences,
        event::{Compaction, CompactionTrigger, Usage},
    };

    use super::*;
    use crate::summarise::test_support::{assistant, call, meter, result, span, user};

    const WIDE: EntryLimits = EntryLimits { entry: Tokens(50_000), halved: 0 };

    fn shown(facts: impl IntoIterator<Item = Fact>) -> String {
        let span = span(facts);
        let entries = entries(&span, &offered_sentences(&span), WIDE, &meter());
        let line =
            |entry: &SpanEntry| format!("{}/{} {}: {}", entry.turn, entry.seq, entry.speaker, entry.body);
        entries.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_a_client_wrote_in_the_users_name_is_not_told_as_theirs() {
        let note = "<task-notification>\nAlways push.\n</task-notification>";
        let asked =
            "<system-reminder>\nMind the list.\n</system-reminder>\n<user_query>\nFix it.\n</user_query>";
        assert_eq!(
            shown([user(asked), user(note)]),
            "0/1 user: Fix it.\n(added by the application) <system-reminder>\nMind the list.\n</system-reminder>\n\
             0/2 note of the application: <task-notification>\nAlways push.\n</task-notification>"
        );
    }

    #[test]
    fn a_file_that_a_client_sends_in_several_parts_is_not_told_as_the_users_words() {
        let texts =
            ["--- Content from referenced files ---", "Always push.", "--- End of content ---\nFix it."];
        assert_eq!(
            shown([Fact::UserSaid { parts: texts.map(ContentPart::text).into() }]),
            "0/1 user: Fix it.\n(added by the application) --- Content from referenced files ---\nAlways push.\n\
             --- End of content ---"
        );
    }

    #[test]
    fn a_span_is_told_event_by_event_without_bookkeeping() {
        let media = |place| {
            ContentPart::Media(Media { mime: "image/png".into(), place, dimensions: Some((640, 480)) })
        };
        let facts = [
            Fact::Instructed {
                what: InstructionKind::System,
                parts: vec![ContentPart::text("You are Zork.")],
            },
            Fact::UserSaid {
                parts: vec![ContentPart::text("Look"), media(MediaLocation::Elsewhere("https://h/x".into()))],
            },
            assistant(vec![
                ContentPart::Reasoning { text: "I should look.".into(), seal: None },
                ContentPart::Reasoning { text: String::new(), seal: None },
                ContentPart::text("Looking."),
                call("1", "bash", r#"{"command":"make"}"#),
            ]),
            Fact::UsageReported { answer: None, model: None, usage: Usage::default() },
            result("1", "make: *** [all] Error 2", true),
            Fact::Instructed { what: InstructionKind::Message, parts: vec![ContentPart::text("Be quick.")] },
            Fact::Injected {
                hook: "git\nstatus".into(),
                beside: None,
                parts: vec![ContentPart::text("on main")],
            },
            Fact::Pinned { pin: Pin::Text("never push".into()) },
            Fact::Pinned { pin: Pin::Event(Seq(2)) },
            Fact::Compacted(Compaction {
                summary: Summary::Text("Before that, much.".into()),
                through: Seq(1),
                first_kept: None,
                tokens_before: None,
                tokens_after: None,
                trigger: CompactionTrigger::Manual,
            }),
            assistant(vec![ContentPart::Refusal { text: "No.".into() }]),
            Fact::Carried { kind: "odd".into() },
        ];
        let expect = "\
0/2 user: Look
(image/png, 640×480, at https://h/x)
0/3 assistant: (thought) I should look.
Looking.
called bash with {\"command\":\"make\"}
0/5 tools: result of bash failed:
make: *** [all] Error 2
1/6 note of the application: Be quick.
1/7 added by the hook git status: on main
1/8 pinned: never push
1/10 earlier summary: Before that, much.
2/11 assistant: (refused) No.";
        assert_eq!(shown(facts), expect);
    }

    #[test]
    fn sentences_that_may_be_chosen_are_listed_as_far_as_they_are_shown() {
        let long = format!("I kept the old parser because two callers need it {}.", "and so on ".repeat(40));
        let many = (0..200).map(|at| {
            format!("Sentence {at} says something that was found out{}.\n", " and noted".repeat(9))
        });
        let facts = [
            user("Which parser did you keep?"),
            assistant(vec![
                ContentPart::text(&long),
                ContentPart::text("All of the tests pass now. Let me see the rest of it."),
            ]),
            assistant(vec![call("1", "read", "{}")]),
            result("1", "2.1 The tool says something too.", false),
            assistant(vec![ContentPart::text(many.collect::<String>())]),
        ];
        let span = span(facts);
        let told = entries(&span, &offered_sentences(&span), WIDE, &meter());
        let listed = |seq: u64| told.iter().find(|entry| entry.seq == Seq(seq)).unwrap().sentences.as_str();
        let expect = format!("2.1 {}\n2.2 All of the tests pass now.\n", &long[..SENTENCE]);
        assert_eq!((listed(2), listed(1), listed(4)), (expect.as_str(), "", ""));
        let shown = listed(5);
        assert!(shown.contains("5.1 Sentence 0 ") && shown.contains("5.200 Sentence 199 "), "{shown}");
        assert!(!shown.contains("Sentence 100 "), "it was cut out of what is shown");
    }

    #[test]
    fn what_failed_and_what_is_recent_keeps_more() {
        let output = "a line of output that says little\n".repeat(2_000);
        let turn = |id: &str, error| [assistant(vec![call(id, "read", "{}")]), result(id, &output, error)];
        let mut facts = vec![user("go")];
        facts.extend(turn("1", false));
        facts.extend(turn("2", true));
        facts.extend((0..20).flat_map(|_| turn("3", false)));
        let told = entries(&span(facts), &NumberedSentences::new(), WIDE, &meter());
        let cost = |seq: u64| told.iter().find(|entry| entry.seq == Seq(seq)).unwrap().tokens.0;
        let (fine, failed, recent) = (cost(3), cost(5), cost(45));
        assert!(
            fine <= share::RESULT + 60 && failed > 2 * fine && recent > 3 * fine / 2,
            "{fine} {failed} {recent}"
        );
        assert!(told.iter().any(|entry| entry.body.contains("characters left out")));
    }

    #[test]
    fn no_entry_is_larger_than_its_room() {
        let parts = (0..500).map(|number| call(&number.to_string(), "t", &"x y ".repeat(500))).collect();
        let events =
            span([assistant(parts), user(&"字".repeat(100_000)), result("1", &"/a".repeat(500_000), true)]);
        for (entry, halved) in [(2_000, 0), (300, 0), (300, 6), (80, 60)] {
            let room = EntryLimits { entry: Tokens(entry), halved };
            for told in entries(&events, &offered_sentences(&events), room, &meter()) {
                assert!(told.tokens.0 <= entry + 8, "{} of {entry}", told.tokens);
            }
        }
    }
}
