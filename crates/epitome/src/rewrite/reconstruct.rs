//! Reconstruction of a rewritten request from the log and the records beside it.

use epitome_core::{Digest, Fact, ThreadId, projection::EventLine};
use epitome_store::{Store, records::CallRow};
use epitome_wire::history_rewrite::{RewritePiece, RewritePlan};

use super::{
    rewrite_body::{LoggedUnitForms, items_of, wrap_history},
    rewrite_record::{EnvelopeChunk, MergedRewriteRecord, RewriteRecord, UnitEncoding},
    unit_events::UnitEventMap,
};
use crate::session::{SessionError, setup::RecordedRendering, thread_reading::parse};

/// The records from which the calls of a thread's view were written, read once for any number of calls.
#[derive(Debug)]
pub(crate) struct RewriteRecords {
    scripts: Vec<(u64, RewriteRecord)>,
}

impl RewriteRecords {
    /// Reads them.
    pub(crate) fn read(store: &dyn Store, thread: ThreadId) -> Result<Self, SessionError> {
        let mut scripts = Vec::new();
        for (number, _, script) in store.rewrite_records(thread)? {
            scripts.push((number, parse::<RewriteRecord>("script", number, &script)?));
        }
        Ok(Self { scripts })
    }

    /// The body of a rewritten call; `line` holds the events before it.
    pub(crate) fn rebuild_body(
        &self,
        store: &dyn Store,
        thread: ThreadId,
        row: &CallRow,
        rendering: &RecordedRendering,
        plan: &RewritePlan,
        line: &EventLine,
    ) -> Result<String, SessionError> {
        let mut taken = MergedRewriteRecord::default();
        for (_, script) in self.scripts.iter().take_while(|(number, _)| *number <= row.number) {
            taken.take(script.clone());
        }
        let mut units = UnitEventMap::read(store, thread, row.call.head)?;
        if let Some((_, lead)) = taken.last.lead {
            units.set_lead(lead);
        }
        let mut logged = LoggedUnitForms::new(&units, &taken.between, || items_of(line));
        let mut said: Vec<String> = Vec::new();
        let mut say = |from: usize, to: usize, said: &mut Vec<String>| -> Result<(), SessionError> {
            for unit in from..to {
                let form = taken.forms.get(&unit).unwrap_or(&UnitEncoding::Logged);
                let logged = logged.of(unit);
                let sent = form.sent(store, logged.as_deref())?;
                said.push(sent.ok_or_else(|| lost(row, unit))?.into_owned());
            }
            Ok(())
        };
        for piece in &plan.pieces {
            match piece {
                RewritePiece::Units { from, to } => say(*from, *to, &mut said)?,
                RewritePiece::Own(text) => said.push(text.clone()),
            }
        }
        say(plan.onward, taken.last.units, &mut said)?;
        let text = |chunks: &[EnvelopeChunk]| -> Result<String, SessionError> {
            chunks.iter().map(|chunk| Ok(chunk.text(store)?.into_owned())).collect()
        };
        let (head, tail) = (text(&taken.before)?, text(&taken.after)?);
        let summary = match row.call.summary {
            Some(id) => Some(store.event(id)?),
            None => None,
        };
        let summary = summary.as_ref().and_then(|event| match &event.event.fact {
            Fact::Compacted(compaction) => Some(compaction.summary.text()),
            _ => None,
        });
        let RewriteRecord { recall, marks, .. } = taken.last;
        let history = said.join(&taken.between);
        Ok(wrap_history(rendering.format, &head, &history, &tail, recall, marks, summary))
    }
}

fn lost(row: &CallRow, unit: usize) -> SessionError {
    SessionError::NotReproduced {
        call: row.number,
        found: format!("nothing for message {unit}"),
        sent: Digest::to_string(&row.call.hash),
        why: "the log or a record was changed behind the store's back",
    }
}
