//! Before a session goes: its events and calls that a fork in another session shares become that fork's own.
//!
//! A view reads the same afterwards, place for place and link for link; only the owner in the ids of the
//! shared events and calls changes. A fork takes no more than its own beginning, so that erasing its session
//! later leaves no part of it to another. Of several forks in one session the older copies, and the younger
//! refers to the copy as far as they agree.

use std::collections::{HashMap, HashSet};

use epitome_core::{Seq, SessionId, ThreadId};
use rusqlite::{Connection, params};

use super::{
    calls::{self, OwnedCallRange},
    codec::{AsBlob, signed},
    sqlite_error::SqliteError,
    thread_view::{self, OwnedEventRange},
};
use crate::thread_head::ThreadHead;

/// Events and calls that were copied so far.
pub(super) struct ForkReparenting<'g> {
    gone: &'g HashSet<ThreadId>,
    /// The forks that were served, by session.
    served: HashMap<SessionId, Vec<ReparentedFork>>,
    /// Of every thread that goes: how far its own events live on.
    kept: HashMap<ThreadId, OwnedEventRange>,
}

/// A fork, and its view before the adoption.
struct ReparentedFork {
    fork: ThreadId,
    /// The events of the threads that go.
    events: Vec<OwnedEventRange>,
    /// The calls it shared.
    calls: Vec<OwnedCallRange>,
}

impl<'g> ForkReparenting<'g> {
    /// An empty adoption; the threads in `gone` will be deleted.
    pub(super) fn new(gone: &'g HashSet<ThreadId>) -> Self {
        Self { gone, served: HashMap::new(), kept: HashMap::new() }
    }

    /// Makes `fork`, which was forked from a thread that goes, independent of it. Older forks come first: then all
    /// that a fork sees before its last stretch of such threads stands on its own already.
    pub(super) fn adopt(
        &mut self,
        connection: &Connection,
        fork: ThreadId,
        session: SessionId,
    ) -> Result<(), SqliteError> {
        let mut shared = thread_view::owned_event_ranges(connection, fork, Seq::START)?;
        shared.retain(|segment| segment.thread != fork);
        let stretch = shared.iter().rev().take_while(|segment| self.gone.contains(&segment.thread)).count();
        let lost = shared.split_off(shared.len() - stretch);
        let mut calls = calls::owned_call_ranges(connection, fork)?;
        calls.retain(|stretch| stretch.thread != fork);
        let (parent, parent_calls) = match (self.nearest(session, &lost), shared.last()) {
            (Some((sibling, at)), _) => (Some((sibling.fork, at)), sibling.calls.clone()),
            (None, Some(OwnedEventRange { thread, until, .. })) => {
                (Some((*thread, *until)), calls::owned_call_ranges(connection, *thread)?)
            }
            (None, None) => (None, Vec::new()),
        };
        let start = match parent {
            Some((of, at)) => thread_view::head_at(connection, of, at)?,
            None => ThreadHead::START,
        };
        let first_call = calls_in_common(&parent_calls, &calls);
        for segment in &lost {
            let missing = OwnedEventRange { after: segment.after.max(start.seq), ..*segment };
            if missing.after < missing.until {
                copy(connection, &missing, fork)?;
            }
            let kept = self.kept.entry(segment.thread).or_insert(*segment);
            kept.until = kept.until.max(segment.until);
        }
        for stretch in &calls {
            let missing = OwnedCallRange { from: stretch.from.max(first_call), ..*stretch };
            if missing.from < missing.until {
                copy_calls(connection, &missing, fork)?;
            }
        }
        restart(connection, fork, parent.map(|(of, _)| of), start, first_call)?;
        self.served.entry(session).or_default().push(ReparentedFork { fork, events: lost, calls });
        Ok(())
    }

    /// Number of different events that live on.
    pub(super) fn shared(&self) -> u64 {
        self.kept.values().map(|kept| kept.until.0.saturating_sub(kept.after.0)).sum()
    }

    /// The fork of the same session that saw most of the same, and how far it did.
    fn nearest(&self, session: SessionId, lost: &[OwnedEventRange]) -> Option<(&ReparentedFork, Seq)> {
        let served = self.served.get(&session)?.iter();
        let agreeing = served.filter_map(|served| Some((served, agreement(&served.events, lost)?)));
        // Of equals the oldest.
        agreeing.rev().max_by_key(|(_, until)| *until)
    }
}

/// The last place up to which both saw the same events, if there is any.
fn agreement(one: &[OwnedEventRange], other: &[OwnedEventRange]) -> Option<Seq> {
    let mut agreed = None;
    for (one, other) in one.iter().zip(other) {
        if (one.thread, one.after) != (other.thread, other.after) {
            break;
        }
        agreed = Some(one.until.min(other.until));
        if one.until != other.until {
            break;
        }
    }
    agreed
}

/// Number of calls that both views share, from the first on.
fn calls_in_common(one: &[OwnedCallRange], other: &[OwnedCallRange]) -> u64 {
    let mut common = 0;
    for (one, other) in one.iter().zip(other) {
        if (one.thread, one.from) != (other.thread, other.from) {
            break;
        }
        common = one.until.min(other.until);
        if one.until != other.until {
            break;
        }
    }
    common
}

/// Copies events, and their individual records, into the line of `fork`.
fn copy(connection: &Connection, from: &OwnedEventRange, fork: ThreadId) -> Result<(), SqliteError> {
    for sql in [
        "INSERT INTO events (thread, seq, time, kind, dialect, media, normal_digest, raw_link, normal_link,
            origin, fact, raw)
         SELECT ?4, seq, time, kind, dialect, media, normal_digest, raw_link, normal_link, origin, fact, raw
         FROM events WHERE thread = ?1 AND seq > ?2 AND seq <= ?3 ORDER BY seq",
        "INSERT INTO media_uses (event, hash)
         SELECT copy.id, hash FROM events AS original
         JOIN media_uses ON media_uses.event = original.id
         JOIN events AS copy ON copy.thread = ?4 AND copy.seq = original.seq
         WHERE original.thread = ?1 AND original.seq > ?2 AND original.seq <= ?3",
        "INSERT INTO counts (thread, seq, tokenizer, tokens, pieces)
         SELECT ?4, seq, tokenizer, tokens, pieces FROM counts WHERE thread = ?1 AND seq > ?2 AND seq <= ?3",
        "INSERT INTO ledger_links (entry, thread, seq)
         SELECT entry, ?4, seq FROM ledger_links WHERE thread = ?1 AND seq > ?2 AND seq <= ?3",
    ] {
        let values = params![from.thread.blob(), signed(from.after.0), signed(from.until.0), fork.blob()];
        connection.execute(sql, values)?;
    }
    Ok(())
}

/// Copies calls, and the reports about their end, into the line of `fork`.
fn copy_calls(connection: &Connection, from: &OwnedCallRange, fork: ThreadId) -> Result<(), SqliteError> {
    for sql in [
        "INSERT INTO model_calls (thread, number, head, time, epoch, estimated, bytes, summary_seq, hash, policy,
            profile, rendering, format, model, cause, pass, plan, steps, sent, script)
         SELECT ?4, number, head, time, epoch, estimated, bytes, summary_seq, hash, policy,
            profile, rendering, format, model, cause, pass, plan, steps, sent, script
         FROM model_calls WHERE thread = ?1 AND number >= ?2 AND number < ?3 ORDER BY number",
        "INSERT INTO call_outcomes (call, time, cost, answer, usage, error, refusal)
         SELECT copy.id, outcome.time, cost, answer, usage, error, refusal FROM model_calls AS original
         JOIN call_outcomes AS outcome ON outcome.call = original.id
         JOIN model_calls AS copy ON copy.thread = ?4 AND copy.number = original.number
         WHERE original.thread = ?1 AND original.number >= ?2 AND original.number < ?3 ORDER BY outcome.number",
        "INSERT OR IGNORE INTO script_contents (thread, hash, call)
         SELECT ?4, hash, call FROM script_contents WHERE thread = ?1 AND call >= ?2 AND call < ?3",
    ] {
        let values = params![from.thread.blob(), signed(from.from), signed(from.until), fork.blob()];
        connection.execute(sql, values)?;
    }
    Ok(())
}

/// Lets a thread begin elsewhere.
fn restart(
    connection: &Connection,
    thread: ThreadId,
    parent: Option<ThreadId>,
    base: ThreadHead,
    first_call: u64,
) -> Result<(), SqliteError> {
    connection.execute(
        "UPDATE threads SET start = ?2, parent = ?3, base_seq = ?4, base_raw_link = ?5, base_normal_link = ?6,
            base_calls = ?7
         WHERE id = ?1",
        params![
            thread.blob(),
            if parent.is_some() { "fork" } else { "root" },
            parent.map(|parent| parent.blob()),
            signed(base.seq.0),
            base.link.raw.0,
            base.link.normal.0,
            signed(first_call),
        ],
    )?;
    Ok(())
}
