//! `search`: finds words in all sessions and in the ledger.

use std::{collections::HashMap, process::ExitCode};

use clap::Args as ClapArgs;
use epitome::store::records::{HitLocation, SearchHit, SearchQuery, SearchScope, SnippetPart};
use serde_json::json;

use super::{
    output::{BOLD, CliOutput, DIM, NAME},
    store_lookup::DatabaseLocation,
    text_format,
};

#[derive(ClapArgs)]
#[command(
    after_help = "All words must occur. \"Words in quotes\" stand together, and prefix* finds its continuations."
)]
pub(crate) struct SearchArgs {
    /// Words to find.
    #[arg(required = true)]
    query: Vec<String>,

    /// Search only this session.
    #[arg(long)]
    session: Option<String>,

    /// Search only the ledger.
    #[arg(long, conflicts_with = "session")]
    ledger: bool,

    /// Show at most N hits, the best.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    limit: usize,
}

pub(crate) fn run(
    args: &SearchArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let scope = match &args.session {
        Some(session) => SearchScope::Session(store.find_session(session)?.id),
        None if args.ledger => SearchScope::Ledger,
        None => SearchScope::Everything,
    };
    let hits = store.search(&SearchQuery {
        scope,
        limit: args.limit,
        ..SearchQuery::everything(args.query.join(" "))
    })?;
    let mut titles = HashMap::new();
    for hit in &hits {
        if let HitLocation::Event { session, .. } = hit.found
            && !titles.contains_key(&session)
        {
            titles.insert(session, store.session(session)?.title);
        }
    }
    let title = |hit: &SearchHit| match &hit.found {
        HitLocation::Event { session, .. } => titles.get(session).cloned().unwrap_or_default(),
        HitLocation::Ledger { channel, .. } => channel.clone(),
    };
    if out.is_json() {
        for hit in &hits {
            out.object(&hit_json(hit, &title(hit)))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    for hit in &hits {
        let when = hit.time.map(text_format::minute).unwrap_or_default();
        match &hit.found {
            HitLocation::Event { id, session, kind } => out.line(format_args!(
                "{BOLD}{}{BOLD:#}  {when}  {NAME}{}{NAME:#}  {DIM}{} · event {id}{DIM:#}",
                text_format::one_line(&title(hit), 50),
                &session.to_string()[..13],
                kind.replace('_', " "),
            ))?,
            HitLocation::Ledger { channel, id } => {
                out.line(format_args!("{BOLD}ledger: {channel}{BOLD:#}  {when}  {DIM}{id}{DIM:#}"))?;
            }
        }
        out.line(format_args!("    {}", snippet(hit)))?;
    }
    if hits.is_empty() {
        out.line("Nothing found.")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn snippet(hit: &SearchHit) -> String {
    let piece = |excerpt: &SnippetPart| match excerpt {
        SnippetPart::Plain(plain) => edges(plain),
        SnippetPart::Match(found) => format!("{BOLD}{}{BOLD:#}", text_format::one_line(found, 200)),
    };
    hit.snippet.iter().map(piece).collect()
}

/// Folds a text to one line, keeping a blank for white space at its ends.
fn edges(plain: &str) -> String {
    let blank = |at: Option<char>| if at.is_some_and(char::is_whitespace) { " " } else { "" };
    let middle = text_format::one_line(plain, 400);
    if middle.is_empty() {
        return blank(plain.chars().next()).to_owned();
    }
    format!("{}{middle}{}", blank(plain.chars().next()), blank(plain.chars().last()))
}

fn hit_json(hit: &SearchHit, title: &str) -> serde_json::Value {
    let snippet: String = hit
        .snippet
        .iter()
        .map(|excerpt| match excerpt {
            SnippetPart::Plain(text) | SnippetPart::Match(text) => text.as_str(),
        })
        .collect();
    let matches: Vec<&str> = hit
        .snippet
        .iter()
        .filter_map(|excerpt| match excerpt {
            SnippetPart::Match(text) => Some(text.as_str()),
            SnippetPart::Plain(_) => None,
        })
        .collect();
    let time = hit.time.and_then(text_format::rfc3339);
    match &hit.found {
        HitLocation::Event { id, session, kind } => json!({
            "found": "event", "event": id, "session": session, "title": title, "kind": kind, "time": time,
            "score": hit.score, "snippet": snippet, "matches": matches,
        }),
        HitLocation::Ledger { channel, id } => json!({
            "found": "ledger", "channel": channel, "id": id, "time": time,
            "score": hit.score, "snippet": snippet, "matches": matches,
        }),
    }
}
