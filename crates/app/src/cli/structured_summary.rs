//! `--format structured`: a session by the sections of a structured summary, for continuing it elsewhere.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context as _, anyhow};
use epitome::{
    core::{
        Tokens,
        summary::{StructuredSummary, SummarySection},
    },
    structured_session::{StructuredSession, structured},
};
use serde_json::{Value, json};

use super::{
    output::{CliOutput, DIM, NAME, NOTE},
    request_source::{RequestSource, ViewArgs},
    text_format,
};
use crate::units::TokenAmount;

/// A budget larger than any session.
const UNLIMITED: u64 = 1_000_000_000_000;

/// Writes the sections of the source, as a model would see it, to a file or to standard output.
pub(crate) fn run(
    name: &str,
    source: RequestSource,
    view: &ViewArgs,
    path: Option<&Path>,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let budget = view.budget.unwrap_or(TokenAmount::Tokens(UNLIMITED));
    let chosen =
        ViewArgs { format: None, policy: None, budget: Some(budget), ..view.clone() }.resolve(source)?;
    let limit = view.budget.map_or(Tokens::MAX, |_| chosen.budget.ceiling());
    let context = chosen.plan.context(chosen.names);
    let made = structured(&context, &chosen.plan.line, limit)
        .ok_or_else(|| anyhow!("there is nothing to summarise: the model sees no message yet"))?;
    let StructuredSession { brief, covered, text: written, tokens } = &made;
    if let Some(path) = path {
        fs::write(path, written).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if *tokens > limit {
        let least = text_format::tokens(*tokens);
        anstream::eprintln!(
            "{NOTE}note:{NOTE:#} the shortest form of all sections takes {least} tokens, more than the budget"
        );
    }
    if out.is_json() {
        let sections: Vec<Value> = sections(brief);
        out.object(&json!({
            "source": name,
            "covered": covered,
            "counter": context.meter().name(),
            "tokens_before": context.tokens(),
            "tokens": tokens,
            "sections": sections,
            "text": written,
            "out": path,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match path {
        None => out.line(super::recall::strip_control_characters(written.trim_end()))?,
        Some(path) => {
            let (before, after) = (text_format::tokens(context.tokens()), text_format::tokens(*tokens));
            out.line(format_args!(
                "{before} → {after} tokens, by sections {DIM}(no request: nothing is kept whole){DIM:#}"
            ))?;
            out.line(format_args!("written to {NAME}{}{NAME:#}", path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All standard sections, filled or not, and other sections that are filled.
fn sections(brief: &StructuredSummary) -> Vec<Value> {
    let section = |section: SummarySection| {
        let items: Vec<Value> = brief
            .section(section)
            .map(|item| json!({"text": item.text, "sources": item.sources, "detail": item.detail}))
            .collect();
        let folded = brief.folded.iter().filter(|folded| folded.section == section);
        let not_told: u64 = folded.map(|folded| folded.count).fold(0, u64::saturating_add);
        let is_told = section.is_in_checklist() || !items.is_empty() || not_told > 0;
        is_told.then(
            || json!({"section": section, "title": section.title(), "items": items, "not_told": not_told}),
        )
    };
    SummarySection::ALL.into_iter().filter_map(section).collect()
}
