use epitome_core::{ChainLink, ContentPart, Event, EventId, Fact, Seq, ThreadId, event::Timestamp};
use insta::assert_snapshot;
use serde_json::json;

use super::super::{
    TranscriptError, TranscriptFile, TranscriptLimits, TranscriptThreadStart, claude_code,
    testing::{any_reading, grows, shown},
};
use crate::Format;

/// Events of every dialect and kind at hand: a session of Claude Code's, and requests as providers get them.
fn all_events() -> Vec<Event> {
    let code = any_reading(&claude_code::tests::lines());
    let mut events: Vec<Event> = code
        .sessions
        .into_iter()
        .flat_map(|session| session.threads)
        .flat_map(|thread| thread.events)
        .collect();
    let requests = [
        (
            Format::OpenaiChat,
            r#"{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],
            "messages":[{"role":"user", "content":"a\nb \u00e9 \ud83d"}]}"#,
        ),
        (Format::OpenaiResponses, r#"{"model":"m","instructions":"123","input":"7"}"#),
        (Format::Anthropic, r#"{"system":"{}","messages":[{"role":"user","content":[]}]}"#),
    ];
    for (format, request) in requests {
        events.extend(format.decode_request(request).expect("it is a request"));
    }
    events.push(Event::from_fact(Fact::ModelChanged { model: "m".into() }, Some(Timestamp(-1))));
    events
}

fn said(text: &str) -> Event {
    Event::from_fact(
        Fact::UserSaid { parts: vec![ContentPart::text(text)] },
        Some(Timestamp(1_770_424_524_538)),
    )
}

fn thread(name: &str) -> ThreadId {
    ThreadId::derived(&[name])
}

/// The lines of an export of a thread's view: each event with the thread that owns it.
fn exported(view: &[(ThreadId, Event)]) -> Vec<String> {
    let mut chain = ChainLink::ROOT;
    let line = |(index, (thread, event)): (usize, &(ThreadId, Event))| {
        chain = chain.next(event, &event.fact_json());
        let time =
            event.time.map(|time| jiff::Timestamp::from_millisecond(time.0).expect("in range").to_string());
        json!({
            "id": EventId { thread: *thread, seq: Seq(index as u64 + 1) },
            "kind": event.fact.kind(),
            "time": time,
            "origin": event.origin,
            "dialect": event.raw.dialect,
            "normal": event.normal,
            "raw_hash": chain.raw,
            "normal_hash": chain.normal,
            "fact": event.fact,
            "raw": &*event.raw.json,
        })
        .to_string()
    };
    view.iter().enumerate().map(line).collect()
}

/// Events with one letter each, by thread: `a` of the first, then `b` of the second, and so on.
fn view(spans: &[(&str, &str)]) -> Vec<(ThreadId, Event)> {
    let span = |(name, letters): &(&str, &str)| {
        let name = thread(name);
        letters.chars().map(move |letter| (name, said(&letter.to_string()))).collect::<Vec<_>>()
    };
    spans.iter().flat_map(span).collect()
}

/// Three exports of one session, and one of another.
pub(crate) fn lines() -> String {
    let views = [
        view(&[("a", "12345")]),
        view(&[("a", "123"), ("b", "67"), ("c", "9")]),
        view(&[("a", "123"), ("b", "678")]),
        view(&[("z", "xy")]),
    ];
    file(&views.each_ref().map(Vec::as_slice))
}

fn file(exports: &[&[(ThreadId, Event)]]) -> String {
    exports.iter().flat_map(|view| exported(view)).map(|line| line + "\n").collect()
}

/// Each thread as `start text`, the head with a star.
fn threads(reading: &TranscriptFile) -> Vec<String> {
    let mut all = Vec::new();
    for session in &reading.sessions {
        for thread in &session.threads {
            let place = |id| session.threads.iter().position(|thread| thread.id == id).expect("it is there");
            let start = match thread.start {
                TranscriptThreadStart::Fork { of, at } => format!("{}:{at} ", place(of)),
                TranscriptThreadStart::Root | TranscriptThreadStart::Spawned { .. } => String::new(),
            };
            let text: String = thread.events.iter().map(|event| event.fact.text()).collect();
            let head = if thread.id == session.head { "*" } else { "" };
            all.push(format!("{start}{text}{head}"));
        }
    }
    all
}

#[test]
fn every_event_comes_back_as_it_was() {
    let events = all_events();
    let view: Vec<_> = events.iter().map(|event| (thread("t"), event.clone())).collect();
    let reading = any_reading(&file(&[&view]));
    assert_eq!(reading.format, super::TranscriptFormat::Epitome);
    assert_eq!(reading.sessions[0].threads[0].events, events);
    let odd: Vec<_> = reading.warnings.iter().filter(|odd| !odd.what.ends_with("no result")).collect();
    assert!(odd.is_empty(), "{odd:?}");
    assert_eq!(reading.sessions[0].key, thread("t").to_string());
}

#[test]
fn the_first_exports_can_be_read_too() {
    let old = |event: &Event| {
        let line = exported(&[(thread("t"), event.clone())]).remove(0);
        let mut line: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
        line.remove("normal");
        line.insert("raw".to_owned(), serde_json::from_str(&event.raw.json).unwrap());
        serde_json::Value::from(line).to_string()
    };
    let chat = r#"{"messages":[{"role":"user","content":"hi"}],"model":"m"}"#;
    let message = &Format::OpenaiChat.decode_request(chat).unwrap()[1];
    for event in [message, &said("hi"), &Event::native("tau2", r#""Be nice""#, said("x").fact)] {
        let reading = any_reading(&old(event));
        assert_eq!(reading.sessions[0].threads[0].events, std::slice::from_ref(event));
        assert_eq!(reading.warnings, []);
    }
}

#[test]
fn threads_of_one_session_come_together_again() {
    let main = view(&[("a", "12345")]);
    let fork = view(&[("a", "123"), ("b", "678")]);
    let deep = view(&[("a", "123"), ("b", "67"), ("c", "9")]);
    assert_eq!(threads(&any_reading(&file(&[&main]))), ["12345*"]);
    assert_eq!(threads(&any_reading(&file(&[&deep]))), ["123", "0:3 67", "1:5 9*"]);
    let all = any_reading(&file(&[&main, &deep, &fork]));
    assert_eq!(threads(&all), ["12345", "0:3 678*", "1:5 9"]);
    assert_eq!(all.warnings, []);
    // Each by itself has the same names as all of them together.
    for part in [&main, &deep, &fork] {
        let part = any_reading(&file(&[part]));
        assert_eq!(part.sessions[0].id, all.sessions[0].id);
        for thread in &part.sessions[0].threads {
            let same =
                all.sessions[0].threads.iter().find(|other| other.id == thread.id).expect("it is there");
            assert_eq!((&same.name, &same.start), (&thread.name, &thread.start));
            assert!(same.events.starts_with(&thread.events));
        }
    }
    let other = view(&[("z", "xy")]);
    assert_eq!(threads(&any_reading(&file(&[&main, &other]))), ["12345*", "xy*"]);
}

#[test]
fn an_export_that_grows_keeps_its_first_events() {
    grows(super::super::read, &file(&[&view(&[("a", "123"), ("b", "67"), ("c", "9")])]));
}

#[test]
fn a_changed_line_is_told_by_its_hash() {
    let text = file(&[&view(&[("a", "1234")])]).replace(r#""text":"2""#, r#""text":"two""#);
    let reading = any_reading(&text);
    assert_eq!(threads(&reading), ["1two34*"]);
    assert_snapshot!(reading.warnings[0], @"line 2: events that are not what their hashes say were read as they are, 1 from this line on: they were changed after they were exported");
    assert_eq!(reading.warnings.len(), 1);
}

#[test]
fn what_follows_a_missing_line_is_left_out() {
    let lines = exported(&view(&[("a", "1234"), ("b", "56")]));
    let without = |index: usize| {
        let mut lines = lines.clone();
        lines[index] = "{}".to_owned();
        any_reading(&lines.join("\n"))
    };
    assert_snapshot!(shown(&without(2)), @r#"
    session 35e616ee-7e91-8283-9a56-022ea7f1d251: untitled, at main
     main
      1 [- @24538 epitome] user_said "1"
      2 [- @24538 epitome] user_said "2"
    ! line 3: `` is not an event id: expected THREAD:NUMBER; the line was left out
    ! line 4: events that do not follow from what stands before them were left out, 3 from this line on: lines are missing; read the whole export, with a higher limit if lines were too long
    "#);
    assert_eq!(threads(&without(4)), ["1234*"]);
    assert_eq!(threads(&without(3)), ["123*"]);
    let tail = super::super::read("f", lines[1..].join("\n").as_bytes(), &TranscriptLimits::default());
    assert_snapshot!(tail.unwrap_err(), @"the file looks like epitome, but none of its lines could be used (line 1: events that do not follow from what stands before them were left out, 5 from this line on: lines are missing; read the whole export, with a higher limit if lines were too long): get a whole copy of the file");
}

#[test]
fn a_line_that_contradicts_an_earlier_one_is_left_out() {
    let text = file(&[&view(&[("a", "123")]), &view(&[("a", "1x34")])]);
    let reading = any_reading(&text);
    assert_eq!(threads(&reading), ["1234*"]);
    assert_eq!(reading.warnings.len(), 2, "{:?}", reading.warnings);
}

#[test]
fn a_line_that_cannot_be_read_says_why() {
    let line = &exported(&view(&[("a", "1")]))[0];
    let check = |from: &str, to: &str| {
        let changed = line.replacen(from, to, 1);
        assert_ne!(&changed, line);
        match super::read("f", changed.as_bytes(), &TranscriptLimits::default()) {
            Err(TranscriptError::Malformed { what, .. }) => {
                let what =
                    what.strip_prefix("none of its lines could be used (line 1: ").expect("it has one");
                what.strip_suffix("; the line was left out): get a whole copy of the file")
                    .expect("it ends so")
                    .to_owned()
            }
            other => panic!("{other:?}"),
        }
    };
    let shown = [
        check("user_said\",\"parts", "user_sang\",\"parts"),
        check("\"2026-02-07T00:35:24.538Z\"", "\"soon\""),
        check("\"normal\":null", "\"normal\":7"),
        check("\"dialect\":\"epitome\"", "\"dialect\":null"),
        check(":1\"", ":one\""),
        check("\"raw\":", "\"war\":"),
    ]
    .join("\n");
    assert_snapshot!(shown, @r"
    its fact cannot be read by this version (unknown variant `user_sang`, expected one of `instructed`, `user_said`, `assistant_said`, `tool_returned`, `compaction_requested`, `compacted`, `compaction_reverted`, `compaction_restored`, `pinned`, `unpinned`, `injected`, `usage_reported`, `model_changed`, `carried` at line 1 column 19)
    its time cannot be read
    its `normal` is no hash
    it does not say whose JSON its raw form is
    `35e616ee-7e91-8283-9a56-022ea7f1d251:one` is not an event id: expected THREAD:NUMBER
    it has no raw form
    ");
}
