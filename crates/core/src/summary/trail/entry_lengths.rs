//! How much each entry of a trail may say.
//!
//! Every text has a shortest form, and beyond that gets room by its weight: what the next action is most likely to need,
//! for a letter. One number scales all weights, and the largest that fits is taken, so that a trail fills its room whatever
//! it holds. What a focus is about is dealt its room first, then what belongs to the same requests, then the rest.

use std::collections::{HashMap, HashSet};

use super::{
    AnswerPart, CallEffect, CallEnding, Trail, TrailCall, TrailEntry, TrailKind,
    cut::{arguments_within, without_middle},
};
use crate::summary::focus::{FocusRanking, FocusRelevance};

/// After so many calls a text has half the weight that it had when it was new. Of the files that real agents patched, most
/// had been read within the last twenty calls.
const HALF_LIFE: u64 = 16;

/// What a weight is multiplied by, so that it can be divided by ages.
const UNIT: u64 = 1_000;

/// A scale at which everything is whole, however old it is.
const WHOLE: u64 = 1 << 48;

/// The letters that stand around an entry, at most: tags or brackets with a number, arrows, ends of lines.
pub(super) const CHARS_AROUND_ENTRY: usize = 36;

/// The letters around an output: tags on lines of their own.
const AROUND_OUTPUT: usize = 32;

/// A claim of a text on the room of a trail.
#[derive(Clone, Copy, Debug, Default)]
struct RoomClaim {
    /// Its length.
    whole: usize,
    /// What it gets in any case.
    least: usize,
    /// Less than this says nothing, and is given up.
    useful: usize,
    /// What it gets of the rest.
    weight: u64,
}

impl RoomClaim {
    /// The letters it gets where the rest is dealt out at some scale.
    fn letters(self, scale: u64) -> usize {
        let more = usize::try_from(u128::from(scale) * u128::from(self.weight) / u128::from(UNIT));
        let letters = self.whole.min(self.least.saturating_add(more.unwrap_or(usize::MAX)));
        if letters < self.useful.min(self.whole) { 0 } else { letters }
    }
}

/// The claims of an entry: of its words or its call's arguments, and of its call's output.
#[derive(Clone, Copy, Debug)]
struct EntryClaims {
    words: RoomClaim,
    output: RoomClaim,
    around: usize,
}

impl EntryClaims {
    fn letters(&self, scale: u64) -> usize {
        let output = self.output.letters(scale);
        let words = self.words.letters(scale);
        // What says nothing any more takes no room at all.
        let around = if words + output == 0 && self.words.whole > 0 { 0 } else { self.around };
        words + around + if output > 0 { output + AROUND_OUTPUT } else { 0 }
    }
}

impl Trail {
    /// The same trail within `letters`, or a little more where words must be told.
    pub(in crate::summary) fn within(self, letters: usize, ranking: Option<&FocusRanking<'_>>) -> Self {
        let relevance = match ranking {
            Some(ranking) => ranking.entries.clone(),
            None => vec![FocusRelevance::Unrelated; self.entries.len()],
        };
        let (entries, relevance) = super::fold::fold_old_requests(self.entries, relevance, letters);
        let claims: Vec<(EntryClaims, FocusRelevance)> =
            claims(&entries).into_iter().zip(relevance).collect();
        // By how much weights are scaled, for each relevance: what has not had its turn yet gets what it gets in any case.
        let mut scales: HashMap<FocusRelevance, u64> = HashMap::new();
        let scale_of =
            |scales: &HashMap<_, _>, of: &FocusRelevance| scales.get(of).copied().unwrap_or_default();
        for first in FocusRelevance::MOST_RELEVANT_FIRST {
            let total = |scale: u64| {
                let scale_of = |of: &FocusRelevance| if *of == first { scale } else { scale_of(&scales, of) };
                claims.iter().map(|(claims, relevance)| claims.letters(scale_of(relevance))).sum::<usize>()
            };
            let (mut fits, mut too_much) = (0, WHOLE);
            if total(too_much) <= letters {
                fits = too_much;
            }
            while too_much - fits > 1 {
                let scale = u64::midpoint(fits, too_much);
                if total(scale) <= letters { fits = scale } else { too_much = scale }
            }
            scales.insert(first, fits);
        }
        let cut = entries.into_iter().zip(&claims).filter_map(|(entry, (claims, relevance))| {
            cut_entry(entry, claims, scale_of(&scales, relevance))
        });
        Self { entries: cut.collect() }
    }
}

/// What entries take as they are.
pub(super) fn letters(entries: &[TrailEntry]) -> usize {
    claims(entries).iter().map(|claims| claims.letters(WHOLE)).sum()
}

/// What the shortest forms of entries take.
pub(super) fn least_letters(entries: &[TrailEntry]) -> usize {
    claims(entries).iter().map(|claims| claims.letters(0)).sum()
}

/// What entries about a focus take as they are, beyond their shortest forms.
pub(super) fn focus_letters(entries: &[TrailEntry], relevance: &[FocusRelevance]) -> usize {
    let claims = claims(entries);
    let about = claims.iter().zip(relevance).filter(|(_, relevance)| **relevance == FocusRelevance::About);
    about.map(|(claims, _)| claims.letters(WHOLE).saturating_sub(claims.letters(0))).sum()
}

fn claims(entries: &[TrailEntry]) -> Vec<EntryClaims> {
    let mut age = 0;
    let mut seen = HashSet::new();
    let mut claims: Vec<EntryClaims> = entries
        .iter()
        .rev()
        .map(|entry| {
            let claims = claims_of(entry, age, &mut seen);
            age += u64::from(matches!(entry.what, TrailKind::Call(_)));
            claims
        })
        .collect();
    claims.reverse();
    claims
}

/// What an entry claims that so many calls came after. `seen` are the subjects of later outputs.
fn claims_of<'e>(entry: &'e TrailEntry, age: u64, seen: &mut HashSet<&'e str>) -> EntryClaims {
    let fading = |weight: u64| (weight * UNIT * HALF_LIFE / (HALF_LIFE + age)).max(1);
    let words = |text: &str, least, useful, weight| EntryClaims {
        words: RoomClaim { whole: text.len(), least: text.len().min(least), useful, weight },
        output: RoomClaim::default(),
        around: CHARS_AROUND_ENTRY,
    };
    match &entry.what {
        // What users said does not fade: it is little, and no other words say it as well.
        TrailKind::User { text } => words(text, 400, 0, 6 * UNIT),
        TrailKind::Client { text } => words(text, 0, 60, fading(1)),
        TrailKind::Assistant { text, part: AnswerPart::Report } => words(text, 240, 0, fading(8)),
        TrailKind::Assistant { text, part: AnswerPart::Remark } => words(text, 0, 60, fading(6)),
        TrailKind::Call(call) => call_claims(call, &fading, seen),
        TrailKind::Request(request) => {
            let told: usize = request.calls.keys().map(|tool| tool.len() + 8).sum::<usize>()
                + request.changed.iter().map(|path| path.len() + 2).sum::<usize>()
                + request.asked.len()
                + request.concluded.len();
            EntryClaims {
                words: RoomClaim::default(),
                output: RoomClaim::default(),
                around: CHARS_AROUND_ENTRY * 2 + told,
            }
        }
    }
}

fn call_claims<'e>(
    call: &'e TrailCall,
    fading: &impl Fn(u64) -> u64,
    seen: &mut HashSet<&'e str>,
) -> EntryClaims {
    // A change does not replace what was read of its file: the next change has to match that text.
    let is_newest = call.effect == CallEffect::Changed || seen.insert(&call.subject);
    // The agent's own words and edits before what tools told it: they are short, and the next action goes on from them.
    let (arguments, output) = match (call.effect, &call.ending) {
        (_, CallEnding::Failed(_)) => (2, 3),
        (CallEffect::Changed, _) => (16, 1),
        (CallEffect::Read, _) => (2, 6),
        (CallEffect::Other, _) => (6, 2),
    };
    let ending = match &call.ending {
        CallEnding::Failed(words) => words.len() + 10,
        CallEnding::Returned | CallEnding::Unanswered => 14,
    };
    EntryClaims {
        words: RoomClaim {
            whole: call.arguments.len(),
            least: call.arguments.len().min(200),
            useful: 0,
            weight: fading(arguments),
        },
        output: RoomClaim {
            whole: call.output.len(),
            least: 0,
            useful: 160,
            // The same call or file again makes this output outdated.
            weight: if is_newest { fading(output) } else { 0 },
        },
        around: CHARS_AROUND_ENTRY + call.tool.len() + ending,
    }
}

/// An entry as long as it may be; nothing, if nothing is left of it.
fn cut_entry(mut entry: TrailEntry, claims: &EntryClaims, scale: u64) -> Option<TrailEntry> {
    let letters = claims.words.letters(scale);
    match &mut entry.what {
        TrailKind::User { text } | TrailKind::Client { text } | TrailKind::Assistant { text, .. } => {
            if text.len() > letters {
                *text = without_middle(text, letters);
            }
            if text.is_empty() {
                return None;
            }
        }
        TrailKind::Call(call) => {
            if call.arguments.len() > letters {
                call.arguments = arguments_within(&call.arguments, letters);
            }
            let letters = claims.output.letters(scale);
            if call.output.len() > letters {
                call.output = without_middle(&call.output, letters);
            }
        }
        TrailKind::Request(_) => {}
    }
    Some(entry)
}
