//! Tools that only read.

use std::fmt::Write as _;

use anyhow::{anyhow, bail};
use epitome::{
    compact::tiers,
    core::{
        EventId, Seq, ThreadId, Tokens,
        profile::{ModelWindow, Profiles},
        tokens::{O200kCounter, TokenCounter},
    },
    queries::{
        AttemptOutcome, FailedAttempt, FailureSubject, SessionLine, events, failed_attempts, head_thread,
        pins, session_line,
    },
    request_plan::{RequestPlan, RequestSettings},
    session::call_replay,
    store::records::{
        HitLocation, SearchFilter, SearchHit, SearchQuery, SearchScope, SessionRow, SnippetPart, ThreadRow,
    },
};
use epitome_measure::text_fate::{EventTrace, MatchKind, why as fate_of};
use serde_json::{Value, json};

use super::{
    AnswerContext,
    arguments::ToolArguments,
    page::{AnswerPage, floor_boundary, shortened},
};
use crate::units::rfc3339;

/// Number of hits by default, and at most.
const DEFAULT_HITS: usize = 10;
const MAX_HITS: usize = 50;

/// Furthest place in a list that a call may go on from.
const MAX_SKIP: usize = 1_000_000;

/// Longest excerpt of an item, in bytes.
const MAX_EXCERPT_BYTES: usize = 600;

/// Most text of a handle that one call reads, in bytes.
const MAX_RECALLED_BYTES: usize = 8 << 20;

impl AnswerContext {
    /// The session that a call names, or the caller's latest, with the thread it goes on with.
    pub(super) fn named_session(&self, arguments: &ToolArguments) -> anyhow::Result<(SessionRow, ThreadRow)> {
        let session = self.access.session(&*self.store, arguments.text("session")?)?;
        let thread = head_thread(&*self.store, &session)?;
        Ok((session, thread))
    }

    /// Filter and thread of a call's scope.
    fn reach(&self, arguments: &ToolArguments) -> anyhow::Result<(SearchFilter, Option<ThreadId>)> {
        let thread = if arguments.is_session_scope()? {
            let session = self.access.session(&*self.store, None)?;
            Some(head_thread(&*self.store, &session)?.id)
        } else {
            None
        };
        let sessions = self.access.filter(arguments.scope()?);
        Ok((SearchFilter { sessions, ..SearchFilter::default() }, thread))
    }
}

/// Finds words.
pub(super) fn search(context: &AnswerContext, arguments: &ToolArguments) -> anyhow::Result<Value> {
    let query = arguments.required("query")?;
    if !query.chars().any(char::is_alphanumeric) {
        bail!("`query` has no word to search for");
    }
    let limit = arguments.number("limit", DEFAULT_HITS, MAX_HITS)?.max(1);
    let skip = arguments.number("skip", 0, MAX_SKIP)?;
    let (filter, thread) = context.reach(arguments)?;
    let kind = match arguments.text("kind")? {
        None => None,
        Some("user") => Some("user_said"),
        Some("assistant") => Some("assistant_said"),
        Some("tool") => Some("tool_returned"),
        Some(_) => bail!("`kind` must be `user`, `assistant` or `tool`"),
    };
    let filter =
        SearchFilter { since: arguments.time("since")?, kind: kind.map(str::to_owned), skip, ..filter };
    let scope = thread.map_or(SearchScope::Sessions, SearchScope::Thread);
    // One more than wanted shows whether there is more.
    let mut hits =
        context.store.search(&SearchQuery { words: query.to_owned(), scope, limit: limit + 1, filter })?;
    let is_more_behind = hits.len() > limit;
    hits.truncate(limit);
    let items = hits.iter().map(|hit| hit_item(context, hit)).collect::<anyhow::Result<Vec<_>>>()?;
    let page = AnswerPage::new(json!({"found": items.len()}));
    page.with_items(items, skip, is_more_behind, |at| arguments.with(&[("skip", json!(at))]))
}

fn hit_item(context: &AnswerContext, hit: &SearchHit) -> anyhow::Result<Value> {
    let HitLocation::Event { id, session, kind } = &hit.found else {
        bail!("a hit of the ledger came with those of sessions: run `epitome doctor`");
    };
    let text: String = hit
        .snippet
        .iter()
        .map(|excerpt| match excerpt {
            SnippetPart::Plain(text) | SnippetPart::Match(text) => text.as_str(),
        })
        .collect();
    Ok(json!({
        "handle": handle_of(*id),
        "kind": kind,
        "time": hit.time.and_then(rfc3339),
        "session": session,
        "title": shortened(&context.store.session_name(*session)?.title, 80),
        "text": shortened(&text, MAX_EXCERPT_BYTES),
    }))
}

fn handle_of(id: EventId) -> String {
    format!("{}:{}", id.thread.short(), id.seq)
}

/// Brings back what stands behind a handle.
pub(super) fn recall(context: &AnswerContext, arguments: &ToolArguments) -> anyhow::Result<Value> {
    let handle = arguments.required("handle")?;
    let (from, until) = arguments.text("range")?.map_or(Ok((0, None)), byte_range)?;
    let most = arguments.number("max_tokens", usize::MAX, usize::MAX)?;
    let (session, thread) = context.access.handle_owner(&*context.store, handle)?;
    let mut text = String::new();
    call_replay::recall_while(&*context.store, thread.id, handle, &mut |logged| {
        let _ = writeln!(
            text,
            "[{} {}]\n{}\n",
            logged.id.seq,
            logged.event.fact.kind(),
            logged.event.fact.text()
        );
        text.len() <= MAX_RECALLED_BYTES
    })?;
    let whole = text.trim_end();
    if from > whole.len() {
        bail!("`range` begins behind the end: the text has {} bytes", whole.len());
    }
    let begin = floor_boundary(whole, from);
    let end = floor_boundary(whole, until.unwrap_or(whole.len()).max(begin));
    let part = first_tokens(&whole[begin..end], most);
    let is_more_behind = until.is_none() && begin + part.len() < whole.len();
    let page = AnswerPage::new(json!({
        "handle": shortened(handle.trim_start_matches("recall ").trim(), 200),
        "session": session.id,
        "title": shortened(&session.title, 80),
        "bytes": whole.len(),
    }));
    page.with_text(part, begin, is_more_behind, |at| arguments.with(&[("range", json!(format!("{at}-")))]))
}

/// Reads `3000-6000` or `3000-`.
fn byte_range(text: &str) -> anyhow::Result<(usize, Option<usize>)> {
    let wrong = || anyhow!("`range` must be such as `3000-6000` or `3000-`");
    let (from, until) = text.split_once('-').ok_or_else(wrong)?;
    let from = from.trim().parse().map_err(|_| wrong())?;
    let until = match until.trim() {
        "" => None,
        until => Some(until.parse().map_err(|_| wrong())?),
    };
    if until.is_some_and(|until: usize| until < from) {
        return Err(wrong());
    }
    Ok((from, until))
}

/// As much of a text as so many tokens hold, about: by halves, since a token may be any length.
fn first_tokens(text: &str, most: usize) -> &str {
    // A page holds fewer bytes than this anyway.
    let mut part = &text[..floor_boundary(text, super::page::MAX_ANSWER_BYTES)];
    if most == usize::MAX {
        return text;
    }
    while !part.is_empty() && O200kCounter.count(part) > Tokens(most as u64) {
        part = &part[..floor_boundary(part, part.len() * 7 / 8)];
    }
    part
}

/// Tells the fate of a text.
pub(super) fn why(context: &AnswerContext, arguments: &ToolArguments) -> anyhow::Result<Value> {
    let text = arguments.required("text")?;
    let skip = arguments.number("skip", 0, MAX_SKIP)?;
    let (session, thread) = context.named_session(arguments)?;
    let fate = fate_of(&*context.store, thread.id, text)?;
    let items: Vec<Value> = fate.events.iter().skip(skip).map(trace_item).collect();
    let page = AnswerPage::new(json!({
        "session": session.id,
        "verdict": shortened(&fate.verdict(), 400),
        "matched": fate.matched != MatchKind::Nowhere,
        "basis": fate.basis,
        "further_events": fate.others.count(),
    }));
    page.with_items(items, skip, false, |at| arguments.with(&[("skip", json!(at))]))
}

fn trace_item(trace: &EventTrace) -> Value {
    let seen: Vec<String> = trace
        .seen
        .iter()
        .rev()
        .take(4)
        .map(|stretch| {
            format!("{} to {}: {}", stretch.first, stretch.last, shortened(&stretch.sight.to_string(), 160))
        })
        .collect();
    json!({
        "handle": trace.handle,
        "kind": trace.kind,
        "text": shortened(&trace.excerpt, MAX_EXCERPT_BYTES),
        "now": shortened(&trace.now.to_string(), 200),
        "latest_views": seen,
    })
}

/// Tells what failed before.
pub(super) fn failed(context: &AnswerContext, arguments: &ToolArguments) -> anyhow::Result<Value> {
    let (error, path) = (arguments.text("error")?, arguments.text("path")?);
    let subject = match (error, path) {
        (Some(error), None) => FailureSubject::Error(error),
        (None, Some(path)) => FailureSubject::Path(path),
        _ => bail!("give either `error` or `path`"),
    };
    let skip = arguments.number("skip", 0, MAX_SKIP)?;
    let (filter, thread) = context.reach(arguments)?;
    let found = failed_attempts(&*context.store, subject, &filter.sessions, thread, skip + MAX_HITS)?;
    let items: Vec<Value> = found.iter().skip(skip).map(attempt_item).collect();
    let page = AnswerPage::new(json!({"found": found.len()}));
    page.with_items(items, skip, false, |at| arguments.with(&[("skip", json!(at))]))
}

fn attempt_item(attempt: &FailedAttempt) -> Value {
    let ended = match &attempt.outcome {
        AttemptOutcome::Open => json!({"worked": false}),
        AttemptOutcome::Worked { handle, changed } => {
            let changed: Vec<String> = changed.iter().take(8).map(|path| shortened(path, 120)).collect();
            json!({"worked": true, "handle": handle, "changed_before": changed})
        }
    };
    json!({
        "handle": attempt.handle,
        "time": attempt.time.and_then(rfc3339),
        "session": attempt.session,
        "tried": attempt.tried,
        "error": attempt.words,
        "times": attempt.times,
        "ended": ended,
    })
}

/// Tells what fills the context of a session.
pub(super) fn context(context: &AnswerContext, arguments: &ToolArguments) -> anyhow::Result<Value> {
    let (session, thread) = context.named_session(arguments)?;
    let SessionLine { line, names, counted_by, window } = session_line(&*context.store, thread.id, None)?;
    let plan =
        RequestPlan::new(line, counted_by.as_deref(), &RequestSettings::default(), &Profiles::builtin())
            .map_err(|unknown| anyhow!("{unknown}"))?;
    let known = plan.profile.as_ref().and_then(|profile| match profile.window {
        ModelWindow::Of(tokens) => Some(tokens),
        ModelWindow::Unknown | ModelWindow::Unlimited => None,
    });
    let shown = plan.context(names);
    let mut items: Vec<Value> =
        tiers(&shown).into_iter().map(|(tier, tokens)| json!({"region": tier, "tokens": tokens})).collect();
    items.extend(pins(&*context.store, thread.id)?.into_iter().map(|pin| json!({"pin": pin})));
    let page = AnswerPage::new(json!({
        "session": session.id,
        "title": shortened(&session.title, 80),
        "model": plan.model,
        "window": window.or(known),
        "tokens": shown.tokens(),
        "turns": session.turns,
        "compactions": session.compactions,
    }));
    page.with_items(items, 0, false, |_| arguments.with(&[]))
}

/// The events of a turn, as text.
pub(super) fn turn_text(
    context: &AnswerContext,
    thread: &ThreadRow,
    number: usize,
) -> anyhow::Result<String> {
    let turns = context.store.turns(thread.id)?;
    let Some(row) = number.checked_sub(1).and_then(|index| turns.get(index)) else {
        bail!("there is no turn {number}: the session has turns 1 to {}", turns.len());
    };
    let mut text = String::new();
    for logged in events(&*context.store, thread.id, Some(row.turn.last))? {
        if logged.id.seq >= Seq(row.turn.first.0) {
            let _ = writeln!(
                text,
                "[{} {}]\n{}\n",
                handle_of(logged.id),
                logged.event.fact.kind(),
                logged.event.fact.text()
            );
        }
    }
    Ok(text)
}
