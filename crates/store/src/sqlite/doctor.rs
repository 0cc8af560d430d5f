//! Checks everything that can be checked, on a connection that cannot write.
//!
//! Derived tables are made again into temporary tables of the same names, by the code that makes them in the first
//! place: a temporary table hides the real one from it.

use std::path::Path;

use epitome_core::{ChainLink, Digest, EventId, LoggedEvent, ThreadId, TokenCounter};
use rusqlite::{Connection, Statement};

use super::{
    codec::{self, EVENT_COLUMNS, EventRow},
    deferred_derivation, derivation, record_checks,
    schema::{self, SchemaDifference, StoreAccess},
    sqlite_error::SqliteError,
    thread_view,
};
use crate::{
    error::CHECKING_ACTION,
    log::ThreadStart,
    options::StoreOptions,
    records::{DoctorCheck, DoctorReport},
    thread_head::ThreadHead,
};

/// The most problems one check lists; the rest is a number.
const MAX_LISTED_PROBLEMS: usize = 50;

/// Finding of a check: its coverage, and the problems.
pub(super) type CheckFinding = (String, Vec<String>);

/// Runs every check. One that cannot be finished reports why.
pub(super) fn examine(
    path: &Path,
    options: &StoreOptions,
    access: StoreAccess,
) -> Result<DoctorReport, SqliteError> {
    let connection = schema::open_reader(path, options, access)?;
    connection.execute_batch("BEGIN")?;
    let counter = options.counter.as_deref();
    let examination = DoctorRun { connection: &connection, path, options };
    let rebuilt = rebuild_beside(&connection, counter);
    let derived = |name: &'static str, compare: &dyn Fn(&Connection) -> Result<CheckFinding, SqliteError>| {
        examination.check(name, |connection| match &rebuilt {
            Ok(()) => compare(connection),
            Err(_) => {
                Ok((String::new(), vec!["the log cannot be read, so nothing can be compared with it".into()]))
            }
        })
    };
    let checks = vec![
        examination.check("schema", schema_items),
        examination.check("file", integrity),
        examination.check("references", references),
        examination.check("hash chains", chains),
        examination.check("media", media),
        examination.check("contents", record_checks::contents),
        examination.check("calls", record_checks::calls),
        examination.check("jobs", record_checks::jobs),
        examination.check("summaries", record_checks::summaries),
        examination.check("exchanges", record_checks::exchanges),
        examination.check("principals", record_checks::principals),
        derived("turns", &|connection| same_rows(connection, "turn_rows", "thread, seq")),
        derived("totals", &totals),
        derived("token counts", &|connection| counts(connection, counter)),
        derived("search index", &search_index),
        examination.check("audit", audit),
    ];
    Ok(DoctorReport { checks })
}

struct DoctorRun<'e> {
    connection: &'e Connection,
    path: &'e Path,
    options: &'e StoreOptions,
}

impl DoctorRun<'_> {
    fn check(
        &self,
        name: &str,
        run: impl FnOnce(&Connection) -> Result<CheckFinding, SqliteError>,
    ) -> DoctorCheck {
        let (covered, mut problems) = run(self.connection).unwrap_or_else(|fault| {
            let error = fault.into_store_error(CHECKING_ACTION, self.path, self.options.busy_timeout);
            ("not finished".to_owned(), vec![error.to_string()])
        });
        if problems.len() > MAX_LISTED_PROBLEMS {
            let more = problems.len() - MAX_LISTED_PROBLEMS;
            problems.truncate(MAX_LISTED_PROBLEMS);
            problems.push(format!("and {more} more"));
        }
        DoctorCheck { name: name.to_owned(), covered, problems }
    }
}

fn schema_items(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let found = schema::version(connection)?;
    let mut problems = Vec::new();
    if found != schema::newest_version() {
        problems.push(format!("expected version {}", schema::newest_version()));
    }
    let SchemaDifference { missing, changed, unknown } = schema::difference(connection)?;
    let remedy =
        |kind: &str, otherwise: &'static str| if kind == "table" { "restore a backup" } else { otherwise };
    for (kind, name, _) in missing {
        problems.push(format!("the {kind} `{name}` is missing; {}", remedy(&kind, "rebuild it")));
    }
    for (kind, name, _) in changed {
        let remedy = remedy(&kind, "drop it and rebuild");
        problems.push(format!("the {kind} `{name}` is not as this version makes it; {remedy}"));
    }
    for (kind, name, _) in unknown {
        problems.push(format!("the {kind} `{name}` is not of this program; drop it"));
    }
    Ok((format!("version {found}"), problems))
}

/// Checks the audit: its lines are numbered without a gap. Reports their number and the time of the last.
fn audit(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let (lines, newest, last): (i64, i64, Option<String>) = connection.query_row(
        "SELECT count(*), coalesce(max(number), 0),
            (SELECT strftime('%Y-%m-%dT%H:%M:%SZ', time / 1000, 'unixepoch') FROM audit ORDER BY number DESC LIMIT 1)
         FROM audit",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let noun = if lines == 1 { "erasure" } else { "erasures" };
    let last = last.map(|last| format!(", last {last}")).unwrap_or_default();
    let problems = (newest != lines).then(|| format!("{} lines of the audit are missing", newest - lines));
    Ok((format!("{lines} {noun}{last}"), problems.into_iter().collect()))
}

fn integrity(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let mut statement = connection.prepare("PRAGMA main.integrity_check")?;
    let lines: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok((format!("{pages} pages"), lines.into_iter().filter(|line| line != "ok").collect()))
}

fn references(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let mut statement = connection.prepare("PRAGMA main.foreign_key_check")?;
    let broken = statement.query_map([], |row| {
        Ok(format!(
            "a row of `{}` refers to a row of `{}` that is missing",
            row.get::<_, String>(0)?,
            row.get::<_, String>(2)?
        ))
    })?;
    Ok(("all tables".to_owned(), broken.collect::<Result<_, _>>()?))
}

/// Recomputes both chains of every thread, each event once: a fork starts from the link its parent has there.
fn chains(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let mut problems = Vec::new();
    let mut events = 0_u64;
    let bases = derivation::thread_bases(connection)?;
    for (thread, base) in &bases {
        if let Some(ThreadStart::Fork { of, at }) =
            thread_view::thread(connection, *thread)?.map(|thread| thread.start)
        {
            match thread_view::head_at(connection, of, at) {
                Ok(shared) if shared == *base => {}
                _ => problems.push(format!("thread {thread} does not start where {of} was at event {at}")),
            }
        }
        events += chain(connection, *thread, *base, &mut problems)?;
    }
    Ok((format!("{events} events in {} threads", bases.len()), problems))
}

/// Recomputes one thread's own links. After a wrong one it goes on from the stored link, to name each place
/// once.
fn chain(
    connection: &Connection,
    thread: ThreadId,
    base: ThreadHead,
    problems: &mut Vec<String>,
) -> Result<u64, SqliteError> {
    let mut statement =
        connection.prepare(&format!("SELECT {EVENT_COLUMNS} FROM events WHERE thread = ?1 ORDER BY seq"))?;
    let mut rows = statement.query([thread.uuid().into_bytes()])?;
    let mut before = base;
    let mut events = 0;
    while let Some(row) = rows.next()? {
        events += 1;
        let id = EventId { thread, seq: codec::seq(row, 2)? };
        if id.seq != before.seq.next() {
            problems.push(format!("event {id} follows event {}", before.seq));
        }
        match codec::stored(connection, row) {
            Ok(stored) => verify(before, &stored, problems),
            Err(SqliteError::Damaged(why)) => problems.push(why),
            // A value of the wrong type is the row's fault; a code of SQLite's is the file's.
            Err(SqliteError::Sql(error)) if error.sqlite_error_code().is_none() => {
                problems.push(format!("event {id} cannot be read: {error}"));
            }
            Err(fault) => return Err(fault),
        }
        before = ThreadHead { seq: id.seq, link: stored_link(row).unwrap_or(before.link) };
    }
    Ok(events)
}

/// Compares the stored event with the values that follow from the link before it.
fn verify(before: ThreadHead, stored: &EventRow, problems: &mut Vec<String>) {
    let EventRow { logged: LoggedEvent { id, event, link }, fact, kind, .. } = stored;
    let expected = before.link.next(event, fact);
    if expected.raw != link.raw {
        problems.push(format!("event {id} or the link before it was changed: the raw chain breaks here"));
    }
    if expected.normal != link.normal {
        problems.push(format!("event {id}: the normalised chain breaks here"));
    }
    if kind != event.fact.kind() {
        problems.push(format!("event {id} is stored as `{kind}` but is something else"));
    }
}

fn stored_link(row: &rusqlite::Row<'_>) -> Option<ChainLink> {
    Some(ChainLink { raw: Digest(row.get(7).ok()?), normal: Digest(row.get(8).ok()?) })
}

fn media(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let mut statement = connection.prepare("SELECT hash, bytes FROM media")?;
    let mut rows = statement.query([])?;
    let mut problems = Vec::new();
    let mut seen = 0_u64;
    while let Some(row) = rows.next()? {
        seen += 1;
        let (hash, bytes) = (Digest(row.get(0)?), row.get_ref(1)?);
        if bytes.as_blob().ok().map(Digest::of) != Some(hash) {
            problems.push(format!("the medium {hash} was changed: its bytes have another hash"));
        }
    }
    Ok((format!("{seen} media"), problems))
}

/// Makes temporary tables that hide the derived ones, and fills them from the log.
fn rebuild_beside(connection: &Connection, counter: Option<&dyn TokenCounter>) -> Result<(), SqliteError> {
    for table in ["turn_rows", "totals", "shared_totals", "counts", "token_totals"] {
        let sql: String = connection.query_row(
            "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = ?1",
            [table],
            |row| row.get(0),
        )?;
        connection.execute_batch(&sql.replacen("CREATE TABLE", "CREATE TEMP TABLE", 1))?;
    }
    connection.execute_batch(
        "CREATE VIRTUAL TABLE temp.search USING fts5 (text, content = '', tokenize = 'unicode61 remove_diacritics 2')",
    )?;
    // Data that is not derived yet cannot be wrong.
    let Some(first) = deferred_derivation::first_underived_row(connection)? else {
        return derivation::derive_all(connection, counter);
    };
    connection
        .execute_batch(&format!("CREATE TEMP VIEW events AS SELECT * FROM main.events WHERE id < {first}"))?;
    let rebuilt = derivation::derive_all(connection, counter);
    connection.execute_batch("DROP VIEW temp.events")?;
    rebuilt
}

/// Compares a derived table with its rebuilt double.
fn same_rows(connection: &Connection, table: &str, key: &str) -> Result<CheckFinding, SqliteError> {
    let rows: i64 =
        connection.query_row(&format!("SELECT count(*) FROM main.{table}"), [], |row| row.get(0))?;
    let mut problems = Vec::new();
    for (have, lack, words) in [("main", "temp", "which the log does not give"), ("temp", "main", "too few")]
    {
        let mut statement = connection.prepare(&format!(
            "SELECT count(*), {key} FROM (SELECT * FROM {have}.{table} EXCEPT SELECT * FROM {lack}.{table})"
        ))?;
        let mut found = statement.query([])?;
        if let Some(row) = found.next()?
            && row.get::<_, i64>(0)? > 0
        {
            let example = match codec::event_id(row, 1) {
                Ok(Some(id)) => id.to_string(),
                _ => codec::thread(row, 1)?.to_string(),
            };
            problems
                .push(format!("{} rows {words}, for example {example}; rebuild them", row.get::<_, i64>(0)?));
        }
    }
    Ok((format!("{rows} rows"), problems))
}

fn totals(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let (covered, mut problems) = same_rows(connection, "totals", "thread, thread")?;
    problems.extend(same_rows(connection, "shared_totals", "thread, until")?.1);
    let sums = "SELECT thread, tokenizer, sum(tokens) FROM main.counts GROUP BY thread, tokenizer";
    // A wrong sum is in both differences, so the keys are counted.
    let wrong: i64 = connection.query_row(
        &format!(
            "SELECT count(*) FROM (
                SELECT thread, tokenizer FROM (SELECT * FROM main.token_totals EXCEPT {sums})
                UNION SELECT thread, tokenizer FROM (SELECT * FROM ({sums}) EXCEPT SELECT * FROM main.token_totals))"
        ),
        [],
        |row| row.get(0),
    )?;
    if wrong > 0 {
        problems.push(format!("{wrong} sums of tokens are not the sum of the counts; rebuild them"));
    }
    Ok((covered, problems))
}

/// Counts by tokenizers that are not at hand can only be checked for having an event.
fn counts(connection: &Connection, counter: Option<&dyn TokenCounter>) -> Result<CheckFinding, SqliteError> {
    let number =
        |sql: &str| -> Result<i64, SqliteError> { Ok(connection.query_row(sql, [], |row| row.get(0))?) };
    let mut covered = format!("{} counts", number("SELECT count(*) FROM main.counts")?);
    let mut problems = Vec::new();
    let lost = number(
        "SELECT count(*) FROM main.counts WHERE NOT EXISTS (
            SELECT 1 FROM events WHERE events.thread = counts.thread AND events.seq = counts.seq)",
    )?;
    if lost > 0 {
        problems.push(format!("{lost} counts are of events that do not exist; rebuild them"));
    }
    if let Some(counter) = counter {
        let wrong: i64 = connection.query_row(
            "SELECT count(*) FROM (SELECT * FROM main.counts WHERE tokenizer = ?1 EXCEPT SELECT * FROM temp.counts)",
            [counter.name()],
            |row| row.get(0),
        )?;
        if wrong > 0 {
            problems.push(format!("{wrong} counts are not what `{}` counts; rebuild them", counter.name()));
        }
        let missing = number("SELECT (SELECT count(*) FROM temp.counts)")?;
        let known: i64 = connection.query_row(
            "SELECT count(*) FROM main.counts WHERE tokenizer = ?1",
            [counter.name()],
            |row| row.get(0),
        )?;
        if missing > known {
            covered =
                format!("{covered}; {} events not yet counted by `{}`", missing - known, counter.name());
        }
    }
    Ok((covered, problems))
}

/// Compares every word of the index, in step, with an index made afresh.
fn search_index(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    connection.execute_batch(
        "CREATE VIRTUAL TABLE temp.words_found USING fts5vocab (main, search, instance);
         CREATE VIRTUAL TABLE temp.words_expected USING fts5vocab (temp, search, instance);",
    )?;
    let select = |table: &str| format!("SELECT term, doc, offset FROM temp.{table}");
    let mut found = connection.prepare(&select("words_found"))?;
    let mut expected = connection.prepare(&select("words_expected"))?;
    let (mut found, mut expected) = (words(&mut found)?, words(&mut expected)?);
    let mut seen = 0_u64;
    loop {
        let (word, expected) = (found.next().transpose()?, expected.next().transpose()?);
        if word != expected {
            let place = word.or(expected).map_or(0, |(_, row, _)| row);
            let problem = format!("the index differs from the log at row {place}; rebuild it");
            return Ok((format!("{seen} words"), vec![problem]));
        }
        if word.is_none() {
            return Ok((format!("{seen} words"), Vec::new()));
        }
        seen += 1;
    }
}

type IndexedWord = (Vec<u8>, i64, i64);

fn words<'s>(
    statement: &'s mut Statement<'_>,
) -> Result<impl Iterator<Item = rusqlite::Result<IndexedWord>> + 's, SqliteError> {
    let word = |row: &rusqlite::Row<'_>| {
        let term = row.get_ref(0)?.as_bytes()?.to_vec();
        Ok((term, row.get(1)?, row.get(2)?))
    };
    Ok(statement.query_map([], word)?)
}
