//! The database itself refuses to change a record, whoever asks.

use epitome_core::{
    Event, EventId, Fact, Seq,
    event::{Compaction, CompactionTrigger, Summary, Timestamp},
    summary::StructuredSummary,
};
use epitome_store::records::{CommitRecord, LedgerEntry, NewCallOutcome};

use crate::support::{
    Place, append, call, commit, events, exchange, picture, policy, ready, root, session, thread,
};

/// A store with something in every table of records.
fn filled() -> Place {
    let place = Place::new();
    let store = place.open();
    let id = root(&*store, "t");
    let bytes = vec![7; 2000];
    append(&*store, id, events(Seq(1), "uar"));
    append(&*store, id, vec![picture(&bytes)]);
    let entry = LedgerEntry {
        id: "1".into(),
        channel: "mail".into(),
        time: Timestamp(1),
        author: "ann".into(),
        text: "hello".into(),
        raw: "{}".into(),
    };
    store.ledger_add(&entry, &[EventId { thread: id, seq: Seq(2) }]).unwrap();
    append(&*store, id, events(Seq(5), "c"));
    let outcome = NewCallOutcome {
        call: 0,
        time: None,
        answer: None,
        usage: None,
        cost: None,
        error: None,
        refusal: None,
    };
    let records = vec![
        CommitRecord::Content(policy()),
        CommitRecord::Call(call(Seq(5))),
        CommitRecord::Outcome(outcome),
        CommitRecord::Exchange(exchange(Seq(5))),
    ];
    commit(&*store, id, records);
    ready(&*store, id, "key", Seq(4));
    root(&*store, "gone");
    store.erase(session("gone"), Timestamp(2)).unwrap();
    place
}

#[test]
fn update_delete_and_replace_are_refused() {
    let place = filled();
    let raw = place.raw();
    for (table, column) in [
        ("events", "fact"),
        ("threads", "name"),
        ("media", "bytes"),
        ("media_uses", "hash"),
        ("ledger", "text"),
        ("ledger_links", "seq"),
        ("audit", "what"),
        ("contents", "text"),
        ("model_calls", "sent"),
        ("call_outcomes", "error"),
        ("job_attempts", "detail"),
        ("summaries", "text"),
        ("jobs", "detail"),
        ("exchanges", "ending"),
    ] {
        let rows: i64 =
            raw.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert!(rows > 0, "{table} has rows to try it on");
        for sql in [
            format!("UPDATE {table} SET {column} = {column}"),
            format!("UPDATE OR REPLACE {table} SET {column} = 'x'"),
            format!("DELETE FROM {table}"),
        ] {
            let error = raw.execute_batch(&sql).expect_err(&sql).to_string();
            assert!(error.contains("never"), "{sql}: {error}");
        }
    }
}

#[test]
fn replace_is_refused_although_it_asks_no_delete_trigger() {
    let place = filled();
    let raw = place.raw();
    for table in [
        "events",
        "threads",
        "media",
        "ledger",
        "audit",
        "contents",
        "model_calls",
        "call_outcomes",
        "job_attempts",
        "summaries",
        "jobs",
        "exchanges",
    ] {
        let columns: String = raw
            .query_row("SELECT group_concat(name) FROM pragma_table_info(?1)", [table], |row| row.get(0))
            .unwrap();
        let sql = format!("REPLACE INTO {table} ({columns}) SELECT {columns} FROM {table}");
        let error = raw.execute_batch(&sql).expect_err(&sql).to_string();
        assert!(error.contains("never") || error.contains("only appended"), "{sql}: {error}");
    }
}

#[test]
fn events_can_only_be_added_at_the_end() {
    let place = filled();
    let raw = place.raw();
    let insert = |seq: u64| {
        raw.execute(
            "INSERT INTO events (thread, seq, kind, dialect, media, raw_link, normal_link, fact)
             VALUES (?1, ?2, 'carried', 'epitome', 0, x'00', x'00', '{}')",
            (thread("t").uuid().into_bytes(), i64::try_from(seq).unwrap()),
        )
    };
    for seq in [0, 1, 5, 7] {
        let error = insert(seq).expect_err("not the end").to_string();
        assert!(error.contains("only appended"), "{error}");
    }
    // At the end the database cannot know better; the chain does.
    insert(6).unwrap();
    drop(raw);
    let report = place.open().doctor().unwrap();
    assert!(!report.is_healthy());
}

#[test]
fn the_view_of_turns_has_the_columns_of_an_agents_ledger() {
    let place = Place::new();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "uararkua"));
    let raw = place.raw();
    let columns: String = raw
        .query_row("SELECT group_concat(name, ' ') FROM pragma_table_info('turns')", [], |row| row.get(0))
        .unwrap();
    insta::assert_snapshot!(columns, @"id session_id parent_turn_id query_message_ids response_message_id model token_count timestamp has_children tool_call_count turn_type summary summarized_through_turn_id first_kept_turn_id tokens_before tokens_after thread seq first last loop_index usage");
    let mut statement = raw
        .prepare(
            "SELECT seq, turn_type, coalesce(parent_turn_id, '-'), has_children, token_count, coalesce(summary, '-'),
                coalesce(summarized_through_turn_id, '-'), coalesce(first_kept_turn_id, '-'), tokens_before,
                query_message_ids
             FROM turns ORDER BY seq",
        )
        .unwrap();
    let lines: Vec<String> = statement
        .query_map([], |row| {
            let columns = (0..10).map(|column| row.get::<_, rusqlite::types::Value>(column));
            let columns: Vec<String> = columns
                .map(|value| match value? {
                    rusqlite::types::Value::Text(text) => Ok(text.replace(&id.to_string(), "T")),
                    rusqlite::types::Value::Integer(number) => Ok(number.to_string()),
                    _ => Ok("NULL".to_owned()),
                })
                .collect::<rusqlite::Result<_>>()?;
            Ok(columns.join(" | "))
        })
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    2 | normal | - | 1 | 5 | - | - | - | NULL | ["T:1"]
    4 | normal | T:2 | 1 | 2 | - | - | - | NULL | []
    6 | compaction | T:4 | 1 | 3 | summary at 6 | T:4 | T:4 | 60 | []
    8 | normal | T:6 | 0 | 4 | - | - | - | NULL | ["T:7"]
    "#);
    let plan: String = raw
        .query_row(
            "EXPLAIN QUERY PLAN SELECT seq FROM turn_rows WHERE turn_type = 'compaction' AND thread = x'00'",
            [],
            |row| row.get(3),
        )
        .unwrap();
    assert!(plan.contains("turns_by_compaction"), "{plan}");
}

#[test]
fn the_view_of_turns_has_the_text_of_our_own_summaries_and_of_others() {
    let place = Place::new();
    let store = place.open();
    let id = root(&*store, "t");
    append(&*store, id, events(Seq(1), "ua"));
    let compacted = |summary| {
        let compaction = Compaction {
            summary,
            through: Seq(2),
            first_kept: None,
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Manual,
        };
        Event::from_fact(Fact::Compacted(compaction), None)
    };
    let brief = Box::new(StructuredSummary::default());
    append(
        &*store,
        id,
        vec![
            compacted(Summary::Structured { text: "It was fixed.".into(), brief }),
            compacted(Summary::Text("The agent's own.".into())),
            compacted(Summary::Encrypted("gAAAA".into())),
        ],
    );
    let raw = place.raw();
    let mut statement =
        raw.prepare("SELECT summary FROM turns WHERE turn_type = 'compaction' ORDER BY seq").unwrap();
    let shown: Vec<Option<String>> =
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(shown, [Some("It was fixed.".to_owned()), Some("The agent's own.".to_owned()), None]);
}
