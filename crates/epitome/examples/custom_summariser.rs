//! A summariser of your own: any program that reads a question and writes an answer.
//!
//! ```sh
//! cargo run -p epitome --example custom_summariser -- https://host/v1 MODEL WINDOW llm -m some-model < questions.txt
//! ```
//!
//! A summariser drafts and decides nothing. What it writes is checked: what the user demanded, what was pinned, changed and
//! tried in vain is put back where it is missing, what nobody said is taken out, and a draft that is none is thrown away.
//! So a summariser may be weak, slow or wrong, and the session goes on. After three failures in a row the built-in
//! summariser takes over for a while.

use std::{
    env,
    error::Error,
    io::{self, Write as _},
    process::{Command, Stdio},
};

use epitome::{
    ModelDraft, Summarize, SummarizeError, SummaryFuture, SummaryRequest, Tokens, summarise::DraftFinish,
};

/// The agent that has it.
#[path = "agent.rs"]
#[expect(dead_code, reason = "it has a command line of its own")]
mod agent;

/// A program that writes summaries.
#[derive(Debug)]
pub(crate) struct Program {
    command: Vec<String>,
    name: String,
    window: Tokens,
}

impl Program {
    pub(crate) fn new(command: &[String], window: Tokens) -> Self {
        Self { command: command.to_vec(), name: command.join(" "), window }
    }
}

impl Summarize for Program {
    fn name(&self) -> &str {
        &self.name
    }

    fn window(&self) -> Tokens {
        self.window
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a> {
        let (command, question) = (self.command.clone(), format!("{}\n\n{}", request.system, request.user));
        Box::pin(async move {
            // The program takes its time: it gets a thread on which nothing else waits.
            let ran = tokio::task::spawn_blocking(move || ask(&command, &question)).await;
            let failed = |said: String| SummarizeError::Failed { host: self.name.clone(), said };
            let text = ran.map_err(|error| failed(error.to_string()))?;
            let text = text.map_err(|error| failed(error.to_string()))?;
            Ok(ModelDraft { text, finish: DraftFinish::Complete, usage: None, model: None })
        })
    }
}

/// Runs a program with a question as its input, and gives what it prints.
fn ask(command: &[String], question: &str) -> io::Result<String> {
    let [program, arguments @ ..] = command else { return Err(io::Error::other("there is no program")) };
    let piped = (Stdio::piped(), Stdio::piped());
    let mut running = Command::new(program).args(arguments).stdin(piped.0).stdout(piped.1).spawn()?;
    if let Some(mut input) = running.stdin.take() {
        input.write_all(question.as_bytes())?;
    }
    let done = running.wait_with_output()?;
    if !done.status.success() {
        return Err(io::Error::other(format!("it ended with {}", done.status)));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, model, window, command @ ..] = arguments.as_slice() else {
        return Err("usage: custom_summariser URL MODEL WINDOW PROGRAM [ARGUMENT …]".into());
    };
    let summariser = Program::new(command, Tokens(32_000));
    let session = agent::agent(model, Tokens(window.parse()?))?.summariser(summariser).begin().await?;
    session.listen(|happened| eprintln!("{happened}"));
    for question in io::stdin().lines() {
        println!("{}", agent::answer(&session, url, &question?).await?);
    }
    Ok(())
}
