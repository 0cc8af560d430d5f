//! Making threads and appending to them. Work that needs no lock is done by the caller's thread: serialising,
//! counting, taking media out.

use std::sync::Arc;

use epitome_core::{AnnotatedEvent, ChainLink, Digest, EventId, Seq, SessionId, ThreadId, TokenCounter};
use rusqlite::params;

use super::{
    calls,
    codec::{AsBlob, signed},
    derivation::DerivedEvent,
    media::{self, PackedText},
    sessions, shared_sums,
    sqlite_error::SqliteError,
    thread_view,
    writer::WriteTx,
};
use crate::{
    error::StoreError,
    log::{NewThread, ThreadStart},
    records::HeadPromotion,
    thread_head::ThreadHead,
};

/// An append, ready to be written.
pub(super) struct PreparedAppend {
    thread: ThreadId,
    after: Seq,
    tokenizer: Option<&'static str>,
    items: Vec<Arc<DerivedEvent>>,
    stored: Vec<RawJsonForm>,
}

/// Stored form of the JSON that an event came from.
enum RawJsonForm {
    /// It equals the fact and is not stored again.
    Fact,
    /// It is stored as it is.
    Plain,
    /// It is stored without its media.
    Packed(PackedText),
}

impl PreparedAppend {
    /// Prepares an append, outside any lock.
    pub(super) fn new(
        thread: ThreadId,
        after: Seq,
        events: impl IntoIterator<Item = AnnotatedEvent>,
        counter: Option<&dyn TokenCounter>,
    ) -> Self {
        let mut items = Vec::new();
        let mut stored = Vec::new();
        for event in events {
            stored.push(RawJsonForm::of(&event));
            // Place and links are known only under the lock.
            let id = EventId { thread, seq: Seq::START };
            items.push(Arc::new(DerivedEvent::new((id, ChainLink::ROOT), event, counter)));
        }
        Self { thread, after, tokenizer: counter.map(TokenCounter::name), items, stored }
    }

    /// Appends if the thread's head is where the caller thinks.
    pub(super) fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<ThreadHead, SqliteError> {
        let before = thread_view::head(tx.connection, self.thread)?;
        self.run_after(tx, before)
    }

    /// The same for a thread whose head is known.
    pub(super) fn run_after(
        &mut self,
        tx: &mut WriteTx<'_>,
        before: ThreadHead,
    ) -> Result<ThreadHead, SqliteError> {
        if before.seq != self.after {
            return Err(StoreError::Conflict { thread: self.thread, after: self.after, head: before }.into());
        }
        let mut head = before;
        for (item, form) in self.items.iter_mut().zip(&self.stored) {
            // No other process uses it, unless an earlier try left it behind.
            let item = Arc::make_mut(item);
            head = ThreadHead { seq: head.seq.next(), link: item.event.link_after(head.link) };
            (item.id.seq, item.link) = (head.seq, head.link);
            item.row = insert(tx, item, form)?;
        }
        tx.backlog.take(self.thread, before, &self.items, self.tokenizer);
        Ok(head)
    }
}

impl RawJsonForm {
    fn of(event: &AnnotatedEvent) -> Self {
        if *event.raw.json == *event.fact_json() {
            Self::Fact
        } else {
            media::pack(event).map_or(Self::Plain, Self::Packed)
        }
    }
}

fn insert(tx: &WriteTx<'_>, item: &DerivedEvent, form: &RawJsonForm) -> Result<i64, SqliteError> {
    let DerivedEvent { id, link, event, .. } = item;
    let (raw, markers) = match form {
        RawJsonForm::Fact => (None, 0),
        RawJsonForm::Plain => (Some(&*event.raw.json), 0),
        RawJsonForm::Packed(packed) => (Some(packed.text.as_str()), packed.markers),
    };
    tx.connection
        .prepare_cached(
            "INSERT INTO events (thread, seq, time, kind, dialect, media, normal_digest, raw_link, normal_link,
                origin, fact, raw) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            id.thread.blob(),
            signed(id.seq.0),
            event.time.map(|time| time.0),
            event.fact.kind(),
            event.raw.dialect.name(),
            markers,
            event.normal.map(|digest| digest.0),
            link.raw.0,
            link.normal.0,
            event.origin,
            event.fact_json(),
            raw,
        ])?;
    let row = tx.connection.last_insert_rowid();
    if let RawJsonForm::Packed(packed) = form {
        media::keep(tx.connection, row, &packed.media)?;
    }
    Ok(row)
}

/// Makes a thread, and a nameless session for it if there is none yet.
pub(super) fn open(tx: &mut WriteTx<'_>, thread: &NewThread) -> Result<(), SqliteError> {
    ensure_session(tx, thread.session)?;
    make(tx, thread, HeadPromotion::No)?;
    Ok(())
}

/// Makes a thread of a session that is there; gives where it ends, if it is new.
pub(super) fn make(
    tx: &mut WriteTx<'_>,
    thread: &NewThread,
    head: HeadPromotion,
) -> Result<Option<ThreadHead>, SqliteError> {
    if let Some(known) = thread_view::thread(tx.connection, thread.id)? {
        return if known == *thread { Ok(None) } else { Err(StoreError::ThreadDiffers(thread.id).into()) };
    }
    let (base, calls) = match thread.start {
        ThreadStart::Root | ThreadStart::Spawned { .. } => (ThreadHead::START, 0),
        ThreadStart::Fork { of, at } => {
            let base = thread_view::head_at(tx.connection, of, at)?;
            expect_same_principal(tx, of, thread.session)?;
            (base, calls::count_calls_through(tx.connection, of, at)?)
        }
    };
    insert_thread(tx, thread, base, calls)?;
    if let ThreadStart::Fork { .. } = thread.start {
        // The shared part must be derived.
        tx.backlog.catch_up(tx.connection)?;
        shared_sums::derive(tx.connection, thread.id)?;
    }
    tx.connection
        .prepare_cached("UPDATE sessions SET head_thread = ?2 WHERE id = ?1 AND (?3 OR head_thread IS NULL)")?
        .execute(params![thread.session.blob(), thread.id.blob(), head == HeadPromotion::Yes])?;
    Ok(Some(base))
}

/// Refuses a fork into another principal's session: no view shows another principal's messages.
fn expect_same_principal(tx: &WriteTx<'_>, parent: ThreadId, session: SessionId) -> Result<(), SqliteError> {
    let (_, theirs) = sessions::owner(tx.connection, parent)?;
    match sessions::principal(tx.connection, session)? {
        Some(own) if own == theirs => Ok(()),
        _ => Err(StoreError::OtherPrincipal(session).into()),
    }
}

fn ensure_session(tx: &WriteTx<'_>, session: SessionId) -> Result<(), SqliteError> {
    tx.connection
        .prepare_cached(
            "INSERT INTO sessions (id, title, source) VALUES (?1, '', '') ON CONFLICT DO NOTHING",
        )?
        .execute([session.blob()])?;
    Ok(())
}

fn insert_thread(
    tx: &WriteTx<'_>,
    thread: &NewThread,
    base: ThreadHead,
    calls: u64,
) -> Result<(), SqliteError> {
    let (start, parent, by, call) = match &thread.start {
        ThreadStart::Root => ("root", None, None, None),
        ThreadStart::Fork { of, .. } => ("fork", Some(of.blob()), None, None),
        ThreadStart::Spawned { by, call } => ("spawned", None, *by, call.as_ref().map(|call| &call.0)),
    };
    let ChainLink { raw: Digest(raw), normal: Digest(normal) } = base.link;
    tx.connection
        .prepare_cached(
            "INSERT INTO threads (id, session, name, start, parent, base_seq, base_raw_link, base_normal_link,
                by_thread, by_seq, by_call, base_calls, key)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            thread.id.blob(),
            thread.session.blob(),
            thread.name,
            start,
            parent,
            signed(base.seq.0),
            raw,
            normal,
            by.map(|by| by.thread.blob()),
            by.map(|by| signed(by.seq.0)),
            call,
            signed(calls),
            thread.key,
        ])?;
    Ok(())
}
