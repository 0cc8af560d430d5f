//! Calls of a session that was imported: what its transcript says of them.

use epitome::{
    core::{
        Tokens,
        event::{Timestamp, Usage},
        profile::{Money, Profiles},
    },
    recorded_calls::{self, RecordedCall},
    session::call_replay::CallReplayer,
    store::{Store, records::ThreadRow},
};
use serde_json::{Value, json};

use super::{
    output::{CliOutput, DIM},
    text_format,
};

/// A call that a transcript records.
pub(super) struct TranscriptCall {
    number: u64,
    at: Option<Timestamp>,
    model: Option<String>,
    estimated: Tokens,
    usage: Option<Usage>,
    cost: Option<Money>,
    summary: Option<u64>,
}

/// The calls of a thread, as its transcript records them.
pub(super) fn of(store: &dyn Store, thread: &ThreadRow) -> anyhow::Result<Vec<TranscriptCall>> {
    let past = CallReplayer::read(store, thread.id, None)?;
    let profiles = Profiles::builtin();
    let calls = recorded_calls::counted(past.line(), past.meter());
    let row = |(call, number): (RecordedCall, u64)| {
        let model = call.model.map(|model| model.0);
        let prices = model.as_deref().and_then(|model| profiles.find(model).ok()).map(|known| known.prices);
        let cost = prices.zip(call.usage.as_ref()).and_then(|(prices, usage)| prices.cost(usage).ok());
        TranscriptCall {
            number,
            at: call.at,
            model,
            estimated: call.counted,
            usage: call.usage,
            cost,
            summary: call.standing.map(|standing| standing.0),
        }
    };
    Ok(calls.into_iter().zip(0..).map(row).collect())
}

impl TranscriptCall {
    /// The call, for programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "call": self.number,
            "time": self.at.and_then(text_format::rfc3339),
            "model": self.model,
            "summary": self.summary,
            "estimated": self.estimated,
            "actual": self.usage.map(|usage| usage.input()),
            "usage": self.usage,
            "cost": self.cost.map(Money::dollars),
            "source": "transcript",
        })
    }

    fn cells(&self) -> [String; 9] {
        let counted = |pick: fn(&Usage) -> Tokens| {
            self.usage.as_ref().map(|usage| text_format::tokens(pick(usage))).unwrap_or_default()
        };
        [
            self.number.to_string(),
            self.at.map(text_format::minute).unwrap_or_default(),
            text_format::one_line(self.model.as_deref().unwrap_or_default(), 24),
            text_format::tokens(self.estimated),
            counted(Usage::input),
            counted(|usage| usage.cache_read),
            counted(|usage| usage.cache_write),
            self.cost.map(|cost| cost.to_string()).unwrap_or_default(),
            self.summary.map(|summary| summary.to_string()).unwrap_or_default(),
        ]
    }
}

/// Writes the calls as a table, with what they are made of.
pub(super) fn table(calls: &[TranscriptCall], out: &mut CliOutput) -> anyhow::Result<()> {
    let columns = ["call", "time", "model", "estimated", "actual", "read", "written", "cost", "summary"];
    let mut table = text_format::table(&columns, &[0, 3, 4, 5, 6, 7, 8]);
    for call in calls {
        table.add_row(call.cells());
    }
    out.line(table)?;
    out.line(format_args!(
        "\n{DIM}from the transcript, which has no requests: what it does not show is not in the estimates{DIM:#}"
    ))
}

/// Usage and cost of calls, for their totals.
pub(super) fn totals(calls: &[TranscriptCall]) -> (Vec<Usage>, Vec<Money>) {
    let usage = calls.iter().filter_map(|call| call.usage).collect();
    (usage, calls.iter().filter_map(|call| call.cost).collect())
}
