//! Import of transcript files into the log.
//!
//! Importing is idempotent and incremental: ids are derived from the agent's own, readers are prefix-stable,
//! and the normalised chain shows where a file and the log part. Events that the log has are skipped, new
//! ones are appended, and a file whose past was rewritten becomes a fork from the last event both agree on:
//! stored events are never replaced.
//!
//! A session may have been compacted or pinned here since: events of ours then stand between those of the
//! file, which goes on behind them. References in the file are renumbered accordingly (`seq_map`).

mod seq_map;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

use epitome_core::{
    ChainLink, Event, EventId, Fact, LoggedEvent, Seq, SessionId, ThreadId, client_text::user_words_of,
    event::RawDialect,
};
use epitome_store::{
    NewThread, Store, StoreError, ThreadHead, ThreadStart, opencode,
    records::{NewSession, SessionRow},
};
use epitome_wire::transcripts::{
    self, TranscriptError, TranscriptFile, TranscriptFormat, TranscriptLimits, TranscriptWarning,
};

use self::seq_map::FileSeqMap;

/// Events in one append: enough to share a commit, and few enough not to hold a session twice in memory.
const BATCH: usize = 512;

/// Number of a file's sessions that are recorded in parallel.
const WRITERS: usize = 16;

/// Most characters of the first user message in a title.
const TITLE_CHARS: usize = 80;

/// Reason why a file could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file could not be read from disk.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is no transcript.
    #[error(transparent)]
    Read(#[from] TranscriptError),
    /// The log rejected its events.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Result of importing a file.
#[derive(Clone, Debug)]
pub struct ImportedFile {
    /// Format of the file.
    pub format: TranscriptFormat,
    /// Its sessions.
    pub sessions: Vec<ImportedSession>,
    /// Problems in the file, with their positions.
    pub warnings: Vec<TranscriptWarning>,
    /// Records that are no part of a conversation, by type.
    pub skipped: BTreeMap<String, u64>,
}

/// Result of importing a session.
#[derive(Clone, Debug)]
pub struct ImportedSession {
    /// The session as it now stands in the store.
    pub row: SessionRow,
    /// Number of new events.
    pub appended: u64,
    /// Threads whose past differs between the file and the log: the first differing event, and the fork that
    /// was made.
    pub diverged: Vec<(Seq, ThreadId)>,
}

/// Number of attempts if other imports interfere.
const TRIES: usize = 8;

/// Imports a file, or OpenCode's database.
pub fn import_file(
    store: &dyn Store,
    path: &Path,
    limits: &TranscriptLimits,
) -> Result<ImportedFile, ImportError> {
    // Two files of one session may be imported at the same time, here or by another process: the second finds
    // what the first has written, and continues from there.
    for _ in 1..TRIES {
        match import_once(store, path, limits) {
            Err(ImportError::Store(StoreError::Conflict { .. })) => {}
            done => return done,
        }
    }
    import_once(store, path, limits)
}

fn import_once(
    store: &dyn Store,
    path: &Path,
    limits: &TranscriptLimits,
) -> Result<ImportedFile, ImportError> {
    if opencode::is_opencode(path) {
        return import_opencode(store, path, limits);
    }
    let bytes = fs::read(path).map_err(|source| ImportError::Io { path: path.to_owned(), source })?;
    // Sessions without an id of their own are identified by their file, so the same file must have the same
    // name each time.
    let name = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    import_bytes(store, &name.to_string_lossy(), &bytes, limits)
}

/// Imports the bytes of a file known as `name`.
pub fn import_bytes(
    store: &dyn Store,
    name: &str,
    bytes: &[u8],
    limits: &TranscriptLimits,
) -> Result<ImportedFile, ImportError> {
    record(store, transcripts::read(name, bytes, limits)?)
}

/// Lists the files below `path` that may hold a transcript, sorted, or `path` itself if it is a file; and the
/// folders that could not be read.
pub fn find_files(path: &Path) -> (Vec<PathBuf>, Vec<ImportError>) {
    let mut files = Vec::new();
    let mut unread = Vec::new();
    let mut folders = Vec::new();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => folders.push(path.to_owned()),
        Ok(_) => files.push(path.to_owned()),
        Err(source) => unread.push(ImportError::Io { path: path.to_owned(), source }),
    }
    while let Some(folder) = folders.pop() {
        if let Err(source) = look_into(&folder, &mut folders, &mut files) {
            unread.push(ImportError::Io { path: folder, source });
        }
    }
    files.sort();
    (files, unread)
}

fn look_into(folder: &Path, folders: &mut Vec<PathBuf>, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Links are not followed below the named folder: they may form a circle.
        match entry.file_type()? {
            kind if kind.is_dir() => folders.push(entry.path()),
            kind if kind.is_file() && may_be_transcript(&entry.path()) => files.push(entry.path()),
            _ => {}
        }
    }
    Ok(())
}

fn may_be_transcript(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["json", "jsonl", "traj", "zst"].contains(&extension)
        || path.file_name().is_some_and(|name| name == "opencode.db")
}

fn import_opencode(
    store: &dyn Store,
    path: &Path,
    limits: &TranscriptLimits,
) -> Result<ImportedFile, ImportError> {
    let mut all = ImportedFile {
        format: TranscriptFormat::Opencode,
        sessions: Vec::new(),
        warnings: Vec::new(),
        skipped: BTreeMap::new(),
    };
    for export in opencode::opencode_exports(path)? {
        let one = import_bytes(store, &path.to_string_lossy(), export.as_bytes(), limits)?;
        all.sessions.extend(one.sessions);
        all.warnings.extend(one.warnings);
        for (kind, count) in one.skipped {
            *all.skipped.entry(kind).or_default() += count;
        }
    }
    Ok(all)
}

fn record(store: &dyn Store, reading: TranscriptFile) -> Result<ImportedFile, ImportError> {
    let TranscriptFile { format, sessions, mut warnings, skipped } = reading;
    let mut imported = Vec::with_capacity(sessions.len());
    for session in at_once(sessions, |session| record_session(store, format, session)) {
        let session = session?;
        for (at, fork) in &session.diverged {
            warnings.push(TranscriptWarning {
                line: None,
                what: format!(
                    "session {}: the file differs from what was imported before after event {at}; \
                     both are kept, the file's version as the fork {fork}",
                    session.row.id,
                ),
            });
        }
        imported.push(session);
    }
    Ok(ImportedFile { format, sessions: imported, warnings, skipped })
}

/// Runs `work` on many items in parallel; results keep the order of the items. Writes that wait for the disk
/// together share one commit.
fn at_once<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let workers = WRITERS.min(items.len());
    let queue = Mutex::new(items.into_iter().enumerate());
    let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let send = send.clone();
            let (take, work) = (&take, &work);
            scope.spawn(move || {
                while let Some((index, item)) = take() {
                    if send.send((index, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
    });
    drop(send);
    let mut done: Vec<(usize, R)> = receive.into_iter().collect();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn record_session(
    store: &dyn Store,
    format: TranscriptFormat,
    session: transcripts::TranscriptSession,
) -> Result<ImportedSession, ImportError> {
    let transcripts::TranscriptSession { id, key, title, folder, threads, head } = session;
    let events = || threads.iter().flat_map(|thread| &thread.events);
    store.create_session(&NewSession {
        id,
        key: Some(key),
        title: title.or_else(|| events().find_map(title_of)).unwrap_or_default(),
        source: format.name().to_owned(),
        created: events().find_map(|event| event.time),
        principal: String::new(),
    })?;
    if let Some(folder) = folder.filter(|folder| !folder.is_empty()) {
        store.add_label(id, &project_label(&folder))?;
    }
    let callers = callers(&threads);
    let mut appended = 0;
    let mut diverged = Vec::new();
    let mut places: BTreeMap<ThreadId, FileThreadLocation> = BTreeMap::new();
    for thread in threads {
        let (shared, before) = match thread.start {
            transcripts::TranscriptThreadStart::Fork { of, at } => {
                (at, places.get(&of).map(|place| place.numbering.clone()).unwrap_or_default())
            }
            transcripts::TranscriptThreadStart::Root | transcripts::TranscriptThreadStart::Spawned { .. } => {
                (Seq::START, FileSeqMap::default())
            }
        };
        let start = match thread.start {
            transcripts::TranscriptThreadStart::Root => ThreadStart::Root,
            transcripts::TranscriptThreadStart::Fork { of, at } => {
                places.get(&of).map_or(ThreadStart::Fork { of, at }, |place| ThreadStart::Fork {
                    of: place.head(),
                    at: place.numbering.of(at),
                })
            }
            transcripts::TranscriptThreadStart::Spawned { by, call } => {
                let made = call.as_ref().and_then(|call| callers.get(&(by?, call.0.clone())).copied());
                let by = made.map(|id| places.get(&id.thread).map_or(id, |place| place.owner(id.seq)));
                ThreadStart::Spawned { by, call }
            }
        };
        let new = NewThread { id: thread.id, session: id, name: thread.name, key: None, start };
        let own = FileEvents { shared, before, events: thread.events };
        let done = record_thread(store, &new, own)?;
        appended += done.appended;
        diverged.extend(done.diverged.map(|at| (at, done.place.head())));
        places.insert(thread.id, done.place);
    }
    let head = places.get(&head).map_or(head, FileThreadLocation::head);
    if appended > 0 && !is_shorter(store, head, id)? {
        store.set_head(id, head)?;
    }
    Ok(ImportedSession { row: store.session(id)?, appended, diverged })
}

/// Label of the sessions of a project: the folder in which their agent worked.
pub fn project_label(folder: &str) -> String {
    let plain = folder.trim_end_matches(['/', '\\']);
    format!("project:{}", if plain.is_empty() { folder } else { plain })
}

/// Folder in which a session's agent worked, if its transcript says so.
pub fn project_of(session: &SessionRow) -> Option<&str> {
    session.labels.iter().find_map(|label| label.strip_prefix("project:"))
}

/// Position of each call of a session, to link the threads it started.
fn callers(threads: &[transcripts::TranscriptThread]) -> BTreeMap<(ThreadId, String), EventId> {
    let mut callers = BTreeMap::new();
    for thread in threads {
        let before = match thread.start {
            transcripts::TranscriptThreadStart::Fork { at, .. } => at.0,
            transcripts::TranscriptThreadStart::Root | transcripts::TranscriptThreadStart::Spawned { .. } => {
                0
            }
        };
        for (index, event) in thread.events.iter().enumerate() {
            let id = EventId { thread: thread.id, seq: Seq(before + index as u64 + 1) };
            for call in event.fact.calls() {
                callers.insert((thread.id, call.id.0.clone()), id);
            }
        }
    }
    callers
}

/// Returns true if `head` ends before the session's current thread, as in a file that was read only in part.
fn is_shorter(store: &dyn Store, head: ThreadId, session: SessionId) -> Result<bool, StoreError> {
    match store.session(session)?.head {
        Some(now) if now != head => Ok(store.head(head)?.seq < store.head(now)?.seq),
        _ => Ok(false),
    }
}

/// Location of the events of a file's thread: in the thread itself, or from some event on in a fork of it.
struct FileThreadLocation {
    /// Threads that hold them, each with the last event of the file before its own.
    threads: Vec<(Seq, ThreadId)>,
    numbering: FileSeqMap,
}

impl FileThreadLocation {
    /// Thread that holds the last of them.
    fn head(&self) -> ThreadId {
        self.owner(Seq(u64::MAX)).thread
    }

    /// Event with the number `seq` in the file, by the thread that owns it.
    fn owner(&self, seq: Seq) -> EventId {
        let after = self.threads.iter().rev().find(|(after, _)| *after < seq).or(self.threads.first());
        let thread = after.expect("a place has at least the thread itself").1;
        EventId { thread, seq: self.numbering.of(seq) }
    }
}

/// A thread's own events, as the file has them.
struct FileEvents {
    /// Last event of the file that it shares with its parent.
    shared: Seq,
    /// Numbers of the shared events.
    before: FileSeqMap,
    events: Vec<Event>,
}

struct ImportedThread {
    place: FileThreadLocation,
    appended: u64,
    diverged: Option<Seq>,
}

/// Brings a thread up to date with its own events as the file has them.
fn record_thread(store: &dyn Store, new: &NewThread, file: FileEvents) -> Result<ImportedThread, StoreError> {
    let base = match new.start {
        ThreadStart::Fork { of, at } => ThreadHead { seq: at, link: link_at(store, of, at)? },
        ThreadStart::Root | ThreadStart::Spawned { .. } => ThreadHead::START,
    };
    let thread = new.id;
    open_thread(store, new)?;
    let head = store.head(thread)?;
    let FileEvents { shared, before, events } = file;
    let ours = ours(store, thread, base.seq)?;
    let numbering = before.continued(shared, base.seq, &ours, &events);
    let stored = StoredThread { id: thread, base, head, shared, numbering: &numbering };
    let known = stored.common(store, &events)?;
    let first_new = stored.file_seq(known).next();
    let own = |appended, numbering| ImportedThread {
        place: FileThreadLocation { threads: vec![(shared, thread)], numbering },
        appended,
        diverged: None,
    };
    if known == events.len() {
        return Ok(own(0, numbering));
    }
    if numbering.of(first_new) == head.seq.next() {
        let new = events.into_iter().skip(known).map(|event| numbering.renumbered(event));
        return Ok(own(append(store, thread, head.seq, new)?, numbering));
    }
    // The fork takes along the events of ours before its first event.
    let at = numbering.of(first_new.previous());
    let fork = NewThread {
        id: ThreadId::derived(&[&thread.to_string(), &at.to_string(), &events[known].raw.json]),
        session: new.session,
        name: format!("{} (rewritten)", new.name),
        key: None,
        start: ThreadStart::Fork { of: thread, at },
    };
    let events = events.into_iter().skip(known).collect();
    let rest = FileEvents { shared: first_new.previous(), before: numbering, events };
    let mut done = record_thread(store, &fork, rest)?;
    done.place.threads.insert(0, (shared, thread));
    done.diverged = done.diverged.or((done.appended > 0).then_some(at));
    Ok(done)
}

/// Events of a thread that were written here and are no messages: requested, undone or restored compactions,
/// and pins.
fn ours(store: &dyn Store, thread: ThreadId, after: Seq) -> Result<Vec<LoggedEvent>, StoreError> {
    const KINDS: [&str; 8] = [
        "compaction_requested",
        "compacted",
        "compaction_reverted",
        "compaction_restored",
        "pinned",
        "unpinned",
        "injected",
        "model_changed",
    ];
    let mut found = store.events_of_kinds(thread, &KINDS)?;
    found.retain(|logged| {
        let Event { raw, normal, .. } = &logged.event;
        logged.id.seq > after && raw.dialect == RawDialect::Epitome && normal.is_none()
    });
    Ok(found)
}

/// Creates the thread, or finds it. Its parent call may have become known since it was created: it is still
/// the same thread.
fn open_thread(store: &dyn Store, new: &NewThread) -> Result<(), StoreError> {
    match store.open(new) {
        Err(StoreError::ThreadDiffers(id)) => {
            let known = store.thread(id)?;
            let same = known.session == new.session
                && match (&known.start, &new.start) {
                    (ThreadStart::Fork { of, at }, ThreadStart::Fork { of: same_of, at: same_at }) => {
                        (of, at) == (same_of, same_at)
                    }
                    (
                        ThreadStart::Root | ThreadStart::Spawned { .. },
                        ThreadStart::Root | ThreadStart::Spawned { .. },
                    ) => true,
                    _ => false,
                };
            if same { Ok(()) } else { Err(StoreError::ThreadDiffers(id)) }
        }
        done => done,
    }
}

/// A thread of the log, with the numbers of its events in the file.
struct StoredThread<'t> {
    id: ThreadId,
    /// Event behind which its own events begin.
    base: ThreadHead,
    head: ThreadHead,
    /// Number of `base` in the file.
    shared: Seq,
    numbering: &'t FileSeqMap,
}

impl StoredThread<'_> {
    /// Number in the file of the last of `count` own events.
    fn file_seq(&self, count: usize) -> Seq {
        Seq(self.shared.0.saturating_add(count as u64))
    }

    /// Number in the log of the last of `count` own events.
    fn log_seq(&self, count: usize) -> Seq {
        self.numbering.of(self.file_seq(count))
    }

    /// Number of `events`, the thread's own as the file has them, that are in the log.
    fn common(&self, store: &dyn Store, events: &[Event]) -> Result<usize, StoreError> {
        let mut link = self.base.link;
        let links: Vec<ChainLink> = events
            .iter()
            .enumerate()
            .take_while(|(at, _)| self.log_seq(at + 1) <= self.head.seq)
            .map(|(_, event)| {
                link = link.next(event, &event.fact_json());
                link
            })
            .collect();
        // Each link of the chain covers everything before it, so nearly always one comparison is enough. It
        // is the normalised chain, because the same history may come re-serialised: indented, or out of a
        // database instead of an export.
        let Some(last) = links.last() else { return Ok(0) };
        if link_at(store, self.id, self.log_seq(links.len()))?.normal == last.normal {
            return Ok(links.len());
        }
        let mut agreed = 0;
        let mut unknown = links.len();
        while agreed + 1 < unknown {
            let middle = agreed.midpoint(unknown);
            if link_at(store, self.id, self.log_seq(middle))?.normal == links[middle - 1].normal {
                agreed = middle;
            } else {
                unknown = middle;
            }
        }
        Ok(agreed)
    }
}

fn link_at(store: &dyn Store, thread: ThreadId, at: Seq) -> Result<ChainLink, StoreError> {
    if at == Seq::START {
        return Ok(ChainLink::ROOT);
    }
    let found = store.read(thread, at, 1)?;
    found.first().map(|logged| logged.link).ok_or(StoreError::UnknownEvent(EventId { thread, seq: at }))
}

fn append(
    store: &dyn Store,
    thread: ThreadId,
    mut after: Seq,
    events: impl Iterator<Item = Event>,
) -> Result<u64, StoreError> {
    let mut events = events.peekable();
    let start = after;
    while events.peek().is_some() {
        after = store.append(thread, after, events.by_ref().take(BATCH).collect())?.seq;
    }
    Ok(after.0 - start.0)
}

/// First words of a user's message, if they are words and not markup.
pub(crate) fn title_of(event: &Event) -> Option<String> {
    let Fact::UserSaid { parts } = &event.fact else { return None };
    let text = user_words_of(parts);
    let is_words = |line: &&str| !line.is_empty() && !line.starts_with('<') && !is_command(line);
    let line = spoken(&text).lines().map(str::trim).find(is_words)?;
    let mut title: String = line.chars().take(TITLE_CHARS).collect();
    if title.len() < line.len() {
        title.push('…');
    }
    Some(title)
}

/// Text behind tagged blocks of unknown clients.
fn spoken(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        let tag: &str = text.strip_prefix('<').map_or("", |rest| {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && !"-_".contains(letter));
            &rest[..end.unwrap_or(0)]
        });
        let close = format!("</{tag}>");
        let end = text.find(&close).filter(|_| !tag.is_empty());
        match end.map(|end| &text[end + close.len()..]) {
            Some(rest) if !rest.trim().is_empty() => text = rest,
            _ => return text,
        }
    }
}

/// Returns true for `/model`, `/clear` and other commands to the agent's program.
fn is_command(line: &str) -> bool {
    line.starts_with('/') && !line.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use epitome_core::ContentPart;

    use super::*;

    #[test]
    fn a_title_is_what_the_user_said_and_not_what_a_client_wrote_before_it() {
        let check = |text: &str, expect: Option<&str>| {
            let said = Event::from_fact(Fact::UserSaid { parts: vec![ContentPart::text(text)] }, None);
            assert_eq!(title_of(&said).as_deref(), expect, "{text}");
        };
        check("Fix it.\nNow.", Some("Fix it."));
        check("<info-msg>\nIt is currently 10:01\n</info-msg>\nFix it.", Some("Fix it."));
        check("<a>x</a>\n<system-reminder>y\nz</system-reminder>Fix it.", Some("Fix it."));
        check("<task-notification>\nAll tests pass.\n</task-notification>", None);
        check("[Request interrupted by user]", None);
        check(
            "# Context from my IDE setup:\n\n## Open tabs:\n- a.rs\n\n## My request for Codex:\nFix it.",
            Some("Fix it."),
        );
        check("<b> is not closed\nFix it.", Some("Fix it."));
        check("<>x</>", None);
        check("/clear", None);
    }
}
