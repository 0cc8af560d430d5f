//! How a draft must be written: what the gate reads, told to the model that writes.
//!
//! A model is asked for what code cannot tell: which of the agent's many sentences say what was decided, and what did not
//! work. It is asked for their numbers, because a model that copies changes words, and what is told in other words cannot be
//! checked without understanding it.

use std::fmt::Write as _;

use super::item_filter::MODEL_WRITTEN_SECTIONS;
use crate::summary::{StructuredSummary, SummarySection, one_line};

/// How many earlier items of a section are shown, the newest of them.
const SHOWN: usize = 12;

/// How long an earlier item is shown, in characters.
const SHOWN_LENGTH: usize = 160;

/// How a draft must be written, on top of the summary before: the titles and lines that [`verify`](super::verify) reads.
///
/// ```
/// let form = epitome_core::draft_gate::format_instructions(None);
/// assert!(form.contains("## Failed Approaches\n- "));
/// ```
pub fn format_instructions(previous: Option<&StructuredSummary>) -> String {
    let mut form = String::from(
        "Write Markdown and nothing else: no greeting, no closing words, no code fence around it. Use exactly the two \
         headings below, in this order. Under each stand numbers of sentences, one a line after a dash, the earliest first, \
         and nothing behind them. Numbers that stand before no sentence are thrown away. If there is nothing to choose, write \
         the single word `None.` under the heading.\n\n",
    );
    for section in MODEL_WRITTEN_SECTIONS {
        let about = match section {
            SummarySection::FailedApproaches => "the number of a sentence about what did not work",
            _ => "the number of a sentence about what was decided, done or found out",
        };
        let _ = writeln!(form, "## {}\n- {about}", section.title());
    }
    // What a model need not tell again.
    for section in MODEL_WRITTEN_SECTIONS {
        let items = previous.into_iter().flat_map(|previous| previous.section(section));
        let items: Vec<&str> = items.map(|item| item.text.as_str()).collect();
        for (at, text) in items[items.len().saturating_sub(SHOWN)..].iter().enumerate() {
            if at == 0 {
                let _ = writeln!(form, "\nNoted earlier under {}, not to be repeated:", section.title());
            }
            let _ = writeln!(form, "- {}", one_line(text, SHOWN_LENGTH));
        }
    }
    form
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{seq_set::SeqSet, summary::SummaryItem};

    #[test]
    fn earlier_items_are_shown_and_bounded_however_many_there_are() {
        let item = |at: usize| SummaryItem {
            section: if at.is_multiple_of(2) {
                SummarySection::KeyDecisions
            } else {
                SummarySection::NextSteps
            },
            text: format!("{at} {}", "word ".repeat(90)),
            key: None,
            sources: SeqSet::default(),
            detail: None,
        };
        let brief =
            StructuredSummary { items: (0..2_000).map(item).collect(), ..StructuredSummary::default() };
        let form = format_instructions(Some(&brief));
        assert!(form.len() < 6_000, "{}", form.len());
        assert!(
            form.contains("under Key Decisions, not to be repeated:\n- 1976 word")
                && form.contains("\n- 1998 word")
        );
        assert!(!form.contains("1999 word"));
    }
}
