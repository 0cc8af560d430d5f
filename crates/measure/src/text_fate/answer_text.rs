//! The answer in words: the verdict first, then each event with its fate.

use std::fmt;

use super::{
    CallStretch, EventTrace, EventVisibility, MatchKind, TextFate, TextFateBasis, TextPresence,
    VisibilityForm,
};

impl fmt::Display for TextFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.verdict())?;
        writeln!(f, "{}", self.found())?;
        for trace in &self.events {
            write!(f, "\n{}", TraceDisplay { trace, unit: self.unit() })?;
        }
        if !self.others.is_empty() {
            writeln!(f, "\n{} more of them, not told here: {}", self.others.count(), self.others)?;
        }
        Ok(())
    }
}

impl TextFate {
    /// Unit in which stretches are counted.
    fn unit(&self) -> &'static str {
        match self.basis {
            TextFateBasis::Calls { .. } => "call",
            TextFateBasis::Log => "event",
        }
    }

    /// The answer in one sentence.
    pub fn verdict(&self) -> String {
        if self.text.trim().is_empty() {
            return "Nothing was asked for: give some words of what you look for.".to_owned();
        }
        if self.matched == MatchKind::Nowhere {
            return "It never happened: no event of the session holds it.".to_owned();
        }
        if self.basis == TextFateBasis::Log {
            return self.verdict_of_log();
        }
        let last = self.events.iter().filter_map(|trace| trace.seen.last());
        let Some(best) = last.max_by_key(|stretch| worth(&stretch.sight)) else {
            return "No call has seen it yet: it came after the last of them.".to_owned();
        };
        match (best.sight.how, best.sight.words) {
            (VisibilityForm::Verbatim, _) => {
                format!("Not compacted out: call {}, the last, had it word for word.", best.last)
            }
            (_, TextPresence::There) => format!(
                "Not lost: call {}, the last, had the words, though no longer the whole event ({}).",
                best.last, best.sight
            ),
            (_, TextPresence::Gone) => match self.last_verbatim() {
                Some(last) => format!(
                    "Compacted out: call {last} was the last to have it word for word; since call {} it is {}.",
                    last + 1,
                    best.sight
                ),
                None => format!("Compacted out: no call had it word for word; it is {}.", best.sight),
            },
        }
    }

    fn verdict_of_log(&self) -> String {
        let now = self.events.iter().map(|trace| &trace.now).max_by_key(|sight| worth(sight));
        let because = "No calls are recorded for this session, so that nobody knows what its models were sent. \
                       By the log alone:";
        match now {
            Some(EventVisibility { how: VisibilityForm::Verbatim, .. }) => {
                format!("{because} it is in the context, word for word.")
            }
            Some(sight) => format!("{because} it is {sight}."),
            None => because.to_owned(),
        }
    }

    /// Last call that had the text word for word, in any event.
    fn last_verbatim(&self) -> Option<u64> {
        let seen = self.events.iter().flat_map(|trace| &trace.seen);
        seen.filter(|stretch| stretch.sight.words == TextPresence::There).map(|stretch| stretch.last).max()
    }

    /// Location of the matches, and the basis of the answer.
    fn found(&self) -> String {
        let events = self.events.len() as u64 + self.others.count();
        let capitals = match self.matched {
            MatchKind::IgnoringCase => ", with other capitals",
            MatchKind::Exact | MatchKind::Nowhere => "",
        };
        let found = format!("Found in {}{capitals}", count(events, "event"));
        match self.basis {
            TextFateBasis::Log => format!("{found}."),
            TextFateBasis::Calls { recorded, replayed: 0, .. } => {
                format!("{found}; {} recorded.", count(recorded, "call"))
            }
            TextFateBasis::Calls { recorded, replayed, same, skipped } => {
                let proof = match replayed - same {
                    0 => "every one to the bytes that were sent".to_owned(),
                    other => format!("{other} of them NOT to the bytes that were sent"),
                };
                let skipped = match skipped {
                    0 => String::new(),
                    more => format!("; {} not looked at, where more may have changed", count(more, "call")),
                };
                let recorded = count(recorded, "call");
                format!("{found}. Of {recorded}, {replayed} rendered again, {proof}{skipped}.")
            }
        }
    }
}

/// Rank of a view by how much of the text it shows.
fn worth(sight: &EventVisibility) -> (bool, TextPresence) {
    (sight.how == VisibilityForm::Verbatim, sight.words)
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// An event with its fate, in words.
struct TraceDisplay<'w> {
    trace: &'w EventTrace,
    unit: &'static str,
}

impl fmt::Display for TraceDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EventTrace { event, kind, excerpt, seen, now, handle, .. } = self.trace;
        writeln!(f, "event {} ({}): {excerpt}", event.seq, kind.replace('_', " "))?;
        let ranges: Vec<String> = seen.iter().map(|stretch| self.range(stretch)).collect();
        let width = ranges.iter().map(String::len).chain([9]).max().unwrap_or_default();
        for (index, (range, stretch)) in ranges.iter().zip(seen).enumerate() {
            write!(f, "  {range:width$}  {}", stretch.sight)?;
            match &stretch.cause {
                // The first view of an event follows from no decision about earlier requests.
                Some(cause) if index > 0 => writeln!(f, "; because: {cause}")?,
                _ if stretch.sight.how == VisibilityForm::Verbatim => writeln!(f)?,
                _ if index == 0 => writeln!(f, "; from the first call on")?,
                _ => writeln!(f)?,
            }
        }
        if seen.is_empty() {
            writeln!(f, "  {:width$}  no call has seen it yet", "calls")?;
        }
        writeln!(f, "  {:width$}  {now}", "now")?;
        writeln!(f, "  {:width$}  {handle}", "get it")
    }
}

impl TraceDisplay<'_> {
    fn range(&self, stretch: &CallStretch) -> String {
        if stretch.first == stretch.last {
            format!("{} {}", self.unit, stretch.first)
        } else {
            format!("{}s {}-{}", self.unit, stretch.first, stretch.last)
        }
    }
}

impl fmt::Display for EventVisibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.by.as_deref().unwrap_or("nobody");
        match (self.how, self.compaction) {
            (VisibilityForm::Verbatim, _) => return f.write_str("word for word"),
            (VisibilityForm::Unsent, _) => return f.write_str("not sent by itself"),
            (VisibilityForm::LeftOut, _) => return write!(f, "left out by {by}"),
            (VisibilityForm::Cut, _) => write!(f, "cut by {by}")?,
            (VisibilityForm::Referred, _) => write!(f, "only referred to, by {by}")?,
            (VisibilityForm::Stubbed, _) => write!(f, "a stub, by {by}")?,
            (VisibilityForm::Folded, _) => write!(f, "folded into a note by {by}")?,
            (VisibilityForm::Summarised, Some(at)) => {
                write!(f, "summarised by compaction {at} (summary: {by})")?;
            }
            (VisibilityForm::Summarised, None) => f.write_str("summarised")?,
        }
        match self.words {
            TextPresence::There => f.write_str(", which still says it"),
            TextPresence::Gone => f.write_str(", which does not say it"),
        }
    }
}
