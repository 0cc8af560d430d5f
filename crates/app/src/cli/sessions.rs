//! `sessions`, `rename`, `label`: the sessions of the store, their titles and labels.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use epitome::store::records::SessionRow;
use serde::Serialize;

use super::{
    output::{BOLD, CliOutput, DIM, NAME},
    store_lookup::DatabaseLocation,
    text_format,
};

/// Filters of the list.
#[derive(ClapArgs)]
pub(crate) struct SessionsArgs {
    /// List only sessions with this label.
    #[arg(long)]
    label: Option<String>,

    /// List only sessions of this source, such as `claude-code`.
    #[arg(long)]
    source: Option<String>,

    /// List only sessions that the gateway recorded for this principal.
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,

    /// List at most N sessions, the latest.
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
}

#[derive(ClapArgs)]
pub(crate) struct RenameArgs {
    /// Session: its id, the start or the last eight digits of it, or its title.
    session: String,
    /// New title.
    title: String,
}

#[derive(ClapArgs)]
pub(crate) struct LabelArgs {
    /// Session: its id, the start or the last eight digits of it, or its title.
    session: String,
    /// Label to add.
    #[arg(value_name = "LABEL")]
    add: Vec<String>,
    /// Label to remove.
    #[arg(long, value_name = "LABEL")]
    remove: Vec<String>,
}

/// A session, for programs.
#[derive(Serialize)]
pub(crate) struct SessionJson<'a> {
    id: String,
    title: &'a str,
    head: Option<String>,
    key: Option<&'a str>,
    principal: &'a str,
    source: &'a str,
    labels: &'a [String],
    created: Option<String>,
    first: Option<String>,
    last: Option<String>,
    threads: u64,
    events: u64,
    messages: u64,
    turns: u64,
    loops: u64,
    tool_calls: u64,
    tokens: Option<u64>,
    compactions: u64,
}

impl<'a> From<&'a SessionRow> for SessionJson<'a> {
    fn from(row: &'a SessionRow) -> Self {
        Self {
            id: row.id.to_string(),
            title: &row.title,
            head: row.head.map(|thread| thread.to_string()),
            key: row.key.as_deref(),
            principal: &row.principal,
            source: &row.source,
            labels: &row.labels,
            created: row.created.and_then(text_format::rfc3339),
            first: row.first.and_then(text_format::rfc3339),
            last: row.last.and_then(text_format::rfc3339),
            threads: row.threads,
            events: row.events,
            messages: row.messages,
            turns: row.turns,
            loops: row.loops,
            tool_calls: row.tool_calls,
            tokens: row.tokens.map(|tokens| tokens.0),
            compactions: row.compactions,
        }
    }
}

/// Lists the sessions, the latest last.
pub(crate) fn run(
    args: &SessionsArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let mut rows = match store.open_if_exists()? {
        Some(store) => store.sessions()?,
        None => Vec::new(),
    };
    rows.retain(|row| args.label.as_ref().is_none_or(|label| row.labels.contains(label)));
    rows.retain(|row| args.source.as_ref().is_none_or(|source| row.source == *source));
    rows.retain(|row| args.principal.as_ref().is_none_or(|principal| row.principal == *principal));
    rows.sort_by_key(|row| (row.last.or(row.created), row.id));
    if let Some(limit) = args.limit {
        rows.drain(..rows.len().saturating_sub(limit));
    }
    if out.is_json() {
        for row in &rows {
            out.object(&SessionJson::from(row))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        let filtered = args.label.is_some() || args.source.is_some() || args.principal.is_some();
        out.line(if filtered {
            "No session has that label, source and principal. Without a filter: epitome sessions"
        } else {
            "No sessions here yet. Import some: epitome import FILE|DIR…"
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    // Only a gateway with tokens records principals.
    let names = rows.iter().map(|row| row.principal.chars().count()).max().unwrap_or(0);
    let mut heads =
        vec!["session", "last active", "source", "turns", "loops", "calls", "tokens", "compactions", "title"];
    if names > 0 {
        heads.insert(heads.len() - 1, "principal");
    }
    let mut table = text_format::table(&heads, &[3, 4, 5, 6, 7]);
    let column = if names > 0 { names.max("principal".len()) + 2 } else { 0 };
    let wide = text_format::width().saturating_sub(86 + column).max(20);
    for row in &rows {
        let mut title = text_format::one_line(&row.title, wide);
        for label in row.labels.iter().filter(|label| !label.starts_with("project:")) {
            title.extend([" [", label, "]"]);
        }
        let mut cells = vec![
            row.id.short(),
            row.last.or(row.created).map(text_format::minute).unwrap_or_default(),
            row.source.clone(),
            row.turns.to_string(),
            row.loops.to_string(),
            row.tool_calls.to_string(),
            row.tokens.map(text_format::tokens).unwrap_or_default(),
            if row.compactions == 0 { String::new() } else { row.compactions.to_string() },
        ];
        if names > 0 {
            cells.push(row.principal.clone());
        }
        cells.push(title);
        table.add_row(cells);
    }
    out.line(table)?;
    out.line(format_args!(
        "{DIM}{} · look at one: epitome show SESSION{DIM:#}",
        text_format::count(rows.len() as u64, "session")
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Gives a session another title.
pub(crate) fn rename(
    args: &RenameArgs,
    store: &DatabaseLocation,
    out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let row = store.find_session(&args.session)?;
    store.set_title(row.id, &args.title)?;
    report(&store.session(row.id)?, out)
}

/// Adds and removes labels.
pub(crate) fn label(args: &LabelArgs, store: &DatabaseLocation, out: CliOutput) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let row = store.find_session(&args.session)?;
    for label in &args.add {
        store.add_label(row.id, label)?;
    }
    for label in &args.remove {
        store.remove_label(row.id, label)?;
    }
    report(&store.session(row.id)?, out)
}

fn report(row: &SessionRow, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    if out.is_json() {
        out.object(&SessionJson::from(row))?;
    } else {
        let labels =
            if row.labels.is_empty() { String::new() } else { format!(" [{}]", row.labels.join("] [")) };
        let title = text_format::one_line(&row.title, text_format::width());
        out.line(format_args!("{NAME}{}{NAME:#} {BOLD}{title}{BOLD:#}{labels}", row.id))?;
    }
    Ok(ExitCode::SUCCESS)
}
