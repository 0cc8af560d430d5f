//! Summaries that are told as the model's answer.

use epitome_core::{
    ContentPart, Event, Fact, TokenCounter, Tokens,
    cost::{RequestExtension, extends},
    event::{Compaction, CompactionTrigger, Summary, ToolCall, ToolResult},
    id::Seq,
    meter::TokenOverhead,
    policy::SummaryShape,
    tokens::EstimateCounter,
};
use epitome_wire::{
    Format, anthropic,
    legality::{ProviderRule, ProviderRules, check},
    render::{RenderOptions, recount},
};
use serde_json::Value;

use crate::{
    histories::{Quarters, context, logged},
    prompts::memo,
};

fn said(text: &str) -> Event {
    Event::from_fact(Fact::UserSaid { parts: vec![ContentPart::text(text)] }, None)
}

fn answered(text: &str) -> Event {
    Event::from_fact(
        Fact::AssistantSaid { answer: None, model: None, parts: vec![ContentPart::text(text)] },
        None,
    )
}

fn called(id: &str) -> [Event; 2] {
    let call = ContentPart::ToolCall(ToolCall::function(id, "look", "{}"));
    let result =
        ToolResult { call: id.into(), name: None, parts: vec![ContentPart::text("A cat.")], error: false };
    [
        Event::from_fact(Fact::AssistantSaid { answer: None, model: None, parts: vec![call] }, None),
        Event::from_fact(Fact::ToolReturned { results: vec![result], parts: Vec::new() }, None),
    ]
}

fn compacted(summary: Summary, keeps: Option<u64>) -> Event {
    let compaction = Compaction {
        summary,
        through: Seq(2),
        first_kept: keeps.map(Seq),
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Threshold,
    };
    Event::from_fact(Fact::Compacted(compaction), None)
}

fn summary() -> Summary {
    Summary::Text("We looked.".into())
}

/// The messages of a request, a line each: role and text, or what else it is.
fn told(format: Format, events: &[Event]) -> String {
    let context = context(&logged(events.to_vec()));
    let rules = ProviderRules::of(format).with(ProviderRule::PrefillRefused).with(ProviderRule::FirstIsUser);
    let options =
        RenderOptions { summary: SummaryShape::QuestionAndAnswer, rules, ..RenderOptions::of(format) };
    let body = format.render(&context, &options).unwrap().body;
    assert!(check(format, &body, &options.rules).is_empty(), "{body}");
    assert!(recount(format, &body, context.meter()).unwrap() <= context.tokens(), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    let history = if format == Format::OpenaiResponses { &body["input"] } else { &body["messages"] };
    let block = |block: &Value| match block["text"].as_str() {
        Some(text) => text.to_owned(),
        None => block["type"].as_str().unwrap_or("?").to_owned(),
    };
    let message = |message: &Value| {
        let role = message["role"].as_str().or(message["type"].as_str()).unwrap_or("?");
        let words = match &message["content"] {
            Value::String(text) => text.clone(),
            Value::Array(blocks) => blocks.iter().map(block).collect::<Vec<_>>().join(" | "),
            _ => String::new(),
        };
        format!("{role}: {words}").trim_end().to_owned()
    };
    history.as_array().unwrap().iter().map(message).collect::<Vec<_>>().join("\n")
}

fn check_all(events: &[Event], expect: &str) {
    for format in crate::SCRIPTED {
        assert_eq!(told(format, events), expect, "{format}");
    }
}

const ASKED: &str = "user: What has been done so far?\nassistant: We looked.";

#[test]
fn a_summary_answers_a_question_and_the_user_goes_on() {
    let head = [said("Look."), answered("I did."), compacted(summary(), None)];
    check_all(&[&head[..], &[said("And now?")]].concat(), &format!("{ASKED}\nuser: And now?"));
}

#[test]
fn if_the_user_has_not_spoken_since_the_model_is_told_to_go_on() {
    let head = [said("Look."), answered("I did."), compacted(summary(), None)];
    check_all(&head, &format!("{ASKED}\nuser: Continue."));
    let going = [&head[..], &[answered("Looking again.")], &[said("Good.")]].concat();
    check_all(&going, &format!("{ASKED}\nuser: Continue.\nassistant: Looking again.\nuser: Good."));
    // A message of which nothing is left is not the user's turn.
    let silent = [&head[..], &[said(" ")], &[answered("Looking again.")], &[said("Good.")]].concat();
    let expect = format!("{ASKED}\nuser: Continue.\nassistant: Looking again.\nuser: Good.");
    assert_eq!(told(Format::Anthropic, &silent), expect);
}

#[test]
fn what_is_kept_from_before_follows_it() {
    let kept = [said("Look."), answered("I did."), compacted(summary(), Some(2))];
    check_all(&kept, &format!("{ASKED}\nuser: Continue.\nassistant: I did.\nuser: Continue."));
    let kept = [said("Look."), answered("I did."), compacted(summary(), Some(1))];
    check_all(&kept, &format!("{ASKED}\nuser: Look.\nassistant: I did.\nuser: Continue."));
}

#[test]
fn what_only_its_provider_can_read_stays_as_it_is() {
    let sealed = [
        said("Look."),
        compacted(Summary::Encrypted("c2VhbGVkc2VhbGVkc2VhbGVkc2VhbGVkc2VhbGVkc2VhbGVk".into()), None),
    ];
    let seen = told(Format::OpenaiChat, &sealed);
    assert!(!seen.contains("so far"), "{seen}");
    let blank = [said("Look."), compacted(Summary::Text(" ".into()), None), said("Go.")];
    assert_eq!(told(Format::Anthropic, &blank), "user: Go.");
    // A summary that a client wrote as a user message is words like any other.
    let mut own = compacted(summary(), None);
    own.raw = anthropic::message(r#"{"role":"user","content":"We looked."}"#).unwrap().raw;
    assert_eq!(told(Format::Anthropic, &[said("Look."), own, said("Go.")]), format!("{ASKED}\nuser: Go."));
}

#[test]
fn every_form_only_grows_at_its_end() {
    for form in [SummaryShape::Message, SummaryShape::QuestionAndAnswer] {
        for format in crate::SCRIPTED {
            let mut events = vec![said("Look."), answered("I did."), compacted(summary(), None)];
            let mut memo = memo();
            let mut sent = None;
            for turn in 0..6 {
                let options = RenderOptions { summary: form, ..RenderOptions::of(format) };
                let body = format.render(&context(&logged(events.clone())), &options).unwrap().body;
                let prompt = format.prompt(&body, &mut memo).unwrap();
                if let Some(sent) = &sent {
                    assert_eq!(
                        extends(sent, &prompt),
                        RequestExtension::Extends,
                        "{format} {form:?}\n{body}"
                    );
                }
                sent = Some(prompt);
                events.extend(called(&format!("call_{turn}")));
                if turn % 2 == 1 {
                    events.extend([answered("There."), said("Again.")]);
                }
            }
        }
    }
}

/// What a hook adds beside the newest message stays where it was.
#[test]
fn injected_content_is_sent_again_in_its_place() {
    for format in crate::SCRIPTED {
        let injected = Event::from_fact(
            Fact::Injected {
                hook: "memory".into(),
                beside: Some(Seq(1)),
                parts: vec![ContentPart::text("It is Monday.")],
            },
            None,
        );
        let mut events = vec![said("Look."), injected];
        let mut memo = memo();
        let mut prompt = |events: &[Event]| {
            let body =
                format.render(&context(&logged(events.to_vec())), &RenderOptions::of(format)).unwrap().body;
            assert_eq!(body.matches("It is Monday.").count(), 1);
            format.prompt(&body, &mut memo).unwrap()
        };
        let first = prompt(&events);
        events.extend(called("a"));
        events.extend([answered("A cat."), said("Good.")]);
        assert_eq!(extends(&first, &prompt(&events)), RequestExtension::Extends, "{format}");
    }
}

#[test]
fn the_words_around_a_summary_are_paid_for() {
    let words = ["What has been done so far?", "Continue."];
    let cost = |counter: &dyn TokenCounter| words.iter().map(|text| counter.count(text)).sum::<Tokens>();
    assert!(cost(&EstimateCounter) <= TokenOverhead::default().summary, "{}", cost(&EstimateCounter));
    assert!(cost(&Quarters) <= TokenOverhead::default().summary);
}
