//! The doctor's checks of the records beside the log: calls, jobs, summaries, exchanges, and the owners of
//! sessions.

use epitome_core::{Digest, Seq, ThreadId};
use rusqlite::{Connection, Row, params};

use super::{
    calls::{self, OwnedCallRange},
    codec::{self, AsBlob, signed, unsigned},
    commit::check_json,
    derivation,
    doctor::CheckFinding,
    jobs,
    sqlite_error::SqliteError,
    thread_view,
};
use crate::records::{JobRow, JobState};

/// Every content has the hash it is called by.
pub(super) fn contents(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let mut statement = connection.prepare("SELECT hash, text FROM contents")?;
    let mut rows = statement.query([])?;
    let mut problems = Vec::new();
    let mut seen = 0_u64;
    while let Some(row) = rows.next()? {
        seen += 1;
        let (hash, text) = (row.get_ref(0)?.as_blob().unwrap_or_default(), row.get_ref(1)?);
        let found = text.as_str().ok().map(|text| Digest::of(text.as_bytes()));
        if found.is_none_or(|found| found.0 != hash) {
            let name = <[u8; 32]>::try_from(hash)
                .map_or("without a hash".to_owned(), |hash| Digest(hash).to_string());
            problems.push(format!("the content {name} was changed: its text has another hash"));
        }
    }
    Ok((format!("{seen} contents"), problems))
}

/// Checks that calls are numbered without a gap, see no less than the one before, and name existing rows.
pub(super) fn calls(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let mut problems = Vec::new();
    let mut seen = 0_u64;
    for (thread, _) in derivation::thread_bases(connection)? {
        seen += calls_of(connection, thread, &mut problems)?;
    }
    Ok((format!("{seen} calls"), problems))
}

/// Checks a thread's own calls; gives how many it has.
fn calls_of(
    connection: &Connection,
    thread: ThreadId,
    problems: &mut Vec<String>,
) -> Result<u64, SqliteError> {
    let stretches = calls::owned_call_ranges(connection, thread)?;
    let own = stretches.iter().rev().find(|stretch| stretch.thread == thread);
    let first = own.map_or(0, |own| own.from);
    for OwnedCallRange { thread: owner, until, .. } in
        stretches.iter().filter(|stretch| stretch.thread != thread)
    {
        let mut last =
            connection.prepare_cached("SELECT 1 FROM model_calls WHERE thread = ?1 AND number = ?2")?;
        if !last.exists(params![owner.blob(), signed(until - 1)])? {
            problems.push(format!("thread {thread} shares call {} of {owner}, which is missing", until - 1));
        }
    }
    let end = thread_view::head(connection, thread)?.seq;
    let mut statement = connection.prepare_cached(
        "SELECT number, head, hash, summary_seq, pass, plan, steps, sent,
            (SELECT count(*) FROM call_outcomes WHERE call = model_calls.id AND NOT (json_valid(ifnull(usage, 0)) AND json_valid(ifnull(refusal, 0))))
         FROM model_calls WHERE thread = ?1 ORDER BY number",
    )?;
    let mut rows = statement.query([thread.blob()])?;
    let (mut expected, mut before) = (first, Seq::START);
    while let Some(row) = rows.next()? {
        let number = unsigned(row.get(0)?);
        let mut problem = |what: &str| problems.push(format!("call {number} of thread {thread} {what}"));
        if number != expected {
            problem(&format!("stands where call {expected} should"));
        }
        let head = codec::seq(row, 1)?;
        if head < before || head > end {
            problem(&format!("saw event {head}, which is not one of {before} to {end}"));
        }
        call(row, head, &mut problem)?;
        (expected, before) = (number + 1, head);
    }
    Ok(expected - first)
}

/// Checks a call by itself.
fn call(row: &Row<'_>, head: Seq, problem: &mut dyn FnMut(&str)) -> Result<(), SqliteError> {
    if row.get_ref(2)?.as_blob().map_or(0, <[u8]>::len) != size_of::<Digest>() {
        problem("has no hash");
    }
    if row.get::<_, Option<i64>>(3)?.is_some_and(|seq| !(1..=signed(head.0)).contains(&seq)) {
        problem("stands on a compaction it did not see");
    }
    for (column, what) in [(4, "pass"), (5, "plan"), (6, "list of steps"), (7, "sent part")] {
        if check_json("text", row.get::<_, Option<String>>(column)?.as_deref()).is_err() {
            problem(&format!("has a {what} that is not JSON"));
        }
    }
    if row.get::<_, i64>(8)? > 0 {
        problem("has an outcome whose numbers are not JSON");
    }
    Ok(())
}

/// Checks that jobs cover existing events, and that adopted ones point to a compaction.
pub(super) fn jobs(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let mut problems = Vec::new();
    let jobs = jobs::select(connection, "ORDER BY number", &[])?;
    for job in &jobs {
        for problem in job_problems(connection, job)? {
            problems.push(format!("the job {} {problem}", job.job.id));
        }
    }
    Ok((format!("{} jobs", jobs.len()), problems))
}

fn job_problems(connection: &Connection, row: &JobRow) -> Result<Vec<String>, SqliteError> {
    let JobRow { job, state, summary, .. } = row;
    let mut problems = Vec::new();
    match thread_view::head_at(connection, job.thread, job.through) {
        Ok(head) if head.link.raw == job.link => {}
        Ok(_) => problems.push(format!("is for another history of the thread {}", job.thread)),
        Err(SqliteError::Store(_) | SqliteError::Damaged(_)) => {
            problems
                .push(format!("covers event {} of the thread {}, which is missing", job.through, job.thread));
        }
        Err(fault) => return Err(fault),
    }
    if job.first > job.through || job.first == Seq::START {
        problems.push("covers no event".to_owned());
    }
    if let JobState::Adopted { compaction } = state
        && !jobs::is_compaction(connection, job.thread, *compaction)?
    {
        problems.push(format!("was adopted as event {compaction}, which is no compaction"));
    }
    if matches!(state, JobState::Ready | JobState::Adopted { .. }) && summary.is_none() {
        problems.push("has ended, but its summary is missing".to_owned());
    }
    if check_json("detail", Some(&job.detail)).is_err() {
        problems.push("has a detail that is not JSON".to_owned());
    }
    Ok(problems)
}

/// Checks that summaries can be read, and cover the spans of their jobs or stand for a compaction.
pub(super) fn summaries(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let mut statement = connection.prepare(
        "SELECT summaries.number, brief, report,
            (jobs.thread, jobs.first, jobs.through) IS (summaries.thread, summaries.first, summaries.through),
            summaries.thread, summaries.compaction
         FROM summaries LEFT JOIN jobs ON jobs.id = summaries.job ORDER BY summaries.number",
    )?;
    let mut rows = statement.query([])?;
    let mut problems = Vec::new();
    let mut seen = 0_u64;
    while let Some(row) = rows.next()? {
        seen += 1;
        let number: i64 = row.get(0)?;
        for (column, what) in [(1, "a brief"), (2, "a report")] {
            if check_json("text", Some(&row.get::<_, String>(column)?)).is_err() {
                problems.push(format!("summary {number} has {what} that is not JSON"));
            }
        }
        match row.get::<_, Option<i64>>(5)?.map(|seq| Seq(unsigned(seq))) {
            Some(compaction) if !jobs::is_compaction(connection, codec::thread(row, 4)?, compaction)? => {
                problems.push(format!("summary {number} is of event {compaction}, which is no compaction"));
            }
            None if !row.get::<_, bool>(3)? => {
                problems.push(format!("summary {number} does not cover what its job does"));
            }
            Some(_) | None => {}
        }
    }
    Ok((format!("{seen} summaries"), problems))
}

/// Checks that exchanges ended with an event of their thread, and that their observations can be read.
pub(super) fn exchanges(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let mut problems = Vec::new();
    let mut seen = 0_u64;
    let mut statement = connection
        .prepare("SELECT number, head, observed FROM exchanges WHERE thread = ?1 ORDER BY number")?;
    for (thread, _) in derivation::thread_bases(connection)? {
        let end = thread_view::head(connection, thread)?.seq;
        let mut rows = statement.query([thread.blob()])?;
        while let Some(row) = rows.next()? {
            seen += 1;
            let (number, head) = (unsigned(row.get(0)?), codec::seq(row, 1)?);
            if head > end {
                problems.push(format!(
                    "exchange {number} of thread {thread} ended with event {head}, which is not there"
                ));
            }
            if check_json("text", row.get::<_, Option<String>>(2)?.as_deref()).is_err() {
                problems.push(format!(
                    "exchange {number} of thread {thread} observed something that is not JSON"
                ));
            }
        }
    }
    Ok((format!("{seen} exchanges"), problems))
}

/// Checks that no thread shows another principal's messages.
pub(super) fn principals(connection: &Connection) -> Result<CheckFinding, SqliteError> {
    let principals: i64 =
        connection.query_row("SELECT count(DISTINCT principal) FROM sessions", [], |row| row.get(0))?;
    let mut statement = connection.prepare(
        "SELECT fork.id, parent.id FROM threads AS fork
         JOIN threads AS parent ON parent.id = fork.parent
         JOIN sessions AS own ON own.id = fork.session
         JOIN sessions AS other ON other.id = parent.session
         WHERE own.principal <> other.principal ORDER BY fork.number",
    )?;
    let mut rows = statement.query([])?;
    let mut problems = Vec::new();
    while let Some(row) = rows.next()? {
        let (fork, parent) = (codec::thread(row, 0)?, codec::thread(row, 1)?);
        problems.push(format!("thread {fork} was forked from {parent}, which is another principal's"));
    }
    Ok((format!("{principals} principals"), problems))
}
