//! Assumptions about the replayed threads, each reported once for all threads that it concerns.

use std::collections::BTreeMap;

use epitome::core::{Event, Fact, Tokens};

use super::{
    ReplayTotals,
    hidden_overhead::{HiddenOverhead, OverheadBasis},
};
use crate::text_format;

/// An assumption about a thread, with its amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayAssumption {
    about: AssumptionKind,
    amount: u64,
}

/// Kind of an assumption, in the order in which they are reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AssumptionKind {
    /// Tokens that the transcript does not show, estimated from usage.
    Unseen,
    /// Ratio of the provider's count to ours, in thousandths.
    Scale,
    /// No usage, so nothing hidden is known.
    Untold,
    /// No usage, though nothing is hidden.
    Uncounted,
    Timeless,
    UnknownModel {
        name: Option<String>,
        stands_in: String,
    },
    /// Number of the client's compactions.
    Compacted,
    /// Number of answers that the client gave in the model's place.
    Synthetic,
    /// Number of calls without a price.
    Unpriced,
    /// Hidden tokens, which alone fill the window.
    ShutOut {
        window: Tokens,
    },
    /// Number of calls that could not be made.
    Refused {
        window: Tokens,
    },
}

impl ReplayAssumption {
    /// Notes that a known model replaces an unknown one.
    pub(super) fn unknown_model(name: Option<String>, stands_in: &str) -> Self {
        Self { about: AssumptionKind::UnknownModel { name, stands_in: stands_in.to_owned() }, amount: 1 }
    }

    /// Assumptions about the events of a thread, `synthetic` of which are no answers of the model.
    pub(super) fn of(events: &[Event], unseen: &HiddenOverhead, synthetic: u64) -> Vec<Self> {
        let count = |is: fn(&Fact) -> bool| events.iter().filter(|event| is(&event.fact)).count() as u64;
        let told =
            count(|fact| matches!(fact, Fact::UsageReported { usage, .. } if usage.output > Tokens(0)));
        let timed = events.iter().filter(|event| event.time.is_some()).count();
        let unseen_tokens =
            if matches!(unseen.basis, OverheadBasis::Inferred { .. }) { unseen.prefix.0 } else { 0 };
        let scale = unseen.scale.of(Tokens(1_000)).0;
        // A ratio that is shown as 1.00 is not reported.
        let scale = if scale.abs_diff(1_000) < 5 { 0 } else { scale };
        let assumed = unseen.basis == OverheadBasis::Assumed;
        let all = [
            (AssumptionKind::Unseen, unseen_tokens),
            (AssumptionKind::Scale, scale),
            (AssumptionKind::Untold, u64::from(assumed)),
            (AssumptionKind::Uncounted, u64::from(told == 0 && !assumed)),
            (AssumptionKind::Timeless, u64::from(timed == 0)),
            (AssumptionKind::Compacted, count(|fact| matches!(fact, Fact::Compacted(_)))),
            (AssumptionKind::Synthetic, synthetic),
        ];
        all.into_iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|(about, amount)| Self { about, amount })
            .collect()
    }

    /// Problems caused by a lack of room or of prices.
    pub fn of_outcome(totals: &[ReplayTotals], unseen: &HiddenOverhead, window: Tokens) -> Vec<Self> {
        let most = |of: fn(&ReplayTotals) -> u64| totals.iter().map(of).max().unwrap_or(0);
        let (unpriced, refused) = (most(|total| total.unpriced), most(|total| total.refused));
        let mut notes = Vec::new();
        if unpriced > 0 {
            notes.push(Self { about: AssumptionKind::Unpriced, amount: unpriced });
        }
        if refused > 0 && unseen.room(window) == Tokens(0) {
            notes.push(Self { about: AssumptionKind::ShutOut { window }, amount: unseen.prefix.0 });
        } else if refused > 0 {
            notes.push(Self { about: AssumptionKind::Refused { window }, amount: refused });
        }
        notes
    }

    /// The assumption as a full sentence.
    pub fn sentence(&self) -> String {
        let words = self.words();
        let mut letters = words.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(letters).chain(['.']).collect()
    }

    /// The assumption in words, about one thread.
    pub fn words(&self) -> String {
        words(&self.about, &[self.amount])
    }
}

/// Assumptions about many threads: the number of threads, and the words.
pub fn summary_sentences<'n>(notes: impl Iterator<Item = &'n ReplayAssumption>) -> Vec<(usize, String)> {
    let mut by_kind: BTreeMap<&AssumptionKind, Vec<u64>> = BTreeMap::new();
    for note in notes {
        by_kind.entry(&note.about).or_default().push(note.amount);
    }
    let tell = |(about, mut amounts): (&AssumptionKind, Vec<u64>)| {
        amounts.sort_unstable();
        (amounts.len(), words(about, &amounts))
    };
    by_kind.into_iter().map(tell).collect()
}

/// Words for an assumption; the amounts are those of all threads, in order.
fn words(about: &AssumptionKind, amounts: &[u64]) -> String {
    let sum = || amounts.iter().sum::<u64>();
    match about {
        AssumptionKind::Unseen => format!(
            "system prompt and tools are not in the transcript: {} are charged for them, by recorded usage",
            spread(amounts, |tokens| text_format::count(tokens, "token"), text_format::short)
        ),
        AssumptionKind::Scale => {
            let times = |thousandths: u64| format!("{}.{:02}", thousandths / 1_000, thousandths % 1_000 / 10);
            format!(
                "recorded usage grows by {} for each counted token, and is charged so",
                spread(amounts, times, times)
            )
        }
        AssumptionKind::Untold => {
            "no call says what it used: nothing is charged for a system prompt and tools that are not \
                          in the transcript, and answers are counted by their text"
                .to_owned()
        }
        AssumptionKind::Uncounted => {
            "no call says what it used: answers are counted by their text".to_owned()
        }
        AssumptionKind::Timeless => {
            "no times: every call is taken to come while the cache is warm".to_owned()
        }
        AssumptionKind::UnknownModel { name: Some(name), stands_in } => {
            format!("the model {} is not known: charged as {stands_in}", text_format::one_line(name, 60))
        }
        AssumptionKind::UnknownModel { name: None, stands_in } => {
            format!("no model is named: charged as {stands_in}")
        }
        AssumptionKind::Compacted => {
            format!("{} of the client left out", text_format::count(sum(), "compaction"))
        }
        AssumptionKind::Synthetic => {
            format!("{} that the client wrote itself passed over", text_format::count(sum(), "answer"))
        }
        AssumptionKind::Unpriced => {
            format!("{} without a known price, left out of the cost", text_format::count(sum(), "call"))
        }
        AssumptionKind::ShutOut { window } => format!(
            "system prompt and tools alone, {}, do not fit into {}: calls are refused and counted under over",
            spread(amounts, |tokens| text_format::count(tokens, "token"), text_format::short),
            text_format::tokens(*window)
        ),
        AssumptionKind::Refused { window } => format!(
            "what must be sent does not fit into {}: up to {} refused and counted under over",
            text_format::tokens(*window),
            text_format::count(sum(), "call")
        ),
    }
}

/// Writes a single amount, or the median and the range.
fn spread(amounts: &[u64], one: impl Fn(u64) -> String, bare: impl Fn(u64) -> String) -> String {
    let (Some(first), Some(last)) = (amounts.first(), amounts.last()) else { return String::new() };
    let middle = amounts[amounts.len() / 2];
    if first == last {
        return one(middle);
    }
    format!("{} (median; {} to {})", one(middle), bare(*first), bare(*last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_for_many_is_said_once() {
        let note = |about, amount| ReplayAssumption { about, amount };
        let notes = [
            note(AssumptionKind::Timeless, 1),
            note(AssumptionKind::Unseen, 24_000),
            note(AssumptionKind::Compacted, 2),
            note(AssumptionKind::Unseen, 18_000),
            note(AssumptionKind::Scale, 1_253),
            note(AssumptionKind::Unseen, 45_100),
            note(AssumptionKind::Compacted, 1),
        ];
        let told: Vec<String> = summary_sentences(notes.iter())
            .iter()
            .map(|(count, words)| format!("{count}: {words}"))
            .collect();
        insta::assert_snapshot!(told.join("\n"), @r"
        3: system prompt and tools are not in the transcript: 24k tokens (median; 18k to 45k) are charged for them, by recorded usage
        1: recorded usage grows by 1.25 for each counted token, and is charged so
        1: no times: every call is taken to come while the cache is warm
        2: 3 compactions of the client left out
        ");
        assert_eq!(
            notes[1].sentence(),
            "System prompt and tools are not in the transcript: 24k tokens are charged for them, by recorded usage."
        );
    }
}
