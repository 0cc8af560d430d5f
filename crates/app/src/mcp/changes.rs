//! Tools that add to the log.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use epitome::{
    Format, Session,
    core::{
        Fact, ThreadId,
        event::{Pin, Summary},
        summary::SummaryFocus,
    },
    queries::{ModelAndFormat, pins},
    session::SummaryWorkers,
    store::records::{SessionRow, ThreadRow},
};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::{
    AnswerContext,
    arguments::ToolArguments,
    page::{AnswerPage, shortened},
};

impl AnswerContext {
    /// The session that a call changes. Without a project the latest may be of any work, so it must be named.
    fn changed_session(&self, arguments: &ToolArguments) -> anyhow::Result<(SessionRow, ThreadRow)> {
        if self.access.project.is_none() && arguments.text("session")?.is_none() {
            bail!(
                "`session` is missing: no project is known here, so name the session (`search` tells its id)"
            );
        }
        self.named_session(arguments)
    }

    /// Opens a thread as its last call left it, on a runtime of this answer's own: it waits for the disk.
    fn reopened(&self, thread: ThreadId) -> anyhow::Result<(Runtime, Session)> {
        if self.store.is_read_only() {
            bail!("the database cannot be written: nothing was changed");
        }
        let ModelAndFormat { model, format } = ModelAndFormat::of(&*self.store, thread)?;
        let builder = Session::builder(format.unwrap_or(Format::OpenaiChat), &model.unwrap_or_default())
            .store(Arc::clone(&self.store))
            .workers(SummaryWorkers::Elsewhere);
        let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
        let session = runtime.block_on(builder.resume_thread(thread))?;
        Ok((runtime, session))
    }
}

/// Pins words.
pub(super) fn pin(context: &AnswerContext, arguments: &ToolArguments) -> anyhow::Result<Value> {
    let pin = Pin::Text(arguments.required("text")?.to_owned());
    let (row, thread) = context.changed_session(arguments)?;
    let is_new = !pins(&*context.store, thread.id)?.contains(&pin);
    if is_new {
        let (runtime, session) = context.reopened(thread.id)?;
        runtime.block_on(session.pin(pin))?;
    }
    let items = pins(&*context.store, thread.id)?.into_iter().map(|pin| json!({"pin": pin})).collect();
    let page =
        AnswerPage::new(json!({"session": row.id, "done": if is_new { "pinned" } else { "unchanged" }}));
    // The words are pinned by now: what is told of the others must not fail for their length.
    page.with_items(items, 0, false, |_| json!({"session": row.id}))
}

/// Compacts a session.
pub(super) fn compact(context: &AnswerContext, arguments: &ToolArguments) -> anyhow::Result<Value> {
    let focus = arguments.text("focus")?.and_then(SummaryFocus::new);
    let (row, thread) = context.changed_session(arguments)?;
    let (runtime, session) = context.reopened(thread.id)?;
    let place = runtime.block_on(session.compact(focus.as_ref().map(SummaryFocus::text)))?;
    let event = context.store.read(thread.id, place, 1)?.pop();
    let Some(Fact::Compacted(made)) = event.map(|logged| logged.event.fact) else {
        bail!("there is no compaction at event {place}: run `epitome doctor`");
    };
    let is_applied = matches!(&made.summary, Summary::Structured { brief, .. } if brief.focus.is_some());
    let page = AnswerPage::new(json!({
        "session": row.id,
        "title": shortened(&row.title, 80),
        "compaction": format!("{}:{place}", thread.id.short()),
        "focus_applied": is_applied,
        "tokens_before": made.tokens_before,
        "tokens_after": made.tokens_after,
        "undo": format!("epitome undo {}", row.id),
    }));
    let handle = format!("{}:{place}", thread.id.short());
    page.with_text(made.summary.text(), 0, false, |at| json!({"handle": handle, "range": format!("{at}-")}))
}
