//! Views of an event in a context.

use std::collections::HashMap;

use epitome::{
    core::{
        EventId, Fact, Seq,
        context::{Context, Fidelity, Segment, SegmentBody, SegmentContent, VisibleOutcome},
        event::{Compaction, ContentPart, Summary},
        projection::EventLine,
    },
    session::SessionError,
    store::{
        Store,
        records::{JobState, SummarySource},
    },
};

use super::{
    EventVisibility, TextPresence, VisibilityForm,
    text_search::{EventPiece, TextNeedle, TextOccurrence},
};

/// Facts that a context does not hold: the text searched for, and the authors of the summaries.
pub(super) struct SightContext {
    pub(super) needle: TextNeedle,
    authors: HashMap<EventId, String>,
}

impl SightContext {
    pub(super) fn new(store: &dyn Store, line: &EventLine, needle: TextNeedle) -> Result<Self, SessionError> {
        let mut authors = HashMap::new();
        let mut owners: Vec<_> = compactions(line).map(|(id, _)| id.thread).collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            let jobs = store.jobs(Some(owner))?;
            for made in store.summaries(owner)? {
                let compaction = match made.source {
                    SummarySource::Compaction(compaction) => Some(compaction),
                    SummarySource::Job(id) => {
                        jobs.iter().find(|row| row.job.id == id).and_then(|row| match row.state {
                            JobState::Adopted { compaction } => Some(compaction),
                            _ => None,
                        })
                    }
                };
                let place = compaction.map(|seq| EventId { thread: owner, seq });
                authors.extend(place.map(|id| (id, made.summary.author)));
            }
        }
        Ok(Self { needle, authors })
    }

    /// Author of a compaction's summary.
    fn author(&self, id: EventId, compaction: &Compaction) -> String {
        match (self.authors.get(&id), &compaction.summary) {
            (Some(author), _) => author.clone(),
            (None, Summary::Structured { .. }) => "built-in".to_owned(),
            (None, Summary::Text(_) | Summary::Encrypted(_)) => "the agent's own".to_owned(),
        }
    }

    fn words(&self, text: &str) -> TextPresence {
        if self.needle.is_told_in(text) { TextPresence::There } else { TextPresence::Gone }
    }
}

fn compactions(line: &EventLine) -> impl Iterator<Item = (EventId, &Compaction)> {
    line.events().filter_map(|event| match &event.event.fact {
        Fact::Compacted(compaction) => Some((event.id, compaction)),
        _ => None,
    })
}

/// View of a found piece in a context.
pub(super) fn sight(context: &Context, found: &TextOccurrence, witness: &SightContext) -> EventVisibility {
    let seq = found.event.id.seq;
    let segments = context.segments();
    if let Some(segment) = segments.iter().find(|segment| shows(segment, found)) {
        return shown(segment, found.piece, witness);
    }
    if let Some(segment) = segments.iter().find(|segment| stands_for(segment, seq)) {
        return stood_for(segment, witness);
    }
    let elided = context.elided().iter().rev().find(|elision| elision.events.contains(seq));
    let nothing = EventVisibility {
        how: VisibilityForm::LeftOut,
        by: None,
        compaction: None,
        words: TextPresence::Gone,
    };
    match elided {
        Some(elision) => EventVisibility { by: Some(elision.by.to_string()), ..nothing },
        None => match found.event.event.fact {
            // A pin, or a request for a compaction, is never sent.
            Fact::Pinned { .. } | Fact::Unpinned { .. } | Fact::CompactionRequested { .. } => {
                EventVisibility { how: VisibilityForm::Unsent, ..nothing }
            }
            _ => nothing,
        },
    }
}

/// Returns true if a segment shows a piece of an event, or its replacement.
fn shows(segment: &Segment, found: &TextOccurrence) -> bool {
    let seq = found.event.id.seq;
    match (segment.body(), found.piece) {
        (
            SegmentBody::Prefix(event)
            | SegmentBody::Instruction(event)
            | SegmentBody::Carried(event)
            | SegmentBody::Summary(event)
            | SegmentBody::User { event, .. },
            EventPiece::Whole,
        ) => event.id.seq == seq,
        (
            SegmentBody::Answer { event, part } | SegmentBody::Exchange { event, part, .. },
            EventPiece::Part(at),
        ) => event.id.seq == seq && *part == at,
        (
            SegmentBody::Exchange { outcome: VisibleOutcome::Returned { event, index, .. }, .. },
            EventPiece::Result(at),
        ) => event.id.seq == seq && *index == at,
        _ => false,
    }
}

fn shown(segment: &Segment, piece: EventPiece, witness: &SightContext) -> EventVisibility {
    let verbatim = EventVisibility {
        how: VisibilityForm::Verbatim,
        by: None,
        compaction: None,
        words: TextPresence::There,
    };
    // A call is shown as it was made, in whatever form its result is shown.
    let ((SegmentBody::User { content: SegmentContent::Replaced(replaced), .. }, _)
    | (
        SegmentBody::Exchange {
            outcome: VisibleOutcome::Returned { content: SegmentContent::Replaced(replaced), .. },
            ..
        },
        EventPiece::Result(_),
    )) = (segment.body(), piece)
    else {
        return verbatim;
    };
    let how = match segment.fidelity() {
        Fidelity::Verbatim | Fidelity::Injected => VisibilityForm::Verbatim,
        Fidelity::Cut => VisibilityForm::Cut,
        Fidelity::Reference => VisibilityForm::Referred,
        Fidelity::Stub => VisibilityForm::Stubbed,
        Fidelity::Summary => VisibilityForm::Folded,
    };
    EventVisibility {
        how,
        by: segment.last_author().map(str::to_owned),
        compaction: None,
        words: words_of(replaced, witness),
    }
}

fn words_of(parts: &[ContentPart], witness: &SightContext) -> TextPresence {
    let mut words = TextPresence::Gone;
    for part in parts {
        part.visit_text(&mut |text| words = words.max(witness.words(text)));
    }
    words
}

fn stands_for(segment: &Segment, seq: Seq) -> bool {
    matches!(segment.body(), SegmentBody::Note(_) | SegmentBody::Summary(_))
        && segment.stands_for().contains(seq)
}

fn stood_for(segment: &Segment, witness: &SightContext) -> EventVisibility {
    match segment.body() {
        SegmentBody::Note(note) => EventVisibility {
            how: VisibilityForm::Folded,
            by: segment.last_author().map(str::to_owned),
            compaction: None,
            words: witness.words(&note.text),
        },
        SegmentBody::Summary(event) => {
            let compaction = segment.compaction();
            EventVisibility {
                how: VisibilityForm::Summarised,
                by: compaction.map(|compaction| witness.author(event.id, compaction)),
                compaction: Some(event.id.seq),
                words: compaction.map_or(TextPresence::Gone, |made| witness.words(made.summary.text())),
            }
        }
        _ => EventVisibility {
            how: VisibilityForm::Verbatim,
            by: None,
            compaction: None,
            words: TextPresence::There,
        },
    }
}
