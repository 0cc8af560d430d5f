//! Generated histories: every kind of event and part, in any order, also orders that no sane agent produces.

use std::sync::Arc;

use epitome_core::{
    Fact, Part,
    chain::Digest,
    event::{
        CallForm, Compaction, Instruction, Logged, Pin, Seal, Summary, ToolCall, ToolResult, Trigger, Usage,
    },
    id::Seq,
    media::{Media, Place},
};
use proptest::{prelude::*, sample::Index};

use crate::notation::logged;

/// A history of up to `most` events.
pub(crate) fn history(most: usize) -> impl Strategy<Value = Vec<Arc<Logged>>> {
    prop::collection::vec((fact(), any::<Index>(), any::<Index>()), 0..most).prop_map(|facts| {
        let place = |facts: Vec<(Fact, Index, Index)>| {
            (1..)
                .zip(facts)
                .map(|(seq, (fact, one, other))| logged(seq, placed(fact, seq, one, other)))
                .collect()
        };
        place(facts)
    })
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
        Fact::Pinned { pin: Pin::Event(_) } => Fact::Pinned { pin: Pin::Event(any(one)) },
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
            trigger: Trigger::Unknown,
        })),
        1 => prop_oneof![
            Just(Fact::CompactionReverted { compaction: Seq(0) }),
            Just(Fact::CompactionRequested { trigger: Trigger::Manual, focus: Some("tests".into()) }),
            Just(Fact::Pinned { pin: Pin::Event(Seq(0)) }),
            Just(Fact::Pinned { pin: Pin::Text("keep".into()) }),
            Just(Fact::UsageReported { answer: None, model: None, usage: Usage::default() }),
            Just(Fact::ModelChanged { model: "another".into() }),
            Just(Fact::Carried { kind: "unknown".into() }),
        ],
    ]
}

fn instruction() -> impl Strategy<Value = Instruction> {
    prop::sample::select(vec![
        Instruction::Settings,
        Instruction::System,
        Instruction::Tools,
        Instruction::Message,
        Instruction::Project,
    ])
}

fn answer() -> impl Strategy<Value = Fact> {
    let part = prop_oneof![
        3 => text().prop_map(Part::text),
        2 => (text(), any::<Option<bool>>()).prop_map(|(text, seal)| Part::Reasoning {
            seal: seal.map(|open| {
                if open { Seal::Signature("signed".into()) } else { Seal::Encrypted(text.clone()) }
            }),
            text,
        }),
        5 => call().prop_map(Part::ToolCall),
        1 => text().prop_map(|text| Part::Refusal { text }),
        1 => text().prop_map(|json| Part::Opaque { name: "server_tool".into(), json }),
    ];
    let answer = prop::option::of(prop::sample::select(vec!["m1", "m2"]));
    (answer, prop::collection::vec(part, 0..5)).prop_map(|(answer, parts)| Fact::AssistantSaid {
        answer: answer.map(Into::into),
        model: None,
        parts,
    })
}

fn call() -> impl Strategy<Value = ToolCall> {
    let arguments = prop::sample::select(vec![
        r#"{"path":"a.rs"}"#,
        r#"{"path":"a.rs","offset":7}"#,
        r#"{"path":"b.rs"}"#,
        r#"{"path":"a.rs","content":"fn"}"#,
        r#"{"command":"cargo test"}"#,
        r#"{"pattern":"fn"}"#,
        "{not json",
        "",
    ]);
    let names = vec!["read_file", "edit_file", "write_file", "bash", "grep", "skill", "get_order"];
    let custom = prop::bool::weighted(0.1);
    (id(), prop::sample::select(names), arguments, custom).prop_map(|(id, name, arguments, custom)| {
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

fn said() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        8 => text().prop_map(Part::text),
        1 => (1..4_000u32, 1..4_000u32).prop_map(|size| Part::Media(Media {
            mime: "image/png".into(),
            place: Place::Inline { hash: Digest([0; 32]), size: 4_000 },
            dimensions: Some(size),
        })),
        1 => Just(Part::Media(Media::elsewhere("application/pdf", "https://example.org/a.pdf"))),
        1 => text().prop_map(|json| Part::Opaque { name: "document".into(), json }),
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
