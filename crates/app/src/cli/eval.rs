//! `eval`: measures what summaries keep of real sessions, after one compaction and after several in a row.

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome::{
    core::{Tokens, policy::Policy},
    import::find_files,
};
use epitome_measure::{
    evaluation::{
        EvalTotals, EvaluatedSession, SECTION_COUNT, SeenContents, SessionNovelty, SummaryEvaluation,
        evaluate_file,
    },
    summary_retention::RetentionTally,
};
use serde_json::json;

use super::{
    output::{BOLD, CliOutput, DIM, NOTE},
    parallel::for_all,
    text_format,
};
use crate::units::parse_tokens;

#[derive(ClapArgs)]
#[command(after_help = "\
Every session over the size is compacted once, twice and five times on its way, and the last summary is held against what
code finds in the whole span. Told: the summary says it. Counted: it says how many more there are, with the handle that
leads to them. Unspoken: only the handle of the whole span leads there. What code does not find is not looked for: of
the built-in summariser this says what is carried on and what there is room for, not what it overlooks.
A session of which half was in one before it (*) is shown and not counted. Needs no database and no model.

  epitome eval ~/.claude/projects
  epitome eval sessions/ --over 150k --chain 1,10 --csv > kept.csv")]
pub(crate) struct EvalArgs {
    /// Transcripts, or folders of them.
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,

    /// Measure only sessions with more tokens than this.
    #[arg(long, value_name = "N", default_value = "60k", value_parser = parse_tokens)]
    over: u64,

    /// Numbers of compactions in a row to measure.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,5")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    chain: Vec<u64>,

    /// Policy that makes the summaries.
    #[arg(long, value_name = "POLICY", default_value = "epitome")]
    policy: String,

    /// Print comma-separated values.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

pub(crate) fn run(args: &EvalArgs, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let rules = Policy::named(&args.policy)?.summary;
    let Some(rules) = rules else { bail!("the policy `{}` makes no summaries: name another", args.policy) };
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    for path in &args.paths {
        let (found, errors) = find_files(path);
        files.extend(found);
        unread.extend(errors.iter().map(ToString::to_string));
    }
    let mut totals: Vec<(u64, EvalTotals)> =
        args.chain.iter().map(|chain| (*chain, EvalTotals::default())).collect();
    if args.csv {
        out.line(
            "session,tokens,new,chain,made,span,summary,ratio,filled,sections,items,told,counted,unspoken",
        )?;
    } else if !out.is_json() {
        out.line(format_args!(
            "{BOLD}{:34} {:>7} {:>5} {:>16} {:>7} {:>8} {:>5} {:>5} {:>7} {:>8}{BOLD:#}",
            "session",
            "tokens",
            "chain",
            "span → summary",
            "ratio",
            "sections",
            "items",
            "told",
            "counted",
            "unspoken"
        ))?;
    }
    let mut known = SeenContents::default();
    let measure = |path: &PathBuf| evaluate_file(path, Tokens(args.over), &args.chain, &rules);
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for_all(&files, name, measure, |path, measured| {
        match measured {
            Ok(measured) => {
                for one in measured {
                    let standing = known.meet(&one);
                    if standing == SessionNovelty::New {
                        for evaluation in &one.evaluations {
                            let of_chain = |(chain, _): &&mut (u64, EvalTotals)| *chain == evaluation.chain;
                            if let Some((_, total)) = totals.iter_mut().find(of_chain) {
                                total.add(evaluation);
                            }
                        }
                    }
                    print_session(&one, standing, args, &mut out)?;
                }
            }
            Err(error) => unread.push(format!("{}: {error}", path.display())),
        }
        Ok(())
    })?;
    summary(&totals, known.again, &unread, args, &mut out)?;
    Ok(if unread.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_session(
    one: &EvaluatedSession,
    standing: SessionNovelty,
    args: &EvalArgs,
    out: &mut CliOutput,
) -> anyhow::Result<()> {
    for (index, told) in one.evaluations.iter().enumerate() {
        let tally = told.kept.total();
        let ratio = told.ratio();
        let SummaryEvaluation { chain, made, span, summary, filled, sections, .. } = told;
        let RetentionTally { items, shown, counted, covered, lost } = tally;
        let unspoken = covered + lost;
        if args.csv {
            let name = one.name.replace('"', "\"\"");
            out.line(format_args!(
                "\"{name}\",{},{},{chain},{made},{},{},{ratio:.2},{filled},{sections},{items},{shown},{counted},{unspoken}",
                one.tokens.0,
                standing == SessionNovelty::New,
                span.0,
                summary.0
            ))?;
        } else if out.is_json() {
            out.object(&json!({
                "session": one.name, "tokens": one.tokens, "new": standing == SessionNovelty::New, "ratio": ratio, "items": tally, "evaluation": told,
            }))?;
        } else {
            let (name, tokens) = match (index, standing) {
                (0, SessionNovelty::New) => (shorten_middle(&one.name), text_format::tokens(one.tokens)),
                (0, SessionNovelty::Again) => {
                    (shorten_middle(&format!("*{}", one.name)), text_format::tokens(one.tokens))
                }
                _ => Default::default(),
            };
            let chain = if made == chain { chain.to_string() } else { format!("{made}/{chain}") };
            let span = format!("{} → {}", text_format::tokens(*span), text_format::tokens(*summary));
            let sections = format!("{filled}/{SECTION_COUNT}");
            out.line(format_args!(
                "{name:34} {tokens:>7} {chain:>5} {span:>16} {:>7} {sections:>8} {items:>5} {shown:>5} {counted:>7} \
                 {unspoken:>8}",
                format!("{ratio:.1}x")
            ))?;
            for example in &told.kept.unspoken {
                out.line(format_args!(
                    "    {NOTE}unspoken: {}{NOTE:#}",
                    text_format::one_line(example, 100)
                ))?;
            }
        }
    }
    Ok(())
}

/// Shortens a name to its beginning and its end, which are where files of one session differ.
fn shorten_middle(name: &str) -> String {
    let letters: Vec<char> = name.chars().filter(|letter| !letter.is_control()).collect();
    match letters.len() {
        0..=34 => letters.iter().collect(),
        all => letters[..18].iter().chain(['…'].iter()).chain(&letters[all - 15..]).collect(),
    }
}

fn summary(
    totals: &[(u64, EvalTotals)],
    again: u64,
    unread: &[String],
    args: &EvalArgs,
    out: &mut CliOutput,
) -> anyhow::Result<()> {
    for error in unread {
        anstream::eprintln!("{NOTE}{error}{NOTE:#}");
    }
    if args.csv || out.is_json() {
        return Ok(());
    }
    if totals.iter().all(|(_, total)| total.sessions == 0) {
        return out.line("No session here has more tokens than that: --over says how many.");
    }
    out.line("")?;
    for (chain, total) in totals.iter().filter(|(_, total)| total.sessions > 0) {
        let EvalTotals { sessions, made, span, summary, least, filled, complete, items } = total;
        #[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        out.line(format_args!(
            "{BOLD}{}{BOLD:#} on {}, {made} made: {:.1}x smaller (at least {:.1}x); {:.1} of {SECTION_COUNT} sections filled, \
             {complete} of {sessions} complete",
            if *chain == 1 { "1 compaction".to_owned() } else { format!("{chain} in a row") },
            text_format::count(*sessions, "session"),
            share(*span, *summary),
            least.unwrap_or_default(),
            share(*filled, *sessions),
        ))?;
        let percent = |part: u64| 100.0 * share(part, items.items);
        out.line(format_args!(
            "  {DIM}of {} items that must be kept{DIM:#} {:.1} % told, {:.1} % counted with a handle, {} not spoken of",
            items.items,
            percent(items.shown),
            percent(items.counted),
            items.covered + items.lost,
        ))?;
    }
    if again > 0 {
        out.line(format_args!(
            "{DIM}{} marked * not counted: half of it or more was in one before.{DIM:#}",
            text_format::count(again, "session")
        ))?;
    }
    Ok(())
}
