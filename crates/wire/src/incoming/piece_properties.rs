//! Properties of one item of a history that do not depend on its neighbours.

use epitome_core::{ContentPart, Digest, Event, Fact, event::InstructionKind, id::AnswerId};

use super::{
    UnitSpeaker, client_prompts,
    message_digests::{self, AnswerRun, DigestPiece},
};
use crate::{
    caller::RequestPurpose,
    format::Format,
    json::Json,
    legality::{RuleRemedy, shape},
    normal_digest, preamble, request,
};

/// Properties of a piece of a request that follow from its bytes alone. For a system prompt, tools or a setting these
/// are only a digest and a purpose.
#[derive(Debug)]
pub(crate) struct PieceProperties {
    /// Digest it is recognised by; `None` if it has no content that every client sends back.
    pub(super) digest: Option<Digest>,
    /// Its author.
    pub(super) speaker: UnitSpeaker,
    /// Its pieces, if it may be joined with its neighbours.
    pub(super) joins: Option<Box<[DigestPiece]>>,
    /// True if a client put one of its moving notes into it.
    pub(super) noted: bool,
    /// Extent of the answer it belongs to.
    pub(super) run: AnswerRun,
    /// Its position relative to the user's first words.
    pub(super) lead: PreamblePosition,
    /// Name of an answer that begins with it.
    pub(super) answer: Option<AnswerName>,
    /// Id of the item it refers to, if it is a reference.
    pub(super) reference: Option<Box<str>>,
    /// Its purpose, if that is not the next turn.
    pub(super) asks: Option<RequestPurpose>,
    /// First fault for which its provider would refuse it and that only its author can repair: the place in it, and
    /// the rule.
    pub(super) illegal: Option<(Box<str>, &'static str)>,
}

/// Longest id that is remembered: no provider's id is longer, and entries must stay small.
const MAX_ID_BYTES: usize = 256;

/// Position of an item relative to the user's first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreamblePosition {
    /// A user message that is an instruction, as long as no user has said anything.
    Preamble,
    /// An item that may stand before the user's first words.
    Passes,
    /// The item with which users begin to speak.
    Ends,
}

/// Name of an answer, from its first item.
#[derive(Debug)]
pub(super) enum AnswerName {
    Origin(Box<str>),
    Normal(Digest),
}

impl AnswerName {
    /// Id of the `time`th answer with this name.
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

impl PieceProperties {
    /// Properties of an item that was read as `event`.
    pub(super) fn item(format: Format, item: &Json<'_>, event: &Event) -> Self {
        let provider = format.provider();
        let message_digests::MessageDigests { digest, joins, noted, run } =
            provider.message_digests(item, &event.fact);
        let is_answer = provider.facts().answer.is_items && matches!(event.fact, Fact::AssistantSaid { .. });
        let name = || match &event.origin {
            Some(origin) if origin.len() > MAX_ID_BYTES => {
                Some(AnswerName::Normal(Digest::of(origin.as_bytes())))
            }
            Some(origin) => Some(AnswerName::Origin(origin.as_str().into())),
            None => event.normal.map(AnswerName::Normal),
        };
        let reference = provider.referenced_id(item);
        Self {
            digest,
            speaker: speaker(&event.fact),
            joins: joins.map(Into::into),
            noted,
            run,
            lead: lead(&event.fact),
            answer: is_answer.then(name).flatten(),
            reference: reference.filter(|id| id.len() <= MAX_ID_BYTES).map(Into::into),
            asks: provider.item_purpose(item).or_else(|| asked(&event.fact)),
            illegal: illegal(format, item),
        }
    }

    /// Properties of a system prompt that is a member of its own.
    pub(super) fn system(format: Format, system: &Json<'_>) -> Self {
        let event = request::system_event(format, system);
        Self { asks: asked(&event.fact), digest: event.normal, ..Self::default() }
    }

    /// Properties of tool definitions.
    pub(super) fn tools(format: Format, tools: &Json<'_>) -> Self {
        Self::setting(normal_digest::tools(&format.dialect(), tools))
    }

    /// Properties of a setting.
    pub(super) fn setting(digest: Digest) -> Self {
        Self { digest: Some(digest), ..Self::default() }
    }

    /// Weight against the bound of the memo: one message, more if it has very many pieces.
    pub(super) fn weight(&self) -> usize {
        let size = |piece: &DigestPiece| match piece {
            DigestPiece::Whole(_) => 1,
            DigestPiece::Running(text) => 1 + text.len() / 64,
        };
        1 + self.joins.as_ref().map_or(0, |joins| joins.iter().map(size).sum::<usize>() / 8)
    }

    /// Returns true if it is a message of the system or developer.
    pub(super) fn instructs(&self) -> bool {
        self.speaker == UnitSpeaker::System
    }
}

/// Finds the first fault of an item's shape that only its author can repair.
fn illegal(format: Format, item: &Json<'_>) -> Option<(Box<str>, &'static str)> {
    let found = shape::check(format, item).into_iter().map(|(place, breach)| (place, breach.rule()));
    let mut named = found.filter(|(_, rule)| rule.remedy == RuleRemedy::Named);
    named.next().map(|(place, rule)| (place.into(), rule.id))
}

impl Default for PieceProperties {
    fn default() -> Self {
        Self {
            digest: None,
            speaker: UnitSpeaker::Other,
            joins: None,
            noted: false,
            run: AnswerRun::Message,
            lead: PreamblePosition::Passes,
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

fn speaker(fact: &Fact) -> UnitSpeaker {
    match fact {
        Fact::UserSaid { .. } => UnitSpeaker::User,
        Fact::AssistantSaid { .. } => UnitSpeaker::Model,
        Fact::ToolReturned { .. } => UnitSpeaker::Tools,
        Fact::Instructed { .. } => UnitSpeaker::System,
        Fact::CompactionRequested { .. }
        | Fact::Compacted(_)
        | Fact::CompactionReverted { .. }
        | Fact::CompactionRestored { .. }
        | Fact::Pinned { .. }
        | Fact::Unpinned { .. }
        | Fact::Injected { .. }
        | Fact::UsageReported { .. }
        | Fact::ModelChanged { .. }
        | Fact::Carried { .. } => UnitSpeaker::Other,
    }
}

fn lead(fact: &Fact) -> PreamblePosition {
    match fact {
        Fact::UserSaid { parts } if preamble::are_preamble(parts) => PreamblePosition::Preamble,
        Fact::Instructed { .. } | Fact::Carried { .. } => PreamblePosition::Passes,
        _ => PreamblePosition::Ends,
    }
}

fn asked(fact: &Fact) -> Option<RequestPurpose> {
    let read = match fact {
        Fact::UserSaid { .. } | Fact::ToolReturned { .. } => client_prompts::user_purpose,
        Fact::Instructed { what: InstructionKind::System | InstructionKind::Message, .. } => {
            client_prompts::system_purpose
        }
        _ => return None,
    };
    fact.parts().iter().find_map(|part| match part {
        ContentPart::Text { text } => read(text),
        _ => None,
    })
}
