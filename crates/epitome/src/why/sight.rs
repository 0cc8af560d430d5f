//! Views of an event in a context.

use std::collections::HashMap;

use epitome_core::{
    EventId, Fact, Seq,
    context::{Body, Content, Context, Fidelity, Segment, Shown},
    event::{Compaction, Part, Summary},
    project::Line,
};
use epitome_store::{Sqlite, records::JobState};

use super::{
    How, Sight, Words,
    find::{Found, Needle, Piece},
};
use crate::session::SessionError;

/// Facts that a context does not hold: the text searched for, and the authors of the summaries.
pub(super) struct Witness {
    pub(super) needle: Needle,
    authors: HashMap<EventId, String>,
}

impl Witness {
    pub(super) fn new(store: &Sqlite, line: &Line, needle: Needle) -> Result<Self, SessionError> {
        let mut authors = HashMap::new();
        let mut owners: Vec<_> = compactions(line).map(|(id, _)| id.thread).collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            let summaries = store.summaries(owner)?;
            for job in store.jobs(Some(owner))? {
                let JobState::Adopted { compaction } = job.state else { continue };
                let made = summaries.iter().find(|summary| summary.job == job.job.id);
                if let Some(made) = made {
                    let id = EventId { thread: owner, seq: compaction };
                    authors.insert(id, made.summary.author.clone());
                }
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

    fn words(&self, text: &str) -> Words {
        if self.needle.is_told_in(text) { Words::There } else { Words::Gone }
    }
}

fn compactions(line: &Line) -> impl Iterator<Item = (EventId, &Compaction)> {
    line.events().filter_map(|event| match &event.event.fact {
        Fact::Compacted(compaction) => Some((event.id, compaction)),
        _ => None,
    })
}

/// View of a found piece in a context.
pub(super) fn sight(context: &Context, found: &Found, witness: &Witness) -> Sight {
    let seq = found.event.id.seq;
    let segments = context.segments();
    if let Some(segment) = segments.iter().find(|segment| shows(segment, found)) {
        return shown(segment, found.piece, witness);
    }
    if let Some(segment) = segments.iter().find(|segment| stands_for(segment, seq)) {
        return stood_for(segment, witness);
    }
    let elided = context.elided().iter().rev().find(|elision| elision.events.contains(seq));
    let nothing = Sight { how: How::LeftOut, by: None, compaction: None, words: Words::Gone };
    match elided {
        Some(elision) => Sight { by: Some(elision.by.to_string()), ..nothing },
        None => match found.event.event.fact {
            // A pin, or a request for a compaction, is never sent.
            Fact::Pinned { .. } | Fact::Unpinned { .. } | Fact::CompactionRequested { .. } => {
                Sight { how: How::Unsent, ..nothing }
            }
            _ => nothing,
        },
    }
}

/// Returns true if a segment shows a piece of an event, or its replacement.
fn shows(segment: &Segment, found: &Found) -> bool {
    let seq = found.event.id.seq;
    match (segment.body(), found.piece) {
        (
            Body::Prefix(event)
            | Body::Instruction(event)
            | Body::Carried(event)
            | Body::Summary(event)
            | Body::User { event, .. },
            Piece::Whole,
        ) => event.id.seq == seq,
        (Body::Answer { event, part } | Body::Exchange { event, part, .. }, Piece::Part(at)) => {
            event.id.seq == seq && *part == at
        }
        (Body::Exchange { outcome: Shown::Returned { event, index, .. }, .. }, Piece::Result(at)) => {
            event.id.seq == seq && *index == at
        }
        _ => false,
    }
}

fn shown(segment: &Segment, piece: Piece, witness: &Witness) -> Sight {
    let verbatim = Sight { how: How::Verbatim, by: None, compaction: None, words: Words::There };
    // A call is shown as it was made, in whatever form its result is shown.
    let ((Body::User { content: Content::Replaced(replaced), .. }, _)
    | (
        Body::Exchange { outcome: Shown::Returned { content: Content::Replaced(replaced), .. }, .. },
        Piece::Result(_),
    )) = (segment.body(), piece)
    else {
        return verbatim;
    };
    let how = match segment.fidelity() {
        Fidelity::Verbatim | Fidelity::Injected => How::Verbatim,
        Fidelity::Cut => How::Cut,
        Fidelity::Reference => How::Referred,
        Fidelity::Stub => How::Stubbed,
        Fidelity::Summary => How::Folded,
    };
    Sight {
        how,
        by: segment.touched().map(str::to_owned),
        compaction: None,
        words: words_of(replaced, witness),
    }
}

fn words_of(parts: &[Part], witness: &Witness) -> Words {
    let mut words = Words::Gone;
    for part in parts {
        part.visit_text(&mut |text| words = words.max(witness.words(text)));
    }
    words
}

fn stands_for(segment: &Segment, seq: Seq) -> bool {
    matches!(segment.body(), Body::Note(_) | Body::Summary(_)) && segment.stands_for().contains(seq)
}

fn stood_for(segment: &Segment, witness: &Witness) -> Sight {
    match segment.body() {
        Body::Note(note) => Sight {
            how: How::Folded,
            by: segment.touched().map(str::to_owned),
            compaction: None,
            words: witness.words(&note.text),
        },
        Body::Summary(event) => {
            let compaction = segment.compaction();
            Sight {
                how: How::Summarised,
                by: compaction.map(|compaction| witness.author(event.id, compaction)),
                compaction: Some(event.id.seq),
                words: compaction.map_or(Words::Gone, |made| witness.words(made.summary.text())),
            }
        }
        _ => Sight { how: How::Verbatim, by: None, compaction: None, words: Words::There },
    }
}
