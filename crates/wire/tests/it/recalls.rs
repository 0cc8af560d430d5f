//! Answers with calls of the recall tool: the client sees one answer, and no such call.

use epitome_core::{ContentPart, Event, Fact};
use epitome_wire::{
    Format, StreamDecoder, StreamEnding,
    incoming::{IncomingRequest, MessageMemo},
    recall_tool::{RECALL_TOOL, RecallSplice, SpliceVerdict, client_events},
};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::{
    fixtures,
    recall_answers::{Answer, Ends, HANDLE, Made, answer, any_answer, call, recall, text},
};

/// How answers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Streamed,
    Whole,
}

impl How {
    const BOTH: [Self; 2] = [Self::Streamed, Self::Whole];

    fn splice(self, format: Format) -> RecallSplice {
        match self {
            Self::Streamed => RecallSplice::stream(format),
            Self::Whole => RecallSplice::whole(format),
        }
    }

    fn bytes(self, format: Format, answer: &Answer) -> String {
        match self {
            Self::Streamed => answer.stream(format),
            Self::Whole => answer.whole(format),
        }
    }
}

/// Bytes in pieces.
fn cut<'b>(bytes: &'b [u8], cuts: &[Index]) -> Vec<&'b [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

/// What a client sees of answers that continue each other, and what became of each.
fn spliced(how: How, format: Format, answers: &[Answer], cuts: &[Index]) -> (String, Vec<SpliceVerdict>) {
    let (mut splice, mut seen, mut verdicts) = (how.splice(format), Vec::new(), Vec::new());
    for (index, answer) in answers.iter().enumerate() {
        if index > 0 {
            splice.continue_with();
        }
        for piece in cut(how.bytes(format, answer).as_bytes(), cuts) {
            splice.push(piece, &mut seen);
        }
        verdicts.push(splice.end(&mut seen));
    }
    (String::from_utf8(seen).unwrap(), verdicts)
}

fn name(verdict: &SpliceVerdict) -> &'static str {
    match verdict {
        SpliceVerdict::Passed => "passed",
        SpliceVerdict::Continued { .. } => "continued",
        SpliceVerdict::Recall(_) => "recall",
        SpliceVerdict::Mixed(_) => "mixed",
        SpliceVerdict::LeftOut(_) => "left out",
        SpliceVerdict::Exposed => "exposed",
    }
}

/// The payloads of a stream.
fn payloads(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn calls(events: &[Event]) -> Vec<String> {
    events.iter().flat_map(|event| event.fact.calls()).map(|call| call.id.0.clone()).collect()
}

/// The texts of the client's answer.
fn texts(events: &[Event]) -> String {
    let parts = events.iter().filter(|event| matches!(event.fact, Fact::AssistantSaid { .. }));
    let texts = parts.flat_map(|event| event.fact.parts()).filter_map(|part| match part {
        ContentPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// What the texts of several answers are in one.
fn expected_text(format: Format, answers: &[Answer]) -> String {
    let mut all = String::new();
    for text in answers.iter().map(Answer::text).filter(|text| !text.is_empty()) {
        let is_apart =
            all.is_empty() || all.ends_with(char::is_whitespace) || text.starts_with(char::is_whitespace);
        if format == Format::OpenaiChat && !is_apart {
            all.push_str("\n\n");
        }
        all.push_str(&text);
    }
    all
}

/// A stream that is one answer: one beginning, one end, places and numbers without a gap.
fn is_one_answer(format: Format, stream: &str) {
    let events = payloads(stream);
    let kinds = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    let places = |kind: &str, key: &str| -> Vec<u64> {
        events
            .iter()
            .filter(|event| event["type"] == kind)
            .map(|event| event[key].as_u64().unwrap())
            .collect()
    };
    match format {
        Format::Anthropic => {
            assert_eq!((kinds("message_start"), kinds("message_delta"), kinds("message_stop")), (1, 1, 1));
            let started = places("content_block_start", "index");
            assert_eq!(started, (0..started.len() as u64).collect::<Vec<_>>());
            assert_eq!(started, places("content_block_stop", "index"));
        }
        Format::OpenaiResponses => {
            assert_eq!((kinds("response.created"), kinds("response.in_progress")), (1, 1));
            let added = places("response.output_item.added", "output_index");
            assert_eq!(added, (0..added.len() as u64).collect::<Vec<_>>());
            let numbers: Vec<u64> =
                events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
            assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
            let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
            let done: Vec<&Value> = done.map(|event| &event["item"]).collect();
            let last = events.last().unwrap();
            assert_eq!(last["response"]["output"].as_array().unwrap().iter().collect::<Vec<_>>(), done);
        }
        Format::OpenaiChat => {
            assert_eq!(stream.matches("data: [DONE]").count(), 1);
            assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
            assert!(events.iter().all(|event| event["created"] == events[0]["created"]));
            let role = |event: &&Value| event["choices"][0]["delta"].get("role").is_some();
            assert_eq!(events.iter().filter(role).count(), 1);
            let ends = |event: &&Value| event["choices"][0]["finish_reason"].is_string();
            assert_eq!(events.iter().filter(ends).count(), 1);
        }
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

#[test]
fn an_answer_without_a_recall_passes_byte_for_byte_as_it_comes() {
    for (stream, whole) in fixtures::streams() {
        let mut splice = RecallSplice::stream(stream.format);
        let (mut seen, mut came) = (Vec::new(), 0);
        // Whole events, however their lines end, are never waited with.
        for event in stream.text.split_inclusive("\n\n") {
            splice.push(event.as_bytes(), &mut seen);
            came += event.len();
            if event.ends_with("\n\n") {
                assert_eq!(seen.len(), came, "{}", stream.name);
            }
        }
        assert_eq!(splice.end(&mut seen), SpliceVerdict::Passed, "{}", stream.name);
        assert_eq!(seen, stream.text.as_bytes(), "{}", stream.name);
        for size in [1, 2, 3, 7, 64] {
            let (mut splice, mut seen) = (RecallSplice::stream(stream.format), Vec::new());
            stream.text.as_bytes().chunks(size).for_each(|piece| splice.push(piece, &mut seen));
            assert_eq!(splice.end(&mut seen), SpliceVerdict::Passed);
            assert_eq!(seen, stream.text.as_bytes(), "{} in pieces of {size}", stream.name);
        }
        let (mut splice, mut seen) = (RecallSplice::whole(stream.format), Vec::new());
        splice.push(whole.as_bytes(), &mut seen);
        assert_eq!(splice.end(&mut seen), SpliceVerdict::Passed);
        assert_eq!(seen, whole.as_bytes());
    }
}

fn none() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(Just(false), 0..3)
}

fn only() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(Just(true), 1..3)
}

fn chain() -> impl Strategy<Value = Vec<Answer>> {
    prop_oneof![
        (any_answer("a", only()), any_answer("bb", none())).prop_map(|(one, other)| vec![one, other]),
        (any_answer("a", only()), any_answer("bb", only()), any_answer("ccc", none()))
            .prop_map(|(one, other, last)| vec![one, other, last]),
    ]
}

fn format() -> impl Strategy<Value = Format> {
    prop::sample::select(crate::SCRIPTED.as_slice())
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..12)
}

/// A request whose last message is what a client has of an answer, parsed and written again.
fn echo(format: Format, whole: &str) -> String {
    let answer: Value = serde_json::from_str(whole).unwrap();
    let asked = json!({"role": "user", "content": "Which port?"});
    match format {
        Format::OpenaiChat => {
            let mut message = answer["choices"][0]["message"].clone();
            message
                .as_object_mut()
                .unwrap()
                .retain(|key, _| matches!(key.as_str(), "role" | "content" | "tool_calls"));
            json!({"model": "m", "messages": [asked, message]})
        }
        Format::OpenaiResponses => {
            let items =
                answer["output"].as_array().unwrap().iter().filter(|item| item["type"] != "reasoning");
            let input: Vec<Value> = [asked].into_iter().chain(items.cloned()).collect();
            json!({"model": "m", "input": input})
        }
        Format::Anthropic => json!({"model": "m", "messages": [asked,
            {"role": "assistant", "content": answer["content"]}]}),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
    .to_string()
}

proptest! {
    #[test]
    fn what_calls_nothing_of_ours_passes_however_it_is_cut(
        format in format(), answer in any_answer("a", none()), cuts in cuts(),
    ) {
        for how in How::BOTH {
            let (seen, verdicts) = spliced(how, format, std::slice::from_ref(&answer), &cuts);
            prop_assert_eq!(seen, how.bytes(format, &answer));
            prop_assert_eq!(verdicts, [SpliceVerdict::Passed]);
        }
    }

    #[test]
    fn answers_that_only_recall_are_one_with_the_next(
        format in format(), answers in chain(), cuts in cuts(),
    ) {
        let (stream, verdicts) = spliced(How::Streamed, format, &answers, &cuts);
        let (again, _) = spliced(How::Streamed, format, &answers, &[]);
        prop_assert_eq!(&stream, &again);
        is_one_answer(format, &stream);
        prop_assert!(!stream.contains(RECALL_TOOL));

        let mut decoder = StreamDecoder::new(format);
        decoder.push(stream.as_bytes());
        let streamed = decoder.finish().unwrap();
        prop_assert_eq!(streamed.ending, StreamEnding::Complete);
        prop_assert_eq!(texts(&streamed.events), expected_text(format, &answers));
        let last = answers.last().unwrap();
        prop_assert_eq!(calls(&streamed.events), last.calls());

        let (first, ends) = verdicts.split_at(answers.len() - 1);
        for (verdict, answer) in first.iter().zip(&answers) {
            let SpliceVerdict::Recall(recalls) = verdict else { panic!("{verdict:?}") };
            let ids: Vec<String> = recalls.calls.iter().map(|call| call.id.0.clone()).collect();
            prop_assert_eq!(ids, answer.recalls());
            for call in &recalls.calls {
                prop_assert_eq!(value(&call.arguments), value(HANDLE));
            }
            let told = format.decode_response(&recalls.answer).unwrap();
            let whole = format.decode_response(&answer.whole(format)).unwrap();
            for (one, other) in told.iter().zip(&whole) {
                prop_assert_eq!(&one.fact, &other.fact);
            }
        }
        let SpliceVerdict::Continued { answer: Some(_) } = &ends[0] else { panic!("{ends:?}") };
    }

    #[test]
    fn an_answer_in_one_piece_is_what_the_stream_is(format in format(), answers in chain(), cuts in cuts()) {
        let (stream, streamed) = spliced(How::Streamed, format, &answers, &cuts);
        let (whole, verdicts) = spliced(How::Whole, format, &answers, &cuts);
        prop_assert!(!whole.contains(RECALL_TOOL));
        let (stream, whole) = (client_events(format, stream.as_bytes()).unwrap(), client_events(format, whole.as_bytes()).unwrap());
        prop_assert_eq!(stream.len(), whole.len());
        for (one, other) in stream.iter().zip(&whole) {
            prop_assert_eq!(&one.fact, &other.fact);
            prop_assert_eq!(one.normal, other.normal);
        }
        prop_assert_eq!(
            streamed.iter().map(name).collect::<Vec<_>>(),
            verdicts.iter().map(name).collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_a_client_sends_back_is_known_again(format in format(), answers in chain(), cuts in cuts()) {
        let (stream, _) = spliced(How::Streamed, format, &answers, &cuts);
        let (whole, _) = spliced(How::Whole, format, &answers, &cuts);
        let known: Vec<_> =
            client_events(format, stream.as_bytes()).unwrap().iter().filter_map(|event| event.normal).collect();
        let request = echo(format, &whole);
        let seen = IncomingRequest::read(format, &request, &MessageMemo::new(100)).unwrap();
        let sent: Vec<_> = seen.units().iter().skip(1).map(|unit| unit.digest).collect();
        prop_assert_eq!(known, sent);
    }

    #[test]
    fn beside_other_calls_only_the_recalls_are_left_out(
        format in format(),
        answer in any_answer("a", prop::collection::vec(any::<bool>(), 2..5)),
        cuts in cuts(),
    ) {
        prop_assume!(!answer.recalls().is_empty() && !answer.calls().is_empty());
        for how in How::BOTH {
            let (seen, verdicts) = spliced(how, format, std::slice::from_ref(&answer), &cuts);
            prop_assert!(!seen.contains(RECALL_TOOL), "{}", seen);
            if how == How::Streamed {
                is_one_answer(format, &seen);
            }
            let events = client_events(format, seen.as_bytes()).unwrap();
            prop_assert_eq!(calls(&events), answer.calls());
            prop_assert_eq!(texts(&events), answer.text());
            let [SpliceVerdict::Mixed(recalls)] = verdicts.as_slice() else { panic!("{verdicts:?}") };
            let ids: Vec<String> = recalls.calls.iter().map(|call| call.id.0.clone()).collect();
            prop_assert_eq!(ids, answer.recalls());
            prop_assert_eq!(calls(&format.decode_response(&recalls.answer).unwrap()).len(), answer.calls().len() + answer.recalls().len());
        }
    }

    #[test]
    fn a_stream_that_breaks_off_never_shows_a_recall(
        format in format(), answers in chain(), end in any::<Index>(),
    ) {
        let stream = answers[0].stream(format);
        let end = end.index(stream.len());
        let (mut splice, mut seen) = (RecallSplice::stream(format), Vec::new());
        splice.push(&stream.as_bytes()[..end], &mut seen);
        let verdict = splice.end(&mut seen);
        let shown = String::from_utf8_lossy(&seen).into_owned();
        prop_assert!(matches!(verdict, SpliceVerdict::Passed | SpliceVerdict::LeftOut(_) | SpliceVerdict::Recall(_)), "{:?}", verdict);
        // Half an event of an answer that was passed so far is passed as well; nobody can read it.
        let whole_events: Vec<&str> = shown.split_inclusive("\n\n").filter(|event| event.ends_with("\n\n")).collect();
        prop_assert!(!whole_events.concat().contains(RECALL_TOOL));
    }

    #[test]
    fn no_bytes_make_it_panic_or_lose_any(
        format in format(),
        stream in "(data: (\\{\"type\":\"(message_delta|content_block_start|response\\.completed)\"(,\"index\":[0-9]{1,20})?\\}|[\\[\\]{}\",:a-z0-9]{0,12}|\\[DONE\\])|:c|event: e|\r\n|\n|\r){0,30}",
        cuts in cuts(),
    ) {
        let (mut splice, mut seen) = (RecallSplice::stream(format), Vec::new());
        for piece in cut(stream.as_bytes(), &cuts) {
            splice.push(piece, &mut seen);
        }
        prop_assert_eq!(splice.end(&mut seen), SpliceVerdict::Passed);
        prop_assert_eq!(String::from_utf8(seen).unwrap(), &*stream);
        let (mut splice, mut seen) = (RecallSplice::whole(format), Vec::new());
        for piece in cut(stream.as_bytes(), &cuts) {
            splice.push(piece, &mut seen);
        }
        prop_assert_eq!(splice.end(&mut seen), SpliceVerdict::Passed);
        prop_assert_eq!(String::from_utf8(seen).unwrap(), stream);
    }
}

#[test]
fn an_answer_that_reached_its_limit_is_not_answered() {
    for format in crate::SCRIPTED {
        for how in How::BOTH {
            let cut_off = answer("a", [text("Well, "), recall("r")]).ends(Ends::AtTheLimit);
            let (seen, verdicts) = spliced(how, format, &[cut_off], &[]);
            assert_eq!(name(&verdicts[0]), "left out", "{format}");
            assert!(!seen.contains(RECALL_TOOL), "{format} {seen}");
            let events = client_events(format, seen.as_bytes()).unwrap();
            assert_eq!((texts(&events).as_str(), calls(&events).len()), ("Well, ", 0));
        }
    }
}

#[test]
fn text_passes_while_a_call_is_withheld_and_so_do_signs_of_life() {
    for format in crate::SCRIPTED {
        let stream = answer("a", [text("One moment."), recall("r")]).stream(format);
        let (head, tail) = stream.split_at(stream.find(RECALL_TOOL).unwrap());
        let (mut splice, mut seen) = (RecallSplice::stream(format), Vec::new());
        splice.push(head.as_bytes(), &mut seen);
        assert_eq!(texts(&client_events(format, &seen).unwrap()), "One moment.");
        let before = seen.len();
        splice.push(tail.as_bytes(), &mut seen);
        let pings = seen[before..].to_vec();
        assert_eq!(format == Format::Anthropic, !pings.is_empty(), "{format}");
        splice.push(b": still here\n\n", &mut seen);
        assert!(seen.ends_with(b": still here\n\n"));
        assert!(splice.is_over());
    }
}

#[test]
fn the_last_answer_says_what_was_used() {
    let used = |input: u64| {
        format!(
            "data: {}\n\ndata: {}\n\ndata: {}\n\n",
            json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [],
                "usage": {"input_tokens": input, "cache_read_input_tokens": input * 10, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": if input == 1 {
                json!({"type": "tool_use", "id": "r", "name": RECALL_TOOL, "input": {}})
            } else {
                json!({"type": "text", "text": "So."})
            }}),
            json!({"type": "message_delta", "delta": {"stop_reason": if input == 1 { "tool_use" } else { "end_turn" }},
                "usage": {"output_tokens": 5}}),
        )
    };
    let (mut splice, mut seen) = (RecallSplice::stream(Format::Anthropic), Vec::new());
    splice.push(used(1).as_bytes(), &mut seen);
    assert_eq!(name(&splice.end(&mut seen)), "recall");
    splice.continue_with();
    splice.push(used(2).as_bytes(), &mut seen);
    splice.end(&mut seen);
    let last = payloads(&String::from_utf8(seen).unwrap()).pop().unwrap();
    assert_eq!(last["usage"], json!({"input_tokens": 2, "cache_read_input_tokens": 20, "output_tokens": 5}));
}

#[test]
fn a_chunk_that_holds_everything_at_once_is_parted() {
    let chunk = |delta: Value, finish: Value| json!({"id": "a", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let ours = json!({"index": 0, "id": "r", "function": {"name": RECALL_TOOL, "arguments": "{}"}});
    let theirs = json!({"index": 1, "id": "c", "function": {"name": "read", "arguments": "{}"}});
    let check = |delta: Value, verdict: &str, expect: &[Value]| {
        let (mut splice, mut seen) = (RecallSplice::stream(Format::OpenaiChat), Vec::new());
        let stream = format!("data: {}\n\ndata: [DONE]\n\n", chunk(delta, json!("tool_calls")));
        splice.push(stream.as_bytes(), &mut seen);
        assert_eq!(name(&splice.end(&mut seen)), verdict);
        assert_eq!(payloads(&String::from_utf8(seen).unwrap()), expect);
    };
    check(
        json!({"role": "assistant", "content": "Hm.", "tool_calls": [ours]}),
        "recall",
        &[chunk(json!({"role": "assistant", "content": "Hm."}), Value::Null)],
    );
    check(json!({"content": null, "tool_calls": [ours]}), "recall", &[]);
    let moved = json!({"index": 0, "id": "c", "function": {"name": "read", "arguments": "{}"}});
    check(
        json!({"content": null, "tool_calls": [ours, theirs]}),
        "mixed",
        &[chunk(json!({"content": null, "tool_calls": [moved]}), json!("tool_calls"))],
    );
}

#[test]
fn however_its_lines_end_a_stream_is_spliced() {
    for format in crate::SCRIPTED {
        let answers =
            [answer("a", [text("One moment."), recall("r")]), answer("bb", [text("8080."), call("c")])];
        let (plain, _) = spliced(How::Streamed, format, &answers, &[]);
        for ending in ["\r\n", "\r"] {
            for size in [1, 2, 3, 1_000] {
                let (mut splice, mut seen) = (RecallSplice::stream(format), Vec::new());
                for (index, answer) in answers.iter().enumerate() {
                    if index > 0 {
                        splice.continue_with();
                    }
                    let stream = answer.stream(format).replace('\n', ending);
                    stream.as_bytes().chunks(size).for_each(|piece| splice.push(piece, &mut seen));
                    splice.end(&mut seen);
                }
                assert_eq!(
                    String::from_utf8(seen).unwrap(),
                    plain.replace('\n', ending),
                    "{format} {ending:?}"
                );
            }
        }
    }
}

#[test]
fn a_server_that_says_no_reason_has_still_ended() {
    let ours = json!({"id": "r", "function": {"name": RECALL_TOOL, "arguments": "{}"}});
    let stream = format!(
        "data: {}\n\ndata: {}\n\n",
        json!({"id": "a", "choices": [{"index": 0, "delta": {"tool_calls": [ours]}}]}),
        json!({"id": "a", "choices": [{"index": 0, "delta": {"tool_calls": [{"function": {"arguments": ""}}]}}]}),
    );
    let check = |stream: &str, verdict: &str| {
        let (mut splice, mut seen) = (RecallSplice::stream(Format::OpenaiChat), Vec::new());
        splice.push(stream.as_bytes(), &mut seen);
        assert_eq!(name(&splice.end(&mut seen)), verdict);
        assert!(seen.is_empty());
    };
    check(&format!("{stream}data: [DONE]"), "recall");
    check(&stream, "left out");
}

#[test]
fn what_is_too_large_to_withhold_is_shown_after_all() {
    for format in crate::SCRIPTED {
        let asked = answer("a", [text("Hm."), recall("r"), call("c")]);
        let stream = asked.stream(format);
        let (mut splice, mut seen) = (RecallSplice::stream(format).with_limits(100, 1 << 20), Vec::new());
        stream.as_bytes().chunks(5).for_each(|piece| splice.push(piece, &mut seen));
        assert_eq!(splice.end(&mut seen), SpliceVerdict::Exposed);
        let events = client_events(format, &seen).unwrap();
        assert_eq!(texts(&events), "Hm.");
        let mut ids = calls(&events);
        ids.sort();
        assert_eq!(ids, ["c", "r"], "{format}");
        is_one_answer(format, &String::from_utf8(seen).unwrap());

        for how in How::BOTH {
            let bytes = how.bytes(format, &asked);
            let (mut splice, mut seen) = (how.splice(format).with_limits(1 << 20, 60), Vec::new());
            bytes.as_bytes().chunks(5).for_each(|piece| splice.push(piece, &mut seen));
            assert_eq!(splice.end(&mut seen), SpliceVerdict::Exposed);
            assert_eq!(String::from_utf8(seen).unwrap(), bytes, "{format}");
        }
    }
}

#[test]
fn a_continuation_that_fails_is_told_as_the_provider_would() {
    for format in crate::SCRIPTED {
        let recalls = answer("a", [text("One moment."), recall("r")]);
        let (mut splice, mut seen) = (RecallSplice::stream(format), Vec::new());
        splice.push(recalls.stream(format).as_bytes(), &mut seen);
        assert_eq!(name(&splice.end(&mut seen)), "recall");
        let passed = seen.len();
        seen.extend(splice.fail("the provider \"is gone\""));
        assert!(seen.len() > passed && seen.ends_with(b"\n\n"));
        let mut decoder = StreamDecoder::new(format);
        decoder.push(&seen);
        let streamed = decoder.finish().unwrap();
        assert_eq!(streamed.ending, StreamEnding::Failed("the provider \"is gone\"".into()), "{format}");
        assert_eq!(texts(&streamed.events), "One moment.");

        // In the middle of the next answer, in the middle of an event.
        splice.continue_with();
        let next = answer("bb", [text("It is 8080.")]).stream(format);
        splice.push(&next.as_bytes()[..next.len() / 2], &mut seen);
        let failed = splice.fail("gone");
        let failed = String::from_utf8(failed).unwrap();
        assert_eq!(payloads(&failed).len(), 1, "{failed}");

        let mut splice = RecallSplice::whole(format);
        let error = splice.fail("gone");
        assert!(format.decode_response(&String::from_utf8(error).unwrap()).is_err());
    }
    let (mut splice, mut seen) = (RecallSplice::stream(Format::OpenaiResponses), Vec::new());
    splice.push(answer("a", [recall("r")]).stream(Format::OpenaiResponses).as_bytes(), &mut seen);
    splice.end(&mut seen);
    let failed = payloads(&String::from_utf8(splice.fail("gone")).unwrap()).remove(0);
    assert_eq!(failed["sequence_number"], 2);
    assert_eq!(failed["response"]["id"], "a");
    assert_eq!(failed["response"]["status"], "failed");
    assert_eq!(failed["response"]["error"], json!({"code": "server_error", "message": "gone"}));
}

#[test]
fn a_chat_answer_keeps_its_parts_when_two_are_one() {
    let message = |name: &str, message: Value, finish: &str| {
        json!({"id": name, "choices": [{"index": 0, "message": message, "finish_reason": finish}]})
            .to_string()
    };
    let ours = json!({"id": "r", "type": "function", "function": {"name": RECALL_TOOL, "arguments": "{}"}});
    let check = |first: Value, last: Value, expect: Value| {
        let mut first = first;
        first["tool_calls"] = json!([ours]);
        let (mut splice, mut seen) = (RecallSplice::whole(Format::OpenaiChat), Vec::new());
        splice.push(message("a", first, "tool_calls").as_bytes(), &mut seen);
        assert_eq!(name(&splice.end(&mut seen)), "recall");
        splice.continue_with();
        splice.push(message("b", last, "stop").as_bytes(), &mut seen);
        assert_eq!(name(&splice.end(&mut seen)), "continued");
        let seen: Value = serde_json::from_slice(&seen).unwrap();
        assert_eq!(seen["id"], "a");
        assert_eq!(seen["choices"][0]["message"], expect);
    };
    check(
        json!({"role": "assistant", "content": "One\n", "reasoning_content": "x"}),
        json!({"role": "assistant", "content": "two\"", "reasoning_content": "y", "refusal": null}),
        json!({"role": "assistant", "content": "One\ntwo\"", "reasoning_content": "xy", "refusal": null}),
    );
    check(
        json!({"role": "assistant", "content": null}),
        json!({"role": "assistant", "content": "two"}),
        json!({"role": "assistant", "content": "two"}),
    );
    check(
        json!({"role": "assistant", "content": "one"}),
        json!({"role": "assistant", "content": [{"type": "text", "text": "two"}], "annotations": []}),
        json!({"role": "assistant", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
            "annotations": []}),
    );
}

#[test]
fn every_piece_of_an_answer_is_generated() {
    // The generator would otherwise let a property hold for nothing.
    let made = answer("a", [Made::Thinking("x".into()), text("y"), recall("r"), call("c")]);
    for format in crate::SCRIPTED {
        let whole = format.decode_response(&made.whole(format)).unwrap();
        let streamed = format.read_answer_stream(made.stream(format).as_bytes()).unwrap();
        let facts = |events: &[Event]| events.iter().map(|event| event.fact.clone()).collect::<Vec<_>>();
        assert_eq!(facts(&streamed.events), facts(&whole), "{format}");
        assert_eq!(streamed.calls.len(), 2);
    }
}
