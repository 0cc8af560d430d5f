//! Generated histories: every kind of event and part, in any order, also orders that no sane agent produces.

use std::sync::Arc;

use epitome_core::{
    ContentPart, Fact,
    event::{
        CallForm, Compaction, CompactionTrigger, InstructionKind, LoggedEvent, Pin, ReasoningSeal, Summary,
        ToolCall, ToolResult, Usage,
    },
    hash_chain::Digest,
    id::{EventId, ModelName, Seq, ThreadId},
    media::{Media, MediaLocation},
};
use proptest::{prelude::*, sample::Index};

use crate::notation::logged;

/// A history of up to `most` events, some of which may be shared with the thread it was forked from.
pub(crate) fn history(most: usize) -> impl Strategy<Value = Vec<Arc<LoggedEvent>>> {
    let forked = prop::option::of(any::<Index>());
    (facts(most), forked).prop_map(|(facts, forked)| {
        let shared = forked.map_or(0, |at| at.index(facts.len() + 1));
        let (before, own) = facts.split_at(shared);
        line(&[("parent", before), ("test", own)])
    })
}

/// Threads with a past in common.
#[derive(Debug)]
pub(crate) struct Forked {
    /// The thread that was forked, as it went on.
    pub(crate) parent: Vec<Arc<LoggedEvent>>,
    /// The fork: what it shares belongs to its parent.
    pub(crate) fork: Vec<Arc<LoggedEvent>>,
    /// A thread in which the same happened, and all of it to itself.
    pub(crate) copy: Vec<Arc<LoggedEvent>>,
    /// How many events are shared.
    pub(crate) shared: usize,
}

/// A thread, and another that shares its beginning and goes on otherwise.
pub(crate) fn forked(most: usize) -> impl Strategy<Value = Forked> {
    (facts(most), facts(most), any::<Index>()).prop_map(|(parent, own, at)| {
        let shared = at.index(parent.len() + 1);
        let (past, rest) = parent.split_at(shared);
        Forked {
            parent: line(&[("parent", past), ("parent", rest)]),
            fork: line(&[("parent", past), ("fork", &own)]),
            copy: line(&[("copy", past), ("copy", &own)]),
            shared,
        }
    })
}

/// A fact, and what it may refer to.
type Placed = (Fact, Index, Index);

fn facts(most: usize) -> impl Strategy<Value = Vec<Placed>> {
    prop::collection::vec((fact(), any::<Index>(), any::<Index>()), 0..most)
}

/// Puts facts in a line, each stretch of them in the thread that it belongs to. Whoever answers is the model that was
/// switched to last.
fn line(stretches: &[(&str, &[Placed])]) -> Vec<Arc<LoggedEvent>> {
    let mut model: Option<ModelName> = None;
    let facts = stretches.iter().flat_map(|(thread, facts)| facts.iter().map(move |fact| (*thread, fact)));
    let placed = (1..).zip(facts).map(|(seq, (thread, (fact, one, other)))| {
        let fact = match placed(fact.clone(), seq, *one, *other) {
            Fact::AssistantSaid { answer, parts, .. } => {
                Fact::AssistantSaid { answer, parts, model: model.clone() }
            }
            fact => fact,
        };
        if let Fact::ModelChanged { model: next } = &fact {
            model = Some(next.clone());
        }
        let id = EventId { thread: ThreadId::derived(&[thread]), seq: Seq(seq) };
        Arc::new(LoggedEvent { id, ..LoggedEvent::clone(&logged(seq, fact)) })
    });
    placed.collect()
}

/// Lets what refers to other events refer to any, also to none that is there.
fn placed(fact: Fact, seq: u64, one: Index, other: Index) -> Fact {
    let any = |index: Index| Seq(index.index(usize::try_from(seq).unwrap() + 2) as u64);
    match fact {
        Fact::Compacted(compaction) => Fact::Compacted(Compaction {
            through: any(one),
            first_kept: compaction.first_kept.map(|_| any(other)),
            ..compaction
        }),
        Fact::CompactionReverted { .. } => Fact::CompactionReverted { compaction: any(one) },
        Fact::CompactionRestored { .. } => Fact::CompactionRestored { compaction: any(one) },
        Fact::Pinned { pin: Pin::Event(_) } => Fact::Pinned { pin: Pin::Event(any(one)) },
        Fact::Unpinned { pin: Pin::Event(_) } => Fact::Unpinned { pin: Pin::Event(any(one)) },
        other => other,
    }
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        2 => (instruction(), said()).prop_map(|(what, parts)| Fact::Instructed { what, parts }),
        6 => said().prop_map(|parts| Fact::UserSaid { parts }),
        10 => answer(),
        9 => returned(),
        1 => (said(), any::<bool>()).prop_map(|(parts, beside)| Fact::Injected {
            hook: "memory".into(),
            beside: beside.then_some(Seq(1)),
            parts,
        }),
        1 => (text(), any::<bool>(), any::<bool>()).prop_map(|(text, kept, open)| Fact::Compacted(Compaction {
            summary: if open { Summary::Text(text) } else { Summary::Encrypted(text) },
            through: Seq(0),
            first_kept: kept.then_some(Seq(0)),
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Unknown,
        })),
        1 => prop::sample::select(vec!["one", "another"])
            .prop_map(|model| Fact::ModelChanged { model: model.into() }),
        1 => prop_oneof![
            Just(Fact::CompactionReverted { compaction: Seq(0) }),
            Just(Fact::CompactionRestored { compaction: Seq(0) }),
            Just(Fact::CompactionRequested { trigger: CompactionTrigger::Manual, focus: Some("tests".into()) }),
            Just(Fact::Pinned { pin: Pin::Event(Seq(0)) }),
            Just(Fact::Pinned { pin: Pin::Text("keep".into()) }),
            Just(Fact::Unpinned { pin: Pin::Event(Seq(0)) }),
            Just(Fact::Unpinned { pin: Pin::Text("keep".into()) }),
            Just(Fact::UsageReported { answer: None, model: None, usage: Usage::default() }),
            Just(Fact::Carried { kind: "unknown".into() }),
        ],
    ]
}

fn instruction() -> impl Strategy<Value = InstructionKind> {
    prop::sample::select(vec![
        InstructionKind::Settings,
        InstructionKind::System,
        InstructionKind::Tools,
        InstructionKind::Message,
        InstructionKind::Project,
    ])
}

fn answer() -> impl Strategy<Value = Fact> {
    let part = prop_oneof![
        3 => text().prop_map(ContentPart::text),
        2 => (text(), any::<Option<bool>>()).prop_map(|(text, seal)| ContentPart::Reasoning {
            seal: seal.map(|open| {
                if open { ReasoningSeal::Signature("signed".into()) } else { ReasoningSeal::Encrypted(text.clone()) }
            }),
            text,
        }),
        5 => call().prop_map(ContentPart::ToolCall),
        1 => text().prop_map(|text| ContentPart::Refusal { text }),
        1 => text().prop_map(|json| ContentPart::Opaque { name: "server_tool".into(), json }),
    ];
    let answer = prop::option::of(prop::sample::select(vec!["m1", "m2"]));
    (answer, prop::collection::vec(part, 0..5)).prop_map(|(answer, parts)| Fact::AssistantSaid {
        answer: answer.map(Into::into),
        model: None,
        parts,
    })
}

/// Calls that make sense, few of them, so that they are made again, and calls that do not.
fn call() -> impl Strategy<Value = ToolCall> {
    const SENSIBLE: &[(&str, &str)] = &[
        ("read_file", r#"{"path":"a.rs"}"#),
        ("read_file", r#"{"path":"a.rs","offset":7}"#),
        ("read_file", r#"{"path":"b.rs"}"#),
        ("write_file", r#"{"path":"a.rs","content":"fn"}"#),
        ("edit_file", r#"{"path":"a.rs"}"#),
        ("bash", r#"{"command":"cargo test"}"#),
        ("grep", r#"{"pattern":"fn"}"#),
    ];
    let sensible = prop::sample::select(SENSIBLE);
    let names = vec!["read_file", "edit_file", "write_file", "bash", "grep", "skill", "get_order"];
    let arguments = prop::sample::select(vec![r#"{"path":"a.rs"}"#, r#"{"command":"ls"}"#, "{not json", ""]);
    let any = (prop::sample::select(names), arguments);
    let custom = prop::bool::weighted(0.1);
    (id(), prop_oneof![3 => sensible, 1 => any], custom).prop_map(|(id, (name, arguments), custom)| {
        ToolCall {
            form: if custom { CallForm::Custom } else { CallForm::Function },
            ..ToolCall::function(id, name, arguments)
        }
    })
}

fn returned() -> impl Strategy<Value = Fact> {
    let result = (id(), said(), prop::bool::weighted(0.2)).prop_map(|(id, parts, error)| ToolResult {
        call: id.into(),
        name: None,
        parts,
        error,
    });
    let beside = prop_oneof![3 => Just(vec![]), 1 => said()];
    (prop::collection::vec(result, 0..4), beside)
        .prop_map(|(results, parts)| Fact::ToolReturned { results, parts })
}

/// Few ids, so that they are used again and again.
fn id() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["call_1", "call_2", "call_3"])
}

fn said() -> impl Strategy<Value = Vec<ContentPart>> {
    let part = prop_oneof![
        8 => text().prop_map(ContentPart::text),
        1 => (1..4_000u32, 1..4_000u32).prop_map(|size| ContentPart::Media(Media {
            mime: "image/png".into(),
            place: MediaLocation::Inline { hash: Digest([0; 32]), size: 4_000 },
            dimensions: Some(size),
        })),
        1 => Just(ContentPart::Media(Media::elsewhere("application/pdf", "https://example.org/a.pdf"))),
        1 => text().prop_map(|json| ContentPart::Opaque { name: "document".into(), json }),
    ];
    prop::collection::vec(part, 0..4)
}

/// Words and line breaks, mostly few, sometimes very many; not all of them ASCII.
fn text() -> impl Strategy<Value = String> {
    let length = prop_oneof![1 => Just(0usize), 8 => 1..12usize, 3 => 12..120usize, 1 => 500..3_000usize];
    (length, 1..40usize).prop_map(|(words, in_a_line)| {
        let mut text = String::new();
        for word in 1..=words {
            text.push_str(if word % 7 == 0 { "größer" } else { "word" });
            text.push(if word % in_a_line == 0 { '\n' } else { ' ' });
        }
        text
    })
}
