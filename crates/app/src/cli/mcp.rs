//! `mcp`: the server for agents on this machine, over standard input and output.

use std::{env, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use clap::Args as ClapArgs;
use epitome::queries::SessionAccess;
use rmcp::{ServiceExt, transport::stdio};
use tokio::runtime::Builder;

use super::store_lookup::DatabaseLocation;
use crate::mcp::HistoryServer;

#[derive(ClapArgs)]
#[command(after_help = "\
Tools: search, recall, why, failed, context, pin, compact. Resources: a session as a brief, and its turns. Prompts: resume, \
handoff. The agent starts it; `epitome setup AGENT --mcp` writes that into the agent's configuration.")]
pub(crate) struct McpArgs {
    /// Folder of the project whose sessions are meant by default; by default the current folder.
    #[arg(long, value_name = "DIR")]
    project: Option<String>,

    /// Principal whose sessions may be seen; by default the ones recorded without a token.
    #[arg(long, value_name = "NAME", default_value = "")]
    principal: String,
}

pub(crate) fn run(args: &McpArgs, location: DatabaseLocation) -> anyhow::Result<ExitCode> {
    let project = match &args.project {
        Some(folder) => Some(folder.clone()),
        None => env::current_dir().ok().map(|folder| folder.to_string_lossy().into_owned()),
    };
    let access = SessionAccess { principal: Some(args.principal.clone()), project };
    let server = HistoryServer::new(Arc::new(move || location.open_existing()), access);
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    runtime.block_on(async {
        let running = server
            .serve(stdio())
            .await
            .context("the client did not open the session as the protocol says")?;
        running.waiting().await.context("the server ended before its client")?;
        anyhow::Ok(())
    })?;
    // The thread that reads standard input may still wait for it.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
