//! A hook: the notes that a question is about are put beside it.
//!
//! ```sh
//! cargo run -p epitome --example hook -- https://host/v1 MODEL WINDOW notes.txt < questions.txt
//! ```
//!
//! A hook is asked once for each message of the user, before it is first sent. What it adds is recorded like everything
//! else and sent again in its place, so that the provider's cache holds; when it is old it is the first to go. Its reserve
//! is kept free before anything is reduced: what a hook adds never makes a request too long.

use std::{env, error::Error, fs, io};

use epitome::{ContentPart, Hook, Tokens, core::inject::HookInput};

/// The agent that has it.
#[path = "agent.rs"]
#[expect(dead_code, reason = "it has a command line of its own")]
mod agent;

/// Notes, a line each: `topic: what to know about it`.
#[derive(Debug)]
pub(crate) struct Notes(pub(crate) String);

impl Hook for Notes {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn reserve(&self) -> Tokens {
        Tokens(400)
    }

    fn inject(&self, asked: &HookInput<'_>) -> Vec<ContentPart> {
        let said = asked.message.event.fact.text().to_lowercase();
        let is_meant = |line: &&str| {
            line.split_once(':').is_some_and(|(topic, _)| said.contains(&topic.trim().to_lowercase()))
        };
        // Three lines of at most 300 characters fit the reserve, whatever they say.
        let lines = self.0.lines().filter(is_meant).take(3);
        let lines: Vec<String> = lines.map(|line| line.chars().take(300).collect()).collect();
        if lines.is_empty() {
            Vec::new()
        } else {
            vec![ContentPart::text(format!("From the notes:\n{}", lines.join("\n")))]
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, model, window, notes] = arguments.as_slice() else {
        return Err("usage: hook URL MODEL WINDOW NOTES".into());
    };
    let notes = Notes(fs::read_to_string(notes)?);
    let session = agent::agent(model, Tokens(window.parse()?))?.hook(notes).begin().await?;
    for question in io::stdin().lines() {
        println!("{}", agent::answer(&session, url, &question?).await?);
    }
    Ok(())
}
