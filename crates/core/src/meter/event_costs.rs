//! Cost of an event, part by part, computed only here.
//!
//! The log keeps a count of every text that [`Event::visit_counted`] shows, and of the values sent with it.
//! They are taken from there; media and sealed content that only the provider can read are measured by their
//! size and need no counting. So projecting a thread again counts nothing again.

use super::Meter;
use crate::{
    annotated_event::AnnotatedEvent,
    event::{ContentPart, Event, Fact, InstructionKind, ReasoningSeal, Summary},
    tokens::Tokens,
    unparsed_json::is_code,
};

/// Least number of bytes for the wrapping of a raw form: kinds, roles, ids.
const ROOM: usize = 48;

/// Costs of an event, without any wrapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventCosts {
    /// Each part of each result.
    pub results: Vec<Vec<Tokens>>,
    /// Each part beside the results.
    pub parts: Vec<Tokens>,
    /// Tokens sent with each result though none of its parts holds them; they stay when the parts are
    /// replaced.
    pub beside_results: Vec<Tokens>,
    /// The same of each part.
    pub beside_parts: Vec<Tokens>,
    /// The same of an event without either.
    pub beside: Tokens,
    /// All of it.
    pub whole: Tokens,
}

impl Meter {
    /// Counts the texts of an event, each apart in the order [`Event::visit_counted`] shows them: the counts
    /// that the log keeps.
    pub fn pieces(&self, event: &Event) -> Vec<Tokens> {
        event.count_by(|text| self.text(text))
    }

    /// The same for an event whose counts are shared by all users of the same counter.
    pub fn pieces_noted(&self, noted: &AnnotatedEvent) -> Vec<Tokens> {
        noted.pieces_by(self.name(), |text| self.text(text))
    }

    /// Completes the log's counts of an event with those of the values sent beside its texts, if they are
    /// missing: earlier versions did not count them.
    pub fn with_missing_counts(&self, event: &Event, mut pieces: Vec<Tokens>) -> Vec<Tokens> {
        let (mut texts, mut bytes) = (0, 0);
        event.visit_counted(&mut |text| {
            texts += 1;
            bytes += text.len();
        });
        // A raw form that is hardly longer than the texts has no room for more than its wrapping.
        if pieces.len() == texts && event.raw.json.len() > bytes + ROOM {
            pieces.extend(event.count_unread(|text| self.text(text)));
        }
        pieces
    }

    /// Costs of an event. `pieces` are the log's counts of its texts; without them, or if they are not as
    /// many, the texts are counted here.
    pub fn costs(&self, event: &Event, pieces: Option<&[Tokens]>) -> EventCosts {
        let mut texts = 0;
        event.visit_counted(&mut |_| texts += 1);
        let slots = (event.fact.results().len(), event.fact.parts().len());
        let unread = slots.0 + slots.1 + 1;
        let counted;
        let pieces = match pieces {
            Some(pieces) if pieces.len() == texts || pieces.len() == texts + unread => pieces,
            _ => {
                counted = self.pieces(event);
                &counted
            }
        };
        let (pieces, beside) = pieces.split_at(texts.min(pieces.len()));
        let beside_at = |index: usize| beside.get(index).copied().unwrap_or_default();
        let mut pieces = pieces.iter().copied();
        let mut cost = |part: &ContentPart| {
            let mut texts = 0;
            part.visit_text(&mut |_| texts += 1);
            pieces.by_ref().take(texts).sum::<Tokens>() + self.beside_text(part)
        };
        let fact = &event.fact;
        let results: Vec<Vec<Tokens>> =
            fact.results().iter().map(|result| result.parts.iter().map(&mut cost).collect()).collect();
        let parts: Vec<Tokens> = fact.parts().iter().map(&mut cost).collect();
        let rest: Tokens = pieces.sum();
        let sealed = match fact {
            Fact::Compacted(compaction) => match &compaction.summary {
                Summary::Encrypted(sealed) => self.sealed(sealed),
                Summary::Text(_) | Summary::Structured { .. } => Tokens(0),
            },
            _ => Tokens(0),
        };
        let whole =
            results.iter().flatten().chain(&parts).chain(beside).copied().sum::<Tokens>() + rest + sealed;
        EventCosts {
            results,
            parts,
            beside_results: (0..slots.0).map(beside_at).collect(),
            beside_parts: (slots.0..slots.0 + slots.1).map(beside_at).collect(),
            beside: beside_at(slots.0 + slots.1),
            whole,
        }
    }

    /// Tokens that an event adds to a context, its wrapping included, as input of a
    /// [`ContextTracker`](crate::tracker::ContextTracker). A call pays for the wrapping of its result, as it does in a
    /// context.
    pub fn event(&self, event: &Event, pieces: Option<&[Tokens]>) -> Tokens {
        let overhead = self.overhead();
        let message = overhead.message;
        let wrapping = match &event.fact {
            Fact::AssistantSaid { parts, .. } => {
                let wrapped = |part: &ContentPart| match part {
                    ContentPart::ToolCall(_) => overhead.call + overhead.call + message + message,
                    _ => message,
                };
                parts.iter().map(wrapped).sum()
            }
            Fact::ToolReturned { parts, .. } if parts.is_empty() => Tokens(0),
            Fact::Instructed { what: InstructionKind::Tools, parts } => {
                message + overhead.around_tools(parts.len())
            }
            _ => message,
        };
        self.costs(event, pieces).whole + wrapping
    }

    /// Tokens of a part beyond its texts.
    pub(super) fn beside_text(&self, part: &ContentPart) -> Tokens {
        match part {
            ContentPart::Media(media) => self.media(media),
            ContentPart::Reasoning { seal: Some(ReasoningSeal::Encrypted(sealed)), .. } => {
                self.sealed(sealed)
            }
            ContentPart::Reasoning { .. }
            | ContentPart::Text { .. }
            | ContentPart::ToolCall(_)
            | ContentPart::Refusal { .. }
            | ContentPart::Opaque { .. } => Tokens(0),
        }
    }

    /// Sealed content costs as much as its text when it is open: text of three quarters of the size, because
    /// it is sent as base64. A quarter of the size in tokens is a little above that. Content that is not
    /// base64 is text.
    pub fn sealed(&self, sealed: &str) -> Tokens {
        let size = Tokens((sealed.len() as u64).div_ceil(4));
        if is_code(sealed) { size } else { size.max(self.text(sealed)) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;
    use crate::{
        context::{Context, EventNaming},
        event::{Compaction, CompactionTrigger, RawDialect, RawJson},
        id::Seq,
        media::Media,
        meter::TokenOverhead,
        notation::read,
        tokens::TokenCounter,
    };

    /// Words, and how often it was asked.
    #[derive(Default)]
    struct Asked(AtomicU64);

    impl TokenCounter for Asked {
        fn name(&self) -> &'static str {
            "asked"
        }

        fn count(&self, text: &str) -> Tokens {
            self.0.fetch_add(1, Ordering::Relaxed);
            Tokens(text.split_whitespace().count() as u64)
        }
    }

    const FREE: TokenOverhead = TokenOverhead {
        request: Tokens(0),
        message: Tokens(0),
        summary: Tokens(0),
        call: Tokens(0),
        tool: Tokens(0),
        tools: Tokens(0),
        image: Tokens(100),
        document_bytes_a_token: 20,
    };

    fn sealed(bytes: usize) -> ContentPart {
        ContentPart::Reasoning {
            text: "one two".into(),
            seal: Some(ReasoningSeal::Encrypted("x".repeat(bytes))),
        }
    }

    fn carried(json: &str) -> Event {
        let raw = RawJson { dialect: RawDialect::OpenaiChat, json: json.into() };
        let fact = Fact::Carried { kind: "odd".into() };
        Event { raw, normal: Some(crate::Digest::of(b"odd")), ..Event::from_fact(fact, None) }
    }

    #[test]
    fn a_part_costs_the_same_by_itself_and_in_its_event() {
        let meter = Meter::new(Arc::new(Asked::default()), FREE);
        let parts = vec![
            ContentPart::text("a b c"),
            sealed(400),
            ContentPart::Media(Media::inline("text/plain", &[0; 60])),
        ];
        let event =
            Event::from_fact(Fact::AssistantSaid { answer: None, model: None, parts: parts.clone() }, None);
        let costs = meter.costs(&event, None);
        assert_eq!(costs.parts, [Tokens(3), Tokens(102), Tokens(3)]);
        assert_eq!(meter.parts(&parts), costs.whole);
    }

    #[test]
    fn a_sealed_summary_costs_a_quarter_of_its_bytes() {
        let meter = Meter::new(Arc::new(Asked::default()), FREE);
        let fact = Fact::Compacted(Compaction {
            summary: Summary::Encrypted("x".repeat(41)),
            through: Seq(1),
            first_kept: None,
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Manual,
        });
        assert_eq!(meter.costs(&Event::from_fact(fact, None), None).whole, Tokens(11));
    }

    #[test]
    fn what_is_carried_along_is_counted_once_in_its_life() {
        let asked = Arc::new(Asked::default());
        let meter = Arc::new(Meter::new(Arc::clone(&asked) as _, FREE));
        let mut logged = (*read("user: Go.")[0]).clone();
        logged.event = carried(r#"{"role": "odd", "says": "something unknown"}"#);
        let pieces = meter.pieces(&logged.event);
        assert_eq!((pieces.as_slice(), asked.0.load(Ordering::Relaxed)), ([Tokens(5)].as_slice(), 1));
        let logged = Arc::new(logged);
        for _ in 0..3 {
            let mut context = Context::new(Arc::clone(&meter), EventNaming::Messages);
            let _ = context.extend(&logged, Some(&pieces));
            assert_eq!(context.tokens(), Tokens(5));
        }
        assert_eq!(asked.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_event_for_a_tracker_costs_what_it_costs_in_a_context() {
        let log = "system: Be brief.\ntools: read, write\nuser: Go on now.\nassistant: Yes.\n  call#a bash {}\n\
                   result a: one two\n";
        let meter = Arc::new(Meter::new(
            Arc::new(Asked::default()),
            TokenOverhead { message: Tokens(4), call: Tokens(8), tools: Tokens(100), ..FREE },
        ));
        let mut context = Context::new(Arc::clone(&meter), EventNaming::Messages);
        let mut tracked = Tokens(0);
        for logged in read(log) {
            let _ = context.extend(&logged, None);
            tracked += meter.event(&logged.event, None);
        }
        assert_eq!(context.tokens(), tracked);
    }
}
