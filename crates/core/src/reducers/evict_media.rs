//! Evicts media: old images, documents and sounds become a line; the newest stay.
//!
//! **Trigger:** the context is over the target, or media or tool results over their cap. The line gives its
//! kind, its size, and the way to get it back; text around it stays. If media are over their cap even then,
//! more of them go, oldest first. Media in the newest message of the user and in the open exchange stay
//! regardless of their number: the model is about to look at them.

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Fidelity, Segment, SegmentEdit, Tier},
    event::ContentPart,
    pipeline::{Reducer, ReducerOutput, ReducerState},
    reducers::stub_text::StubWriter,
    tokens::Tokens,
};

/// Evicts media.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvictMedia {
    /// Number of newest media that stay. By default 3.
    pub keep_newest: usize,
}

impl Default for EvictMedia {
    fn default() -> Self {
        Self { keep_newest: 3 }
    }
}

impl Reducer for EvictMedia {
    fn name(&self) -> &'static str {
        "evict_media"
    }

    fn serves(&self, tier: Tier) -> bool {
        matches!(tier, Tier::Media | Tier::ToolResults)
    }

    fn reduce(&self, context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        let kept = self.kept(&context);
        let context = self.evict(context, &kept);
        let cap = budget.cap_of(Tier::Media).unwrap_or(Tokens::MAX);
        let left = Tokens(context.counted_against(Tier::Media).0.saturating_sub(cap.0));
        if left == Tokens(0) {
            return ReducerOutput { context, state };
        }
        let kept = under_cap(&context, left);
        ReducerOutput { context: self.evict(context, &kept), state }
    }
}

impl EvictMedia {
    /// For each segment, how many of its media stay, the last of them; `None` if all do.
    fn kept(&self, context: &Context) -> Vec<Option<usize>> {
        let essential = context.essential();
        let mut room = self.keep_newest;
        let mut kept = vec![None; context.segments().len()];
        for (index, segment) in context.segments().iter().enumerate().rev() {
            let media = media_in(segment);
            let newest = media.min(room);
            room -= newest;
            if newest < media && !essential.contains(index) && !context.is_pinned(segment) {
                kept[index] = Some(newest);
            }
        }
        kept
    }

    fn evict(&self, context: Context, kept: &[Option<usize>]) -> Context {
        let scribe = StubWriter::of(&context);
        context.edit(self.name(), |index, segment| match kept[index] {
            Some(newest) => evict(&scribe, segment, newest),
            None => SegmentEdit::Keep,
        })
    }
}

/// For each segment, how many of its media stay if the oldest ones, of so many tokens, must go; `None` if all do.
fn under_cap(context: &Context, mut left: Tokens) -> Vec<Option<usize>> {
    let essential = context.essential();
    let scribe = StubWriter::of(context);
    let decide = |(index, segment): (usize, &Segment)| {
        if left == Tokens(0) || essential.contains(index) || context.is_pinned(segment) {
            return None;
        }
        let mut stay = media_in(segment);
        let (mut gone, mut lines) = (Tokens(0), Tokens(0));
        for (part, tokens) in segment.parts_with_tokens() {
            let ContentPart::Media(media) = part else { continue };
            if gone >= left {
                break;
            }
            stay -= 1;
            gone += tokens;
            lines += scribe.meter.part(&scribe.media(segment, media));
        }
        // Lines that cost more than the media would not take their place.
        (lines < gone).then(|| {
            left = Tokens(left.0.saturating_sub(gone.0));
            stay
        })
    };
    context.segments().iter().enumerate().map(decide).collect()
}

/// A line for each medium but the last `newest` ones.
fn evict(scribe: &StubWriter, segment: &Segment, newest: usize) -> SegmentEdit {
    let mut left = media_in(segment).saturating_sub(newest);
    let mut text = false;
    let show = |part: &ContentPart| match part {
        ContentPart::Media(media) if left > 0 => {
            left -= 1;
            scribe.media(segment, media)
        }
        other => {
            text = true;
            other.clone()
        }
    };
    let parts = segment.shown().unwrap_or_default().iter().map(show).collect();
    SegmentEdit::Replace { parts, fidelity: if text { Fidelity::Cut } else { Fidelity::Stub } }
}

fn media_in(segment: &Segment) -> usize {
    let shown = segment.shown().unwrap_or_default();
    shown.iter().filter(|part| matches!(part, ContentPart::Media(_))).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        notation::context,
        pipeline::is_met,
        reducers::{
            AnyReducer, pipeline,
            testing::{reduced, shown},
        },
    };

    #[test]
    fn of_one_message_the_last_stay() {
        let log = "user: Look.\n  + image 64x64\n  + image 640x480\n  + image 640x480\nassistant: Yes.\nuser: So?\n";
        insta::assert_snapshot!(shown(&EvictMedia { keep_newest: 1 }, 0, log), @r"
        user        1       cut          69 by evict_media  Look. + [image/png, 64x64, 6 bytes, no longer shown; message 1] + [image/png, 640x480, 6 bytes, no longer shown; message 1] + <image/png>
        answer      2       verbatim      1  Yes.
        user        3       verbatim      1  So?
        total 71
        ");
    }

    #[test]
    fn a_cap_counts_media_in_results_too_and_takes_the_newest_if_it_must() {
        let log = "user: Look.\n  + image 640x480\nassistant:\n  call shot {}\n  -> image 640x480\n  -> image 640x480\nassistant: Yes.\nuser: So?\n";
        let at = |cap: u64| {
            let budget = Budget::new(Tokens::MAX).with_cap(Tier::Media, Tokens(cap));
            let pipeline = pipeline(vec![AnyReducer::EvictMedia(EvictMedia::default())]);
            let (reduced, _) = pipeline.run(context(log), &budget, ReducerState::default());
            assert!(is_met(&reduced.context, &budget));
            reduced.context.segments().iter().map(media_in).collect::<Vec<_>>()
        };
        assert_eq!(at(150), [1, 2, 0, 0]);
        assert_eq!(at(149), [0, 2, 0, 0]);
        assert_eq!(at(99), [0, 1, 0, 0]);
        assert_eq!(at(49), [0, 0, 0, 0]);
    }

    #[test]
    fn the_newest_message_and_the_open_exchange_keep_theirs() {
        let log = "user: Look.\n  + image 640x480\nassistant:\n  call shot {}\n  -> image 640x480\n";
        assert_eq!(reduced(&EvictMedia { keep_newest: 0 }, 0, log).changes().replaced, 0);
    }

    #[test]
    fn text_beside_a_medium_is_not_counted_again_and_a_cheap_medium_stays() {
        let log = "user: 30 words of \"x\"\n  + image 640x480\n  + image 32x32\nassistant: Yes.\nuser: So?\n";
        let context = reduced(&EvictMedia { keep_newest: 0 }, 0, log);
        // The second image costs a token and its line more; the message as a whole is smaller all the same.
        assert_eq!(context.segments()[0].fidelity(), Fidelity::Cut);
        let log = "user: Tiny.\n  + image 32x32\nassistant: Yes.\nuser: So?\n";
        assert_eq!(reduced(&EvictMedia { keep_newest: 0 }, 0, log).changes().replaced, 0);
    }
}
