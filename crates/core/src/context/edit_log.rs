//! Records of decisions about a context, so that the same decisions can be made again.
//!
//! A request only grows at its end if content that was left out once is left out in every later request, in
//! the very same words. So decisions are recorded with the words they put in place, and [`Context::redo`]
//! makes them again on a context that was projected afresh. A decision about a segment that is no longer
//! shown by itself has no effect.

use std::{borrow::Cow, fmt, iter::Peekable, ops::Deref};

use serde::{Deserialize, Serialize};

use crate::{
    context::{Context, ContextNote, Fidelity, Segment, SegmentKey, segment::ReplaceOutcome},
    event::ContentPart,
    id::Seq,
    seq_set::SeqSet,
};

/// Author of a change: mostly a reducer, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EditAuthor(Cow<'static, str>);

impl From<&'static str> for EditAuthor {
    fn from(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }
}

impl Deref for EditAuthor {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EditAuthor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A change of a context, and its author.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedChange {
    /// Author of the change.
    pub by: EditAuthor,
    /// The change itself.
    pub change: ContextChange,
    /// The compaction in force when its summary was among the changed segments: another compaction's summary
    /// stands in the same place but is a different one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_of: Option<Seq>,
}

/// A change of a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ContextChange {
    /// A segment shows something else.
    Show {
        /// The segment.
        at: SegmentKey,
        /// Parts that it shows.
        parts: Vec<ContentPart>,
        /// Fidelity of these parts.
        fidelity: Fidelity,
    },
    /// A segment is left out.
    Drop {
        /// The segment.
        at: SegmentKey,
    },
    /// A note stands for a run of segments.
    Fold {
        /// The first of them.
        first: SegmentKey,
        /// The last of them.
        last: SegmentKey,
        /// The note.
        note: ContextNote,
    },
}

impl ContextChange {
    /// The first segment it is about.
    pub fn first(&self) -> SegmentKey {
        match self {
            Self::Show { at, .. } | Self::Drop { at } => *at,
            Self::Fold { first, .. } => *first,
        }
    }

    fn last(&self) -> SegmentKey {
        match self {
            Self::Show { at, .. } | Self::Drop { at } => *at,
            Self::Fold { last, .. } => *last,
        }
    }

    pub(crate) fn is_fold(&self) -> bool {
        matches!(self, Self::Fold { .. })
    }
}

impl Context {
    /// Records every change from now on, until [`recorded`](Self::recorded) is asked for.
    pub fn start_recording(&mut self) {
        self.journal = Some(Vec::new());
    }

    /// Changes since the recording began; the recording ends here.
    pub fn recorded(&mut self) -> Vec<RecordedChange> {
        self.journal.take().unwrap_or_default()
    }

    /// Marks everything shown now as sent: [`is_sent`](Self::is_sent) and
    /// [`is_disturbed`](Self::is_disturbed) start over.
    pub fn mark_sent(&mut self) {
        self.sent = self.growth.head;
        self.disturbed = false;
    }

    /// The same, of everything through an event.
    pub(crate) fn mark_sent_through(&mut self, sent: Seq) {
        self.sent = sent;
        self.disturbed = false;
    }

    /// Number of recorded changes that are about content that was sent.
    pub(crate) fn changes_of_sent(&self) -> usize {
        let journal = self.journal.iter().flatten();
        journal.filter(|record| self.is_sent(record.change.first())).count()
    }

    /// The newest event when the context was last sent; the start if it never was.
    pub fn sent(&self) -> Seq {
        self.sent
    }

    /// Returns true if a change of the segment with this key changes content that was sent.
    pub fn is_sent(&self, key: SegmentKey) -> bool {
        key.seq <= self.sent
    }

    /// Returns true if events since the context was sent have changed something in it: a result that came
    /// late, another system prompt, other tools.
    pub fn is_disturbed(&self) -> bool {
        self.disturbed
    }

    /// Keeps content that was sent from being changed, until it is allowed again.
    pub fn guard_sent(&mut self, guard: SentContentGuard) {
        self.guarded = guard == SentContentGuard::Kept;
    }

    pub(super) fn is_guarded(&self, segment: &Segment) -> bool {
        self.guarded && self.is_sent(segment.key)
    }

    pub(super) fn record(&mut self, by: &EditAuthor, change: impl FnOnce() -> ContextChange) {
        if let Some(journal) = &mut self.journal {
            let change = change();
            let summary_of = self.standing.filter(|_| change.first().part == 0);
            journal.push(RecordedChange { by: by.clone(), change, summary_of });
        }
    }

    /// Makes recorded changes again, in the order they were made. Changes of segments that are not shown are
    /// passed over.
    pub fn redo(mut self, records: &[RecordedChange]) -> Self {
        let mut rest = records;
        while let Some(first) = rest.first() {
            let (batch, after) = rest.split_at(batch(rest));
            self = if first.change.is_fold() { self.refold(batch) } else { self.reedit(batch) };
            rest = after;
        }
        self
    }

    /// Returns true unless a record is about the summary of another compaction.
    fn is_about_this(&self, record: &RecordedChange) -> bool {
        record.change.first().part != 0 || record.summary_of == self.standing
    }

    fn reedit(mut self, batch: &[RecordedChange]) -> Self {
        let mut segments = std::mem::take(&mut self.segments);
        let mut records = batch.iter().peekable();
        segments.retain_mut(|segment| {
            if segment.is_prefix() || segment.is_unread() {
                return true;
            }
            let Some(record) = at(&mut records, segment.key).filter(|record| self.is_about_this(record))
            else {
                return true;
            };
            match &record.change {
                ContextChange::Drop { .. } => {
                    self.drop_one(&record.by, segment);
                    return false;
                }
                ContextChange::Show { parts, fidelity, .. } => {
                    let before = segment.tokens();
                    if segment.replay_replacement(parts, *fidelity, &self.meter) == ReplaceOutcome::Made {
                        self.replaced_one(&record.by, segment, before);
                    }
                }
                ContextChange::Fold { .. } => {}
            }
            true
        });
        self.segments = segments;
        self
    }

    fn refold(mut self, batch: &[RecordedChange]) -> Self {
        let mut segments = std::mem::take(&mut self.segments).into_iter().peekable();
        let mut records = batch.iter().peekable();
        while let Some(segment) = segments.next() {
            let found = if segment.is_prefix() { None } else { at(&mut records, segment.key) };
            let found = found.filter(|record| self.is_about_this(record));
            let Some(RecordedChange { by, change: ContextChange::Fold { first, last, note }, .. }) = found
            else {
                self.segments.push(segment);
                continue;
            };
            let mut note = note.clone();
            let mut members = vec![segment];
            while let Some(segment) = segments.next_if(|segment| segment.key <= *last) {
                members.push(segment);
            }
            // Results that have come in since belong to the note as well.
            let late = SeqSet::union(members.iter().map(Segment::stands_for)).without(&note.folded.events);
            note.folded.events.extend(&late);
            self.put_note(by, *first, &members, note, late);
        }
        self
    }
}

/// Protection of the content that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentContentGuard {
    /// It is.
    Kept,
    /// It may be changed.
    Open,
}

/// Number of records that can be made again in one walk over the segments: by one author, of one kind, in
/// order.
fn batch(records: &[RecordedChange]) -> usize {
    let goes_on = |pair: &&[RecordedChange]| {
        pair[0].by == pair[1].by
            && pair[0].change.is_fold() == pair[1].change.is_fold()
            && pair[0].change.last() < pair[1].change.first()
    };
    records.windows(2).take_while(goes_on).count() + 1
}

/// The record about a segment, if there is one: those about earlier segments, which are not shown, are passed over.
fn at<'r>(
    records: &mut Peekable<impl Iterator<Item = &'r RecordedChange>>,
    key: SegmentKey,
) -> Option<&'r RecordedChange> {
    while records.next_if(|record| record.change.last() < key).is_some() {}
    records.next_if(|record| record.change.first() <= key)
}

#[cfg(test)]
mod tests {
    use crate::{
        context::{Context, RecordedChange, SegmentEdit},
        notation::{context, show},
    };

    const FIRST: &str = "
user: One.
assistant: Yes.
compacted through 2: First summary.
user: Two.
assistant: Done, in 9 words of \"many\"
";

    fn decided(edit: impl FnOnce(Context) -> Context) -> Vec<RecordedChange> {
        let mut given = context(FIRST);
        given.start_recording();
        edit(given).recorded()
    }

    #[test]
    fn what_was_decided_of_one_summary_is_not_decided_of_the_next() {
        let dropped = decided(|given| {
            given.edit("test", |_, segment| {
                if segment.compaction().is_some() { SegmentEdit::Drop } else { SegmentEdit::Keep }
            })
        });
        let folded =
            decided(|given| given.fold("test", std::slice::from_ref(&(0..3)), |_| "[gone]".to_owned()));
        for (records, expect) in [(&dropped, "by test"), (&folded, "[gone]")] {
            assert!(show(&context(FIRST).redo(records)).contains(expect), "it is decided again where it was");
            let second =
                context(&format!("{FIRST}compacted through 5 keep 6: Second summary.\nuser: Three.\n"));
            assert_eq!(show(&second.clone().redo(records)), show(&second), "{records:?}");
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let records =
            decided(|given| given.fold("test", std::slice::from_ref(&(0..3)), |_| "[gone]".to_owned()));
        let json = serde_json::to_string(&records).unwrap();
        assert_eq!(serde_json::from_str::<Vec<RecordedChange>>(&json).unwrap(), records);
    }
}
