//! Handing over: a summary of everything, by a model if there is one, for a session that goes on with a goal.

use std::sync::Arc;

use epitome_core::{
    Seq,
    draft_gate::{self, DraftSource},
    event::CompactionTrigger,
    projection::project,
    summary::{StructuredSummary, compaction::CompactionSpan},
};

use super::{
    background_compactor::blocking, engine::SessionEngine, error::SessionError, thread_reading::read_line,
};
use crate::summarise::{self, DraftTask, SummaryInstructions};

/// A model's summary of everything shown, for a session that continues with a goal, and the model's name; `None` if there
/// is no model, or it fails.
pub(super) async fn brief_of_all(
    engine: &Arc<SessionEngine>,
    goal: &str,
    head: Seq,
) -> Result<Option<(StructuredSummary, String)>, SessionError> {
    let Some(maker) = engine.maker.clone() else { return Ok(None) };
    let (cutting, limit, meter) = {
        let engine = Arc::clone(engine);
        blocking(move || {
            let (drafting, meter, names) = {
                let state = engine.state()?;
                let names = state.view().context().names();
                (state.drafting(&state.budget()), Arc::clone(&state.setup.meter), names)
            };
            let line = read_line(&*engine.store, engine.thread, &meter, Some(head))?;
            let context = project(&line, Arc::clone(&meter), names);
            let cutting = CompactionSpan::of_everything(&context, &line, &drafting);
            let limit = cutting.as_ref().map(|cutting| drafting.length.of(cutting.covered));
            Ok((cutting, limit, meter))
        })
        .await?
    };
    let (Some(cutting), Some(limit)) = (cutting, limit) else { return Ok(None) };
    let instructions = SummaryInstructions { focus: Some(goal.to_owned()), ..maker.instructions.clone() };
    let task = DraftTask {
        span: &cutting.events,
        previous: cutting.previous.as_ref(),
        instructions: &instructions,
        limit,
        meter: &meter,
        warm: None,
    };
    let summariser = maker.summariser_for(CompactionTrigger::Manual);
    let drafted = match summarise::draft(summariser.as_ref(), &task).await {
        Ok(drafted) => drafted,
        Err(error) => {
            tracing::warn!(target: "epitome::compaction", %error, "handing over");
            return Ok(None);
        }
    };
    let source = DraftSource {
        span: &cutting.events,
        previous: cutting.previous.as_ref(),
        caps: &cutting.caps,
        replaces: cutting.covered,
        limit,
        focus: None,
    };
    match draft_gate::verify(&drafted.text, drafted.finish, &source, &meter) {
        Ok(verified) => Ok(Some((verified.brief, summariser.name().to_owned()))),
        Err(error) => {
            tracing::warn!(target: "epitome::compaction", %error, "handing over");
            Ok(None)
        }
    }
}
