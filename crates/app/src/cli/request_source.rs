//! Arguments of `compact`, `context`, `explain` and `diff`: a session or a file, a model, a budget.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum, builder::PossibleValue};
use epitome::{
    call_settings::TargetModel,
    compact,
    core::{
        Tokens,
        budget::Budget,
        context::EventNaming,
        policy::{Policy, PolicyError},
        profile::{ModelWindow, Profile, Profiles},
        projection::EventLine,
        summary::SummaryFocus,
        turn::TurnBuilder,
    },
    queries::{SessionLine, session_line},
    request_plan::{RequestPlan, RequestSettings},
    simulate::PolicyActions,
    store::{LAST_SESSION, Store},
    token_margin::TokenMargin,
    wire::{
        Format,
        transcripts::{self, ResumableAgent, TranscriptLimits},
    },
};

use super::{
    agent_folders::{self, FoundSession, SessionSearchArgs},
    policies,
    store_lookup::{self, DatabaseLocation},
    text_format,
};
use crate::{
    config::session_settings::read_profiles,
    units::{TokenAmount, parse_amount},
};

/// Options of a view.
#[derive(Args, Clone)]
pub(crate) struct ViewArgs {
    /// Largest size of the request in tokens, by the provider's count: `50000`, `50k`, `1.5M`, or `45%` of
    /// the model's window. By default the window less room for an answer.
    #[arg(long, value_name = "N", value_parser = parse_amount, allow_hyphen_values = true)]
    pub(crate) budget: Option<TokenAmount>,

    /// Model to write for; by default the one that answered last. `epitome models` lists the known models.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Format to write; by default the format of the messages, or that of the model's provider. `structured`
    /// writes a summary by sections instead of a request: goals, work done, decisions, attempts, errors and
    /// next steps.
    #[arg(long, value_enum)]
    pub(crate) format: Option<OutputFormat>,

    /// Policy to apply, by name or file, as if it had been in use from the first call on; `fit` only makes
    /// the messages fit the budget, whatever was sent before. `compact` applies the default policy unless
    /// told otherwise, the other commands `fit`. `epitome policies` explains the policies.
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Option<String>,

    /// File of model profiles that add to the built-in ones or override them.
    #[arg(long, value_name = "FILE", env = "EPITOME_PROFILES", hide_env_values = true)]
    pub(crate) profiles: Option<PathBuf>,
}

/// Kind of output: a request, or a summary by sections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Request(FormatArg),
    Structured,
}

impl ValueEnum for OutputFormat {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<OutputFormat>> = LazyLock::new(|| {
            let requests = FormatArg::value_variants().iter().map(|format| OutputFormat::Request(*format));
            requests.chain([OutputFormat::Structured]).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Request(format) => format.to_possible_value(),
            Self::Structured => Some(
                PossibleValue::new("structured").help("A summary by sections, as Markdown, and no request"),
            ),
        }
    }
}

/// A provider's format, by its name on the command line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FormatArg(Format);

impl ValueEnum for FormatArg {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<FormatArg>> =
            LazyLock::new(|| Format::ALL.into_iter().map(FormatArg).collect());
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.title()))
    }
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        format.0
    }
}

/// A line of events to make a view of, with its origin.
#[derive(Clone)]
pub(crate) struct RequestSource {
    pub(crate) line: EventLine,
    pub(crate) names: EventNaming,
    /// Name of the source for people.
    pub(crate) title: String,
    /// True if the session itself has this title.
    pub(crate) is_titled: bool,
    /// Agent that made the session, if its sessions can be written.
    pub(crate) agent: Option<ResumableAgent>,
    /// The transcript that it was read from.
    pub(crate) file: Option<PathBuf>,
    /// Folder that the agent worked in, if known.
    pub(crate) directory: Option<PathBuf>,
    /// Name of the counter whose token counts the log keeps.
    pub(crate) counted_by: Option<String>,
    /// Window that its calls were made for, if one was configured, for instance in a gateway.
    pub(crate) window: Option<Tokens>,
}

/// A view to be made, with defaults filled in.
pub(crate) struct RequestSpec {
    pub(crate) plan: RequestPlan,
    pub(crate) names: EventNaming,
    /// Name of the source for people.
    pub(crate) title: String,
    pub(crate) budget: Budget,
    /// Part of the budget that stays free.
    pub(crate) margin: TokenMargin,
    /// Assumptions, for people to read.
    pub(crate) notes: Vec<String>,
    /// Policy to apply, if there is one.
    pub(crate) policy: Option<Policy>,
    /// Focus of its summaries.
    pub(crate) focus: Option<SummaryFocus>,
    /// True if a summary found something about the focus.
    pub(crate) is_focus_applied: bool,
    /// Result of the policy in each call.
    pub(crate) rehearsed: Option<PolicySimulation>,
}

/// Result of a policy in a session.
pub(crate) struct PolicySimulation {
    pub(crate) calls: u64,
    pub(crate) refused: u64,
    pub(crate) passes: Vec<PolicyActions>,
    /// True if its next request was made of the whole session at once.
    pub(crate) made_anew: bool,
}

impl RequestSource {
    /// Finds a file of this name, or else a session of the store, up to what the model saw when it made turn
    /// `at`.
    pub(crate) fn find(name: &str, at: Option<&str>, store: &DatabaseLocation) -> anyhow::Result<Self> {
        let source = if name == LAST_SESSION {
            Self::newest_anywhere(store)?
        } else if is_file(name)? {
            Some(Self::of_file(Path::new(name))?)
        } else {
            None
        };
        if let Some(source) = source {
            return match at {
                None => Ok(source),
                Some(turn) => source.before(turn),
            };
        }
        let store = store.open_existing()?;
        Self::of_session(&*store, name, at)
    }

    /// Reads a session's head thread, up to what the model saw when it made turn `at`.
    fn of_session(store: &dyn Store, name: &str, at: Option<&str>) -> anyhow::Result<Self> {
        let session = store.find_session(name)?;
        let thread = store_lookup::thread(store, &session, None)?;
        let last = match at {
            None => None,
            Some(turn) => {
                Some(store_lookup::turn(thread.id, &store.turns(thread.id)?, turn)?.1.turn.id.seq.previous())
            }
        };
        let SessionLine { line, names, counted_by, window } = session_line(store, thread.id, last)?;
        let agent = ResumableAgent::named(&session.source);
        let is_titled = !session.title.is_empty();
        Ok(Self {
            line,
            names,
            title: session.title,
            is_titled,
            agent,
            file: None,
            directory: None,
            counted_by,
            window,
        })
    }

    /// Reads the newest session of any agent, or if there is none leaves it to the store, if there is one.
    fn newest_anywhere(store: &DatabaseLocation) -> anyhow::Result<Option<Self>> {
        let search = SessionSearchArgs::default();
        match agent_folders::find(&search)? {
            Some(found) => Ok(Some(Self::of_found(found)?)),
            None if store.open_if_exists()?.is_some() => Ok(None),
            None => Err(agent_folders::nothing_found(&search)),
        }
    }

    /// Reads the newest session of any agent.
    pub(crate) fn newest(search: &SessionSearchArgs) -> anyhow::Result<Self> {
        let found = agent_folders::find(search)?;
        Self::of_found(found.ok_or_else(|| agent_folders::nothing_found(search))?)
    }

    fn of_found(found: FoundSession) -> anyhow::Result<Self> {
        let source = Self::of_bytes(&found.path, &found.bytes()?)?;
        // One session of a database is nothing to read.
        let file = source.file.clone().filter(|_| found.key.is_none());
        Ok(Self { directory: found.directory, file, ..source })
    }

    /// Reads the one session in a file, by its head thread.
    fn of_file(path: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let source = Self::of_bytes(path, &bytes)?;
        Ok(Self { directory: agent_folders::directory_of(path, &bytes), ..source })
    }

    /// Reads the one session in the contents of a file.
    fn of_bytes(path: &Path, bytes: &[u8]) -> anyhow::Result<Self> {
        let reading = transcripts::read(&path.to_string_lossy(), bytes, &TranscriptLimits::default())
            .with_context(|| format!("cannot read {}", path.display()))?;
        let [session] = reading.sessions.as_slice() else {
            bail!(
                "{} holds {} sessions: import it, then name one of them",
                path.display(),
                reading.sessions.len()
            );
        };
        let line = compact::line(session.thread_events(session.head));
        Ok(Self {
            names: compact::numbered(&line),
            line,
            title: session.title.clone().unwrap_or_else(|| path.display().to_string()),
            is_titled: session.title.is_some(),
            agent: ResumableAgent::of_format(reading.format),
            file: path.canonicalize().ok(),
            directory: None,
            counted_by: None,
            window: None,
        })
    }

    /// Cuts a file to the part that the model saw when it made a turn, which is named by its number (from 1),
    /// or as stubs name any message of it.
    fn before(self, name: &str) -> anyhow::Result<Self> {
        let turns = TurnBuilder::of(self.line.events().map(AsRef::as_ref));
        let found = if let Ok(number) = name.parse::<usize>() {
            number.checked_sub(1).and_then(|index| turns.get(index))
        } else {
            let Some(seq) = self.names.handles_in(name).first() else {
                bail!("`{name}` names no turn: give its number, from 1, or a message of it as stubs do");
            };
            turns.iter().find(|turn| (turn.first..=turn.last).contains(&seq))
        };
        let Some(turn) = found else {
            bail!(
                "there is no turn `{name}`: the file has {}",
                text_format::count(turns.len() as u64, "turn")
            );
        };
        let seen = self.line.events().filter(|event| event.id.seq < turn.id.seq).cloned();
        Ok(Self { line: EventLine::new(seen), ..self })
    }
}

/// Returns true if the name is a file's and false if it is a session's; a name that can only be a file's must
/// exist. The newest session of an agent is a file's.
pub(crate) fn is_file(name: &str) -> anyhow::Result<bool> {
    if name == LAST_SESSION {
        return Ok(true);
    }
    let path = Path::new(name);
    if !path.is_file() && looks_like_a_path(name) && !path.exists() {
        bail!("there is no file {name}");
    }
    Ok(path.is_file())
}

fn looks_like_a_path(name: &str) -> bool {
    let known = ["json", "jsonl", "traj", "zst"];
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    name.contains('/') || extension.is_some_and(|extension| known.contains(&extension))
}

/// Name of no policy at all: messages are cut and left out until the rest fits.
pub(crate) const FIT_POLICY: &str = "fit";

/// Finds a policy by its name or in a file. The error lists `fit` among the known policies.
fn find_policy(name: &str) -> anyhow::Result<Policy> {
    policies::find(name).map_err(|error| match error.downcast::<PolicyError>() {
        Ok(PolicyError::Unknown { name, mut known }) => {
            known.push(FIT_POLICY.to_owned());
            PolicyError::Unknown { name, known }.into()
        }
        Ok(other) => other.into(),
        Err(error) => error,
    })
}

impl ViewArgs {
    /// Options that only name a budget, a format and profiles.
    pub(crate) fn of(budget: TokenAmount, format: Option<Format>, profiles: Option<PathBuf>) -> Self {
        let format = format.map(|format| OutputFormat::Request(FormatArg(format)));
        Self { budget: Some(budget), model: None, format, policy: None, profiles }
    }

    /// These options, with `policy` unless another policy was named.
    pub(crate) fn with_default_policy(&self, policy: &str) -> Self {
        Self { policy: Some(self.policy.clone().unwrap_or_else(|| policy.to_owned())), ..self.clone() }
    }

    /// Returns true if a summary by sections is wanted instead of a request.
    pub(crate) fn is_structured(&self) -> bool {
        self.format == Some(OutputFormat::Structured)
    }

    /// All profiles, including the user's.
    pub(crate) fn profiles(&self) -> anyhow::Result<Profiles> {
        read_profiles(self.profiles.as_deref())
    }

    /// Fills in missing options from the source.
    pub(crate) fn resolve(&self, source: RequestSource) -> anyhow::Result<RequestSpec> {
        let format = match self.format {
            None => None,
            Some(OutputFormat::Request(format)) => Some(Format::from(format)),
            Some(OutputFormat::Structured) => {
                bail!("--format structured is a summary and no request: `compact` and `context` write it")
            }
        };
        let asked = RequestSettings { model: self.model.clone(), format };
        let RequestSource { line, names, title, counted_by, window, .. } = source;
        let plan = RequestPlan::new(line, counted_by.as_deref(), &asked, &self.profiles()?)
            .map_err(|unknown| anyhow!("{unknown}, in a file that --profiles names"))?;
        let mut notes = Vec::new();
        if let (Some(model), None) = (&plan.model, &plan.profile) {
            notes.push(format!(
                "the model {model} is not known here (epitome models): its window and prices are not guessed, and \
                 tokens are counted as o200k"
            ));
        }
        if let Some(lacking) = plan.missing_part() {
            notes.push(format!(
                "the request says no `{lacking}`: add it before you send it, or say --{lacking}"
            ));
        }
        let (budget, margin) = self.budget(&plan, window, &mut notes)?;
        let policy =
            self.policy.as_deref().filter(|name| *name != FIT_POLICY).map(find_policy).transpose()?;
        Ok(RequestSpec {
            plan,
            names,
            title,
            budget,
            margin,
            notes,
            policy,
            focus: None,
            is_focus_applied: false,
            rehearsed: None,
        })
    }

    fn budget(
        &self,
        plan: &RequestPlan,
        given: Option<Tokens>,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<(Budget, TokenMargin)> {
        // A model other than the session's has a window of its own.
        let given = given.filter(|_| self.model.is_none());
        let known = plan.profile.as_ref().and_then(|profile| match (profile.window, given) {
            (ModelWindow::Of(tokens), Some(given)) if given < tokens => Some((within(profile, given), given)),
            (ModelWindow::Of(tokens), _) => Some((profile.clone(), tokens)),
            (ModelWindow::Unknown | ModelWindow::Unlimited, Some(given)) => {
                Some((within(profile, given), given))
            }
            (ModelWindow::Unknown | ModelWindow::Unlimited, None) => None,
        });
        match (self.budget, known) {
            (Some(TokenAmount::Tokens(tokens)), _) => Ok(plan.trust.budget_within(Tokens(tokens))),
            (Some(TokenAmount::Percent(share)), Some((_, window))) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "a share of a window is a window at most"
                )]
                let tokens = (window.0 as f64 * share / 100.0) as u64;
                Ok(plan.trust.budget_within(Tokens(tokens)))
            }
            (Some(TokenAmount::Percent(_)), None) => {
                bail!("a share needs a model whose window is known: say --model, or a number of tokens")
            }
            (None, Some((profile, window))) => {
                let (budget, margin) = plan.trust.whole_window(&profile);
                let whose = if given == Some(window) { " that its calls were made for" } else { "" };
                notes.push(format!(
                    "no budget was given: the window of {window} tokens{whose} less room for an answer is taken; above \
                     {} tokens a compaction goes down to {}",
                    budget.trigger(),
                    budget.target(),
                ));
                Ok((budget, margin))
            }
            // Only the window of an unknown model is known: a quarter of it is left for the answer, or less
            // if that is the usual room.
            (None, None) if let Some(window) = given => {
                let limit = TargetModel::new(plan.format, None).input_limit(given, None).unwrap_or(window);
                let answer = window.less(limit);
                notes.push(format!(
                    "no budget was given: the window of {window} tokens that its calls were made for less {answer} for an \
                     answer is taken"
                ));
                Ok(plan.trust.budget_within(limit))
            }
            (None, None) => {
                bail!("say how much the request may hold: --budget 50k, or --model with --budget 45%")
            }
        }
    }
}

/// A model's profile with a configured window.
fn within(profile: &Profile, window: Tokens) -> Profile {
    Profile { window: ModelWindow::Of(window), ..profile.clone() }
}
