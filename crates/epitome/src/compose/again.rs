//! Reconstruction of a rewritten request from the log and the records beside it.

use epitome_core::{Digest, Fact, ThreadId, project::Line};
use epitome_store::{Sqlite, records::CallRow};
use epitome_wire::weave::{Piece, Plan};

use super::{
    script::{Chunk, Form, Script, Taken},
    units::Units,
    weaving::{LoggedForms, around, items_of},
};
use crate::session::{SessionError, reading::parse, setup::Rendering};

/// The records from which the calls of a thread's view were written, read once for any number of calls.
#[derive(Debug)]
pub(crate) struct Scripts {
    scripts: Vec<(u64, Script)>,
}

impl Scripts {
    /// Reads them.
    pub(crate) fn read(store: &Sqlite, thread: ThreadId) -> Result<Self, SessionError> {
        let mut scripts = Vec::new();
        for (number, _, script) in store.scripts(thread)? {
            scripts.push((number, parse::<Script>("script", number, &script)?));
        }
        Ok(Self { scripts })
    }

    /// The body of a rewritten call; `line` holds the events before it.
    pub(crate) fn body(
        &self,
        store: &Sqlite,
        thread: ThreadId,
        row: &CallRow,
        rendering: &Rendering,
        plan: &Plan,
        line: &Line,
    ) -> Result<String, SessionError> {
        let mut taken = Taken::default();
        for (_, script) in self.scripts.iter().take_while(|(number, _)| *number <= row.number) {
            taken.take(script.clone());
        }
        let mut units = Units::read(store, thread, row.call.head)?;
        if let Some((_, lead)) = taken.last.lead {
            units.led_by(lead);
        }
        let mut logged = LoggedForms::new(&units, &taken.between, || items_of(line));
        let mut said: Vec<String> = Vec::new();
        let mut say = |from: usize, to: usize, said: &mut Vec<String>| -> Result<(), SessionError> {
            for unit in from..to {
                let form = taken.forms.get(&unit).unwrap_or(&Form::Logged);
                let logged = logged.of(unit);
                let sent = form.sent(store, logged.as_deref())?;
                said.push(sent.ok_or_else(|| lost(row, unit))?.into_owned());
            }
            Ok(())
        };
        for piece in &plan.pieces {
            match piece {
                Piece::Units { from, to } => say(*from, *to, &mut said)?,
                Piece::Own(text) => said.push(text.clone()),
            }
        }
        say(plan.onward, taken.last.units, &mut said)?;
        let text = |chunks: &[Chunk]| -> Result<String, SessionError> {
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
        let Script { recall, marks, .. } = taken.last;
        let history = said.join(&taken.between);
        Ok(around(rendering.format, &head, &history, &tail, recall, marks, summary))
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
