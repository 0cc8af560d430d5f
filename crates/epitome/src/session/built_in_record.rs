//! Records of summaries that no job wrote: the built-in ones, and those that forks and handoffs begin with.

use epitome_core::{
    Event, Fact, Seq, ThreadId,
    event::{Compaction, Summary, Timestamp},
};
use epitome_store::records::{CommitRecord, CompactionSummary, NewSummary, ThreadCommit};

/// Version of the prompt where no model was asked.
const NO_PROMPT: &str = "none";

/// Record of the summary that a compaction brings with it, whose span begins at `first`; `None` if it has no items.
pub(super) fn summary_record(
    made: &Compaction,
    (compaction, first): (Seq, Seq),
    author: &str,
    created: Timestamp,
) -> Option<CommitRecord> {
    let Summary::Structured { text, brief } = &made.summary else { return None };
    Some(CommitRecord::Summary(CompactionSummary {
        compaction,
        first: first.min(made.through),
        through: made.through,
        summary: NewSummary {
            author: author.to_owned(),
            prompt_version: NO_PROMPT.to_owned(),
            text: text.clone(),
            brief: serde_json::to_string(brief).expect("items hold only strings and numbers"),
            report: "{}".to_owned(),
            created,
        },
    }))
}

/// What a thread begins with that forks off another.
#[derive(Debug)]
pub(super) struct ThreadBeginning {
    /// Its first own events.
    pub(super) events: Vec<Event>,
    /// The first event that a summary among them covers.
    pub(super) first: Seq,
    /// Author of the summary.
    pub(super) author: String,
}

impl ThreadBeginning {
    /// The commit that writes it to a thread which shares the events up to `shared`.
    pub(super) fn commit(self, thread: ThreadId, shared: Seq, now: Timestamp) -> ThreadCommit {
        let Self { events, first, author } = self;
        let numbered = (shared.0 + 1..).map(Seq).zip(&events);
        let records = numbered.filter_map(|(seq, event)| match &event.fact {
            Fact::Compacted(made) => summary_record(made, (seq, first), &author, now),
            _ => None,
        });
        let records = records.collect();
        let dated = events.into_iter().map(|event| {
            let time = event.time.or(Some(now));
            event.at(time)
        });
        ThreadCommit::new(thread, shared, dated.collect(), records)
    }
}
