//! Making threads and appending to them. Work that needs no lock is done by the caller's thread: serialising,
//! counting, taking media out.

use std::sync::Arc;

use epitome_core::{Digest, EventId, Link, Noted, Seq, SessionId, ThreadId, TokenCounter};
use rusqlite::params;

use super::{
    calls,
    codec::{AsBlob, signed},
    derived::Item,
    fault::Fault,
    media::{self, Packed},
    read, sessions, shared,
    writer::Desk,
};
use crate::{
    error::StoreError,
    log::{Head, NewThread, Start},
    records::BecomesHead,
};

/// An append, ready to be written.
pub(super) struct Append {
    thread: ThreadId,
    after: Seq,
    tokenizer: Option<&'static str>,
    items: Vec<Arc<Item>>,
    stored: Vec<RawForm>,
}

/// Stored form of the JSON that an event came from.
enum RawForm {
    /// It equals the fact and is not stored again.
    Fact,
    /// It is stored as it is.
    Plain,
    /// It is stored without its media.
    Packed(Packed),
}

impl Append {
    /// Prepares an append, outside any lock.
    pub(super) fn new(
        thread: ThreadId,
        after: Seq,
        events: impl IntoIterator<Item = Noted>,
        counter: Option<&dyn TokenCounter>,
    ) -> Self {
        let mut items = Vec::new();
        let mut stored = Vec::new();
        for event in events {
            stored.push(RawForm::of(&event));
            // Place and links are known only under the lock.
            let id = EventId { thread, seq: Seq::START };
            items.push(Arc::new(Item::new((id, Link::ROOT), event, counter)));
        }
        Self { thread, after, tokenizer: counter.map(TokenCounter::name), items, stored }
    }

    /// Appends if the thread's head is where the caller thinks.
    pub(super) fn run(&mut self, desk: &mut Desk<'_>) -> Result<Head, Fault> {
        let before = read::head(desk.connection, self.thread)?;
        self.run_after(desk, before)
    }

    /// The same for a thread whose head is known.
    pub(super) fn run_after(&mut self, desk: &mut Desk<'_>, before: Head) -> Result<Head, Fault> {
        if before.seq != self.after {
            return Err(StoreError::Conflict { thread: self.thread, after: self.after, head: before }.into());
        }
        let mut head = before;
        for (item, form) in self.items.iter_mut().zip(&self.stored) {
            // No other process uses it, unless an earlier try left it behind.
            let item = Arc::make_mut(item);
            head = Head { seq: head.seq.next(), link: item.event.link_after(head.link) };
            (item.id.seq, item.link) = (head.seq, head.link);
            item.row = insert(desk, item, form)?;
        }
        desk.backlog.take(self.thread, before, &self.items, self.tokenizer);
        Ok(head)
    }
}

impl RawForm {
    fn of(event: &Noted) -> Self {
        if *event.raw.json == *event.fact_json() {
            Self::Fact
        } else {
            media::pack(event).map_or(Self::Plain, Self::Packed)
        }
    }
}

fn insert(desk: &Desk<'_>, item: &Item, form: &RawForm) -> Result<i64, Fault> {
    let Item { id, link, event, .. } = item;
    let (raw, markers) = match form {
        RawForm::Fact => (None, 0),
        RawForm::Plain => (Some(&*event.raw.json), 0),
        RawForm::Packed(packed) => (Some(packed.text.as_str()), packed.markers),
    };
    desk.connection
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
    let row = desk.connection.last_insert_rowid();
    if let RawForm::Packed(packed) = form {
        media::keep(desk.connection, row, &packed.media)?;
    }
    Ok(row)
}

/// Makes a thread, and a nameless session for it if there is none yet.
pub(super) fn open(desk: &mut Desk<'_>, thread: &NewThread) -> Result<(), Fault> {
    ensure_session(desk, thread.session)?;
    make(desk, thread, BecomesHead::No)?;
    Ok(())
}

/// Makes a thread of a session that is there; gives where it ends, if it is new.
pub(super) fn make(
    desk: &mut Desk<'_>,
    thread: &NewThread,
    head: BecomesHead,
) -> Result<Option<Head>, Fault> {
    if let Some(known) = read::thread(desk.connection, thread.id)? {
        return if known == *thread { Ok(None) } else { Err(StoreError::ThreadDiffers(thread.id).into()) };
    }
    let (base, calls) = match thread.start {
        Start::Root | Start::Spawned { .. } => (Head::START, 0),
        Start::Fork { of, at } => {
            let base = read::head_at(desk.connection, of, at)?;
            expect_same_principal(desk, of, thread.session)?;
            (base, calls::made_by(desk.connection, of, at)?)
        }
    };
    insert_thread(desk, thread, base, calls)?;
    if let Start::Fork { .. } = thread.start {
        // The shared part must be derived.
        desk.backlog.catch_up(desk.connection)?;
        shared::derive(desk.connection, thread.id)?;
    }
    desk.connection
        .prepare_cached("UPDATE sessions SET head_thread = ?2 WHERE id = ?1 AND (?3 OR head_thread IS NULL)")?
        .execute(params![thread.session.blob(), thread.id.blob(), head == BecomesHead::Yes])?;
    Ok(Some(base))
}

/// Refuses a fork into another principal's session: no view shows another principal's messages.
fn expect_same_principal(desk: &Desk<'_>, parent: ThreadId, session: SessionId) -> Result<(), Fault> {
    let (_, theirs) = sessions::owner(desk.connection, parent)?;
    match sessions::principal(desk.connection, session)? {
        Some(own) if own == theirs => Ok(()),
        _ => Err(StoreError::OtherPrincipal(session).into()),
    }
}

fn ensure_session(desk: &Desk<'_>, session: SessionId) -> Result<(), Fault> {
    desk.connection
        .prepare_cached(
            "INSERT INTO sessions (id, title, source) VALUES (?1, '', '') ON CONFLICT DO NOTHING",
        )?
        .execute([session.blob()])?;
    Ok(())
}

fn insert_thread(desk: &Desk<'_>, thread: &NewThread, base: Head, calls: u64) -> Result<(), Fault> {
    let (start, parent, by, call) = match &thread.start {
        Start::Root => ("root", None, None, None),
        Start::Fork { of, .. } => ("fork", Some(of.blob()), None, None),
        Start::Spawned { by, call } => ("spawned", None, *by, call.as_ref().map(|call| &call.0)),
    };
    let Link { raw: Digest(raw), normal: Digest(normal) } = base.link;
    desk.connection
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
