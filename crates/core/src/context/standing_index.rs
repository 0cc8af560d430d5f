//! Standing context within a context: the blocks that are in force, and those that an edit must leave in
//! place.
//!
//! When a segment is left out, its [standing blocks](crate::standing_context) stay: in the note that takes its place,
//! or in the content that is still shown of it. Only the newest block of a kind is in force, as far as there
//! is room for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    context::{
        Context, ContextChange, ContextNote, Fidelity, FoldedTotals, Segment, SegmentBody,
        edit_log::EditAuthor,
    },
    event::{ContentPart, LoggedEvent},
    id::Seq,
    seq_set::SeqSet,
    standing_context::{
        MAX_STANDING_CHARS, MessagePosition, OmittedPiece, StandingContext, StandingPiece, pieces,
    },
    tokens::Tokens,
};

/// The newest block of each kind.
#[derive(Clone, Debug, Default)]
pub(super) struct StandingIndex {
    newest: BTreeMap<String, NewestBlock>,
    /// Kinds for which there is no room.
    released: BTreeSet<String>,
    /// True once the model has answered: the session is set up.
    pub(super) answered: bool,
}

#[derive(Clone, Copy, Debug)]
struct NewestBlock {
    at: Seq,
    letters: usize,
}

impl StandingIndex {
    fn take(&mut self, standing: &StandingContext) {
        for StandingPiece { kind, at, text } in &standing.pieces {
            let known = self.newest.get(kind).map(|newest| newest.at);
            if known.is_none_or(|known| known <= *at) {
                self.newest.insert(kind.clone(), NewestBlock { at: *at, letters: text.len() });
            }
        }
    }

    fn holds(&self, piece: &StandingPiece) -> bool {
        self.is_newest(&piece.kind, piece.at) && !self.released.contains(&piece.kind)
    }

    fn is_newest(&self, kind: &str, at: Seq) -> bool {
        self.newest.get(kind).is_none_or(|newest| newest.at <= at)
    }
}

impl Segment {
    /// The standing blocks that it holds, whether they still do or not.
    fn standing(&self) -> Option<&StandingContext> {
        match &self.body {
            SegmentBody::Note(note) => Some(&note.folded.standing),
            _ => self.standing.as_deref(),
        }
    }
}

impl ContextNote {
    /// Its text, without the standing blocks that it carries.
    pub(crate) fn words(&self) -> &str {
        let carried = self.folded.standing.pieces.first().and_then(|piece| self.text.find(&piece.text));
        carried.map_or(self.text.as_str(), |at| self.text[..at].trim_end())
    }
}

impl Context {
    /// The standing blocks of an event that joins the context.
    pub(super) fn standing_of(&mut self, event: &LoggedEvent) -> Option<Arc<StandingContext>> {
        let position =
            if self.growth.blocks.answered { MessagePosition::Later } else { MessagePosition::Opening };
        let pieces = pieces(&event.event.fact, event.id.seq, position);
        let standing = StandingContext { pieces, left_out: Vec::new() };
        (!standing.is_empty()).then(|| self.remember_standing(standing))
    }

    /// Takes blocks for the newest of their kinds, unless newer ones are known.
    pub(super) fn remember_standing(&mut self, standing: StandingContext) -> Arc<StandingContext> {
        self.growth.blocks.take(&standing);
        Arc::new(standing)
    }

    /// The same for the blocks that a note carries.
    pub(super) fn hold_carried(&mut self, standing: &StandingContext) {
        self.growth.blocks.take(standing);
    }

    /// The blocks among these that are in force: the newest of each kind, and a word about those for which
    /// there is no room.
    fn holding(&self, standing: &StandingContext) -> StandingContext {
        let index = &self.growth.blocks;
        let (kept, others): (Vec<_>, Vec<_>) =
            standing.pieces.iter().cloned().partition(|piece| index.holds(piece));
        let newest = others.into_iter().filter(|piece| index.is_newest(&piece.kind, piece.at));
        let left =
            newest.map(|StandingPiece { kind, at, text }| OmittedPiece { kind, at, letters: text.len() });
        let known = standing.left_out.iter().filter(|left| index.is_newest(&left.kind, left.at)).cloned();
        StandingContext { pieces: kept, left_out: left.chain(known).collect() }
    }

    /// The standing blocks of a segment that hold.
    pub(crate) fn standing_in(&self, segment: &Segment) -> StandingContext {
        segment.standing().map(|standing| self.holding(standing)).unwrap_or_default()
    }

    /// The standing blocks that hold and that a summary of everything before `first_kept` is to carry.
    pub(crate) fn standing_before(&self, first_kept: Seq) -> StandingContext {
        let (prefix, history) = self.segments.split_at(self.growth.prefix);
        let mut carried = StandingContext::default();
        for segment in history.iter().filter(|segment| segment.is_before(first_kept)) {
            carried.add(&self.standing_in(segment));
        }
        // Blocks that stand in the prefix stay there.
        carried.pieces.retain(|piece| !prefix.iter().any(|segment| says(segment, &piece.text)));
        carried
    }

    /// Approximate cost of the standing blocks in force, the prefix aside.
    pub(crate) fn standing_tokens(&self) -> Tokens {
        let index = &self.growth.blocks;
        let kinds = index.newest.iter().filter(|(kind, _)| !index.released.contains(*kind));
        // Four letters a token: this is for plans, and exact counting would repeat the same text with every
        // call.
        Tokens(kinds.map(|(_, newest)| newest.letters as u64 / 4).sum())
    }

    /// Limits the standing blocks in force to so many letters. The smallest come first: the date and the
    /// folder cost almost no room, and one file that is too large is no reason to lose the others.
    pub(crate) fn limit_standing(&mut self, most: usize, room: Tokens) {
        let index = &mut self.growth.blocks;
        index.released.clear();
        if index.newest.is_empty() {
            return;
        }
        // A third of the room at most: the rest is for the messages that the instructions apply to.
        let room = usize::try_from(room.0).unwrap_or(usize::MAX);
        let mut left = most.min(MAX_STANDING_CHARS).min(room.saturating_add(room / 3));
        let mut by_size: Vec<(usize, &String)> =
            index.newest.iter().map(|(kind, newest)| (newest.letters, kind)).collect();
        by_size.sort();
        for (letters, kind) in by_size {
            match left.checked_sub(letters) {
                Some(rest) => left = rest,
                None => {
                    index.released.insert(kind.clone());
                }
            }
        }
    }

    /// Gives up the largest standing block that holds; `false` if none does.
    pub(crate) fn release_standing(&mut self) -> bool {
        let index = &mut self.growth.blocks;
        let held = index.newest.iter().filter(|(kind, _)| !index.released.contains(*kind));
        let largest = held.max_by_key(|(_, newest)| newest.letters).map(|(kind, _)| kind.clone());
        largest.is_some_and(|kind| index.released.insert(kind))
    }

    /// The words of a note, with the standing blocks that it must carry.
    pub(crate) fn note_text(&self, words: &str, folded: &FoldedTotals) -> String {
        let standing = self.holding(&folded.standing);
        if standing.is_empty() {
            return words.to_owned();
        }
        let mut text = format!("{words}\n\n");
        standing.write(self.names, &mut text);
        text.truncate(text.trim_end_matches('\n').len());
        text
    }

    /// Contents of a note, with the standing blocks among them that are in force.
    pub(super) fn with_standing_in_force(&self, mut folded: FoldedTotals) -> FoldedTotals {
        folded.standing = self.holding(&folded.standing);
        folded
    }

    /// Parts that replace a segment, with its standing blocks added if the parts do not show them.
    pub(super) fn with_standing(&self, segment: &Segment, mut parts: Vec<ContentPart>) -> Vec<ContentPart> {
        for piece in self.standing_in(segment).pieces {
            let is_shown =
                |part: &ContentPart| matches!(part, ContentPart::Text { text } if text.contains(&piece.text));
            if !parts.iter().any(is_shown) {
                parts.push(ContentPart::Text { text: piece.text });
            }
        }
        parts
    }

    /// Leaves of a segment its standing blocks, if it holds any and is not them already.
    pub(super) fn leave_standing(&mut self, by: &EditAuthor, segment: &mut Segment) -> RemovalRemainder {
        let standing = self.standing_in(segment);
        if standing.pieces.is_empty() {
            return RemovalRemainder::Nothing;
        }
        if segment.shown().is_some() {
            let parts =
                standing.pieces.into_iter().map(|piece| ContentPart::Text { text: piece.text }).collect();
            self.replace_one(by, segment, parts, Fidelity::Cut);
            return RemovalRemainder::Standing;
        }
        let mut folded = FoldedTotals::default();
        folded.add(segment);
        let folded = self.with_standing_in_force(folded);
        let mut text = String::new();
        folded.standing.write_pieces(&mut text);
        text.truncate(text.trim_end_matches('\n').len());
        let (fixed, content) = self.note_cost(&text);
        if fixed + content < segment.tokens() {
            let note = ContextNote { text, folded };
            let key = segment.key;
            self.record(by, || ContextChange::Fold { first: key, last: key, note: note.clone() });
            let members = [segment.clone()];
            *segment = self.note_of(by, key, &members, note, SeqSet::default());
        }
        RemovalRemainder::Standing
    }

    /// Replaces the parts that a segment shows, if the new ones are smaller.
    pub(super) fn replace_one(
        &mut self,
        by: &EditAuthor,
        segment: &mut Segment,
        parts: Vec<ContentPart>,
        fidelity: Fidelity,
    ) {
        let before = segment.tokens();
        if segment.replace(&parts, fidelity, &self.meter) == super::segment::ReplaceOutcome::Made {
            self.replaced_one(by, segment, before);
            self.record(by, || ContextChange::Show { at: segment.key, parts, fidelity });
        }
    }
}

/// Remainder of a segment that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemovalRemainder {
    /// The segment goes completely: it has no standing block.
    Nothing,
    /// Its standing blocks.
    Standing,
}

/// Returns true if a segment of the prefix contains a text word for word.
fn says(segment: &Segment, text: &str) -> bool {
    let SegmentBody::Prefix(event) = &segment.body else { return false };
    event
        .event
        .fact
        .parts()
        .iter()
        .any(|part| matches!(part, ContentPart::Text { text: said } if said.contains(text)))
}
