//! Arguments and runtime of commands that change a session: the thread, the model and the summariser.
//! Commands that only read need none of it.

use std::{future::Future, path::PathBuf, sync::Arc};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use epitome::{
    core::{
        ThreadId, Tokens,
        policy::Policy,
        profile::{ModelWindow, Profiles, TokenPrices},
    },
    queries::ModelAndFormat,
    session::{LifecycleEvent, Session, SessionBuilder, SessionError, SummaryWorkers},
    store::{
        Store,
        records::{SessionRow, ThreadRow},
    },
    summarise::{ApiKey, RemoteSummariser},
    wire::Format,
};
use tokio::runtime::{Builder, Runtime};

use super::{
    output::{DIM, NOTE},
    policies,
    request_source::FormatArg,
    store_lookup,
};
use crate::{
    config::{
        CompactModeConfig, ConfiguredSummariser,
        session_settings::{SessionSettings, read_profiles},
    },
    gateway::summariser::remote,
    units::parse_tokens,
};

/// A session and its thread, as named on the command line.
#[derive(Args, Clone)]
pub(crate) struct ThreadArgs {
    /// Session: its id, the start or the last eight digits of it, or its title.
    pub(crate) session: String,

    /// Thread; by default the session's current thread.
    #[arg(long)]
    pub(crate) thread: Option<String>,
}

impl ThreadArgs {
    pub(crate) fn find(&self, store: &dyn Store) -> anyhow::Result<(SessionRow, ThreadRow)> {
        let session = store.find_session(&self.session)?;
        let thread = store_lookup::thread(store, &session, self.thread.as_deref())?;
        Ok((session, thread))
    }
}

/// Options of the summariser.
#[derive(Args, Clone)]
#[command(next_help_heading = "Who summarises")]
pub(crate) struct SummariserArgs {
    /// URL of a model that writes the summary, such as `http://127.0.0.1:8080/v1`. Without it the configuration
    /// file's summariser is used, else the built-in one, which asks no model. Under the default policy a model with
    /// known prices writes what is asked for (a command, a handoff, the `compact` tool), and automatic summaries only
    /// where code misses the target (`paid` in a policy's `[summary]`).
    #[arg(long, value_name = "URL", requires = "summariser_model")]
    pub(crate) summariser: Option<String>,

    /// Model to ask at that URL.
    #[arg(long, value_name = "NAME", requires = "summariser")]
    summariser_model: Option<String>,

    /// Format of its API; by default OpenAI's Chat Completions, which most servers understand.
    #[arg(long, value_name = "FORMAT", value_enum, requires = "summariser")]
    summariser_format: Option<FormatArg>,

    /// Its context window in tokens, including the answer; by default the known window of the model, or 32k.
    /// A longer span is summarised in pieces.
    #[arg(long, value_name = "N", value_parser = parse_tokens, requires = "summariser")]
    summariser_window: Option<u64>,

    /// Environment variable that holds its key. The key itself is never an argument.
    #[arg(long, value_name = "NAME", requires = "summariser", conflicts_with = "key_file")]
    key_env: Option<String>,

    /// File that holds its key.
    #[arg(long, value_name = "PATH", requires = "summariser")]
    key_file: Option<PathBuf>,
}

/// Window of a summariser about which nothing is known.
const DEFAULT_SUMMARISER_WINDOW: Tokens = Tokens(32_000);

impl SummariserArgs {
    /// Connects to the model, if one is named.
    fn build(&self, profiles: &Profiles) -> anyhow::Result<Option<(RemoteSummariser, Option<TokenPrices>)>> {
        let (Some(address), Some(model)) = (&self.summariser, &self.summariser_model) else {
            return Ok(None);
        };
        let profile = profiles.find(model).ok();
        let known = profile.and_then(|profile| match profile.window {
            ModelWindow::Of(tokens) => Some(tokens),
            ModelWindow::Unknown | ModelWindow::Unlimited => None,
        });
        let window = match self.summariser_window {
            Some(tokens) => Tokens(tokens),
            None => known.unwrap_or(DEFAULT_SUMMARISER_WINDOW),
        };
        let format = self.summariser_format.map_or(Format::OpenaiChat, Format::from);
        let mut remote = RemoteSummariser::builder(format, address, model, window);
        if let Some(key) = self.key()? {
            remote = remote.key(key);
        }
        Ok(Some((remote.build()?, profile.map(|profile| profile.prices))))
    }

    fn key(&self) -> anyhow::Result<Option<ApiKey>> {
        if let Some(path) = &self.key_file {
            return Ok(Some(ApiKey::from_file(path)?));
        }
        let Some(name) = &self.key_env else { return Ok(None) };
        // A key that was given in place of a variable's name must not reach a log.
        let is_plain = name.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
        match ApiKey::from_env(name) {
            Err(_) if !is_plain => {
                bail!("--key-env names no variable that holds a key: give the name of one, and the key in it")
            }
            key => Ok(Some(key?)),
        }
    }
}

/// Options for opening a session.
pub(crate) struct SessionOpenOptions {
    /// Model; by default the one that was asked or answered last.
    pub(crate) model: Option<String>,
    pub(crate) format: Option<Format>,
    pub(crate) profiles: Profiles,
    /// Policy; by default the default one.
    pub(crate) policy: Option<Policy>,
    /// Who summarises, and how, as a configuration says.
    pub(crate) compact: CompactModeConfig,
}

impl Default for SessionOpenOptions {
    fn default() -> Self {
        let compact = CompactModeConfig::default();
        Self { model: None, format: None, profiles: Profiles::builtin(), policy: None, compact }
    }
}

impl SessionOpenOptions {
    /// As a configuration says.
    pub(crate) fn configured(settings: SessionSettings) -> anyhow::Result<Self> {
        let SessionSettings { policy, profiles, compact } = settings;
        let policy = policy.map(|name| policies::find(&name)).transpose()?;
        let profiles = read_profiles(profiles.as_deref())?;
        Ok(Self { model: None, format: None, profiles, policy, compact })
    }
}

/// A session that is open while a command runs.
pub(crate) struct BlockingSession {
    pub(crate) session: Session,
    runtime: Runtime,
}

impl BlockingSession {
    /// Opens a thread. This starts no worker and sends no request.
    pub(crate) fn open(
        store: &Arc<dyn Store>,
        thread: ThreadId,
        opening: SessionOpenOptions,
        summariser: Option<&SummariserArgs>,
    ) -> anyhow::Result<Self> {
        let SessionOpenOptions { model, format, profiles, policy, compact } = opening;
        if let Some(model) = &model {
            profiles.find(model).map_err(|unknown| anyhow!("{unknown}, in a file that --profiles names"))?;
        }
        let spoken = ModelAndFormat::of(&**store, thread)?;
        let format = format.or(spoken.format).unwrap_or(Format::OpenaiChat);
        let model = model.or(spoken.model).unwrap_or_default();
        let asked = summariser.map(|summariser| summariser.build(&profiles)).transpose()?.flatten();
        let mut builder =
            Session::builder(format, &model).store(Arc::clone(store)).workers(SummaryWorkers::Elsewhere);
        if let Some(folder) = &compact.memory_files {
            let session = store.thread(thread)?.session;
            builder = builder.memory_files(folder.join(session.to_string()));
        }
        // Whoever summarises, the configuration says what summaries attend to.
        builder = builder.instructions(compact.instructions.clone());
        // Without a flag, who summarises is the configuration's choice.
        if summariser.is_some() && asked.is_none() {
            builder = with_summarisers(builder, compact, &profiles)?;
        }
        builder = builder.profiles(profiles);
        if let Some(policy) = &policy {
            builder = builder.policy(policy);
        }
        if let Some((remote, prices)) = asked {
            builder = builder.summariser(remote);
            if let Some(prices) = prices {
                builder = builder.summariser_prices(prices);
            }
        }
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
        let session = runtime.block_on(builder.resume_thread(thread))?;
        Ok(Self { session, runtime })
    }

    /// Opens the thread of a named session, as it is.
    pub(crate) fn of(store: &Arc<dyn Store>, named: &ThreadArgs) -> anyhow::Result<(SessionRow, Self)> {
        let (session, thread) = named.find(&**store)?;
        Ok((session, Self::open(store, thread.id, SessionOpenOptions::default(), None)?))
    }

    /// Runs an operation and waits for it.
    pub(crate) fn wait<T>(
        &self,
        work: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        self.runtime.block_on(work)
    }

    /// Runs an operation and waits for it, and reports the progress of summaries on standard error.
    pub(crate) fn block_on_with_progress<T>(
        &self,
        work: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        let mut events = self.session.events();
        let done = self.runtime.block_on(async {
            tokio::pin!(work);
            loop {
                tokio::select! {
                    done = &mut work => return done,
                    Ok(happened) = events.recv() => print_lifecycle(&happened),
                }
            }
        });
        while let Ok(happened) = events.try_recv() {
            print_lifecycle(&happened);
        }
        done
    }

    /// Waits for some time.
    pub(crate) fn sleep(&self, time: std::time::Duration) {
        // A timer can only be created inside the runtime.
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }
}

/// A session with the summarisers of a configuration.
fn with_summarisers(
    mut builder: SessionBuilder,
    compact: CompactModeConfig,
    profiles: &Profiles,
) -> anyhow::Result<SessionBuilder> {
    let (time, window) = (compact.summary_time(), compact.window.map(Tokens));
    if matches!(compact.summariser, ConfiguredSummariser::Session) {
        // Only a client's request brings the key of a session's own model.
        anstream::eprintln!(
            "{NOTE}note:{NOTE:#} a session's own model can only be asked by the gateway: the built-in summariser writes"
        );
    }
    if let ConfiguredSummariser::Model { model, .. } = &compact.summariser
        && let Ok(profile) = profiles.find(model)
    {
        builder = builder.summariser_prices(profile.prices);
    }
    if let Some(remote) = remote(compact.summariser, time, window, profiles)? {
        builder = builder.summariser(remote);
    }
    let careful = compact.careful.map(|careful| remote(careful, time, window, profiles));
    if let Some(remote) = careful.transpose()?.flatten() {
        builder = builder.careful_summariser(remote);
    }
    Ok(builder)
}

fn print_lifecycle(happened: &LifecycleEvent) {
    match happened {
        LifecycleEvent::Started { .. } | LifecycleEvent::Ended { .. } => {
            anstream::eprintln!("{DIM}{happened}{DIM:#}");
        }
        LifecycleEvent::Failed { .. }
        | LifecycleEvent::NotesFailed { .. }
        | LifecycleEvent::Thrashing { .. } => {
            anstream::eprintln!("{NOTE}note:{NOTE:#} {happened}");
        }
        // The command itself reports these.
        LifecycleEvent::Adopted { .. }
        | LifecycleEvent::Reverted { .. }
        | LifecycleEvent::Restored { .. } => {}
    }
}
