//! Sessions: made, named, found, listed, forked.

use epitome_core::{ContentPart, Event, Fact, Seq, SessionId, Tokens, event::Timestamp};

use super::{
    ConformanceCheck, DatabaseFactory, checks,
    samples::{append, events, in_session, root, session, thread},
};
use crate::{
    StoreError, StoreOptions, ThreadStart,
    records::{CreateOutcome, NewFork, NewSession},
};

checks! {
    making_a_session_again_fills_in_only_what_was_empty,
    a_session_counts_its_own_events_and_those_it_shares,
    a_session_is_found_by_what_people_type,
    a_typo_suggests_what_was_meant,
    labels_and_heads_are_kept,
    a_fork_into_a_session_of_its_own_is_one_step,
    a_history_is_recognised_wherever_it_is,
    counts_are_made_once_and_only_when_missing,
}

fn making_a_session_again_fills_in_only_what_was_empty(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    root(&*store, "s");
    let new = NewSession {
        id: session("s"),
        key: Some("agent-1".into()),
        title: "first title".into(),
        source: "claude".into(),
        created: Some(Timestamp(5)),
        principal: String::new(),
    };
    assert_eq!(store.create_session(&new).unwrap(), CreateOutcome::Already);
    store.set_title(new.id, "chosen by a person").unwrap();
    let again = NewSession { title: "another".into(), source: "other".into(), ..new.clone() };
    assert_eq!(store.create_session(&again).unwrap(), CreateOutcome::Already);
    let row = store.session(new.id).unwrap();
    assert_eq!((row.title.as_str(), row.source.as_str()), ("chosen by a person", "claude"));
    assert_eq!(
        (row.key.as_deref(), row.created, row.head),
        (Some("agent-1"), Some(Timestamp(5)), Some(thread("s")))
    );
    assert_eq!(
        store.create_session(&NewSession::with_title(session("new"), "x")).unwrap(),
        CreateOutcome::New
    );
}

fn a_session_counts_its_own_events_and_those_it_shares(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "s");
    append(&*store, main, events(Seq(1), "iufrgrk"));
    append(&*store, main, events(Seq(8), "uaruaF"));
    let fork = in_session(&*store, "other", "fork", ThreadStart::Fork { of: main, at: Seq(4) });
    append(&*store, fork, events(Seq(5), "ua"));
    let row = store.session(session("s")).unwrap();
    assert_eq!((row.threads, row.events, row.messages), (1, 13, 11));
    assert_eq!((row.turns, row.loops, row.tool_calls, row.compactions), (5, 3, 3, 1));
    assert_eq!((row.first, row.last), (Some(Timestamp(1000)), Some(Timestamp(13000))));
    let counted: Tokens =
        store.event_counts(main, Seq(1), 100).unwrap().into_iter().map(|(_, tokens)| tokens).sum();
    assert_eq!(row.tokens, Some(counted));
    let other = store.session(session("other")).unwrap();
    // Four events and one turn of `s`, then two and one of its own.
    assert_eq!((other.threads, other.events, other.messages), (1, 6, 6));
    assert_eq!((other.turns, other.loops, other.tool_calls, other.compactions), (2, 2, 1, 0));
    assert_eq!((other.first, other.last), (Some(Timestamp(1000)), Some(Timestamp(6000))));
    let shown: Tokens =
        store.event_counts(fork, Seq(1), 100).unwrap().into_iter().map(|(_, tokens)| tokens).sum();
    assert_eq!(other.tokens, Some(shown));
    let listed: Vec<SessionId> = store.sessions().unwrap().iter().map(|row| row.id).collect();
    assert_eq!(listed, [session("s"), session("other")]);
    let tokens: Vec<Tokens> = store.turns(main).unwrap().iter().filter_map(|row| row.tokens).collect();
    assert_eq!(tokens.into_iter().sum::<Tokens>(), counted);
}

fn a_session_is_found_by_what_people_type(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let make = |name: &str, title: &str, key: Option<&str>| {
        let new = NewSession { key: key.map(Into::into), ..NewSession::with_title(session(name), title) };
        store.create_session(&new).unwrap();
        new.id
    };
    let fix = make("1", "Fix the parser", Some("ses_1"));
    let fixed = make("2", "Fix the parser again", None);
    let docs = make("3", "Write docs", Some("ses_3"));
    let twin = make("4", "twins", None);
    make("5", "twins", Some("ses_5"));
    let found = |text: &str| store.find_session(text).map(|row| row.id).map_err(|error| error.to_string());
    assert_eq!(found(&fix.to_string()), Ok(fix));
    assert_eq!(found(&fixed.to_string()[..8]), Ok(fixed));
    assert_eq!(found(&fixed.to_string()[..8].to_uppercase()), Ok(fixed));
    assert_eq!(found("Fix the parser"), Ok(fix));
    assert_eq!(found("ses_3"), Ok(docs));
    assert_eq!(found("write"), Ok(docs));
    assert_eq!(found(" AGAIN "), Ok(fixed));
    let error = found("fix").unwrap_err();
    assert_eq!(
        error,
        format!("`fix` could mean 2 sessions: {}; give more of the id", {
            let mut both = [(fix, "Fix the parser"), (fixed, "Fix the parser again")];
            both.sort();
            both.map(|(id, title)| format!("`{title}` ({id})")).join(", ")
        })
    );
    assert!(found("twins").unwrap_err().contains(&twin.to_string()));
    let error = found("Wrte dogs").unwrap_err();
    assert_eq!(error, format!("no session is called `Wrte dogs`; the nearest: `Write docs` ({docs})"));
    assert_eq!(
        found("zzzzzzzzzz").unwrap_err(),
        "no session is called `zzzzzzzzzz`; `epitome sessions` lists them"
    );
    assert!(found("").is_err());
    assert!(found("%").is_err());
    assert!(found(&"long ".repeat(100_000)).is_err());
}

fn a_typo_suggests_what_was_meant(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let long = format!("Retry the upload handler when the server {}", "goes away ".repeat(100));
    let names = [
        ("1", "Fix the parser", Some("ses_41a9")),
        ("2", long.as_str(), None),
        ("3", "Write docs", Some("ses_77bb")),
        ("4", "", None),
    ];
    for (name, title, key) in names {
        let new = NewSession { key: key.map(Into::into), ..NewSession::with_title(session(name), title) };
        store.create_session(&new).unwrap();
    }
    let check = |asked: &str, expect: &[&str]| {
        let Err(StoreError::UnknownSession { nearest, .. }) = store.find_session(asked) else {
            panic!("{asked} is found")
        };
        let nearest: Vec<SessionId> = nearest.into_iter().map(|candidate| candidate.id).collect();
        assert_eq!(nearest, expect.iter().map(|name| session(name)).collect::<Vec<_>>(), "{asked}");
    };
    for (name, ..) in names {
        let mut id = session(name).to_string();
        id.truncate(8);
        let wrong = if id.starts_with('0') { "1" } else { "0" };
        id.replace_range(..1, wrong);
        check(&id, &[name]);
        check(&id.to_uppercase(), &[name]);
    }
    check("uplaod", &["2"]);
    check("Uplaod Hadnler", &["2"]);
    check("praser", &["1"]);
    check("ses_41a8", &["1"]);
    check("nothing like it", &[]);
}

fn labels_and_heads_are_kept(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "s");
    let side = in_session(&*store, "s", "side", ThreadStart::Spawned { by: None, call: None });
    assert_eq!(store.session(session("s")).unwrap().head, Some(main));
    store.set_head(session("s"), side).unwrap();
    assert_eq!(store.add_label(session("s"), "work").unwrap(), CreateOutcome::New);
    assert_eq!(store.add_label(session("s"), "work").unwrap(), CreateOutcome::Already);
    store.add_label(session("s"), "a label").unwrap();
    store.remove_label(session("s"), "never there").unwrap();
    let row = store.session(session("s")).unwrap();
    assert_eq!((row.head, row.labels), (Some(side), vec!["a label".to_owned(), "work".to_owned()]));
    store.remove_label(session("s"), "work").unwrap();
    assert_eq!(store.sessions().unwrap()[0].labels, ["a label"]);
    let foreign = root(&*store, "foreign");
    let error = store.set_head(session("s"), foreign).unwrap_err();
    assert!(matches!(error, StoreError::ThreadOfOtherSession { .. }), "{error}");
    let nobody = session("nobody");
    for error in [
        store.set_head(nobody, main).unwrap_err(),
        store.add_label(nobody, "x").unwrap_err(),
        store.remove_label(nobody, "x").unwrap_err(),
        store.set_title(nobody, "x").unwrap_err(),
        store.threads(nobody).unwrap_err(),
        store.session(nobody).unwrap_err(),
        store.erase(nobody, Timestamp(0)).unwrap_err(),
    ] {
        assert_eq!(
            error.to_string(),
            format!("no session is called `{nobody}`; `epitome sessions` lists them")
        );
    }
}

fn a_fork_into_a_session_of_its_own_is_one_step(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let main = root(&*store, "s");
    append(&*store, main, events(Seq(1), "uaua"));
    let fork = NewFork {
        of: main,
        at: Seq(2),
        session: NewSession::with_title(session("fork"), "another way"),
        thread: thread("fork"),
        name: "main".into(),
    };
    let head = store.fork(&fork).unwrap();
    assert_eq!(head, store.head(thread("fork")).unwrap());
    let row = store.session(session("fork")).unwrap();
    assert_eq!((row.title.as_str(), row.head, row.events), ("another way", Some(thread("fork")), 2));
    assert_eq!(store.threads(session("fork")).unwrap()[0].start, ThreadStart::Fork { of: main, at: Seq(2) });
    let beyond = NewFork {
        at: Seq(9),
        session: NewSession::with_title(session("no"), ""),
        thread: thread("no"),
        ..fork
    };
    assert!(matches!(store.fork(&beyond).unwrap_err(), StoreError::ForkBeyondHead { .. }));
    assert!(store.session(session("no")).is_err(), "a fork that fails leaves no session behind");
}

fn a_history_is_recognised_wherever_it_is(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let store = place.open();
    let (one, other) = (root(&*store, "one"), root(&*store, "other"));
    append(&*store, one, events(Seq(1), "ua"));
    // What no client echoes does not hinder recognition.
    append(&*store, other, events(Seq(1), "uga"));
    append(&*store, other, events(Seq(4), "g"));
    let places = |of, at: u64| {
        let normal = store.read(of, Seq(at), 1).unwrap()[0].link.normal;
        let found = store.histories_ending_with(normal).unwrap();
        found.into_iter().map(|id| (id.thread, id.seq.0)).collect::<Vec<_>>()
    };
    assert_eq!(places(one, 1), [(one, 1), (other, 1)]);
    // `a` says where it stands in its raw form only, so both histories mean the same.
    assert_eq!(places(one, 2), [(one, 2), (other, 3)]);
    assert_eq!(store.events_of_kinds(other, &["usage_reported"]).unwrap().len(), 2);
}

fn counts_are_made_once_and_only_when_missing(databases: &DatabaseFactory<'_>) {
    let place = databases();
    let plain = place.open_with(StoreOptions::default());
    let id = root(&*plain, "s");
    append(&*plain, id, events(Seq(1), &"ua".repeat(300)));
    assert_eq!(plain.event_counts(id, Seq(1), 10).unwrap(), []);
    assert_eq!((plain.count_missing().unwrap(), plain.session(session("s")).unwrap().tokens), (0, None));
    drop(plain);
    let store = place.open();
    append(
        &*store,
        id,
        vec![Event::from_fact(Fact::UserSaid { parts: vec![ContentPart::text("12345")] }, None)],
    );
    assert_eq!(store.session(session("s")).unwrap().tokens, Some(Tokens(2)));
    assert_eq!(store.count_missing().unwrap(), 600);
    assert_eq!(store.count_missing().unwrap(), 0);
    let counts = store.event_counts(id, Seq(599), 100).unwrap();
    assert_eq!(
        counts.iter().map(|(id, tokens)| (id.seq.0, tokens.0)).collect::<Vec<_>>(),
        [(599, 3), (600, 1), (601, 2)]
    );
    assert_eq!(store.event_counts(id, Seq(1), 1).unwrap().len(), 1);
    for ((id, pieces), (same, tokens)) in store
        .text_counts(id, Seq(1), 1_000)
        .unwrap()
        .into_iter()
        .zip(store.event_counts(id, Seq(1), 1_000).unwrap())
    {
        let mut texts = 0;
        store.event(id).unwrap().event.visit_counted(&mut |_| texts += 1);
        assert_eq!((id, pieces.len(), pieces.into_iter().sum::<Tokens>()), (same, texts, tokens));
    }
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}
