//! The same agent as `agent.rs` with Anthropic's Messages: only the format, the address and the headers differ.
//!
//! ```sh
//! export ANTHROPIC_API_KEY=…
//! cargo run -p epitome --example agent_anthropic -- https://api.anthropic.com/v1 claude-sonnet-4-5 200000 < questions.txt
//! ```
//!
//! A window smaller than the model's own keeps requests small and cheap. With a second address a model there writes the
//! summaries, in the background; without one the built-in summariser does.

use std::{env, error::Error, io, time::Duration};

use epitome::summarise::ServerTimeouts;
use epitome::{ApiKey, Format, RefusalKind, RemoteSummariser, Session, SessionBuilder, Tokens, ToolOutput};
use serde_json::Value;

mod common;

const SYSTEM: &str = "You are a careful engineer. Answer in a few sentences.";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, model, window, summariser @ ..] = arguments.as_slice() else {
        return Err("usage: agent_anthropic URL MODEL WINDOW [SUMMARISER_URL MODEL WINDOW]".into());
    };
    let mut agent = agent(model, Tokens(window.parse()?))?;
    if let [url, model, window] = summariser {
        // A model on a laptop takes its time; nobody waits for it.
        let remote = RemoteSummariser::builder(Format::Anthropic, url, model, Tokens(window.parse()?));
        let remote = remote.timeouts(ServerTimeouts::of(Duration::from_hours(1)));
        agent = agent.summariser(remote.key(ApiKey::from_env("ANTHROPIC_API_KEY").ok()).build()?);
    }
    let session = agent.begin().await?;
    session.listen(|happened| eprintln!("{happened}"));
    for question in io::stdin().lines() {
        println!("{}", answer(&session, url, &question?).await?);
    }
    Ok(())
}

/// A session as this agent wants it.
pub(crate) fn agent(model: &str, window: Tokens) -> serde_json::Result<SessionBuilder> {
    let setting = |name: &str, usual: &str| env::var(name).unwrap_or(usual.to_owned());
    let session = Session::builder(Format::Anthropic, model).window(window);
    let session = session.system(SYSTEM).tools(common::tools(Format::Anthropic));
    let settings: Value = serde_json::from_str(&setting("AGENT_SETTINGS", "{}"))?;
    Ok(session.file(setting("AGENT_FILE", "agent.db")).settings(settings))
}

/// Answers a question: asks the model until it calls no more tools.
pub(crate) async fn answer(session: &Session, url: &str, question: &str) -> Result<String, Box<dyn Error>> {
    session.user(question).await?;
    loop {
        let request = session.next_request().await?;
        eprintln!("call {}: {} tokens, made in {:?}", request.call, request.tokens, request.made_in);
        let (status, body) = post(url, request.body).await?;
        if status != 200 {
            // What was too long is asked again, smaller.
            if session.refused(status, body.as_bytes()).await? == RefusalKind::TooLong {
                continue;
            }
            return Err(format!("the model's server answered {status}: {body}").into());
        }
        let answer = session.answered(&body).await?;
        if answer.is_final() {
            return Ok(answer.text);
        }
        let outputs = answer.calls.iter().map(|call| ToolOutput::new(call, common::run_tool(call)));
        session.tool_results(&outputs.collect::<Vec<_>>()).await?;
    }
}

async fn post(url: &str, body: String) -> reqwest::Result<(u16, String)> {
    let key = env::var("ANTHROPIC_API_KEY").unwrap_or_default();
    let post = common::HTTP.post(format!("{url}/messages")).header("x-api-key", key);
    let post = post.header("anthropic-version", "2023-06-01").header("content-type", "application/json");
    let answered = post.body(body).send().await?;
    Ok((answered.status().as_u16(), answered.text().await?))
}
