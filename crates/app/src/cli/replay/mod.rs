//! `replay`: the cost of each policy, and what it would have lost.

mod dump;
mod picture;
mod recorded_usage;
pub(in crate::cli) mod replay_location;
mod report;
mod result_rows;
mod thread_replay;

use std::{collections::BTreeSet, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args as ClapArgs, ValueEnum};
use epitome::core::{
    Tokens,
    cost::CacheAssumption,
    policy::{Policy, PolicyError},
    profile::{Profile, Profiles},
};
use epitome_measure::replay::{CandidateSummariser, ReplayCandidate, RequestRoom};

use self::{
    dump::RequestDump,
    replay_location::ReplayLocation,
    report::{ReplayReport, ReplayReportOptions},
    thread_replay::ThreadReplayer,
};
use super::{output::CliOutput, parallel::for_all, policies, store_lookup::DatabaseLocation};
use crate::config::session_settings::read_profiles;
use crate::units::parse_tokens;

#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[derive(ClapArgs)]
#[command(after_help = "\
Every model call of the sessions is made again under each policy, with the pauses there were,
and charged as the model's provider would: what its cache held is simulated. Beside the policies
(epitome policies) there are baselines: none (the full history), sliding_window, drop_oldest,
summarise and clear_tools.

The table:
  peak, mean      tokens of the largest request and of one in the mean
  sent, cached    all tokens sent, and how many of them the cache held
  resets          how often what was sent before was changed, so that the cache lost it
  sums            summaries made
  cost, share     what it costs, and as a part of what the full history does
  over, illegal   requests larger than the window or refused; requests that break a provider's rule
  kept            of the facts that the next 30 calls turned out to need from the past, those that
                  stood in the request: verbatim, (words) in a summary, or (names) in one that lists
                  the name and says nothing else of it
  handle, lost    of these facts, those that a handle leads to, and those that are gone
  said            user messages that stood in the request word for word

Below it, what was assumed; and how near the simulation comes to what the provider recorded, with
each session sent as it was sent then.

What the client itself compacted is left out: under another policy it would not have happened.
Nothing is written to the log and no model is asked; the words of summaries are the built-in
summariser's.

  epitome replay session.jsonl
      One session under everything there is, with a chart of each
  epitome replay ~/.claude/projects/my-project --policy epitome,none --budget 100k
      A folder of them; two policies; requests of at most 100 000 tokens
  epitome replay session.jsonl --policy epitome,mine.toml --svg session.svg
      Your own policy beside the default, and a picture of both
  epitome replay sessions/ --model claude-opus-4-5 --budget 60k,200k --cache ideal,breakpoints --csv
      Every combination, as rows for a spreadsheet")]
pub(crate) struct ReplayArgs {
    /// Transcripts, folders of them, or sessions of the log.
    #[arg(required = true, value_name = "FILE|SESSION|DIR")]
    names: Vec<String>,

    /// Policies to compare, separated by commas: names, files, baselines, or `all`.
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "all")]
    policy: Vec<String>,

    /// Model to replay with, or several, instead of each session's own.
    #[arg(long, value_name = "MODEL", value_delimiter = ',')]
    model: Vec<String>,

    /// Largest size of a request in tokens, or several sizes. By default the model's window.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_tokens)]
    budget: Vec<u64>,

    /// Window of the model in tokens, input and output together, or several: requests are made as a live session makes them,
    /// with room for the answer and for what counts may be short of.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_tokens, conflicts_with = "budget")]
    window: Vec<u64>,

    /// Behaviour of the provider's cache to simulate, or both.
    #[arg(long, value_name = "MODE", value_delimiter = ',', default_value = "breakpoints")]
    cache: Vec<CacheMode>,

    /// Author of the policies' summaries, whose work is charged.
    #[arg(long, value_name = "WHO", default_value = "built-in")]
    summariser: SummaryAuthorArg,

    /// File of model profiles that add to the built-in ones or override them.
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,

    /// Print comma-separated values, a row for each session and policy.
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Draw the context over the calls; of many sessions, the one with the most calls.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    plot: bool,

    /// Write a picture of context, cost and evictions over the calls of the session that has most.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print how much is kept after none, one, two and more compactions.
    #[arg(long)]
    drift: bool,

    /// Skip the comparison with recorded usage.
    #[arg(long)]
    no_recorded: bool,

    /// Write every request of the main threads to DIR/POLICY/FILE, one line of JSON per call.
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,
}

/// Behaviour of a simulated cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CacheMode {
    /// The best possible cache: every prefix that is alive is read.
    Ideal,
    /// The provider's cache: entries only at breakpoints, within reach.
    Breakpoints,
}

impl From<CacheMode> for CacheAssumption {
    fn from(mode: CacheMode) -> Self {
        match mode {
            CacheMode::Ideal => Self::Ideal,
            CacheMode::Breakpoints => Self::Breakpoints,
        }
    }
}

/// Author of summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SummaryAuthorArg {
    /// Code, which costs nothing.
    BuiltIn,
    /// The session's own model, which continues the session's request in the background.
    Session,
}

/// One combination of settings to replay with.
#[derive(Clone, Copy, Debug)]
struct ReplaySetting<'a> {
    /// `None` for each session's own model.
    model: Option<&'a Profile>,
    /// `None` for the most that the model takes.
    limit: Option<RequestRoom>,
    cache: CacheMode,
}

impl ReplaySetting<'_> {
    fn asks_the_same(&self, other: &Self) -> bool {
        self.model.map(|profile| &profile.name) == other.model.map(|profile| &profile.name)
    }
}

pub(crate) fn run(
    args: &ReplayArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let profiles = read_profiles(args.profiles.as_deref())?;
    let settings = settings(args, &profiles)?;
    if args.dump.is_some() && settings.len() != 1 {
        bail!("--dump writes one request a call: give one model, one budget and one kind of cache");
    }
    let (places, unread) = ReplayLocation::from_names(&args.names)?;
    args.svg.as_deref().map(|path| picture::check(path, &places)).transpose()?;
    let replay = ThreadReplayer {
        args,
        profiles: &profiles,
        contenders: contenders(args)?,
        settings,
        dump: args.dump.as_deref().map(|folder| RequestDump::new(folder, &places)).transpose()?,
        draws: args.svg.is_some() || !(out.is_json() || args.csv),
    };
    let mut report = ReplayReport::new(&replay.contenders, &replay.settings, unread);
    for_all(
        &places,
        ReplayLocation::name,
        |place| replay.replay_all(place, store),
        |place, outcomes| {
            match outcomes {
                Ok(outcomes) => report.add(outcomes),
                Err(error) => report.unread(format!("{}: {error:#}", place.name())),
            }
            Ok(())
        },
    )?;
    let wanted =
        ReplayReportOptions { csv: args.csv, plot: args.plot, svg: args.svg.as_deref(), drift: args.drift };
    report.print(&wanted, &mut out)?;
    Ok(report.exit_code())
}

fn contenders(args: &ReplayArgs) -> anyhow::Result<Vec<ReplayCandidate>> {
    let baselines = ReplayCandidate::baselines();
    let mut found: Vec<ReplayCandidate> = Vec::new();
    for name in &args.policy {
        match baselines.iter().find(|baseline| baseline.name() == name) {
            _ if name == "all" => found.extend(ReplayCandidate::all()),
            Some(baseline) => found.push(baseline.clone()),
            None => found.push(policy(name, &baselines, &found)?),
        }
    }
    let mut names = BTreeSet::new();
    found.retain(|contender| names.insert(contender.name().to_owned()));
    if args.summariser == SummaryAuthorArg::Session {
        for contender in &mut found {
            // A baseline that asks a model waits for it, as agents without a policy do.
            if contender.writer == CandidateSummariser::BuiltIn {
                contender.writer = CandidateSummariser::Background;
            }
        }
    }
    Ok(found)
}

/// Finds a policy by its name or in a file. A changed policy that still has the name of another is named
/// after its file.
pub(in crate::cli) fn policy(
    name: &str,
    baselines: &[ReplayCandidate],
    found: &[ReplayCandidate],
) -> anyhow::Result<ReplayCandidate> {
    let mut policy = policies::find(name).map_err(|error| match error.downcast_ref() {
        Some(PolicyError::Unknown { known, .. }) => {
            let baselines: Vec<&str> = baselines.iter().map(ReplayCandidate::name).collect();
            anyhow!(
                "there is no policy `{name}`: name policies ({}), baselines ({}), all, or a file (NAME.toml)",
                known.join(", "),
                baselines.join(", ")
            )
        }
        _ => error,
    })?;
    let known = found.iter().chain(baselines).map(|contender| &contender.policy).chain(Policy::builtin());
    if known.filter(|known| known.name == policy.name).any(|known| *known != policy) {
        name.clone_into(&mut policy.name);
    }
    Ok(ReplayCandidate::of(policy))
}

fn settings<'a>(args: &ReplayArgs, profiles: &'a Profiles) -> anyhow::Result<Vec<ReplaySetting<'a>>> {
    let mut models = Vec::new();
    for model in &args.model {
        let profile = profiles.find(model);
        models.push(Some(profile.with_context(|| {
            format!(
                "--model {model} is not known: epitome models lists those that are, --profiles FILE adds others"
            )
        })?));
    }
    let requests = args.budget.iter().map(|tokens| RequestRoom::Request(Tokens(*tokens)));
    let windows = args.window.iter().map(|tokens| RequestRoom::Window(Tokens(*tokens)));
    let limits = or_one(requests.chain(windows).map(Some).collect());
    let mut settings = Vec::new();
    for model in or_one(models) {
        for limit in &limits {
            settings.extend(args.cache.iter().map(|cache| ReplaySetting {
                model,
                limit: *limit,
                cache: *cache,
            }));
        }
    }
    Ok(settings)
}

/// One setting that leaves the choice to each session, if none was given.
fn or_one<T>(given: Vec<Option<T>>) -> Vec<Option<T>> {
    if given.is_empty() { vec![None] } else { given }
}
