//! `eval`: what summaries keep of real sessions, after one compaction and after several in a row.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome::{
    core::{
        Tokens,
        meter::{Meter, Overhead},
        policy::Policy,
        tokens::O200k,
    },
    eval::{Evaluation, SECTIONS, Subject, built_in},
    import::find_files,
    kept::Tally,
    wire::transcripts::{self, Limits, ReadError},
};
use serde_json::json;

use super::{
    output::{BOLD, DIM, NOTE, Output},
    parallel::for_all,
    text,
    view::{Amount, parse_amount, thread_events},
};

#[derive(ClapArgs)]
#[command(after_help = "\
Every session over the size is compacted once, twice and five times on its way, and the last summary is held against what
code finds in the whole span. Told: the summary says it. Counted: it says how many more there are, with the handle that
leads to them. Covered: only the handle of the whole span leads there. Needs no database and no model.

  epitome eval ~/.claude/projects
  epitome eval sessions/ --over 150k --chain 1,10 --csv > kept.csv")]
pub(crate) struct Args {
    /// Transcripts, or folders of them.
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,

    /// Only sessions with more tokens than this.
    #[arg(long, value_name = "N", default_value = "60k", value_parser = parse_amount)]
    over: Amount,

    /// How many compactions in a row.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,5")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
    chain: Vec<u64>,

    /// The policy whose rules for summaries hold.
    #[arg(long, value_name = "POLICY", default_value = "epitome")]
    policy: String,

    /// Print comma-separated values.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// What was measured on a session.
struct Measured {
    name: String,
    tokens: Tokens,
    evaluations: Vec<Evaluation>,
}

/// What was measured on all sessions with one chain.
#[derive(Default)]
struct Total {
    sessions: u64,
    made: u64,
    span: u64,
    summary: u64,
    least: Option<f64>,
    filled: u64,
    complete: u64,
    items: Tally,
}

pub(crate) fn run(args: &Args, mut out: Output) -> anyhow::Result<ExitCode> {
    let Amount::Tokens(over) = args.over else { bail!("--over is an amount of tokens, such as 60k") };
    let rules = Policy::named(&args.policy)?.summary;
    let Some(rules) = rules else { bail!("the policy `{}` makes no summaries: name another", args.policy) };
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    for path in &args.paths {
        let (found, errors) = find_files(path);
        files.extend(found);
        unread.extend(errors.iter().map(ToString::to_string));
    }
    let mut totals: Vec<(u64, Total)> = args.chain.iter().map(|chain| (*chain, Total::default())).collect();
    if args.csv {
        out.line("session,tokens,chain,made,span,summary,ratio,filled,sections,items,told,counted,covered,lost")?;
    } else if !out.is_json() {
        out.line(format_args!(
            "{BOLD}{:34} {:>7} {:>5} {:>16} {:>7} {:>8} {:>5} {:>5} {:>7} {:>7} {:>4}{BOLD:#}",
            "session", "tokens", "chain", "span → summary", "ratio", "sections", "items", "told", "counted",
            "covered", "lost"
        ))?;
    }
    let measure = |path: &PathBuf| measured(path, Tokens(over), |subject| {
        let evaluate = |chain: &u64| subject.chained(*chain, &rules, |order| Ok(built_in(order)));
        args.chain.iter().filter_map(evaluate).collect()
    });
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for_all(&files, name, measure, |path, measured| {
        match measured {
            Ok(measured) => {
                for one in measured {
                    for (_, total) in totals.iter_mut().filter(|(chain, _)| {
                        one.evaluations.iter().any(|evaluation| evaluation.chain == *chain)
                    }) {
                        total.sessions += 1;
                    }
                    tell(&one, args, &mut totals, &mut out)?;
                }
            }
            Err(error) => unread.push(format!("{}: {error}", path.display())),
        }
        Ok(())
    })?;
    summary(&totals, &unread, args, &mut out)?;
    Ok(if unread.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The long sessions of a file; none if it is no transcript.
fn measured(
    path: &Path,
    over: Tokens,
    evaluate: impl Fn(&Subject) -> Vec<Evaluation>,
) -> Result<Vec<Measured>, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let sessions = match transcripts::read(&path.to_string_lossy(), &bytes, &Limits::default()) {
        Ok(reading) => reading.sessions,
        Err(ReadError::UnknownAgent { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let file = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut all = Vec::new();
    for session in &sessions {
        for (index, thread) in session.threads.iter().enumerate() {
            let meter = Arc::new(Meter::new(Arc::new(O200k), Overhead::default()));
            let subject = Subject::new(thread_events(session, thread.id), meter);
            if subject.tokens() <= over {
                continue;
            }
            let of = if index == 0 { String::new() } else { format!(", {}", thread.name) };
            let name = if sessions.len() == 1 { format!("{file}{of}") } else { format!("{file} {}{of}", session.key) };
            all.push(Measured { name, tokens: subject.tokens(), evaluations: evaluate(&subject) });
        }
    }
    Ok(all)
}

fn tell(
    one: &Measured,
    args: &Args,
    totals: &mut [(u64, Total)],
    out: &mut Output,
) -> anyhow::Result<()> {
    for (index, told) in one.evaluations.iter().enumerate() {
        let tally = told.kept.total();
        if let Some((_, total)) = totals.iter_mut().find(|(chain, _)| *chain == told.chain) {
            total.add(told);
        }
        let ratio = told.ratio();
        let Evaluation { chain, made, span, summary, filled, sections, .. } = told;
        let Tally { items, shown, counted, covered, lost } = tally;
        if args.csv {
            let name = one.name.replace('"', "\"\"");
            out.line(format_args!(
                "\"{name}\",{},{chain},{made},{span},{summary},{ratio:.2},{filled},{sections},{items},{shown},{counted},\
                 {covered},{lost}",
                one.tokens
            ))?;
        } else if out.is_json() {
            out.object(&json!({
                "session": one.name, "tokens": one.tokens, "ratio": ratio, "items": tally, "evaluation": told,
            }))?;
        } else {
            let (name, tokens) =
                if index == 0 { (text::one_line(&one.name, 34), text::tokens(one.tokens)) } else { Default::default() };
            let chain = if made == chain { chain.to_string() } else { format!("{made}/{chain}") };
            let span = format!("{} → {}", text::tokens(*span), text::tokens(*summary));
            let sections = format!("{filled}/{SECTIONS}");
            out.line(format_args!(
                "{name:34} {tokens:>7} {chain:>5} {span:>16} {:>7} {sections:>8} {items:>5} {shown:>5} {counted:>7} \
                 {covered:>7} {lost:>4}",
                format!("{ratio:.1}x")
            ))?;
            for example in &told.kept.lost {
                out.line(format_args!("    {NOTE}lost: {}{NOTE:#}", text::one_line(example, 100)))?;
            }
        }
    }
    Ok(())
}

impl Total {
    fn add(&mut self, told: &Evaluation) {
        self.made += told.made;
        self.span += told.span.0;
        self.summary += told.summary.0;
        self.least = Some(self.least.map_or(told.ratio(), |least| least.min(told.ratio())));
        self.filled += told.filled;
        self.complete += u64::from(told.sections == SECTIONS as u64);
        self.items += told.kept.total();
    }
}

fn summary(totals: &[(u64, Total)], unread: &[String], args: &Args, out: &mut Output) -> anyhow::Result<()> {
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
        let Total { sessions, made, span, summary, least, filled, complete, items } = total;
        #[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        out.line(format_args!(
            "{BOLD}{}{BOLD:#} on {}, {made} made: {:.1}x smaller (at least {:.1}x); {:.1} of {SECTIONS} sections filled, \
             {complete} of {sessions} complete",
            if *chain == 1 { "1 compaction".to_owned() } else { format!("{chain} in a row") },
            text::count(*sessions, "session"),
            share(*span, *summary),
            least.unwrap_or_default(),
            share(*filled, *sessions),
        ))?;
        let percent = |part: u64| 100.0 * share(part, items.items);
        out.line(format_args!(
            "  {DIM}of {} items that must be kept{DIM:#} {:.1} % told, {:.1} % counted with a handle, {:.1} % within the \
             span's handle, {} lost",
            items.items,
            percent(items.shown),
            percent(items.counted),
            percent(items.covered),
            items.lost,
        ))?;
    }
    Ok(())
}
