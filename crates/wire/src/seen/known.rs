//! What one item of a history is, whatever stands beside it.

use epitome_core::{Digest, Event, Fact, Part, event::Instruction, id::AnswerId};

use super::{Speaker, asks, pieces};
use crate::{
    caller::Purpose,
    format::Format,
    json::Json,
    legality::{Remedy, shape},
    normal, preamble, request,
};

/// What is known of a piece of a request by its bytes alone. Of a system prompt, tools or a setting that is only a digest
/// and what it asks for.
#[derive(Debug)]
pub(crate) struct Known {
    /// What it is recognised by; `None` if it says nothing that every client sends back.
    pub(super) digest: Option<Digest>,
    /// Who says it.
    pub(super) speaker: Speaker,
    /// Its pieces, if it may be one with its neighbours.
    pub(super) joins: Option<Box<[Digest]>>,
    /// Whether a client put one of its moving notes into it.
    pub(super) noted: bool,
    /// How it stands to what users say first.
    pub(super) lead: Lead,
    /// What an answer that begins with it is called.
    pub(super) answer: Option<AnswerName>,
    /// The item it names instead of being it.
    pub(super) reference: Option<Box<str>>,
    /// What it asks for, if that is not the next turn.
    pub(super) asks: Option<Purpose>,
    /// What its provider would refuse about it, and only its author can mend: the place in it, and the rule.
    pub(super) illegal: Option<(Box<str>, &'static str)>,
}

/// No provider's id is longer, and what is remembered must stay small.
const LONGEST: usize = 256;

/// How an item stands to what users say first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// A user message that is really an instruction, as long as no user has said anything.
    Preamble,
    /// It may stand before what users say.
    Passes,
    /// From here on users speak.
    Ends,
}

/// What an answer is called after its first item.
#[derive(Debug)]
pub(super) enum AnswerName {
    Origin(Box<str>),
    Normal(Digest),
}

impl AnswerName {
    /// The name of the answer that is the `time`th so called.
    pub(super) fn id(&self, time: u64) -> AnswerId {
        let name = self.text();
        if time == 1 { name.into() } else { format!("{name}#{time}").into() }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Origin(origin) => origin.to_string(),
            Self::Normal(digest) => digest.to_string(),
        }
    }
}

impl Known {
    /// What is known of an item that was read as `event`.
    pub(super) fn item(format: Format, item: &Json<'_>, event: &Event) -> Self {
        let pieces::Said { digest, joins, noted } = pieces::said(format, item, &event.fact);
        let is_answer = format == Format::OpenaiResponses && matches!(event.fact, Fact::AssistantSaid { .. });
        let name = || match &event.origin {
            Some(origin) if origin.len() > LONGEST => Some(AnswerName::Normal(Digest::of(origin.as_bytes()))),
            Some(origin) => Some(AnswerName::Origin(origin.as_str().into())),
            None => event.normal.map(AnswerName::Normal),
        };
        let reference = is_kind(item, "item_reference").then(|| item.text_at("id")).flatten();
        Self {
            digest,
            speaker: speaker(&event.fact),
            joins: joins.map(Into::into),
            noted,
            lead: lead(&event.fact),
            answer: is_answer.then(name).flatten(),
            reference: reference.filter(|id| id.len() <= LONGEST).map(Into::into),
            asks: if is_kind(item, "compaction_trigger") {
                Some(Purpose::Compaction)
            } else {
                asked(&event.fact)
            },
            illegal: illegal(format, item),
        }
    }

    /// What is known of a system prompt that stands apart.
    pub(super) fn system(format: Format, system: &Json<'_>) -> Self {
        let event = request::system_event(format, system);
        Self { asks: asked(&event.fact), digest: event.normal, ..Self::default() }
    }

    /// What is known of tool definitions.
    pub(super) fn tools(format: Format, tools: &Json<'_>) -> Self {
        Self::setting(normal::tools(&format.dialect(), tools))
    }

    /// What is known of a setting.
    pub(super) fn setting(digest: Digest) -> Self {
        Self { digest: Some(digest), ..Self::default() }
    }

    /// How much it counts against what is remembered: one message, more if it is made of very many pieces.
    pub(super) fn weight(&self) -> usize {
        1 + self.joins.as_ref().map_or(0, |joins| joins.len() / 8)
    }

    /// Whether it is a message of the system or developer.
    pub(super) fn instructs(&self) -> bool {
        self.speaker == Speaker::System
    }
}

/// The first breach of an item's shape that nobody but its author can mend.
fn illegal(format: Format, item: &Json<'_>) -> Option<(Box<str>, &'static str)> {
    let found = shape::check(format, item).into_iter().map(|(place, breach)| (place, breach.rule()));
    let mut named = found.filter(|(_, rule)| rule.remedy == Remedy::Named);
    named.next().map(|(place, rule)| (place.into(), rule.id))
}

impl Default for Known {
    fn default() -> Self {
        Self {
            digest: None,
            speaker: Speaker::Other,
            joins: None,
            noted: false,
            lead: Lead::Passes,
            answer: None,
            reference: None,
            asks: None,
            illegal: None,
        }
    }
}

pub(super) fn is_kind(item: &Json<'_>, kind: &str) -> bool {
    item.text_at("type") == Some(kind)
}

fn speaker(fact: &Fact) -> Speaker {
    match fact {
        Fact::UserSaid { .. } => Speaker::User,
        Fact::AssistantSaid { .. } => Speaker::Model,
        Fact::ToolReturned { .. } => Speaker::Tools,
        Fact::Instructed { .. } => Speaker::System,
        Fact::CompactionRequested { .. }
        | Fact::Compacted(_)
        | Fact::CompactionReverted { .. }
        | Fact::CompactionRestored { .. }
        | Fact::Pinned { .. }
        | Fact::Unpinned { .. }
        | Fact::Injected { .. }
        | Fact::UsageReported { .. }
        | Fact::ModelChanged { .. }
        | Fact::Carried { .. } => Speaker::Other,
    }
}

fn lead(fact: &Fact) -> Lead {
    match fact {
        Fact::UserSaid { parts } if preamble::are_preamble(parts) => Lead::Preamble,
        Fact::Instructed { .. } | Fact::Carried { .. } => Lead::Passes,
        _ => Lead::Ends,
    }
}

fn asked(fact: &Fact) -> Option<Purpose> {
    let read = match fact {
        Fact::UserSaid { .. } | Fact::ToolReturned { .. } => asks::user,
        Fact::Instructed { what: Instruction::System | Instruction::Message, .. } => asks::system,
        _ => return None,
    };
    fact.parts().iter().find_map(|part| match part {
        Part::Text { text } => read(text),
        _ => None,
    })
}
