//! Prompts that a person chooses: to go on with an earlier session, or to hand one over.

use anyhow::{anyhow, bail};
use epitome::queries::head_thread;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::Value;

use super::{AnswerContext, page::shortened, resources::brief};

/// Description of the argument that every prompt has.
const SESSION: &str =
    "Id, key or title of a session; by default the one that was active last in this project.";

/// All prompts.
pub(super) fn listed() -> Vec<Prompt> {
    let session = PromptArgument::new("session").with_description(SESSION).with_required(false);
    let goal = PromptArgument::new("goal").with_description("What is to be done next.").with_required(true);
    vec![
        Prompt::new(
            "resume",
            Some("Go on with an earlier session where it stopped."),
            Some(vec![session.clone()]),
        ),
        Prompt::new(
            "handoff",
            Some("Begin something new with what an earlier session knows."),
            Some(vec![goal, session]),
        ),
    ]
}

/// Makes one.
pub(super) fn get(
    context: &AnswerContext,
    name: &str,
    given: &JsonObject,
) -> anyhow::Result<GetPromptResult> {
    let text = |name: &str| match given.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
        Some(_) => Err(anyhow!("`{name}` must be a text")),
    };
    let task = match name {
        "resume" => {
            "Go on with this session where it stopped. Check the state of the files before you change them."
                .to_owned()
        }
        "handoff" => text("goal")?.ok_or_else(|| anyhow!("`goal` is missing"))?.to_owned(),
        _ => bail!("there is no prompt `{}`; there are: resume, handoff", shortened(name, 80)),
    };
    let session = context.access.session(&*context.store, text("session")?)?;
    let thread = head_thread(&*context.store, &session)?;
    let said = format!(
        "<recorded_history>\n{}\n</recorded_history>\n\nThe tool `recall` of epitome brings back what its handles name.\n\n{task}",
        brief(context, &session, &thread)?
    );
    Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, said)]))
}
