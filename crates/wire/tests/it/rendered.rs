//! Contexts, rendered: legal whatever was done to them, never more than they say they cost, and untouched where nobody
//! touched them.

use std::sync::Arc;

use epitome_core::{
    Fact, Logged, Part,
    budget::Budget,
    context::{Content, Context, Message},
    event::Instruction,
    fit::fit,
    pipeline::State,
    reducers::default_pipeline,
    tokens::Tokens,
};
use epitome_wire::{
    Format, RenderError, RenderOptions, Rule, Rules, check, check_against, recount, settle_thinking,
};
use proptest::prelude::*;
use serde_json::value::RawValue;

use crate::{
    fixtures,
    histories::{context, cut, cuts, events, history, logged},
};

/// Renders, and checks what holds for every rendered request.
pub(crate) fn render(format: Format, context: &Context, rules: Rules) -> String {
    let options = RenderOptions { model: None, rules };
    let rendered = format.render(context, &options).unwrap();
    let found = check(format, &rendered.body, &options.rules);
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{format}: {found:#?}\n{}", rendered.body);
    let counted = recount(format, &rendered.body, context.meter()).unwrap();
    assert!(counted <= context.tokens(), "{format}: {counted} > {}\n{}", context.tokens(), rendered.body);
    assert_eq!(format.render(context, &options).unwrap(), rendered, "the same twice");
    for message in &rendered.messages {
        let json = &rendered.body[message.bytes.clone()];
        assert!(serde_json::from_str::<&RawValue>(json).is_ok(), "{json}");
    }
    thinking_keeps_its_bytes(format, context, &rendered.body);
    questions_keep_their_bytes(format, context, &rendered.body);
    rendered.body
}

/// Every thinking block that is rendered is one that came.
fn thinking_keeps_its_bytes(format: Format, context: &Context, body: &str) {
    if format != Format::Anthropic {
        return;
    }
    #[derive(serde::Deserialize)]
    struct Request<'b> {
        #[serde(borrow)]
        messages: Vec<&'b RawValue>,
    }
    #[derive(serde::Deserialize)]
    struct Said<'b> {
        #[serde(borrow)]
        content: &'b RawValue,
    }
    let request: Request<'_> = serde_json::from_str(body).unwrap();
    let said = request.messages.iter().filter_map(|said| serde_json::from_str::<Said<'_>>(said.get()).ok());
    let lists = said.map(|said| serde_json::from_str::<Vec<&RawValue>>(said.content.get()));
    let blocks = lists.filter_map(Result::ok).flatten().map(RawValue::get);
    let is_thinking = |block: &&str| {
        let block: serde_json::Value = serde_json::from_str(block).unwrap();
        block["type"] == "thinking" || block["type"] == "redacted_thinking"
    };
    let came = |thought: &str| {
        context.messages().any(|message| match message {
            Message::Answer(answer) => {
                answer.fragments.iter().any(|fragment| fragment.event.event.raw.json.contains(thought))
            }
            _ => false,
        })
    };
    for block in blocks.filter(is_thinking) {
        assert!(came(block), "{block}");
    }
}

/// What a user said in this format, and nobody touched, is in the request with its bytes.
fn questions_keep_their_bytes(format: Format, context: &Context, body: &str) {
    for message in context.messages() {
        if let Message::User { event, content: Content::AsSent, .. } = message
            && event.event.raw.dialect == format.dialect()
            && let Fact::UserSaid { parts } = &event.event.fact
        {
            if format == Format::Anthropic {
                for part in parts {
                    if let Part::Text { text } = part
                        && !text.trim().is_empty()
                    {
                        let literal = serde_json::to_string(text).unwrap();
                        // Some write their strings in other ways, and these must stay too; they are tried elsewhere.
                        assert!(
                            body.contains(&literal) || !event.event.raw.json.contains(&literal),
                            "{text}"
                        );
                    }
                }
            } else {
                assert!(body.contains(&*event.event.raw.json), "{}\n{body}", event.event.raw.json);
            }
        }
    }
}

/// What a model may demand beyond its provider.
fn strict(format: Format) -> Rules {
    Rules::of(format).with(Rule::PrefillRefused).with(Rule::FirstIsUser)
}

proptest! {
    #[test]
    fn every_context_is_rendered_legally_and_within_its_count(steps in history(24)) {
        let context = context(&events(&steps));
        for format in Format::ALL {
            render(format, &context, Rules::of(format));
            render(format, &context, strict(format));
            render(format, &context, Rules::default());
        }
    }

    #[test]
    fn so_is_one_that_was_cut_at_random(steps in history(24), cuts in cuts()) {
        let context = cut(context(&events(&steps)), &cuts);
        for format in Format::ALL {
            render(format, &context, strict(format));
        }
    }

    #[test]
    fn so_is_one_that_was_reduced_to_a_budget(steps in history(24), share in 1..100_u64) {
        let context = context(&events(&steps));
        let ceiling = Tokens(context.tokens().0 * share / 100);
        if let Ok(fitted) = fit(context, &Budget::new(ceiling), &default_pipeline(), State::default()) {
            for format in Format::ALL {
                let body = render(format, &fitted.context, Rules::of(format));
                prop_assert!(recount(format, &body, fitted.context.meter()).unwrap() <= ceiling);
            }
        }
    }

    #[test]
    fn thinking_that_is_bound_goes_with_what_it_is_bound_to(steps in history(24), cuts in cuts()) {
        let rules = Rules::of(Format::Anthropic).with(Rule::PreservedThinking);
        let sent = context(&events(&steps));
        // Begin with thinking that is valid: a context that stands on a summary keeps none from before it.
        let sent = settle_thinking(sent.clone(), &sent, &rules.clone().without(Rule::ThinkingStaysInOpenLoop)).unwrap().context;
        let before = render(Format::Anthropic, &sent, rules.clone());
        let reduced = cut(sent.clone(), &cuts);
        let cost = reduced.tokens();
        let accounted = reduced.accounted();
        if let Ok(settled) = settle_thinking(reduced, &sent, &rules) {
            prop_assert_eq!(settled.context.fault(), None);
            prop_assert_eq!(settled.context.accounted(), accounted);
            prop_assert!(settled.context.tokens() <= cost);
            let after = render(Format::Anthropic, &settled.context, rules.clone());
            let without_loops = rules.clone().without(Rule::ThinkingStaysInOpenLoop);
            let found = check_against(Format::Anthropic, &before, &after, &without_loops);
            prop_assert!(found.is_empty(), "{:#?}\n{}\n{}", found, before, after);
        }
    }

    #[test]
    fn no_text_makes_a_check_panic(text in any::<String>(), other in r#"[\[\]{}":,a-z_0-9 ]{0,60}"#) {
        let meter = context(&[]).meter().clone();
        for format in Format::ALL {
            for body in [&text, &other] {
                let _ = check(format, body, &strict(format));
                let _ = check_against(format, body, &other, &strict(format).with(Rule::PreservedThinking));
                let _ = recount(format, body, &meter);
            }
        }
    }
}

/// A request as a context: what a gateway does with it.
fn of_request(format: Format, request: &str) -> (Vec<Arc<Logged>>, Context) {
    let events = logged(format.decode_request(request).unwrap());
    let context = context(&events);
    (events, context)
}

#[test]
fn a_request_that_is_legal_leaves_as_it_came() {
    let mut same = 0;
    for fixture in fixtures::requests() {
        let (_, context) = of_request(fixture.format, &fixture.text);
        let rules = Rules::of(fixture.format);
        let Ok(rendered) = fixture.format.render(&context, &RenderOptions::of(fixture.format)) else {
            assert!(fixture.text.contains("previous_response_id"), "{}", fixture.name);
            continue;
        };
        if check(fixture.format, &fixture.text, &rules).is_empty() {
            let spaceless = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(
                spaceless(&rendered.body),
                spaceless(&fixture.text),
                "{} {}",
                fixture.format,
                fixture.name
            );
            same += 1;
        }
        render(fixture.format, &context, rules);
        for format in Format::ALL {
            render(format, &context, Rules::of(format));
        }
    }
    assert!(same >= 4, "only {same} fixtures are legal");
}

#[test]
fn the_model_can_be_another() {
    let (_, context) =
        of_request(Format::OpenaiChat, r#"{"model":"a","messages":[{"role":"user","content":"hi"}],"n":1}"#);
    let check = |format: Format, expect: &str| {
        let options = RenderOptions { model: Some("b".into()), rules: Rules::of(format) };
        assert_eq!(format.render(&context, &options).unwrap().body, expect);
    };
    check(Format::OpenaiChat, r#"{"model":"b","messages":[{"role":"user","content":"hi"}],"n":1}"#);
    check(
        Format::Anthropic,
        r#"{"model":"b","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#,
    );
}

#[test]
fn a_history_on_the_providers_side_is_not_rendered() {
    let request = r#"{"previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"a","output":"1"}]}"#;
    let (_, context) = of_request(Format::OpenaiResponses, request);
    let refused = Format::OpenaiResponses.render(&context, &RenderOptions::of(Format::OpenaiResponses));
    assert!(matches!(refused, Err(RenderError::RemoteHistory { setting: "previous_response_id" })));
    assert!(check(Format::OpenaiResponses, request, &Rules::default()).is_empty());
}

#[test]
fn a_context_of_nothing_is_still_a_request() {
    for format in Format::ALL {
        render(format, &context(&[]), strict(format));
    }
    let (_, only_system) = of_request(Format::Anthropic, r#"{"system":"s","messages":[]}"#);
    assert_eq!(
        render(Format::Anthropic, &only_system, Rules::of(Format::Anthropic)),
        r#"{"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"(continued)"}]}]}"#
    );
}

#[test]
fn every_message_says_which_events_it_stands_for() {
    let (events, whole) =
        of_request(Format::Anthropic, &fixtures::request(Format::Anthropic, "claude-code.json"));
    let rendered = Format::Anthropic.render(&whole, &RenderOptions::of(Format::Anthropic)).unwrap();
    let stands_for =
        epitome_core::seq_set::SeqSet::union(rendered.messages.iter().map(|message| &message.events));
    for event in &events {
        let apart = matches!(
            &event.event.fact,
            Fact::Instructed { what: Instruction::Settings | Instruction::System | Instruction::Tools, .. }
        );
        assert_eq!(stands_for.contains(event.id.seq), !apart, "{:?}", event.event.fact);
    }
    let folded = whole.fold("test", &[1..3, 4..6], |_| "[gone]".to_owned());
    let rendered = Format::Anthropic.render(&folded, &RenderOptions::of(Format::Anthropic)).unwrap();
    let note =
        rendered.messages.iter().find(|message| rendered.body[message.bytes.clone()].contains("[gone]"));
    assert!(note.unwrap().events.count() > 1);
}
