//! Evaluation of the long sessions of a file.

use std::{collections::HashSet, path::Path, sync::Arc};

use epitome::core::{
    Digest, Tokens,
    meter::{Meter, TokenOverhead},
    policy::SummaryRules,
    tokens::O200kCounter,
};

use super::{EvaluationSession, SECTION_COUNT, SummaryEvaluation, summarise_built_in};
use crate::{
    summary_retention::RetentionTally,
    transcript_sessions::{TranscriptFileError, transcript_sessions},
};

/// Measurements of a session.
#[derive(Clone, Debug)]
pub struct EvaluatedSession {
    /// Its name: the file's, with the session's key and the thread where there are several.
    pub name: String,
    /// Its size.
    pub tokens: Tokens,
    /// Its contents with their sizes, by which a repeated session is known.
    pub contents: Vec<(Digest, Tokens)>,
    /// An evaluation for each number of compactions that it was long enough for.
    pub evaluations: Vec<SummaryEvaluation>,
}

/// Measurements of all sessions for one number of compactions.
#[derive(Clone, Debug, Default)]
pub struct EvalTotals {
    /// Number of sessions.
    pub sessions: u64,
    /// Compactions made.
    pub made: u64,
    /// Tokens of their spans.
    pub span: u64,
    /// Tokens of the last summaries.
    pub summary: u64,
    /// The smallest ratio of a span to its summary.
    pub least: Option<f64>,
    /// Sections that are filled.
    pub filled: u64,
    /// Sessions whose summary has every section.
    pub complete: u64,
    /// Items that must be kept, by what became of them.
    pub items: RetentionTally,
}

/// Evaluates the sessions of a file that have more tokens than `over`, once for each number of compactions; none if the
/// file is no transcript.
pub fn evaluate_file(
    path: &Path,
    over: Tokens,
    chains: &[u64],
    rules: &SummaryRules,
) -> Result<Vec<EvaluatedSession>, TranscriptFileError> {
    let sessions = transcript_sessions(path)?;
    let file = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut all = Vec::new();
    for session in &sessions {
        for (index, thread) in session.threads.iter().enumerate() {
            let meter = Arc::new(Meter::new(Arc::new(O200kCounter), TokenOverhead::default()));
            let subject = EvaluationSession::new(session.thread_events(thread.id), meter);
            if subject.tokens() <= over {
                continue;
            }
            let of = if index == 0 { String::new() } else { format!(", {}", thread.name) };
            let name = if sessions.len() == 1 {
                format!("{file}{of}")
            } else {
                format!("{file} {}{of}", session.key)
            };
            let evaluate =
                |chain: &u64| subject.compact_chain(*chain, rules, |order| Ok(summarise_built_in(order)));
            let contents = subject.contents().collect();
            all.push(EvaluatedSession {
                name,
                tokens: subject.tokens(),
                contents,
                evaluations: chains.iter().filter_map(evaluate).collect(),
            });
        }
    }
    Ok(all)
}

/// Novelty of a session compared with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionNovelty {
    /// A new session.
    New,
    /// A repeated session: half of it or more was in earlier ones, as in a resumed file, a fork, or a part of
    /// another file.
    Again,
}

/// Content of the sessions so far.
#[derive(Clone, Debug, Default)]
pub struct SeenContents {
    contents: HashSet<Digest>,
    /// Number of sessions that were met again.
    pub again: u64,
}

impl SeenContents {
    /// Adds a session, and says if it is new.
    pub fn meet(&mut self, one: &EvaluatedSession) -> SessionNovelty {
        let known = one.contents.iter().filter(|(content, _)| self.contents.contains(content));
        let shared: Tokens = known.map(|(_, tokens)| *tokens).sum();
        self.contents.extend(one.contents.iter().map(|(content, _)| *content));
        if shared.0 * 2 < one.tokens.0 {
            return SessionNovelty::New;
        }
        self.again += 1;
        SessionNovelty::Again
    }
}

impl EvalTotals {
    /// Adds the measurements of a session.
    pub fn add(&mut self, told: &SummaryEvaluation) {
        self.sessions += 1;
        self.made += told.made;
        self.span += told.span.0;
        self.summary += told.summary.0;
        self.least = Some(self.least.map_or(told.ratio(), |least| least.min(told.ratio())));
        self.filled += told.filled;
        self.complete += u64::from(told.sections == SECTION_COUNT as u64);
        self.items += told.kept.total();
    }
}
