//! Arguments and runtime of commands that change a session: the thread, the model and the summariser.
//! Commands that only read need none of it.

use std::{future::Future, path::PathBuf, sync::Arc};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use epitome::{
    core::{
        ThreadId, Tokens,
        policy::Policy,
        profile::{Prices, Profiles, Window},
    },
    plan::{last_model_of, native_format_of},
    session::{Lifecycle, Session, SessionError, Workers},
    store::{
        Sqlite,
        records::{SessionRow, ThreadRow},
    },
    summarise::{Key, Remote},
    wire::Format,
};
use tokio::runtime::{Builder, Runtime};

use super::{
    open,
    output::{DIM, NOTE},
    view::{Amount, FormatArg, parse_amount},
};

/// A session and its thread, as named on the command line.
#[derive(Args, Clone)]
pub(crate) struct Named {
    /// Session: its id, the start or the last eight digits of it, or its title.
    pub(crate) session: String,

    /// Thread; by default the session's current thread.
    #[arg(long)]
    pub(crate) thread: Option<String>,
}

impl Named {
    pub(crate) fn find(&self, store: &Sqlite) -> anyhow::Result<(SessionRow, ThreadRow)> {
        let session = store.find_session(&self.session)?;
        let thread = open::thread(store, &session, self.thread.as_deref())?;
        Ok((session, thread))
    }
}

/// Options of the summariser.
#[derive(Args, Clone)]
#[command(next_help_heading = "Who summarises")]
pub(crate) struct SummariserArgs {
    /// URL of a model that writes the summary, such as `http://127.0.0.1:8080/v1`. By default the built-in
    /// summariser writes it, without any model.
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
    #[arg(long, value_name = "N", value_parser = parse_amount, requires = "summariser")]
    summariser_window: Option<Amount>,

    /// Environment variable that holds its key. The key itself is never an argument.
    #[arg(long, value_name = "NAME", requires = "summariser", conflicts_with = "key_file")]
    key_env: Option<String>,

    /// File that holds its key.
    #[arg(long, value_name = "PATH", requires = "summariser")]
    key_file: Option<PathBuf>,
}

/// Window of a summariser about which nothing is known.
const USUAL_WINDOW: Tokens = Tokens(32_000);

impl SummariserArgs {
    /// Connects to the model, if one is named.
    fn build(&self, profiles: &Profiles) -> anyhow::Result<Option<(Remote, Option<Prices>)>> {
        let (Some(address), Some(model)) = (&self.summariser, &self.summariser_model) else {
            return Ok(None);
        };
        let profile = profiles.find(model).ok();
        let known = profile.and_then(|profile| match profile.window {
            Window::Of(tokens) => Some(tokens),
            Window::Unknown | Window::Unlimited => None,
        });
        let window = match self.summariser_window {
            Some(Amount::Tokens(tokens)) => Tokens(tokens),
            Some(Amount::Percent(_)) => bail!("--summariser-window is a number of tokens, such as 32k"),
            None => known.unwrap_or(USUAL_WINDOW),
        };
        let format = self.summariser_format.map_or(Format::OpenaiChat, Format::from);
        let mut remote = Remote::builder(format, address, model, window);
        if let Some(key) = self.key()? {
            remote = remote.key(key);
        }
        Ok(Some((remote.build()?, profile.map(|profile| profile.prices))))
    }

    fn key(&self) -> anyhow::Result<Option<Key>> {
        if let Some(path) = &self.key_file {
            return Ok(Some(Key::from_file(path)?));
        }
        let Some(name) = &self.key_env else { return Ok(None) };
        // A key that was given in place of a variable's name must not reach a log.
        let is_plain = name.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
        match Key::from_env(name) {
            Err(_) if !is_plain => {
                bail!("--key-env names no variable that holds a key: give the name of one, and the key in it")
            }
            key => Ok(Some(key?)),
        }
    }
}

/// Options for opening a session.
pub(crate) struct Opening {
    /// Model; by default the one that was asked or answered last.
    pub(crate) model: Option<String>,
    pub(crate) format: Option<Format>,
    pub(crate) profiles: Profiles,
    /// Policy; by default the default one.
    pub(crate) policy: Option<Policy>,
}

impl Default for Opening {
    fn default() -> Self {
        Self { model: None, format: None, profiles: Profiles::builtin(), policy: None }
    }
}

/// A session that is open while a command runs.
pub(crate) struct Live {
    pub(crate) session: Session,
    runtime: Runtime,
}

impl Live {
    /// Opens a thread. This starts no worker and sends no request.
    pub(crate) fn open(
        store: &Arc<Sqlite>,
        thread: ThreadId,
        opening: Opening,
        summariser: Option<&SummariserArgs>,
    ) -> anyhow::Result<Self> {
        let Opening { model, format, profiles, policy } = opening;
        if let Some(model) = &model {
            profiles.find(model).map_err(|unknown| anyhow!("{unknown}, in a file that --profiles names"))?;
        }
        let spoken = Spoken::of(store, thread)?;
        let format = format.or(spoken.format).unwrap_or(Format::OpenaiChat);
        let model = model.or(spoken.model).unwrap_or_default();
        let asked = summariser.map(|summariser| summariser.build(&profiles)).transpose()?.flatten();
        let mut builder = Session::builder(format, &model)
            .store(Arc::clone(store))
            .profiles(profiles)
            .workers(Workers::Elsewhere);
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
    pub(crate) fn of(store: &Arc<Sqlite>, named: &Named) -> anyhow::Result<(SessionRow, Self)> {
        let (session, thread) = named.find(store)?;
        Ok((session, Self::open(store, thread.id, Opening::default(), None)?))
    }

    /// Runs an operation and waits for it.
    pub(crate) fn wait<T>(
        &self,
        work: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        self.runtime.block_on(work)
    }

    /// Runs an operation and waits for it, and reports the progress of summaries on standard error.
    pub(crate) fn watch<T>(
        &self,
        work: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        let mut events = self.session.events();
        let done = self.runtime.block_on(async {
            tokio::pin!(work);
            loop {
                tokio::select! {
                    done = &mut work => return done,
                    Ok(happened) = events.recv() => tell(&happened),
                }
            }
        });
        while let Ok(happened) = events.try_recv() {
            tell(&happened);
        }
        done
    }

    /// Waits for some time.
    pub(crate) fn rest(&self, time: std::time::Duration) {
        // A timer can only be created inside the runtime.
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }
}

fn tell(happened: &Lifecycle) {
    match happened {
        Lifecycle::Started { .. } | Lifecycle::Ended { .. } => anstream::eprintln!("{DIM}{happened}{DIM:#}"),
        Lifecycle::Failed { .. } | Lifecycle::NotesFailed { .. } | Lifecycle::Thrashing { .. } => {
            anstream::eprintln!("{NOTE}note:{NOTE:#} {happened}");
        }
        // The command itself reports these.
        Lifecycle::Adopted { .. } | Lifecycle::Reverted { .. } | Lifecycle::Restored { .. } => {}
    }
}

/// Model and format of a thread, from its last call or else from its messages.
struct Spoken {
    model: Option<String>,
    format: Option<Format>,
}

impl Spoken {
    fn of(store: &Sqlite, thread: ThreadId) -> anyhow::Result<Self> {
        let last = store.last_call(thread)?.map(|row| (row.call.model, row.call.format.parse().ok()));
        if let Some((model @ Some(_), format @ Some(_))) = last {
            return Ok(Self { model, format });
        }
        let events = open::events(store, thread, None)?;
        let events = || events.iter().map(|logged| &logged.event);
        Ok(Self { model: last_model_of(events()), format: native_format_of(events()) })
    }
}
