//! Histories as no agent would write them, and all of them could: every block type in every format, calls in parallel,
//! ids used again, loops that were interrupted, results that answer nothing, empty messages, compactions, and another
//! provider in the middle.

use std::{ops::Range, sync::Arc};

use epitome_core::{
    ContentPart, Event, Fact,
    context::{Context, EventNaming, Fidelity, SegmentEdit},
    event::{
        CallForm, Compaction, CompactionTrigger, LoggedEvent, ReasoningSeal, Summary, ToolCall, ToolResult,
    },
    hash_chain::ChainLink,
    id::{EventId, Seq, ThreadId},
    media::Media,
    meter::{Meter, TokenOverhead},
    projection::{EventLine, project},
    tokens::{TokenCounter, Tokens},
};
use epitome_wire::{Format, anthropic, gemini, openai_chat, openai_responses};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

pub(crate) const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Who writes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Provider(Format),
    /// An agent with a format of its own.
    Agent,
}

/// A step of a history.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) by: By,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    User(Vec<Said>),
    Answer {
        name: Option<u8>,
        parts: Vec<Made>,
    },
    Returned {
        results: Vec<(u8, Vec<Said>)>,
        beside: Vec<Said>,
        error: bool,
    },
    Instruct(String),
    Unknown,
    Compacted {
        keeps: bool,
        sealed: bool,
    },
    /// A compaction that the provider made.
    Native,
    /// What no provider would take: a call or a result without an id, thinking without a signature.
    Broken(u8),
}

/// A piece of what a user says or a tool returns.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Text(String),
    Image,
    Link,
    Pdf,
    Unknown(String),
}

/// A piece of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    Text(String),
    Refusal(String),
    Thinking(String),
    Redacted(String),
    Server(String),
    Call { id: u8, arguments: String, form: CallForm },
}

/// Any history: mostly in one format, sometimes with others in between.
pub(crate) fn history(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let by = || {
        prop_oneof![
            Just(By::Provider(Format::OpenaiChat)),
            Just(By::Provider(Format::OpenaiResponses)),
            Just(By::Provider(Format::Anthropic)),
            Just(By::Provider(Format::Gemini)),
            Just(By::Agent),
        ]
    };
    let step = (by(), 0..6_u8, what());
    (by(), prop::collection::vec(step, 0..most)).prop_map(|(home, steps)| {
        let by = |other: By, away: u8| if away == 0 { other } else { home };
        steps.into_iter().map(|(other, away, what)| Step { by: by(other, away), what }).collect()
    })
}

fn what() -> impl Strategy<Value = What> {
    let parts = || prop::collection::vec(said(), 0..4);
    let results = prop::collection::vec((0..3_u8, prop::collection::vec(said(), 0..3)), 1..4);
    prop_oneof![
        4 => parts().prop_map(What::User),
        6 => (prop::option::of(0..3_u8), prop::collection::vec(made(), 0..5))
            .prop_map(|(name, parts)| What::Answer { name, parts }),
        6 => (results, prop::collection::vec(said(), 0..2), any::<bool>())
            .prop_map(|(results, beside, error)| What::Returned { results, beside, error }),
        1 => text().prop_map(What::Instruct),
        1 => Just(What::Unknown),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(keeps, sealed)| What::Compacted { keeps, sealed }),
        1 => Just(What::Native),
        1 => (0..4_u8).prop_map(What::Broken),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        6 => text().prop_map(Said::Text),
        1 => Just(Said::Image),
        1 => Just(Said::Link),
        1 => Just(Said::Pdf),
        1 => text().prop_map(Said::Unknown),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    let arguments = prop_oneof![
        Just(String::new()),
        Just("{}".to_owned()),
        Just(r#"{"path": "a.rs", "n": 1.0}"#.to_owned()),
        Just(r#"{"input": "x"}"#.to_owned()),
        Just("{not \"json\"\n".to_owned()),
        Just("[1]".to_owned()),
        text(),
    ];
    let form = prop_oneof![5 => Just(CallForm::Function), 1 => Just(CallForm::Custom)];
    prop_oneof![
        3 => text().prop_map(Made::Text),
        1 => text().prop_map(Made::Refusal),
        2 => text().prop_map(Made::Thinking),
        1 => text().prop_map(Made::Redacted),
        1 => text().prop_map(Made::Server),
        5 => (0..3_u8, arguments, form).prop_map(|(id, arguments, form)| Made::Call { id, arguments, form }),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        1 => Just(String::new()),
        1 => Just(" \n".to_owned()),
        4 => "[a-z \"\\\\\n]{1,40}",
        2 => "[äß漢😀a-z ]{1,60}",
        1 => (1..3_000_usize).prop_map(|length| "line of output\n".repeat(length / 15 + 1)),
    ]
}

/// The events of a history.
pub(crate) fn events(steps: &[Step]) -> Vec<Arc<LoggedEvent>> {
    let mut events: Vec<Event> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let made = match step.by {
            By::Provider(Format::Anthropic) => in_anthropic(number, &step.what),
            By::Provider(Format::OpenaiChat) => in_chat(number, &step.what),
            By::Provider(Format::OpenaiResponses) => in_responses(number, &step.what),
            By::Agent => Vec::new(),
            By::Provider(Format::Gemini) => in_gemini(&step.what),
        };
        match &step.what {
            What::Compacted { keeps, sealed } => events.push(compacted(events.len(), *keeps, *sealed)),
            what if made.is_empty() => events.push(by_agent(number, what)),
            _ => events.extend(made),
        }
    }
    logged(events)
}

/// Events in their places in a log.
pub(crate) fn logged(events: Vec<Event>) -> Vec<Arc<LoggedEvent>> {
    let thread = ThreadId::derived(&["test"]);
    let place = |(event, seq): (Event, u64)| {
        Arc::new(LoggedEvent { id: EventId { thread, seq: Seq(seq) }, event, link: ChainLink::ROOT })
    };
    events.into_iter().zip(1..).map(place).collect()
}

/// Four bytes a token, rounded up: a counter that every joint between texts shows in.
pub(crate) struct Quarters;

impl TokenCounter for Quarters {
    fn name(&self) -> &'static str {
        "quarters"
    }

    fn count(&self, text: &str) -> Tokens {
        Tokens((text.len() as u64).div_ceil(4))
    }
}

/// The context that shows all of them.
pub(crate) fn context(events: &[Arc<LoggedEvent>]) -> Context {
    let meter = Arc::new(Meter::new(Arc::new(Quarters), TokenOverhead::default()));
    project(&EventLine::new(events.iter().cloned()), meter, EventNaming::Messages)
}

/// What to do with a context at random: a decision a segment, then runs to fold.
pub(crate) type Cuts = (Vec<u8>, Vec<(Index, Index)>);

pub(crate) fn cuts() -> impl Strategy<Value = Cuts> {
    let decisions = prop::collection::vec(prop_oneof![4 => Just(0_u8), 2 => Just(1), 1 => Just(2)], 0..60);
    (decisions, prop::collection::vec((any::<Index>(), any::<Index>()), 0..3))
}

/// Cuts a context as told.
pub(crate) fn cut(context: Context, (decisions, folds): &Cuts) -> Context {
    let mut context = context.edit("test", |index, segment| match decisions.get(index) {
        Some(1) => match segment.shown().map(<[ContentPart]>::len) {
            // Only some of the parts, so that the others must keep their bytes.
            Some(several @ 2..) => {
                let parts = segment.shown().unwrap_or_default().iter().take(several - 1).cloned();
                SegmentEdit::Replace {
                    parts: parts.chain([ContentPart::text("cut")]).collect(),
                    fidelity: Fidelity::Cut,
                }
            }
            _ => SegmentEdit::line("cut".into(), Fidelity::Stub),
        },
        Some(2) => SegmentEdit::Drop,
        _ => SegmentEdit::Keep,
    });
    for (one, other) in folds {
        let length = context.segments().len();
        if length > 0 {
            let (one, other) = (one.index(length), other.index(length));
            let run = whole_answers(&context, one.min(other)..one.max(other) + 1);
            context = context.fold("test", &[run], |folded| format!("[{} gone]", folded.events.count()));
        }
    }
    assert_eq!(context.find_inconsistency(), None);
    context
}

/// A run that splits no answer.
pub(crate) fn whole_answers(context: &Context, run: Range<usize>) -> Range<usize> {
    let segments = context.segments();
    let splits = |at: usize| {
        at > 0
            && at < segments.len()
            && segments[at - 1].is_answer()
            && segments[at].is_answer()
            && segments[at - 1].turn() == segments[at].turn()
    };
    let (mut start, mut end) = (run.start, run.end);
    while splits(start) {
        start -= 1;
    }
    while splits(end) {
        end += 1;
    }
    start..end
}

fn call_id(id: u8) -> String {
    format!("call|{id}")
}

fn compacted(length: usize, keeps: bool, sealed: bool) -> Event {
    let through = Seq(length as u64);
    let summary =
        if sealed { Summary::Encrypted("c2VhbGVk".into()) } else { Summary::Text("We built it.".into()) };
    let first_kept = keeps.then(|| Seq(through.0.saturating_sub(3).max(1)));
    let compaction = Compaction {
        summary,
        through,
        first_kept,
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Manual,
    };
    Event::from_fact(Fact::Compacted(compaction), None)
}

fn by_agent(number: usize, what: &What) -> Event {
    let bytes = b"pixels";
    let said = |said: &[Said]| -> Vec<ContentPart> {
        let part = |said: &Said| match said {
            Said::Text(text) => ContentPart::text(text.as_str()),
            Said::Image => ContentPart::Media(Media::inline("image/png", bytes)),
            Said::Link => ContentPart::Media(Media::elsewhere("image/*", "https://example.org/cat.png")),
            Said::Pdf => ContentPart::Media(Media::elsewhere("application/pdf", "file_1")),
            Said::Unknown(text) => {
                ContentPart::Opaque { name: "hologram".into(), json: json!({"x": text}).to_string() }
            }
        };
        said.iter().map(part).collect()
    };
    let fact = match what {
        What::User(parts) => Fact::UserSaid { parts: said(parts) },
        What::Answer { name, parts } => {
            let part = |made: &Made| match made {
                Made::Text(text) => ContentPart::text(text.as_str()),
                Made::Refusal(text) => ContentPart::Refusal { text: text.clone() },
                Made::Thinking(text) => ContentPart::Reasoning {
                    text: text.clone(),
                    seal: Some(ReasoningSeal::Signature("s".into())),
                },
                Made::Redacted(text) => ContentPart::Reasoning {
                    text: String::new(),
                    seal: Some(ReasoningSeal::Encrypted(text.clone())),
                },
                Made::Server(text) => {
                    ContentPart::Opaque { name: "search".into(), json: json!({"q": text}).to_string() }
                }
                Made::Call { id, arguments, form } => ContentPart::ToolCall(ToolCall {
                    form: *form,
                    ..ToolCall::function(call_id(*id), "look", arguments.as_str())
                }),
            };
            let answer = name.map(|name| format!("agent-{name}-{}", number / 3).into());
            Fact::AssistantSaid { answer, model: None, parts: parts.iter().map(part).collect() }
        }
        What::Returned { results, beside, error } => {
            let result = |(id, parts): &(u8, Vec<Said>)| ToolResult {
                call: call_id(*id).into(),
                name: None,
                parts: said(parts),
                error: *error,
            };
            Fact::ToolReturned { results: results.iter().map(result).collect(), parts: said(beside) }
        }
        What::Instruct(text) => Fact::Instructed {
            what: epitome_core::event::InstructionKind::Message,
            parts: vec![ContentPart::text(text.as_str())],
        },
        What::Unknown | What::Native | What::Broken(_) | What::Compacted { .. } => {
            Fact::Carried { kind: "unknown".into() }
        }
    };
    Event::native("test", r#"{"data":"cGl4ZWxz"}"#, fact)
}

fn in_anthropic(number: usize, what: &What) -> Vec<Event> {
    let block = |said: &Said| match said {
        Said::Text(text) => json!({"type": "text", "text": text}),
        Said::Image => {
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}})
        }
        Said::Link => {
            json!({"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}})
        }
        Said::Pdf => {
            json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQKJSVFT0YK"}})
        }
        Said::Unknown(text) => json!({"type": "hologram", "x": text}),
    };
    let blocks = |said: &[Said]| said.iter().map(block).collect::<Vec<Value>>();
    let message = match what {
        What::User(parts) => match parts.as_slice() {
            [Said::Text(text)] => json!({"role": "user", "content": text, "x": 1.0}),
            parts => json!({"role": "user", "content": blocks(parts)}),
        },
        What::Answer { name, parts } => {
            let content: Vec<Value> = parts.iter().map(anthropic_made).collect();
            match name {
                Some(name) => {
                    let id = format!("msg_{name}_{}", number / 3);
                    json!({"id": id, "type": "message", "role": "assistant", "content": content, "usage": {}})
                }
                None => json!({"role": "assistant", "content": content}),
            }
        }
        What::Returned { results, beside, error } => {
            let result = |(id, parts): &(u8, Vec<Said>)| json!({"type": "tool_result", "tool_use_id": call_id(*id), "content": blocks(parts), "is_error": error});
            let mut content: Vec<Value> = results.iter().map(result).collect();
            content.extend(blocks(beside));
            json!({"role": "user", "content": content})
        }
        What::Instruct(text) => json!({"role": "system", "content": text}),
        What::Native => {
            json!({"role": "assistant", "content": [{"type": "compaction", "content": "s", "signature": "x"}]})
        }
        What::Broken(0) => json!({"role": "assistant", "content": [{"type": "tool_use", "name": "x"}]}),
        What::Broken(1) => json!({"role": "user", "content": [{"type": "tool_result", "content": "x"}]}),
        What::Broken(2) => {
            json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "y"}]})
        }
        What::Broken(_) => json!({"role": "user", "content": []}),
        What::Unknown => json!({"role": "critic", "content": "boo"}),
        What::Compacted { .. } => return Vec::new(),
    };
    vec![anthropic::message(&message.to_string()).unwrap()]
}

fn anthropic_made(made: &Made) -> Value {
    match made {
        Made::Text(text) | Made::Refusal(text) => json!({"type": "text", "text": text}),
        Made::Thinking(text) => {
            json!({"type": "thinking", "thinking": text, "signature": format!("sig {}", text.len())})
        }
        Made::Redacted(text) => json!({"type": "redacted_thinking", "data": text}),
        Made::Server(text) => {
            json!({"type": "server_tool_use", "id": "srv", "name": "search", "input": {"q": text}})
        }
        Made::Call { id, arguments, .. } => {
            let input = serde_json::from_str::<Value>(arguments).ok().filter(Value::is_object);
            json!({"type": "tool_use", "id": call_id(*id), "name": "look", "input": input.unwrap_or_else(|| json!({"a": arguments}))})
        }
    }
}

fn in_gemini(what: &What) -> Vec<Event> {
    let part = |said: &Said| match said {
        Said::Text(text) => json!({"text": text}),
        Said::Image => json!({"inlineData": {"mimeType": "image/png", "data": PIXEL}}),
        Said::Link => {
            json!({"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/cat.png"}})
        }
        Said::Pdf => json!({"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0xLjQKJSVFT0YK"}}),
        Said::Unknown(text) => json!({"hologram": {"x": text}}),
    };
    let parts = |said: &[Said]| said.iter().map(part).collect::<Vec<Value>>();
    let content = match what {
        What::User(said) => json!({"role": "user", "parts": parts(said), "x": 1.0}),
        What::Answer { parts, .. } => {
            json!({"role": "model", "parts": parts.iter().map(gemini_made).collect::<Vec<_>>()})
        }
        What::Returned { results, beside, error } => {
            let result = |(id, said): &(u8, Vec<Said>)| {
                let text = said.iter().filter_map(|said| match said {
                    Said::Text(text) => Some(text.as_str()),
                    _ => None,
                });
                let text = text.collect::<String>();
                let response =
                    if *error { json!({"error": text}) } else { json!({"output": text, "code": 0}) };
                json!({"functionResponse": {"id": call_id(*id), "name": "look", "response": response}})
            };
            let mut all = parts(beside);
            all.extend(results.iter().map(result));
            json!({"role": "user", "parts": all})
        }
        What::Instruct(text) => json!({"role": "user", "parts": [{"text": text}]}),
        What::Native => json!({"role": "model", "parts": [{"executableCode": {"code": "x"}}]}),
        What::Broken(0) => json!({"role": "model", "parts": [{"functionCall": {"args": {}}}]}),
        What::Broken(1) => {
            json!({"role": "user", "parts": [{"functionResponse": {"response": {"output": "x"}}}]})
        }
        What::Broken(2) => json!({"role": "user", "parts": [{"text": ""}]}),
        What::Broken(_) => json!({"role": "user", "parts": []}),
        What::Unknown => json!({"role": "critic", "parts": [{"text": "boo"}]}),
        What::Compacted { .. } => return Vec::new(),
    };
    vec![gemini::content(&content.to_string()).unwrap()]
}

fn gemini_made(made: &Made) -> Value {
    match made {
        Made::Text(text) => json!({"text": text}),
        Made::Refusal(text) => json!({"text": text, "thoughtSignature": "c2lnbmVk"}),
        Made::Thinking(text) | Made::Redacted(text) => json!({"text": text, "thought": true}),
        Made::Server(text) => json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": text}}),
        Made::Call { id, arguments, .. } => {
            let args = serde_json::from_str::<Value>(arguments).ok().filter(Value::is_object);
            let args = args.unwrap_or_else(|| json!({"a": arguments}));
            json!({"functionCall": {"id": call_id(*id), "name": "look", "args": args}, "thoughtSignature": "c2lnbmVk"})
        }
    }
}

fn in_chat(number: usize, what: &What) -> Vec<Event> {
    let part = |said: &Said| match said {
        Said::Text(text) => json!({"type": "text", "text": text}),
        Said::Image => {
            json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PIXEL}")}})
        }
        Said::Link => json!({"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}),
        Said::Pdf => {
            json!({"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0xLjQKJSVFT0YK"}})
        }
        Said::Unknown(text) => json!({"type": "hologram", "x": text}),
    };
    let content = |said: &[Said]| match said {
        [Said::Text(text)] => json!(text),
        parts => json!(parts.iter().map(part).collect::<Vec<_>>()),
    };
    let messages = match what {
        What::User(parts) => vec![json!({"role": "user", "content": content(parts)})],
        What::Answer { parts, .. } => vec![chat_answer(parts)],
        What::Returned { results, beside, .. } => {
            let result = |(id, parts): &(u8, Vec<Said>)| json!({"role": "tool", "tool_call_id": call_id(*id), "content": content(parts)});
            let mut messages: Vec<Value> = results.iter().map(result).collect();
            if !beside.is_empty() {
                messages.push(json!({"role": "user", "content": content(beside)}));
            }
            messages
        }
        What::Instruct(text) => vec![json!({"role": "system", "content": text})],
        What::Unknown => vec![json!({"role": "critic", "content": "boo"})],
        What::Broken(0) => {
            vec![
                json!({"role": "assistant", "content": "x", "tool_calls": [{"type": "function", "function": {"name": "x"}}]}),
            ]
        }
        What::Broken(1) => vec![json!({"role": "tool", "content": "x"})],
        What::Broken(2) => vec![
            json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}}),
        ],
        What::Broken(_) => vec![json!({"role": "assistant", "content": null, "tool_calls": [{}]})],
        What::Native | What::Compacted { .. } => return Vec::new(),
    };
    let named = |message: Value| {
        let mut event = openai_chat::message(&message.to_string()).unwrap();
        if let (Fact::AssistantSaid { answer, .. }, What::Answer { name: Some(name), .. }) =
            (&mut event.fact, what)
        {
            *answer = Some(format!("chat-{name}-{}", number / 3).into());
        }
        event
    };
    messages.into_iter().map(named).collect()
}

fn chat_answer(parts: &[Made]) -> Value {
    let mut message = json!({"role": "assistant", "content": null});
    let (mut said, mut calls) = (Vec::new(), Vec::new());
    for made in parts {
        match made {
            Made::Text(text) => said.push(json!({"type": "text", "text": text})),
            Made::Refusal(text) => message["refusal"] = json!(text),
            Made::Thinking(text) => message["reasoning_content"] = json!(text),
            Made::Redacted(_) => {}
            Made::Server(text) => said.push(json!({"type": "citation", "of": text})),
            Made::Call { id, arguments, form: CallForm::Function } => calls.push(
                json!({"id": call_id(*id), "type": "function", "function": {"name": "look", "arguments": arguments}}),
            ),
            Made::Call { id, arguments, form: CallForm::Custom } => {
                calls.push(json!({"id": call_id(*id), "type": "custom", "custom": {"name": "look", "input": arguments}}));
            }
        }
    }
    if !said.is_empty() {
        message["content"] = json!(said);
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    message
}

fn in_responses(number: usize, what: &What) -> Vec<Event> {
    let part = |said: &Said| match said {
        Said::Text(text) => json!({"type": "input_text", "text": text}),
        Said::Image => json!({"type": "input_image", "image_url": format!("data:image/png;base64,{PIXEL}")}),
        Said::Link => json!({"type": "input_image", "image_url": "https://example.org/cat.png"}),
        Said::Pdf => {
            json!({"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0xLjQKJSVFT0YK"})
        }
        Said::Unknown(text) => json!({"type": "hologram", "x": text}),
    };
    let parts = |said: &[Said]| json!(said.iter().map(part).collect::<Vec<_>>());
    let items = match what {
        What::User(said) => vec![json!({"type": "message", "role": "user", "content": parts(said)})],
        What::Answer { parts, .. } => parts.iter().map(responses_made).collect(),
        What::Returned { results, beside, .. } => {
            let output = |(id, said): &(u8, Vec<Said>)| json!({"type": "function_call_output", "call_id": call_id(*id), "output": parts(said)});
            let mut items: Vec<Value> = results.iter().map(output).collect();
            if !beside.is_empty() {
                items.push(json!({"role": "user", "content": parts(beside)}));
            }
            items
        }
        What::Instruct(text) => vec![json!({"role": "developer", "content": text})],
        What::Unknown => vec![json!({"type": "item_reference", "id": "rs_1"})],
        What::Native => vec![json!({"type": "compaction", "encrypted_content": "c2VhbGVk"})],
        What::Broken(0) => vec![json!({"type": "function_call", "name": "x", "arguments": "{}"})],
        What::Broken(1) => vec![json!({"type": "function_call_output", "output": "x"})],
        What::Broken(2) => {
            vec![json!({"type": "shell_call", "call_id": "call|0", "action": {"commands": ["ls"]}})]
        }
        What::Broken(_) => {
            vec![json!({"type": "computer_call", "call_id": "call|1", "action": {"type": "screenshot"}})]
        }
        What::Compacted { .. } => return Vec::new(),
    };
    let named = |item: Value| {
        let mut event = openai_responses::item(&item.to_string()).unwrap();
        if let (Fact::AssistantSaid { answer, .. }, What::Answer { name: Some(name), .. }) =
            (&mut event.fact, what)
        {
            *answer = Some(format!("resp-{name}-{}", number / 3).into());
        }
        event
    };
    items.into_iter().map(named).collect()
}

fn responses_made(made: &Made) -> Value {
    match made {
        Made::Text(text) => {
            json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
        }
        Made::Refusal(text) => {
            json!({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": text}, {"type": "output_text", "text": "no"}]})
        }
        Made::Thinking(text) => {
            json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": text}]})
        }
        Made::Redacted(text) => {
            json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": text})
        }
        Made::Server(text) => json!({"type": "web_search_call", "id": "ws", "action": {"query": text}}),
        Made::Call { id, arguments, form: CallForm::Function } => {
            json!({"type": "function_call", "id": "fc", "call_id": call_id(*id), "name": "look", "arguments": arguments})
        }
        Made::Call { id, arguments, form: CallForm::Custom } => {
            json!({"type": "custom_tool_call", "call_id": call_id(*id), "name": "look", "input": arguments})
        }
    }
}
