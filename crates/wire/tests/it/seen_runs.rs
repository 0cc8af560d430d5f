//! A request says the same whatever was seen before it, and however much of it is known as a whole.

use epitome_core::{Digest, Event};
use epitome_wire::{
    Format,
    incoming::{HistoryUnit, IncomingRequest, MessageMemo},
};
use proptest::{prelude::*, sample::Index};

/// How a client's next history comes of its last.
#[derive(Clone, Debug)]
enum Step {
    Grow(Vec<Index>),
    Change(Index, Index),
    Insert(Index, Index),
    Cut(Index),
}

/// Items of few kinds, so that they are met again: in other places, in other formats, and where none belongs.
const ITEMS: [&str; 16] = [
    r#"{"role":"user","content":"hi"}"#,
    r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#,
    r#"{"role":"user","content":"hi","cache_control":{"type":"ephemeral"}}"#,
    r#"{"role":"user","content":"<info-msg>10:31</info-msg>"}"#,
    r#"{"role":"user","content":"<environment_context>\n<cwd>/src</cwd>\n</environment_context>"}"#,
    r#"{"role":"system","content":"Be kind, \"really\", \\"}"#,
    r#"{"role":"assistant","content":"Hello."}"#,
    r#"{"role":"assistant","content":[]}"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]}"#,
    r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"ok"}]}"#,
    r#"{"role":"tool","tool_call_id":"c","content":"ok"}"#,
    r#"{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":"{}"}"#,
    r#"{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"x"}"#,
    r#"{"type":"item_reference","id":"msg"}"#,
    "12",
    "null",
];

const BETWEEN: [&str; 3] = [",", " ,", ",\n  "];

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        4 => prop::collection::vec(index(), 0..6).prop_map(Step::Grow),
        2 => (index(), index()).prop_map(|(at, item)| Step::Change(at, item)),
        1 => (index(), index()).prop_map(|(at, item)| Step::Insert(at, item)),
        1 => index().prop_map(Step::Cut),
    ]
}

fn take(step: &Step, history: &mut Vec<&'static str>) {
    let item = |index: &Index| *index.get(&ITEMS);
    match step {
        Step::Grow(more) => history.extend(more.iter().map(item)),
        Step::Change(at, with) => {
            if !history.is_empty() {
                let at = at.index(history.len());
                history[at] = item(with);
            }
        }
        Step::Insert(at, new) => history.insert(at.index(history.len() + 1), item(new)),
        Step::Cut(at) => history.truncate(at.index(history.len() + 1)),
    }
}

/// A request in which everybody greets so often.
fn body(format: Format, items: &[&str], between: &str, greetings: usize) -> String {
    let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
    let items = items.join(between).replace("hi", &"hi".repeat(greetings));
    format!(r#"{{"model":"m","{key}":[{items}]}}"#)
}

/// Everything that a request says.
#[derive(Debug, PartialEq)]
struct Told {
    units: Vec<HistoryUnit>,
    chain: Vec<Digest>,
    references: Vec<String>,
    instructions: Digest,
    opening: Vec<Event>,
    events: Vec<Event>,
    newest: Vec<Event>,
    raw: String,
}

fn told(format: Format, body: &str, memo: &MessageMemo) -> Told {
    let seen = IncomingRequest::read(format, body, memo).unwrap();
    let units = seen.units().to_vec();
    Told {
        chain: seen.chain(),
        references: seen.references().to_vec(),
        instructions: seen.instructions(),
        opening: seen.opening(),
        events: seen.events(0),
        newest: seen.events(units.len().saturating_sub(2)),
        raw: seen.raw(units.len()),
        units,
    }
}

proptest! {
    #[test]
    fn a_request_says_the_same_whatever_was_seen_before_it(
        begins in prop::collection::vec(any::<Index>(), 10..70),
        steps in prop::collection::vec((step(), 0..BETWEEN.len(), 1..4_usize), 1..6),
        remembered in prop::sample::select(vec![4_usize, 60, 1_000]),
        // Long histories are known by how they begin.
        greetings in prop::sample::select(vec![1_usize, 2_000]),
    ) {
        let memo = MessageMemo::new(remembered);
        let mut history: Vec<&str> = begins.iter().map(|index| *index.get(&ITEMS)).collect();
        for (step, between, times) in &steps {
            take(step, &mut history);
            for format in Format::ALL {
                let body = body(format, &history, BETWEEN[*between], greetings);
                let alone = told(format, &body, &MessageMemo::default());
                for _ in 0..*times {
                    prop_assert!(told(format, &body, &memo) == alone, "{:?}", history);
                }
            }
        }
    }
}
