//! Erasing a session leaves nothing of it in the files, and everything that others share; backups are whole.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use epitome_core::{EventId, Fact, Seq, SessionId, ThreadId, event::Timestamp, turn::TurnBuilder};
use epitome_store::{
    NewThread, Store, StoreError, StoreLocation, StoreOptions, ThreadStart,
    records::{
        AttemptFilter, CallRow, CommitRecord, HashedText, LedgerEntry, LedgerFilter, NewCall, NewCallOutcome,
        NewExchange, NewJob, ScrubState, SearchQuery, ThreadCommit,
    },
};
use proptest::prelude::*;

use crate::{
    invariants::derived,
    support::{
        Place, all, append, assert_healthy, call, calls_seen, commit, counting, events, exchange, in_session,
        job, open_at, picture, policy, ready, root, seen, session, thread, user,
    },
};

const CANARY: &str = "zanzibarquokka";

/// Whether any file of the store holds the bytes, in any case.
fn holds(directory: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(directory).unwrap().any(|file| {
        let bytes = std::fs::read(file.unwrap().path()).unwrap().to_ascii_lowercase();
        bytes.windows(needle.len()).any(|window| window == needle)
    })
}

#[test]
fn nothing_of_an_erased_session_is_left_in_the_files() {
    let place = Place::new();
    let store = place.open();
    let (gone, kept) = (root(&*store, "gone"), root(&*store, "kept"));
    let secret: Vec<u8> = CANARY.bytes().cycle().take(3000).collect();
    for number in 0..200 {
        append(&*store, gone, vec![user(&format!("{CANARY} {number} {}", "filler ".repeat(50)))]);
        append(&*store, kept, vec![user(&format!("ordinary words {number}"))]);
    }
    append(&*store, gone, vec![picture(&secret), user(CANARY)]);
    append(&*store, kept, vec![picture(&[5; 3000])]);
    store.set_title(session("gone"), CANARY).unwrap();
    store.add_label(session("gone"), CANARY).unwrap();
    let entry = LedgerEntry {
        id: "1".into(),
        channel: "mail".into(),
        time: Timestamp(1),
        author: "ann".into(),
        text: "stays".into(),
        raw: "{}".into(),
    };
    let linked = [EventId { thread: gone, seq: Seq(1) }, EventId { thread: kept, seq: Seq(1) }];
    store.ledger_add(&entry, &linked).unwrap();
    records_with_canary(&*store, gone);
    commit(&*store, kept, vec![CommitRecord::Call(call(Seq(1))), CommitRecord::Exchange(exchange(Seq(1)))]);
    ready(&*store, kept, "kept", Seq(3));
    assert!(holds(place.directory.path(), CANARY.as_bytes()));
    let before = all(&*store, kept);
    let records = |store: &dyn Store| {
        let calls = store.calls(kept, 0, 99).unwrap();
        let exchanges = store.exchanges(session("kept"), 0, 99).unwrap();
        (calls, store.jobs(Some(kept)).unwrap(), store.summaries(kept).unwrap(), exchanges)
    };
    let kept_records = records(&*store);

    let erased = store.erase(session("gone"), Timestamp(77)).unwrap();
    assert_eq!((erased.threads, erased.events, erased.media, erased.shared), (1, 202, 1, 0));
    assert_eq!(erased.scrubbed, ScrubState::Gone);
    assert!(!holds(place.directory.path(), CANARY.as_bytes()));
    // Whoever writes next is not held up by it.
    let secure = "SELECT v FROM search_config WHERE k = 'secure-delete'";
    assert_eq!(place.raw().query_row(secure, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    assert_eq!(all(&*store, kept), before);
    assert_eq!(records(&*store), kept_records);
    assert_eq!(store.jobs(None).unwrap(), kept_records.1);
    assert_eq!(store.attempts(AttemptFilter::All, None, 99).unwrap().len(), 1);
    assert_eq!(store.content(policy().hash).unwrap(), Some(policy().text));
    assert!(matches!(store.head(gone), Err(StoreError::UnknownThread(_))));
    assert_eq!(store.search(&SearchQuery::everything(CANARY)).unwrap(), []);
    assert_eq!(store.search(&SearchQuery::everything("ordinary 7")).unwrap().len(), 1);
    assert_eq!(store.ledger_turns("mail", "1").unwrap(), linked[1..]);
    assert_eq!(store.ledger(&LedgerFilter::default()).unwrap().len(), 1);
    let audit = store.audit().unwrap();
    assert_eq!((audit.len(), audit[0].time), (1, Timestamp(77)));
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
    // The triggers are back, and the store goes on.
    assert!(place.raw().execute_batch("DELETE FROM events").is_err());
    append(&*store, kept, events(Seq(202), "ua"));
    root(&*store, "gone");
}

/// Puts the canary into every record a thread can have.
fn records_with_canary(store: &dyn Store, id: ThreadId) {
    let [secret, profile, rendering] =
        ["", "profile ", "rendering "].map(|what| HashedText::new(format!("{what}{CANARY}")));
    let text = format!("[\"{CANARY}\"]");
    let made = NewCall {
        model: Some(CANARY.into()),
        policy: secret.hash,
        profile: Some(profile.hash),
        rendering: rendering.hash,
        cause: Some(CANARY.into()),
        pass: Some(text.clone()),
        plan: Some(text.clone()),
        sent: text.clone(),
        steps: text.clone(),
        script: Some(text.clone()),
        ..call(Seq(1))
    };
    let outcome = NewCallOutcome {
        call: 0,
        time: None,
        answer: None,
        usage: None,
        cost: None,
        error: Some(CANARY.into()),
        refusal: None,
    };
    // What others name stays.
    let shared = CommitRecord::Call(call(Seq(1)));
    let contents = [secret, profile, rendering, policy()].map(CommitRecord::Content);
    let piece = CommitRecord::Piece(HashedText::new(format!("piece {CANARY}")));
    commit(
        store,
        id,
        [CommitRecord::Call(made), CommitRecord::Outcome(outcome), shared, piece]
            .into_iter()
            .chain(contents)
            .collect(),
    );
    ready(store, id, CANARY, Seq(1));
    let queued = NewJob { focus: Some(CANARY.into()), detail: text, ..job(store, id, "queued", Seq(1)) };
    let cancelled = CommitRecord::CancelJob { job: queued.id, reason: CANARY.into() };
    commit(store, id, vec![CommitRecord::Job(queued), cancelled]);
    let told = NewExchange {
        client: CANARY.into(),
        purpose: CANARY.into(),
        format: CANARY.into(),
        model: Some(CANARY.into()),
        ending: CANARY.into(),
        observed: Some(format!("\"{CANARY}\"")),
        error: Some(CANARY.into()),
        ..exchange(Seq(1))
    };
    commit(store, id, vec![CommitRecord::Exchange(told)]);
}

#[test]
fn a_second_erasure_removes_what_the_first_left_to_its_fork() {
    let place = Place::new();
    let store = place.open();
    let main = root(&*store, "gone");
    for turn in 0..100 {
        append(&*store, main, vec![user(if turn < 5 { "early" } else { CANARY })]);
    }
    let early = in_session(&*store, "early", "early", ThreadStart::Fork { of: main, at: Seq(5) });
    in_session(&*store, "late", "late", ThreadStart::Fork { of: main, at: Seq(100) });
    store.erase(session("gone"), Timestamp(1)).unwrap();
    assert_eq!(
        store.search(&SearchQuery { limit: 1000, ..SearchQuery::everything(CANARY) }).unwrap().len(),
        95
    );
    let erased = store.erase(session("late"), Timestamp(2)).unwrap();
    assert_eq!((erased.threads, erased.events, erased.shared), (1, 100, 0));
    assert_eq!(store.search(&SearchQuery::everything(CANARY)).unwrap(), []);
    assert!(!holds(place.directory.path(), CANARY.as_bytes()));
    assert_eq!(seen(&*store, early).len(), 5);
    assert_eq!(store.search(&SearchQuery::everything("early")).unwrap().len(), 5);
    assert_healthy(&*store);
}

#[test]
fn a_fork_of_less_than_its_parent_shares_keeps_no_more_than_that() {
    let place = Place::new();
    let store = place.open();
    let main = root(&*store, "gone");
    append(&*store, main, events(Seq(1), "uaua"));
    let side = in_session(&*store, "gone", "side", ThreadStart::Fork { of: main, at: Seq(3) });
    append(&*store, side, vec![user(CANARY)]);
    let heir = in_session(&*store, "heir", "heir", ThreadStart::Fork { of: side, at: Seq(2) });
    let empty = in_session(&*store, "empty", "empty", ThreadStart::Fork { of: side, at: Seq::START });
    let before = seen(&*store, heir);
    let erased = store.erase(session("gone"), Timestamp(1)).unwrap();
    assert_eq!((erased.threads, erased.events, erased.shared), (2, 3, 2));
    assert_eq!(seen(&*store, heir), before);
    assert_eq!(store.thread(empty).unwrap().start, ThreadStart::Root);
    assert!(!holds(place.directory.path(), CANARY.as_bytes()));
    assert_healthy(&*store);
}

/// Sessions that fork each other, and what is done to them.
struct Family {
    place: Place,
    store: Arc<dyn Store>,
    threads: Vec<NewThread>,
    /// Every event says a word of its own, so that it can be looked for.
    words: usize,
    notes: usize,
}

/// Nothing else in the files looks like these words, which events say, and these, which calls and jobs do.
const WORD: &str = "zqkxword";
const NOTE: &str = "zqkxnote";

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Of which thread, at which of its events, into which session, and what happens then.
type Fork = (prop::sample::Index, prop::sample::Index, usize, String);

impl Family {
    fn new() -> Self {
        let place = Place::new();
        let store = place.open();
        let mut family = Self { place, store, threads: Vec::new(), words: 0, notes: 0 };
        family.begin(thread("0"), session("a"), ThreadStart::Root, "ua");
        family
    }

    fn begin(&mut self, id: ThreadId, session: SessionId, start: ThreadStart, script: &str) {
        let new = NewThread { id, session, name: self.threads.len().to_string(), key: None, start };
        self.store.open(&new).unwrap();
        self.threads.push(new);
        self.grow(id, script);
    }

    /// Appends the events of `script`, users' in words of their own.
    fn grow(&mut self, id: ThreadId, script: &str) {
        let first = self.store.head(id).unwrap().seq.next();
        let mut batch = events(first, script);
        for event in batch.iter_mut().filter(|event| matches!(event.fact, Fact::UserSaid { .. })) {
            *event = user(&format!("{WORD}{}", self.words));
            self.words += 1;
        }
        append(&*self.store, id, batch);
        self.record(id);
    }

    /// Makes a call that stands on the newest compaction, and a job; both say the newest word.
    fn record(&mut self, id: ThreadId) {
        let head = self.store.head(id).unwrap().seq;
        let note = format!("\"{NOTE}{}\"", self.notes);
        self.notes += 1;
        let own = HashedText::new(format!("policy {note}"));
        let summary = self.store.compaction_in_force(id).unwrap().map(|pivot| pivot.id);
        let piece = HashedText::new(format!("piece {note}"));
        let script = Some(note.clone());
        let made = NewCall { policy: own.hash, summary, sent: note.clone(), script, ..call(head) };
        let number = self.store.last_call(id).unwrap().map_or(0, |last| last.number + 1);
        let outcome = NewCallOutcome {
            call: number,
            time: None,
            answer: None,
            usage: None,
            cost: None,
            error: Some(note.clone()),
            refusal: None,
        };
        let queued = NewJob { detail: note.clone(), ..job(&*self.store, id, &note, head) };
        let records = vec![
            CommitRecord::Content(policy()),
            CommitRecord::Content(own),
            CommitRecord::Piece(piece),
            CommitRecord::Call(made),
            CommitRecord::Outcome(outcome),
            CommitRecord::Job(queued),
            CommitRecord::Exchange(NewExchange { error: Some(note), ..exchange(head) }),
        ];
        self.store.commit(ThreadCommit::new(id, head, vec![], records)).unwrap();
    }

    fn fork(&mut self, (of, at, into, script): &Fork) {
        let parent = self.threads[of.index(self.threads.len())].id;
        let head = self.store.head(parent).unwrap().seq;
        let at = Seq(at.index(usize::try_from(head.0).unwrap() + 1) as u64);
        let id = thread(&format!("{}-{}", self.words, self.threads.len()));
        self.begin(id, session(NAMES[*into]), ThreadStart::Fork { of: parent, at }, script);
        self.grow(parent, script);
    }

    /// Erases a session, compares everything, and makes what went again.
    fn erase(&mut self, name: &str) {
        let erased = session(name);
        if self.store.session(erased).is_err() {
            return;
        }
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.threads.drain(..).partition(|thread| thread.session == erased);
        self.threads = kept;
        let views = |family: &Self| {
            let view = |thread: &NewThread| {
                let mut exchanges = family.store.exchanges(thread.session, 0, usize::MAX).unwrap();
                exchanges.retain(|row| row.thread == thread.id);
                (seen(&*family.store, thread.id), calls_seen(&*family.store, thread.id), exchanges)
            };
            family.threads.iter().map(view).collect::<Vec<_>>()
        };
        let before = views(self);
        self.store.erase(erased, Timestamp(0)).unwrap();
        assert_eq!(views(self), before);
        self.check();
        for thread in gone {
            self.begin(thread.id, erased, ThreadStart::Root, "uau");
        }
        assert_eq!(views(self)[..before.len()], before);
        assert_healthy(&*self.store);
    }

    /// What is found is what is seen, in the index and in the files, and what is derived is what would be made anew.
    fn check(&self) {
        let (mut left, mut notes) = (BTreeSet::new(), BTreeSet::new());
        for thread in &self.threads {
            let view = all(&*self.store, thread.id);
            let turns: Vec<_> =
                self.store.turns(thread.id).unwrap().into_iter().map(|row| row.turn).collect();
            assert_eq!(turns, TurnBuilder::of(&view));
            for CallRow { call, outcomes, .. } in self.store.calls(thread.id, 0, usize::MAX).unwrap() {
                assert_eq!(outcomes[0].error.as_ref(), Some(&call.sent));
                assert_eq!(self.store.content(call.policy).unwrap(), Some(format!("policy {}", call.sent)));
                if let Some(summary) = call.summary {
                    assert!(view.iter().any(|event| event.id == summary));
                }
                notes.insert(call.sent.trim_matches('"').to_owned());
            }
            left.extend(
                view.iter().map(|logged| logged.event.fact.text()).filter(|text| text.starts_with(WORD)),
            );
        }
        for number in 0..self.words {
            let word = format!("{WORD}{number}");
            let hits = self.store.search(&SearchQuery::everything(&word)).unwrap();
            assert_eq!(!hits.is_empty(), left.contains(&word), "{word}");
        }
        for job in self.store.jobs(None).unwrap() {
            assert!(self.threads.iter().any(|thread| thread.id == job.job.thread));
            notes.insert(job.job.detail.trim_matches('"').to_owned());
        }
        assert_eq!(words_in(self.place.directory.path(), WORD), left);
        assert_eq!(words_in(self.place.directory.path(), NOTE), notes);
        assert_healthy(&*self.store);
        let made = derived(&self.place);
        self.store.rebuild().unwrap();
        assert_eq!(derived(&self.place), made);
    }
}

/// Every word of a [`Family`] with this start that stands in the files as somebody said it.
fn words_in(directory: &Path, start: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for (at, _) in text.match_indices(&format!("\"{start}")) {
            let rest = &text[at + 1 + start.len()..];
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            words.insert(format!("{start}{digits}"));
        }
    }
    words
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn erasing_sessions_in_a_row_changes_no_view_and_leaves_nothing_behind(
        rounds in prop::collection::vec((
            prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4_usize, "[uuafFrgckmxv]{1,5}"), 1..8),
            0..4_usize,
        ), 1..5),
    ) {
        let mut family = Family::new();
        for (forks, erased) in &rounds {
            for fork in forks {
                family.fork(fork);
            }
            family.erase(NAMES[*erased]);
        }
    }
}

#[test]
fn a_backup_is_whole_private_and_never_overwrites() {
    let place = Place::new();
    let store = place.open();
    let id = root(&*store, "s");
    append(
        &*store,
        id,
        (0..3000).map(|number| user(&format!("event {number} {}", "text ".repeat(40)))).collect(),
    );
    commit(&*store, id, vec![CommitRecord::Content(policy()), CommitRecord::Call(call(Seq(3000)))]);
    ready(&*store, id, "key", Seq(3000));
    let to = place.directory.path().join("copy.db");
    let mut reports = Vec::new();
    // Appends meanwhile neither stop the copy nor get into it.
    store
        .backup(&StoreLocation::named(&to).unwrap(), &mut |progress| {
            append(&*store, id, vec![user("later")]);
            reports.push(progress);
        })
        .unwrap();
    assert!(reports.len() > 2, "{reports:?}");
    assert!(reports.windows(2).all(|pair| pair[0].done < pair[1].done && pair[0].total == pair[1].total));
    assert_eq!(reports.last().map(|last| last.done), reports.last().map(|last| last.total));
    let copy = open_at(&to, counting()).unwrap();
    assert_eq!(all(&*copy, id), all(&*store, id)[..3000]);
    assert_eq!(copy.calls(id, 0, 9).unwrap(), store.calls(id, 0, 9).unwrap());
    assert_eq!(copy.ready_job(id).unwrap().unwrap(), store.ready_job(id).unwrap().unwrap());
    assert_eq!(copy.content(policy().hash).unwrap(), Some(policy().text));
    assert!(copy.doctor().unwrap().is_healthy());
    let error = store.backup(&StoreLocation::named(&to).unwrap(), &mut |_| {}).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{} exists already; it is not overwritten, give another path", to.display())
    );
    let nowhere = place.directory.path().join("no/such/place");
    assert!(matches!(
        store.backup(&StoreLocation::named(&nowhere).unwrap(), &mut |_| {}),
        Err(StoreError::Io { .. })
    ));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn erased_bytes_wait_for_a_reader_of_old_pages() {
    let place = Place::new();
    let options =
        StoreOptions { busy_timeout: std::time::Duration::from_millis(50), ..StoreOptions::default() };
    let store = open_at(&place.path(), options).unwrap();
    let id = root(&*store, "gone");
    append(&*store, id, vec![user(CANARY)]);
    let reader = place.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events;").unwrap();
    let erased = store.erase(session("gone"), Timestamp(0)).unwrap();
    assert_eq!(erased.scrubbed, ScrubState::Waiting);
    assert_eq!(store.rebuild().unwrap(), ScrubState::Waiting);
    drop(reader);
    assert_eq!(store.rebuild().unwrap(), ScrubState::Gone);
    assert!(!holds(place.directory.path(), CANARY.as_bytes()));
}
