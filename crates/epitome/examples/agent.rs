//! An agent against any OpenAI-compatible server, in under sixty lines: it answers questions, a line each, with a few
//! tools, for as long as there are questions, whatever its model's window.
//!
//! ```sh
//! export OPENAI_API_KEY=… # if the server wants one
//! cargo run -p epitome --example agent -- https://host/v1 MODEL WINDOW < questions.txt
//! cargo run -p epitome --example agent -- https://host/v1 MODEL WINDOW http://127.0.0.1:8092/v1 MODEL WINDOW < questions.txt
//! ```
//!
//! Three calls keep it inside the window: `next_request` before each question to the model, `answered` after it, `refused`
//! if the server would not take it. With a second address a model there writes the summaries, in the background; without
//! one the built-in summariser does. The session is kept in `$AGENT_FILE`; `$AGENT_SETTINGS` are further settings
//! of each request, such as `{"max_tokens":500}`.

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
        return Err("usage: agent URL MODEL WINDOW [SUMMARISER_URL MODEL WINDOW]".into());
    };
    let mut agent = agent(model, Tokens(window.parse()?))?;
    if let [url, model, window] = summariser {
        // A model on a laptop takes its time; nobody waits for it.
        let timeouts = ServerTimeouts::of(Duration::from_hours(1));
        let remote = RemoteSummariser::builder(Format::OpenaiChat, url, model, Tokens(window.parse()?));
        agent =
            agent.summariser(remote.key(ApiKey::from_env("OPENAI_API_KEY").ok()).timeouts(timeouts).build()?);
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
    let session = Session::builder(Format::OpenaiChat, model).window(window);
    let session = session.system(SYSTEM).tools(common::tools(Format::OpenaiChat));
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
    let key = env::var("OPENAI_API_KEY").unwrap_or_default();
    let post = common::HTTP.post(format!("{url}/chat/completions")).bearer_auth(key);
    let answered = post.header("content-type", "application/json").body(body).send().await?;
    Ok((answered.status().as_u16(), answered.text().await?))
}
