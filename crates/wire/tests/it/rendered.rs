//! Contexts, rendered: legal whatever was done to them, never more than they say they cost, and untouched where nobody
//! touched them.

use std::sync::Arc;

use epitome_core::{
    ContentPart, Event, Fact, LoggedEvent, Seq,
    budget::Budget,
    context::{Context, ContextMessage, EventNaming, Fidelity, Segment, SegmentContent, SegmentEdit, Tier},
    event::{Compaction, CompactionTrigger, InstructionKind, Summary, ToolCall, ToolResult},
    fit::fit,
    meter::{Meter, TokenOverhead},
    pipeline::ReducerState,
    policy::SummaryShape,
    projection::{EventLine, project},
    reducers::default_pipeline,
    tokens::Tokens,
};
use epitome_wire::{
    Format, anthropic,
    legality::{ProviderRule, ProviderRules, check, check_against},
    render::{BoundThinkingError, RenderError, RenderOptions, RenderedRequest, recount, settle_thinking},
};
use proptest::prelude::*;
use serde_json::value::RawValue;

use crate::{
    fixtures,
    histories::{Quarters, context, cut, cuts, events, history, logged, whole_answers},
};

/// Renders, and checks what holds for every rendered request.
pub(crate) fn render(format: Format, context: &Context, rules: ProviderRules) -> String {
    let options = RenderOptions { rules, ..RenderOptions::of(format) };
    let rendered = legal_and_paid(format, context, &options);
    assert_eq!(format.render(context, &options).unwrap(), rendered, "the same twice");
    for message in &rendered.messages {
        let json = &rendered.body[message.bytes.clone()];
        assert!(serde_json::from_str::<&RawValue>(json).is_ok(), "{json}");
    }
    let told = RenderOptions { summary: SummaryShape::QuestionAndAnswer, ..options };
    legal_and_paid(format, context, &told);
    thinking_keeps_its_bytes(format, context, &rendered.body);
    questions_keep_their_bytes(format, context, &rendered.body);
    rendered.body
}

/// Renders what its provider takes and its context pays for.
fn legal_and_paid(format: Format, context: &Context, options: &RenderOptions) -> RenderedRequest {
    let rendered = format.render(context, options).unwrap();
    let found = check(format, &rendered.body, &options.rules);
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{format}: {found:#?}\n{}", rendered.body);
    let counted = recount(format, &rendered.body, context.meter()).unwrap();
    assert!(counted <= context.tokens(), "{format}: {counted} > {}\n{}", context.tokens(), rendered.body);
    rendered
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

/// Every thinking block that is rendered is one that came.
fn thinking_keeps_its_bytes(format: Format, context: &Context, body: &str) {
    if format != Format::Anthropic {
        return;
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
            ContextMessage::Answer(answer) => {
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
        if let ContextMessage::User { event, content: SegmentContent::AsSent, .. } = message
            && event.event.raw.dialect == format.dialect()
            && let Fact::UserSaid { parts } = &event.event.fact
        {
            if matches!(format, Format::Anthropic | Format::Gemini) {
                for part in parts {
                    if let ContentPart::Text { text } = part
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
            } else if !parts.is_empty() {
                assert!(body.contains(&*event.event.raw.json), "{}\n{body}", event.event.raw.json);
            }
        }
    }
}

/// What a model may demand beyond its provider.
fn strict(format: Format) -> ProviderRules {
    ProviderRules::of(format)
        .with(ProviderRule::PrefillRefused)
        .with(ProviderRule::FirstIsUser)
        .with(ProviderRule::ReasoningReturned)
}

proptest! {
    #[test]
    fn every_context_is_rendered_legally_and_within_its_count(steps in history(24)) {
        let context = context(&events(&steps));
        for format in Format::ALL {
            render(format, &context, ProviderRules::of(format));
            render(format, &context, strict(format));
            render(format, &context, ProviderRules::default());
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
        if let Ok(fitted) = fit(context, &Budget::new(ceiling), &default_pipeline(), ReducerState::default()) {
            for format in Format::ALL {
                let body = render(format, &fitted.context, ProviderRules::of(format));
                prop_assert!(recount(format, &body, fitted.context.meter()).unwrap() <= ceiling);
            }
        }
    }

    #[test]
    fn thinking_that_is_bound_goes_with_what_it_is_bound_to(steps in history(24), cuts in cuts()) {
        let rules = ProviderRules::of(Format::Anthropic).with(ProviderRule::PreservedThinking);
        let sent = context(&events(&steps));
        // Begin with thinking that is valid: a context that stands on a summary keeps none from before it.
        let sent = settle_thinking(sent.clone(), &sent, &rules.clone().without(ProviderRule::ThinkingStaysInOpenLoop), Tokens::MAX).unwrap().context;
        let before = render(Format::Anthropic, &sent, rules.clone());
        let reduced = cut(sent.clone(), &cuts);
        let accounted = reduced.accounted();
        if let Ok(settled) = settle_thinking(reduced, &sent, &rules, Tokens::MAX) {
            prop_assert_eq!(settled.context.find_inconsistency(), None);
            prop_assert_eq!(settled.context.accounted(), accounted);
            let after = render(Format::Anthropic, &settled.context, rules.clone());
            let without_loops = rules.clone().without(ProviderRule::ThinkingStaysInOpenLoop);
            let found = check_against(Format::Anthropic, &before, &after, &without_loops);
            prop_assert!(found.is_empty(), "{:#?}\n{}\n{}", found, before, after);
        }
    }

    #[test]
    fn an_open_loop_keeps_its_thinking_or_is_told_again(steps in history(24), (decisions, folds) in cuts()) {
        let rules = ProviderRules::of(Format::Anthropic).with(ProviderRule::PreservedThinking);
        let sent = context(&events(&steps));
        let Ok(sent) = settle_thinking(sent.clone(), &sent, &rules, Tokens::MAX) else { return Ok(()) };
        let before = render(Format::Anthropic, &sent.context, rules.clone());
        // Calls are told apart by their ids here, and one that is used again is written as another once the first is gone.
        prop_assume!(!before.contains("_2\""));
        // Edits that leave out nothing of the loop that is open: that, a reducer must not do here.
        let segments = sent.context.segments();
        let last = segments.iter().rposition(Segment::is_answer).unwrap_or(0);
        let speaks = |segment: &Segment| segment.is_user() && segment.content_tokens() > Tokens(1);
        let asked = segments[..last].iter().rposition(speaks).unwrap_or(0);
        let folds = if asked > 1 { folds } else { Vec::new() };
        let runs = folds.iter().map(|(one, other)| (one.index(asked.max(1)), other.index(asked.max(1))));
        let run = runs.map(|(one, other)| one.min(other)..one.max(other)).next();
        let folded = match run {
            Some(run) => sent.context.clone().fold("test", &[whole_answers(&sent.context, run)], |_| "[gone]".into()),
            None => sent.context.clone(),
        };
        let replaced = (decisions.into_iter().map(|decision| decision % 2).collect(), Vec::new());
        if let Ok(settled) = settle_thinking(cut(folded, &replaced), &sent.context, &rules, Tokens::MAX) {
            let after = render(Format::Anthropic, &settled.context, rules.clone());
            let found = check_against(Format::Anthropic, &before, &after, &rules);
            prop_assert!(found.is_empty(), "{:#?}\n{}\n{}", found, before, after);
        }
    }

    #[test]
    fn no_text_makes_a_check_panic(text in any::<String>(), other in r#"[\[\]{}":,a-z_0-9 ]{0,60}"#) {
        let meter = context(&[]).meter().clone();
        for format in Format::ALL {
            for body in [&text, &other] {
                let _ = check(format, body, &strict(format));
                let _ = check_against(format, body, &other, &strict(format).with(ProviderRule::PreservedThinking));
                let _ = recount(format, body, &meter);
            }
        }
    }
}

/// A request as a context: what a gateway does with it.
fn of_request(format: Format, request: &str) -> (Vec<Arc<LoggedEvent>>, Context) {
    let events = logged(format.decode_request(request).unwrap());
    let context = context(&events);
    (events, context)
}

#[test]
fn a_request_that_is_legal_leaves_as_it_came() {
    let mut same = 0;
    for fixture in fixtures::requests() {
        let (_, context) = of_request(fixture.format, &fixture.text);
        let rules = ProviderRules::of(fixture.format);
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
            render(format, &context, ProviderRules::of(format));
        }
    }
    assert!(same >= 4, "only {same} fixtures are legal");
}

/// Of a plain dialogue every token is found again; only the two messages that did not have to be put in are saved.
#[test]
fn a_recount_finds_everything_that_was_counted() {
    let said = [r#"{"role":"user","content":"What is it?"}"#, r#"{"role":"assistant","content":"A cat."}"#];
    for format in crate::SCRIPTED {
        let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
        let (_, context) = of_request(format, &format!(r#"{{"{key}":[{}]}}"#, said.join(",")));
        let body = render(format, &context, ProviderRules::of(format));
        let settings = context.meter().overhead().message;
        let spare = context.meter().overhead().request.0 - 3 + settings.0;
        assert_eq!(
            recount(format, &body, context.meter()).unwrap().0 + spare,
            context.tokens().0,
            "{format}"
        );
    }
}

#[test]
fn the_model_can_be_another() {
    let (_, context) =
        of_request(Format::OpenaiChat, r#"{"model":"a","messages":[{"role":"user","content":"hi"}],"n":1}"#);
    let check = |format: Format, expect: &str| {
        let options = RenderOptions { model: Some("b".into()), ..RenderOptions::of(format) };
        assert_eq!(format.render(&context, &options).unwrap().body, expect);
    };
    check(Format::OpenaiChat, r#"{"model":"b","messages":[{"role":"user","content":"hi"}],"n":1}"#);
    check(
        Format::Anthropic,
        r#"{"model":"b","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#,
    );
}

#[test]
fn an_anthropic_request_says_how_much_may_be_answered_if_it_is_to_be_said() {
    let check = |request: &str, expect: &str| {
        let (_, context) = of_request(Format::Anthropic, request);
        let options = RenderOptions { answer: Some(Tokens(9)), ..RenderOptions::of(Format::Anthropic) };
        assert_eq!(Format::Anthropic.render(&context, &options).unwrap().body, expect);
    };
    let own = r#"{"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}"#;
    check(own, own);
    check(
        r#"{"messages":[{"role":"user","content":"hi"}]}"#,
        r#"{"messages":[{"role":"user","content":"hi"}],"max_tokens":9}"#,
    );
}

#[test]
fn a_list_of_nothing_is_written_as_nothing() {
    let call = r#"{"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}"#;
    let history = |none: &str, null: &str| {
        let user = format!(r#"{{"role":"user","content":{none}}}"#);
        let said = format!(r#"{{"role":"assistant","content":{null},"tool_calls":[{call}]}}"#);
        let result = format!(r#"{{"role":"tool","tool_call_id":"a","content":{none}}}"#);
        format!(r#"{{"messages":[{user},{said},{result}]}}"#)
    };
    let (_, context) = of_request(Format::OpenaiChat, &history("[]", "[]"));
    let options = RenderOptions::of(Format::OpenaiChat);
    let body = Format::OpenaiChat.render(&context, &options).unwrap().body;
    assert_eq!(body, history("\"\"", "null"));
    assert!(check(Format::OpenaiChat, &body, &options.rules).is_empty());
}

#[test]
fn an_answer_that_lost_its_reasoning_keeps_a_place_for_it() {
    let said = |id: &str, reasoning: &str| {
        let call =
            format!(r#"{{"id":"{id}","type":"function","function":{{"name":"t","arguments":"{{}}"}}}}"#);
        let said = format!(r#"{{"role":"assistant","content":null,{reasoning}"tool_calls":[{call}]}}"#);
        format!(r#"{said},{{"role":"tool","tool_call_id":"{id}","content":"r"}}"#)
    };
    let request = |first: &str, second: &str| {
        let user = r#"{"role":"user","content":"u"}"#;
        format!(r#"{{"messages":[{user},{},{}]}}"#, said("a", first), said("b", second))
    };
    let hm = r#""reasoning_content":"hm","#;
    let rules = || ProviderRules::default().with(ProviderRule::ReasoningReturned);
    let (_, whole) = of_request(Format::OpenaiChat, &request(hm, hm));
    assert_eq!(render(Format::OpenaiChat, &whole, rules()), request(hm, hm));
    let mut met = 0;
    let cut = whole.edit("test", |_, segment| {
        met += usize::from(segment.tier() == Tier::Reasoning);
        if segment.tier() == Tier::Reasoning && met == 1 { SegmentEdit::Drop } else { SegmentEdit::Keep }
    });
    let body = render(Format::OpenaiChat, &cut, rules());
    assert!(body.contains("\"reasoning_content\":\"\"") && body.contains(hm), "{body}");
    let (_, silent) = of_request(Format::OpenaiChat, &request("", ""));
    assert_eq!(
        render(Format::OpenaiChat, &silent, rules()),
        request("", ""),
        "who does not think is left alone"
    );
}

#[test]
fn a_history_on_the_providers_side_is_not_rendered() {
    let request = r#"{"previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"a","output":"1"}]}"#;
    let (_, context) = of_request(Format::OpenaiResponses, request);
    let refused = Format::OpenaiResponses.render(&context, &RenderOptions::of(Format::OpenaiResponses));
    assert!(matches!(refused, Err(RenderError::RemoteHistory { setting: "previous_response_id" })));
    assert!(check(Format::OpenaiResponses, request, &ProviderRules::default()).is_empty());
}

#[test]
fn a_context_of_nothing_is_still_a_request() {
    for format in Format::ALL {
        render(format, &context(&[]), strict(format));
    }
    let (_, only_system) = of_request(Format::Anthropic, r#"{"system":"s","messages":[]}"#);
    assert_eq!(
        render(Format::Anthropic, &only_system, ProviderRules::of(Format::Anthropic)),
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
            Fact::Instructed {
                what: InstructionKind::Settings | InstructionKind::System | InstructionKind::Tools,
                ..
            }
        );
        assert_eq!(stands_for.contains(event.id.seq), !apart, "{:?}", event.event.fact);
    }
    let folded = whole.fold("test", &[1..3, 4..6], |_| "[gone]".to_owned());
    let rendered = Format::Anthropic.render(&folded, &RenderOptions::of(Format::Anthropic)).unwrap();
    let note =
        rendered.messages.iter().find(|message| rendered.body[message.bytes.clone()].contains("[gone]"));
    assert!(note.unwrap().events.count() > 1);
}

/// A loop of two calls that is still going, after a first one that ended: what an agent sends before it goes on.
fn open_loop() -> Context {
    let result = "0123456789".repeat(40);
    let request = format!(
        r#"{{"messages":[{{"role":"user","content":"first"}},
        {{"role":"assistant","content":[{{"type":"thinking","thinking":"A","signature":"1"}},{{"type":"tool_use","id":"a","name":"read","input":{{"path":"a"}}}}]}},
        {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","content":"{result}"}}]}},
        {{"role":"assistant","content":[{{"type":"thinking","thinking":"B","signature":"2"}},{{"type":"text","text":"Done."}}]}},
        {{"role":"user","content":"second"}},
        {{"role":"assistant","content":[{{"type":"thinking","thinking":"C","signature":"3"}},{{"type":"text","text":"Let me see."}},{{"type":"tool_use","id":"b","name":"read","input":{{"path":"b"}}}}]}},
        {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"b","content":"{result}"}}]}}]}}"#
    );
    of_request(Format::Anthropic, &request).1
}

/// Replaces what the calls of an answer gave back.
fn without_result(context: Context, answer: usize) -> Context {
    let calls: Vec<usize> =
        (0..context.segments().len()).filter(|index| context.segments()[*index].call().is_some()).collect();
    context.edit("test", |index, _| {
        if index == calls[answer] {
            SegmentEdit::line("[gone]".into(), Fidelity::Stub)
        } else {
            SegmentEdit::Keep
        }
    })
}

fn preserved() -> ProviderRules {
    ProviderRules::of(Format::Anthropic).with(ProviderRule::PreservedThinking)
}

fn thoughts(body: &str) -> Vec<&str> {
    ["A", "B", "C"]
        .into_iter()
        .filter(|thought| body.contains(&format!(r#""thinking":"{thought}""#)))
        .collect()
}

#[test]
fn a_change_after_all_thinking_strips_nothing() {
    let sent = open_loop();
    let settled = settle_thinking(without_result(sent.clone(), 1), &sent, &preserved(), Tokens::MAX).unwrap();
    assert_eq!((settled.stripped, settled.retold), (0, false));
    assert_eq!(thoughts(&render(Format::Anthropic, &settled.context, preserved())), ["A", "B", "C"]);
}

#[test]
fn a_change_before_an_open_loop_tells_the_loop_again() {
    let sent = open_loop();
    let settled = settle_thinking(without_result(sent.clone(), 0), &sent, &preserved(), Tokens::MAX).unwrap();
    assert_eq!((settled.stripped, settled.retold), (2, true));
    let body = render(Format::Anthropic, &settled.context, preserved());
    assert_eq!(thoughts(&body), ["A"]);
    let told = body.find("[What you have done so far, told again:]").unwrap();
    let told = &body[told..].replace(&"0123456789".repeat(40), "RESULT");
    insta::assert_snapshot!(told, @r#"[What you have done so far, told again:]\nLet me see.\n[read {\"path\":\"b\"}]\nRESULT\nContinue."}]}]}"#);
    // A provider that does not bind thinking lets it stay.
    let free = settle_thinking(
        without_result(sent.clone(), 0),
        &sent,
        &ProviderRules::of(Format::Anthropic),
        Tokens::MAX,
    )
    .unwrap();
    assert_eq!(free.stripped, 0);
    // One that does without it in open loops needs no telling.
    let rules = preserved().without(ProviderRule::ThinkingStaysInOpenLoop);
    let stripped = settle_thinking(without_result(sent.clone(), 0), &sent, &rules, Tokens::MAX).unwrap();
    assert_eq!((stripped.stripped, stripped.retold), (2, false));
}

#[test]
fn a_loop_that_there_is_no_room_to_tell_again_is_refused_with_the_numbers() {
    let request = r#"{"messages":[{"role":"user","content":"a long first message that will be cut down to nothing"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"1"},{"type":"tool_use","id":"a","name":"t","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":""}]}]}"#;
    let wrapped = TokenOverhead { message: Tokens(0), call: Tokens(0), ..TokenOverhead::default() };
    let meter = Arc::new(Meter::new(Arc::new(Quarters), wrapped));
    let line = EventLine::new(logged(Format::Anthropic.decode_request(request).unwrap()));
    let tight = project(&line, meter, EventNaming::Messages);
    let cut = |context: &Context| {
        context.clone().edit("test", |_, segment| {
            if segment.is_user() { SegmentEdit::line("x".into(), Fidelity::Stub) } else { SegmentEdit::Keep }
        })
    };
    let told = settle_thinking(cut(&tight), &tight, &preserved(), Tokens::MAX).unwrap();
    let needed = told.context.tokens();
    assert!(told.retold && needed > cut(&tight).tokens(), "{needed}");
    let ceiling = Tokens(needed.0 - 1);
    let refused = settle_thinking(cut(&tight), &tight, &preserved(), ceiling).unwrap_err();
    assert_eq!(refused, BoundThinkingError { thinking: 1, needed, ceiling });
    assert!(refused.to_string().contains("choose a larger budget"), "{refused}");
}

#[test]
fn an_answer_that_ends_in_white_space_is_not_what_a_request_ends_with() {
    let answer = r#"{"role":"assistant","content":"It is \n"}"#;
    let request = format!(r#"{{"messages":[{{"role":"user","content":"Go."}},{answer}]}}"#);
    let body =
        render(Format::Anthropic, &of_request(Format::Anthropic, &request).1, ProviderRules::default());
    assert!(body.contains(answer) && body.contains("Continue."), "{body}");
    let request = request.replace(" \\n", "");
    let body =
        render(Format::Anthropic, &of_request(Format::Anthropic, &request).1, ProviderRules::default());
    assert!(!body.contains("Continue."), "{body}");
}

/// An edit of one part of a message leaves the bytes of the others alone.
#[test]
fn of_an_edited_message_only_the_edited_parts_are_written_afresh() {
    let check = |format: Format, request: &str, expect: &str| {
        let context = of_request(format, request).1.edit("test", |_, segment| {
            let parts = segment.shown().unwrap_or_default().iter().map(|part| match part {
                ContentPart::Media(_) => ContentPart::text("[an image]"),
                other => other.clone(),
            });
            SegmentEdit::Replace { parts: parts.collect(), fidelity: Fidelity::Cut }
        });
        assert_eq!(render(format, &context, ProviderRules::of(format)), expect);
    };
    let url = "https://example.org/cat.png";
    check(
        Format::Anthropic,
        &format!(
            r#"{{"messages":[{{"x":1.0, "role":"user","content":[{{"text":"a\u0062", "type":"text"}},{{"type":"image","source":{{"type":"url","url":"{url}"}}}},{{"type":"text","text":"c","cache_control":{{ }}}}]}}]}}"#
        ),
        r#"{"messages":[{"x":1.0, "role":"user","content":[{"text":"a\u0062", "type":"text"},{"type":"text","text":"[an image]"},{"type":"text","text":"c","cache_control":{ }}]}]}"#,
    );
    check(
        Format::OpenaiChat,
        &format!(
            r#"{{"messages":[{{"role":"user", "content":[{{"text":"a\u0062", "type":"text"}},{{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}]}}"#
        ),
        r#"{"messages":[{"role":"user", "content":[{"text":"a\u0062", "type":"text"},{"type":"text","text":"[an image]"}]}]}"#,
    );
    check(
        Format::OpenaiResponses,
        &format!(
            r#"{{"input":[{{"role":"user", "content":[{{"text":"a\u0062", "type":"input_text"}},{{"type":"input_image","image_url":"{url}"}}]}}]}}"#
        ),
        r#"{"input":[{"role":"user", "content":[{"text":"a\u0062", "type":"input_text"},{"type":"input_text","text":"[an image]"}]}]}"#,
    );
}

/// An answer of which a part is left out keeps the bytes of the rest.
#[test]
fn of_an_answer_the_parts_that_stay_keep_their_bytes() {
    let check = |format: Format, request: &str, expect: &str| {
        let context = of_request(format, request).1.edit("test", |_, segment| {
            if segment.call().is_some_and(|call| call.id.0 == "a") {
                SegmentEdit::Drop
            } else {
                SegmentEdit::Keep
            }
        });
        assert_eq!(render(format, &context, ProviderRules::default()), expect);
    };
    check(
        Format::Anthropic,
        r#"{"messages":[{"role":"assistant","content":[{"thinking":"t\u0068", "type":"thinking","signature":"s"},{"type":"tool_use","id":"a","name":"t","input":{}},{ "type":"tool_use","id":"b","name":"t","input":{"n":1.0}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"},{ "type":"tool_result","tool_use_id":"b","content":"2"}]}]}"#,
        r#"{"messages":[{"role":"assistant","content":[{"thinking":"t\u0068", "type":"thinking","signature":"s"},{ "type":"tool_use","id":"b","name":"t","input":{"n":1.0}}]},{"role":"user","content":[{ "type":"tool_result","tool_use_id":"b","content":"2"}]}]}"#,
    );
    let call = |id: &str| {
        format!(r#"{{ "id":"{id}","type":"function","function":{{"name":"t","arguments":"{{ }}"}}}}"#)
    };
    let (a, b) = (call("a"), call("b"));
    let head = r#""role":"assistant","content":"x\u0079","reasoning_content":"h"#;
    // What is no part, and nobody knows, goes: what paid for it may be gone.
    check(
        Format::OpenaiChat,
        &format!(
            r#"{{"messages":[{{"vendor":1.0,{head}","tool_calls":[{a},{b}]}},{{"role":"tool","tool_call_id":"b", "content":"2"}},{{"role":"tool","tool_call_id":"a","content":"1"}}]}}"#
        ),
        &format!(
            r#"{{"messages":[{{{head}","tool_calls":[{b}]}},{{"role":"tool","tool_call_id":"b", "content":"2"}}]}}"#
        ),
    );
    // Reasoning goes with the item that it led to, and what it did not lead to keeps its bytes.
    let item =
        |id: &str| format!(r#"{{ "type":"function_call","call_id":"{id}","name":"t","arguments":"{{ }}"}}"#);
    let (a, b) = (item("a"), item("b"));
    let reasoning = r#"{"type":"reasoning","summary":[]}"#;
    let output = |id: &str| format!(r#"{{"call_id":"{id}", "type":"function_call_output","output":"1"}}"#);
    check(
        Format::OpenaiResponses,
        &format!(r#"{{"input":[{reasoning},{a},{b},{},{}]}}"#, output("a"), output("b")),
        &format!(r#"{{"input":[{b},{}]}}"#, output("b")),
    );
}

#[test]
fn an_item_that_lost_its_reasoning_loses_the_id_that_asks_for_it() {
    let request = r#"{"input":[{"role":"user","content":"u"},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"a"}]}]}"#;
    let context = of_request(Format::OpenaiResponses, request).1.edit("test", |_, segment| {
        if segment.tier() == Tier::Reasoning { SegmentEdit::Drop } else { SegmentEdit::Keep }
    });
    assert_eq!(
        render(Format::OpenaiResponses, &context, ProviderRules::default()),
        r#"{"input":[{"role":"user","content":"u"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}]}"#
    );
}

#[test]
fn ids_that_others_use_again_are_told_apart() {
    let call = |id: &str| ToolCall::function(id, "t", "{}");
    let said = |parts: Vec<ContentPart>| Fact::AssistantSaid { answer: None, model: None, parts };
    let returned = |call: &str, text: &str| Fact::ToolReturned {
        results: vec![ToolResult {
            call: call.into(),
            name: None,
            parts: vec![ContentPart::text(text)],
            error: false,
        }],
        parts: vec![],
    };
    let facts = [
        said(vec![ContentPart::ToolCall(call("a.1"))]),
        returned("a.1", "one"),
        said(vec![ContentPart::ToolCall(call("a.1")), ContentPart::ToolCall(call("a|1"))]),
        returned("a|1", "three"),
        returned("a.1", "two"),
    ];
    let context = context(&logged(facts.into_iter().map(|fact| Event::native("test", "{}", fact)).collect()));
    let body = render(Format::Anthropic, &context, ProviderRules::default());
    insta::assert_snapshot!(body, @r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a_1","name":"t","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a_1","content":"one"}]},{"role":"assistant","content":[{"type":"tool_use","id":"a_1_2","name":"t","input":{}},{"type":"tool_use","id":"a_1_3","name":"t","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a_1_3","content":"three"},{"type":"tool_result","tool_use_id":"a_1_2","content":"two"}]}]}"#);
}

#[test]
fn a_signed_summary_comes_first_and_a_note_is_the_users() {
    let mut signed = anthropic::message(
        r#"{"role":"assistant","content":[{"type":"compaction","content":"We built it.","signature":"x"}]}"#,
    )
    .unwrap();
    signed.fact = Fact::Compacted(Compaction {
        summary: Summary::Text("We built it.".into()),
        through: Seq(2),
        first_kept: None,
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Manual,
    });
    let raw = signed.raw.json.to_string();
    let project = r#"{"role":"user","content":"<system-reminder>Be kind.</system-reminder>"}"#;
    let request = format!(r#"{{"messages":[{project},{{"role":"user","content":"old"}}]}}"#);
    let mut events = Format::Anthropic.decode_request(&request).unwrap();
    events.push(signed);
    events.push(anthropic::message(r#"{"role":"user","content":"new"}"#).unwrap());
    let context = context(&logged(events));
    let body = render(Format::Anthropic, &context, ProviderRules::of(Format::Anthropic));
    assert!(body.starts_with(&format!(r#"{{"messages":[{raw},{{"role":"user","#)), "{body}");
    // Elsewhere the words of the summary say the same in the user's name.
    let body = render(Format::OpenaiChat, &context, ProviderRules::of(Format::OpenaiChat));
    assert!(body.contains(r#"{"role":"user","content":"We built it."}"#), "{body}");
}
