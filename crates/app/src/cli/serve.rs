//! `serve`: runs the gateway.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args as ClapArgs;
use epitome::store::{Durability, StoreOptions};
use tokio::runtime::Builder;

use super::{output::CliOutput, policies, store_lookup::DatabaseLocation};
use crate::config::{
    LogFormat, StoreFailureAction, flags::GatewayArgs, session_settings::ConfigPath,
    shown_config::ShownConfig,
};
use crate::gateway::{self, banner::StartupBanner, sealed_summary::SummarySeal, telemetry::TelemetryGuard};

/// Time that a record waits for others to share its commit, when they follow one another closely.
const STORE_BATCH_DELAY: Duration = Duration::from_millis(2);

/// Longest delay of data derived from records.
const LAG: Duration = Duration::from_millis(500);

#[derive(ClapArgs)]
#[command(after_help = "\
Start it, and point an agent at it; the first screen says how for each:

  epitome serve
  ANTHROPIC_BASE_URL=http://127.0.0.1:8787 claude
  epitome sessions                            (what was recorded)

Sessions are recognised by the ids their client sends and by their histories. A script that names them itself sends the
header x-epitome-session with every request: all requests of one name are one session.

What would the default policy have saved?

  epitome serve --mode observe
  curl -s http://127.0.0.1:8787/metrics | grep observed

Keep every agent inside its model's window: what is old leaves the request, a summary stands for it, and the log keeps all:

  epitome serve --mode compact
  epitome serve --mode compact --holdout 0.1  (a tenth of the sessions as they are, to measure what it saves)
  curl -s http://127.0.0.1:8787/epitome/savings

Before a model of your own, on any free port, for a script (its address is the only line on standard output):

  epitome serve --openai-upstream http://127.0.0.1:8080/v1 --listen 127.0.0.1:0 --log json

For a team: tokens, keys and limits in a file. Keys stay in the environment.

  listen = \"0.0.0.0:8787\"
  mode = \"record\"                             # off, record, observe, compact
  policy = \"epitome\"                          # of observe and compact: a name or a file
  on_store_failure = \"fail_open\"              # or fail_closed
  allow = [\"inference\", \"models\"]           # routes; the default where the key is the gateway's, else all
  allow_override = false                      # may headers lower the mode or the window?

  [[upstream]]                                # the first that fits counts
  name = \"local\"
  url = \"http://10.0.0.3:8080/v1\"
  formats = [\"openai-chat\"]                   # openai-chat, openai-responses, anthropic; all by default
  models = [\"qwen*\", \"llama*\"]                # all by default

  [[upstream]]
  name = \"anthropic\"
  url = \"https://api.anthropic.com\"
  key_env = \"ANTHROPIC_API_KEY\"               # shown instead of the client's

  [[token]]
  principal = \"anna\"                          # sees her sessions only
  env = \"ANNA_TOKEN\"                          # or blake3 = \"...\":  printf %s \"$ANNA_TOKEN\" | b3sum
  mode = \"compact\"                           # of her requests; so window, policy, allow, allow_override
  allow = [\"inference\", \"models\", \"GET /v1/files/*\"]

  [routes]
  \"/v1/messages\" = \"observe\"
  \"/v1/responses\" = { mode = \"compact\", window = 64000, policy = \"tiered\" }

  [compact]                                   # how, where the mode is compact
  window = 128000                             # tokens; by default what is known of each model
  holdout = 0.1                               # share of sessions left as they are, 0 to 0.5; 0 by default
  command = \"/compact\"                        # what a user says; none by default: agents such as Claude Code have a
                                              # /compact of their own, which never gets here
  compaction_items = \"gateway\"               # Codex's compaction items are ours, whatever the provider has
  recall = true                               # a tool by which the model gets back what was left out; false by default

  [compact.summariser]                        # use = \"built-in\" (the default), use = \"session\", or a model:
  model = \"gpt-5-mini\"
  url = \"https://api.openai.com/v1\"
  format = \"openai-chat\"                      # the default
  key_env = \"OPENAI_API_KEY\"

  [limits]
  body = \"64MiB\"
  requests = 2048
  answer = \"10m\"

  notice = \"5s\"                               # how long /readyz says that it stops before the port closes

  epitome serve --config gateway.toml --check (is it right?)
  epitome serve --config gateway.toml
  kill -HUP PID                               (read it again)")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    flags: GatewayArgs,

    /// Check the configuration and show the result without secrets, or the error.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(
    args: &ServeArgs,
    config: &ConfigPath,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let environment = |name: &str| std::env::var(name).ok();
    let path = config.path();
    let (config, log) = args.flags.clone().resolve(path, &environment, &policies::find)?;
    let database = store.location()?;
    if args.check {
        let shown = ShownConfig::of(&config, &database);
        if out.is_json() {
            out.object(&shown)?;
        } else {
            out.bytes(shown.to_string().as_bytes())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // The thread that announces the gateway may be another one, and this one holds the lock of standard
    // output.
    drop(out);
    let recorded = if config.records() { Some(store.open_with(options(config.unrecorded))?) } else { None };
    let seal = if config.records() {
        let path = database.beside("seal");
        Some(SummarySeal::at(&path).with_context(|| format!("cannot use the key in {}", path.display()))?)
    } else {
        None
    };
    let runtime = Builder::new_multi_thread().enable_all().build().context("cannot start a runtime")?;
    // Created after the runtime, so that it is dropped before it.
    let _telemetry = TelemetryGuard::start(log, runtime.handle())?;
    let screen = StartupBanner::of(&config, &database);
    let ready = move |address: SocketAddr| {
        match log {
            LogFormat::Text => anstream::eprintln!("{}", screen.at(address)),
            LogFormat::Json => screen.log(address),
        }
        // Scripts read this line. An error is ignored, because a closed standard output means that it is not
        // wanted.
        let _ = writeln!(io::stdout(), "http://{address}").and_then(|()| io::stdout().flush());
    };
    let reload = || {
        let (config, said) = args.flags.clone().resolve(path, &environment, &policies::find)?;
        if said != log {
            tracing::warn!(
                restart = "log",
                "this was changed in the configuration, and takes effect after a restart"
            );
        }
        Ok(config)
    };
    runtime.block_on(gateway::serve(config, (recorded, seal), ready, reload))?;
    Ok(ExitCode::SUCCESS)
}

/// Options of a gateway's store. With `fail_closed`, every record is on disk before the request goes on;
/// otherwise records share commits with later ones, which loses nothing if the process is killed.
fn options(unrecorded: StoreFailureAction) -> StoreOptions {
    match unrecorded {
        StoreFailureAction::Refuse => StoreOptions::default(),
        StoreFailureAction::Forward => StoreOptions {
            durability: Durability::Kill,
            gather: STORE_BATCH_DELAY,
            lag: LAG,
            ..StoreOptions::default()
        },
    }
}
