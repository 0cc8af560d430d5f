//! The causes of epochs, as labels: a fixed set of words, independent of the wording that people see.

/// Label of any other cause.
const OTHER: &str = "other";

/// Labels, each with the beginning or end of the wording that people see.
const CAUSES: [(&str, &str); 15] = [
    ("first", "the first call"),
    ("trigger", "over the trigger"),
    ("force", "over the limit"),
    ("cold", "the cache was cold"),
    ("break_even", "it pays"),
    ("cap", " over the cap"),
    ("every_call", " on every call"),
    ("client", "the client changed its history"),
    ("tools", "the client changed its tools"),
    ("format", "the format wants other words around it"),
    ("model", "another model"),
    ("undone", "a compaction was undone or restored"),
    ("asked", "somebody asked for a compaction"),
    ("usage", "the last call used more than there is room for"),
    ("overflow", "the provider refused it as too long"),
];

/// Label of a cause that is given by name or in words.
pub(super) fn name(said: &str) -> &'static str {
    let is_said = |(name, words): &&(&str, &str)| {
        said == *name || said == *words || words.starts_with(' ') && said.ends_with(words)
    };
    CAUSES.iter().find(is_said).map_or(OTHER, |(name, _)| name)
}

/// Returns true if the cause gave up a warm cache.
pub(super) fn is_reset(cause: &str) -> bool {
    !matches!(cause, "first" | "cold")
}

#[cfg(test)]
mod tests {
    use epitome::core::{
        context::{EditAuthor, Tier},
        model_view::EpochCause,
    };

    use super::*;

    #[test]
    fn every_cause_has_a_name_of_its_own_however_it_is_told() {
        let causes = [
            EpochCause::First,
            EpochCause::Trigger,
            EpochCause::Force,
            EpochCause::Cold,
            EpochCause::Usage,
            EpochCause::BreakEven,
            EpochCause::Cap(Tier::ToolResults),
            EpochCause::EveryCall(EditAuthor::from("expire_tool_results")),
            EpochCause::Client,
            EpochCause::Tools,
            EpochCause::Format,
            EpochCause::Model,
            EpochCause::Undone,
            EpochCause::Asked,
        ];
        for cause in causes {
            // A new cause must be named here.
            let expect = match &cause {
                EpochCause::First => "first",
                EpochCause::Trigger => "trigger",
                EpochCause::Force => "force",
                EpochCause::Cold => "cold",
                EpochCause::Usage => "usage",
                EpochCause::BreakEven => "break_even",
                EpochCause::Cap(_) => "cap",
                EpochCause::EveryCall(_) => "every_call",
                EpochCause::Client => "client",
                EpochCause::Tools => "tools",
                EpochCause::Format => "format",
                EpochCause::Model => "model",
                EpochCause::Undone => "undone",
                EpochCause::Asked => "asked",
            };
            assert_eq!((name(&cause.to_string()), name(expect)), (expect, expect), "{cause}");
            assert_eq!(is_reset(expect), !matches!(cause, EpochCause::First | EpochCause::Cold));
        }
    }

    #[test]
    fn what_nobody_knows_is_one_label() {
        for said in ["", "\"} 1\n", "a sentence on caps", "Trigger"] {
            assert_eq!(name(said), OTHER);
        }
    }
}
