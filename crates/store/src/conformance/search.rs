//! The ledger of outside events, and search over both ledgers.

use epitome_core::{EventId, Seq, event::Timestamp};

use super::{
    ConformanceCheck, DatabaseFactory, checks,
    samples::{append, events, in_session, root, session, user},
};
use crate::{
    StoreError, ThreadStart,
    records::{
        CreateOutcome, HitLocation, LedgerEntry, LedgerFilter, NewSession, SearchFilter, SearchHit,
        SearchQuery, SearchScope, SessionFilter, SnippetPart,
    },
};

checks! {
    the_ledger_is_kept_listed_and_linked,
    both_ledgers_are_searched_together_and_ranked,
    a_scope_limits_the_hits_and_not_the_other_way_round,
    a_filter_chooses_hits_by_owner_label_kind_and_time,
    a_query_of_ten_thousand_words_is_a_query,
}

fn entry(channel: &str, id: &str, time: i64, text: &str) -> LedgerEntry {
    LedgerEntry {
        id: id.into(),
        channel: channel.into(),
        time: Timestamp(time),
        author: "ann".into(),
        text: text.into(),
        raw: format!("{{\"id\":{id:?}}}"),
    }
}

fn ids(entries: &[LedgerEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.id.as_str()).collect()
}

/// `[event 3] before **match** after`, a line a hit.
fn shown(hits: &[SearchHit]) -> String {
    let line = |hit: &SearchHit| {
        let place = match &hit.found {
            HitLocation::Event { id, kind, .. } => format!("{kind} {}", id.seq),
            HitLocation::Ledger { channel, id } => format!("{channel} {id}"),
        };
        let text: String = hit
            .snippet
            .iter()
            .map(|piece| match piece {
                SnippetPart::Plain(text) => text.clone(),
                SnippetPart::Match(text) => format!("**{text}**"),
            })
            .collect();
        format!("[{place}] {text}")
    };
    hits.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn the_ledger_is_kept_listed_and_linked(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let thread = root(&*store, "s");
    append(&*store, thread, events(Seq(1), "uaua"));
    let turn = EventId { thread, seq: Seq(2) };
    let other = EventId { thread, seq: Seq(4) };
    assert_eq!(store.ledger_add(&entry("mail", "1", 10, "hello"), &[turn]).unwrap(), CreateOutcome::New);
    assert_eq!(store.ledger_add(&entry("chat", "1", 30, "hi"), &[turn, other]).unwrap(), CreateOutcome::New);
    assert_eq!(store.ledger_add(&entry("mail", "2", 20, "news"), &[]).unwrap(), CreateOutcome::New);
    assert_eq!(store.ledger_add(&entry("mail", "1", 10, "hello"), &[other]).unwrap(), CreateOutcome::Already);
    let error = store.ledger_add(&entry("mail", "1", 10, "changed"), &[]).unwrap_err();
    assert!(matches!(error, StoreError::LedgerDiffers { .. }), "{error}");
    let unknown = EventId { thread, seq: Seq(99) };
    assert!(matches!(
        store.ledger_add(&entry("mail", "3", 1, "text"), &[unknown]).unwrap_err(),
        StoreError::UnknownEvent(_)
    ));
    for (channel, id, text, missing) in
        [("", "3", "text", "channel"), ("mail", " ", "text", "id"), ("mail", "3", "\n", "text")]
    {
        let error = store.ledger_add(&entry(channel, id, 1, text), &[]).unwrap_err();
        assert_eq!(error.to_string(), format!("a ledger entry needs a {missing}; it is empty"));
    }

    let list = |filter: LedgerFilter| store.ledger(&filter).unwrap();
    let all = LedgerFilter::default;
    assert_eq!(
        list(all()),
        [entry("mail", "1", 10, "hello"), entry("mail", "2", 20, "news"), entry("chat", "1", 30, "hi")]
    );
    assert_eq!(ids(&list(LedgerFilter { channel: Some("mail".into()), ..all() })), ["1", "2"]);
    assert_eq!(
        ids(&list(LedgerFilter { since: Some(Timestamp(20)), before: Some(Timestamp(30)), ..all() })),
        ["2"]
    );
    assert_eq!(list(LedgerFilter { linked: Some(turn), ..all() }).len(), 2);
    assert_eq!(
        ids(&list(LedgerFilter { linked: Some(other), channel: Some("mail".into()), ..all() })),
        ["1"]
    );
    assert_eq!(list(LedgerFilter { limit: Some(1), ..all() })[0].channel, "chat");
    assert_eq!(store.ledger_turns("chat", "1").unwrap(), [turn, other]);
    assert!(matches!(store.ledger_turns("chat", "9").unwrap_err(), StoreError::UnknownLedgerEntry { .. }));
}

fn both_ledgers_are_searched_together_and_ranked(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let thread = root(&*store, "s");
    append(
        &*store,
        thread,
        vec![
            user(
                "the parser fails on empty input, and so on and on about many other things that do not matter here",
            ),
            user("parser parser parser"),
            user("src/lexer.rs has the tokens; Größe und façade"),
        ],
    );
    store.ledger_add(&entry("mail", "1", 5, "please fix the parser today"), &[]).unwrap();
    let search = |words: &str| shown(&store.search(&SearchQuery::everything(words)).unwrap());
    assert_eq!(
        search("parser"),
        "[user_said 2] **parser** **parser** **parser**\n[mail 1] please fix the **parser** today\n[user_said 1] the **parser** fails on empty input, and so on and on about many other things that do not matter here"
    );
    assert_eq!(
        search("\"empty input\""),
        "[user_said 1] the parser fails on **empty input**, and so on and on about many other things that do not matter here"
    );
    assert_eq!(search("fix PARS*"), "[mail 1] please **fix** the **parser** today");
    assert_eq!(search("lexer.rs"), "[user_said 3] src/**lexer.rs** has the tokens; Größe und façade");
    // Words are words: OR is one of them.
    assert_eq!(search("grosse OR facade"), "");
    assert_eq!(search("facade groß*"), "[user_said 3] src/lexer.rs has the tokens; **Größe** und **façade**");
    assert_eq!(search("input empty nowhere"), "");
    assert_eq!(search("\"input empty\""), "");
}

fn a_scope_limits_the_hits_and_not_the_other_way_round(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "s");
    append(&*store, main, vec![user("common first"), user("common second")]);
    let fork = in_session(&*store, "other", "fork", ThreadStart::Fork { of: main, at: Seq(1) });
    append(&*store, fork, vec![user("common own")]);
    store.ledger_add(&entry("mail", "1", 5, "common mail"), &[]).unwrap();
    let found = |scope: SearchScope, limit: usize| {
        let hits = store.search(&SearchQuery { scope, limit, ..SearchQuery::everything("common") }).unwrap();
        let mut texts: Vec<String> = hits
            .iter()
            .map(|hit| match &hit.found {
                HitLocation::Event { id, .. } => store.event(*id).unwrap().event.fact.text(),
                HitLocation::Ledger { id, .. } => id.clone(),
            })
            .collect();
        texts.sort();
        texts
    };
    assert_eq!(found(SearchScope::Everything, 9).len(), 4);
    assert_eq!(found(SearchScope::Everything, 2).len(), 2);
    assert_eq!(found(SearchScope::Sessions, 9), ["common first", "common own", "common second"]);
    assert_eq!(found(SearchScope::Session(session("s")), 9), ["common first", "common second"]);
    assert_eq!(found(SearchScope::Session(session("other")), 9), ["common first", "common own"]);
    assert_eq!(found(SearchScope::Thread(fork), 9), ["common first", "common own"]);
    assert_eq!(found(SearchScope::Ledger, 1), ["1"]);
}

fn a_filter_chooses_hits_by_owner_label_kind_and_time(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let mine = root(&*store, "mine");
    append(&*store, mine, events(Seq(1), "ua"));
    let theirs =
        NewSession { principal: "them".into(), ..NewSession::with_title(session("theirs"), "theirs") };
    store.create_session(&theirs).unwrap();
    let other = in_session(&*store, "theirs", "their thread", ThreadStart::Root);
    append(&*store, other, vec![user("message of theirs")]);
    store.add_label(session("mine"), "project:/src").unwrap();
    append(&*store, mine, vec![user("message of mine")]);
    store.ledger_add(&entry("mail", "1", 5, "message by mail"), &[]).unwrap();
    let found = |filter: SearchFilter| {
        let hits = store.search(&SearchQuery { filter, ..SearchQuery::everything("message of") }).unwrap();
        hits.len()
    };
    let of = |principal: Option<&str>, label: Option<&str>| SearchFilter {
        sessions: SessionFilter { principal: principal.map(Into::into), label: label.map(Into::into) },
        ..SearchFilter::default()
    };
    assert_eq!(found(SearchFilter::default()), 2);
    assert_eq!(found(SearchFilter { skip: 1, ..SearchFilter::default() }), 1);
    assert_eq!(found(of(Some("them"), None)), 1);
    assert_eq!(found(of(Some(""), None)), 1);
    assert_eq!(found(of(Some("nobody"), None)), 0);
    assert_eq!(found(of(None, Some("project:/src"))), 1);
    assert_eq!(found(of(Some("them"), Some("project:/src"))), 0);
    assert_eq!(found(SearchFilter { kind: Some("user_said".into()), ..SearchFilter::default() }), 2);
    assert_eq!(found(SearchFilter { kind: Some("tool_returned".into()), ..SearchFilter::default() }), 0);
    assert_eq!(found(SearchFilter { since: Some(Timestamp(i64::MAX)), ..SearchFilter::default() }), 0);
    let latest = |filter: &SessionFilter, limit: usize| {
        let rows = store.latest_sessions(filter, limit).unwrap();
        rows.into_iter().map(|row| row.title).collect::<Vec<_>>()
    };
    assert_eq!(latest(&SessionFilter::default(), 9).len(), 2);
    assert_eq!(latest(&SessionFilter::default(), 1).len(), 1);
    assert_eq!(latest(&of(Some("them"), None).sessions, 9), ["theirs"]);
    assert_eq!(latest(&of(None, Some("project:/src")).sessions, 9).len(), 1);
    let rows = |name: &str| {
        store.abbreviated_threads(name).unwrap().into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(rows(&mine.short()), [mine]);
    assert_eq!(rows(&other.to_string()), [other]);
    assert_eq!(rows("nothing"), []);
}

fn a_query_of_ten_thousand_words_is_a_query(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let thread = root(&*store, "s");
    append(&*store, thread, vec![user("word")]);
    assert_eq!(store.search(&SearchQuery::everything("word ".repeat(10_000))).unwrap().len(), 1);
    assert_eq!(store.search(&SearchQuery::everything("word* ".repeat(10_000) + "other")).unwrap().len(), 0);
}
