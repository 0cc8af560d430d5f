//! Assumptions about the replayed threads, each reported once for all threads that it concerns.

use std::collections::BTreeMap;

use epitome::core::{Event, Fact, Tokens};
use epitome::replay::{
    Total,
    unseen::{Basis, Unseen},
};

use super::super::text;

/// An assumption about a thread, with its amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    about: About,
    amount: u64,
}

/// Kind of an assumption, in the order in which they are reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum About {
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

impl Note {
    /// Notes that a known model replaces an unknown one.
    pub(super) fn unknown_model(name: Option<String>, stands_in: &str) -> Self {
        Self { about: About::UnknownModel { name, stands_in: stands_in.to_owned() }, amount: 1 }
    }

    /// Assumptions about the events of a thread, `synthetic` of which are no answers of the model.
    pub(super) fn of(events: &[Event], unseen: &Unseen, synthetic: u64) -> Vec<Self> {
        let count = |is: fn(&Fact) -> bool| events.iter().filter(|event| is(&event.fact)).count() as u64;
        let told =
            count(|fact| matches!(fact, Fact::UsageReported { usage, .. } if usage.output > Tokens(0)));
        let timed = events.iter().filter(|event| event.time.is_some()).count();
        let unseen_tokens = if matches!(unseen.basis, Basis::Inferred { .. }) { unseen.prefix.0 } else { 0 };
        let scale = unseen.scale.of(Tokens(1_000)).0;
        // A ratio that is shown as 1.00 is not reported.
        let scale = if scale.abs_diff(1_000) < 5 { 0 } else { scale };
        let assumed = unseen.basis == Basis::Assumed;
        let all = [
            (About::Unseen, unseen_tokens),
            (About::Scale, scale),
            (About::Untold, u64::from(assumed)),
            (About::Uncounted, u64::from(told == 0 && !assumed)),
            (About::Timeless, u64::from(timed == 0)),
            (About::Compacted, count(|fact| matches!(fact, Fact::Compacted(_)))),
            (About::Synthetic, synthetic),
        ];
        all.into_iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|(about, amount)| Self { about, amount })
            .collect()
    }

    /// Problems caused by a lack of room or of prices.
    pub(super) fn of_outcome(totals: &[Total], unseen: &Unseen, window: Tokens) -> Vec<Self> {
        let most = |of: fn(&Total) -> u64| totals.iter().map(of).max().unwrap_or(0);
        let (unpriced, refused) = (most(|total| total.unpriced), most(|total| total.refused));
        let mut notes = Vec::new();
        if unpriced > 0 {
            notes.push(Self { about: About::Unpriced, amount: unpriced });
        }
        if refused > 0 && unseen.room(window) == Tokens(0) {
            notes.push(Self { about: About::ShutOut { window }, amount: unseen.prefix.0 });
        } else if refused > 0 {
            notes.push(Self { about: About::Refused { window }, amount: refused });
        }
        notes
    }

    /// The assumption as a full sentence.
    pub(super) fn sentence(&self) -> String {
        let words = self.words();
        let mut letters = words.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(letters).chain(['.']).collect()
    }

    /// The assumption in words, about one thread.
    pub(super) fn words(&self) -> String {
        words(&self.about, &[self.amount])
    }
}

/// Assumptions about many threads: the number of threads, and the words.
pub(super) fn collected<'n>(notes: impl Iterator<Item = &'n Note>) -> Vec<(usize, String)> {
    let mut by_kind: BTreeMap<&About, Vec<u64>> = BTreeMap::new();
    for note in notes {
        by_kind.entry(&note.about).or_default().push(note.amount);
    }
    let tell = |(about, mut amounts): (&About, Vec<u64>)| {
        amounts.sort_unstable();
        (amounts.len(), words(about, &amounts))
    };
    by_kind.into_iter().map(tell).collect()
}

/// Words for an assumption; the amounts are those of all threads, in order.
fn words(about: &About, amounts: &[u64]) -> String {
    let sum = || amounts.iter().sum::<u64>();
    match about {
        About::Unseen => format!(
            "system prompt and tools are not in the transcript: {} are charged for them, by recorded usage",
            spread(amounts, |tokens| text::count(tokens, "token"), text::short)
        ),
        About::Scale => {
            let times = |thousandths: u64| format!("{}.{:02}", thousandths / 1_000, thousandths % 1_000 / 10);
            format!(
                "recorded usage grows by {} for each counted token, and is charged so",
                spread(amounts, times, times)
            )
        }
        About::Untold => {
            "no call says what it used: nothing is charged for a system prompt and tools that are not \
                          in the transcript, and answers are counted by their text"
                .to_owned()
        }
        About::Uncounted => "no call says what it used: answers are counted by their text".to_owned(),
        About::Timeless => "no times: every call is taken to come while the cache is warm".to_owned(),
        About::UnknownModel { name: Some(name), stands_in } => {
            format!("the model {} is not known: charged as {stands_in}", text::one_line(name, 60))
        }
        About::UnknownModel { name: None, stands_in } => format!("no model is named: charged as {stands_in}"),
        About::Compacted => {
            format!("{} of the client left out", text::count(sum(), "compaction"))
        }
        About::Synthetic => {
            format!("{} that the client wrote itself passed over", text::count(sum(), "answer"))
        }
        About::Unpriced => {
            format!("{} without a known price, left out of the cost", text::count(sum(), "call"))
        }
        About::ShutOut { window } => format!(
            "system prompt and tools alone, {}, do not fit into {}: calls are refused and counted under over",
            spread(amounts, |tokens| text::count(tokens, "token"), text::short),
            text::tokens(*window)
        ),
        About::Refused { window } => format!(
            "what must be sent does not fit into {}: up to {} refused and counted under over",
            text::tokens(*window),
            text::count(sum(), "call")
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
        let note = |about, amount| Note { about, amount };
        let notes = [
            note(About::Timeless, 1),
            note(About::Unseen, 24_000),
            note(About::Compacted, 2),
            note(About::Unseen, 18_000),
            note(About::Scale, 1_253),
            note(About::Unseen, 45_100),
            note(About::Compacted, 1),
        ];
        let told: Vec<String> =
            collected(notes.iter()).iter().map(|(count, words)| format!("{count}: {words}")).collect();
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
