//! A span that is longer than the summariser's window: drafted part by part.
//!
//! Parts end between turns, and only a turn that is longer than a part is split between its events. Each question carries
//! the notes so far, and its answer takes their place, so the last answer speaks for the whole span and stays within one
//! limit. If the window turns out to be smaller than anyone said, the parts are made smaller and drafted again.

use std::sync::Arc;

use epitome_core::{Logged, Tokens, event::Usage, meter::Meter, summary::Brief};

use super::{
    Draft, Finish, Instructions, Summarize, SummarizeError, SummaryRequest,
    cut::{Lean, cut},
    material::{Entry, Room, entries},
    prompt::{self, AROUND, Part, SYSTEM},
};

/// What is to be summarised.
#[derive(Clone, Debug)]
pub struct Task<'a> {
    /// The events.
    pub span: &'a [Arc<Logged>],
    /// What stands for everything before them.
    pub previous: Option<&'a Brief>,
    /// What to attend to.
    pub instructions: &'a Instructions,
    /// How long the draft should be.
    pub limit: Tokens,
    /// Who counts.
    pub meter: &'a Meter,
    /// The session's own request with [`prompt::aside`] appended, to be asked in place of the span.
    pub warm: Option<String>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drafted {
    /// The last answer.
    pub text: String,
    /// How it ended.
    pub finish: Finish,
    /// What all questions used together, as far as it was said.
    pub usage: Option<Usage>,
    /// How many questions were asked.
    pub asks: u64,
    /// The model that wrote it, as its server names it.
    pub model: Option<String>,
}

/// More parts than this are not asked about as long as the span can be told in fewer words.
const PARTS: usize = 12;

/// How often the words of a span are halved to keep to that.
const HALVINGS: u32 = 6;

/// How often a smaller window is tried when the one that was stated is too large.
const WINDOWS: u32 = 3;

/// A part with less room than this is not worth a question.
const LEAST: Tokens = Tokens(256);

/// Drafts a summary, in as many questions as the summariser's window needs.
///
/// An answer that is no usable one (cut off, a refusal, a tool call, nothing) ends it at once: the gate says why.
pub async fn draft(summariser: &dyn Summarize, task: &Task<'_>) -> Result<Drafted, SummarizeError> {
    let mut tally = Tally::default();
    if let Some(warm) = &task.warm {
        let request = SummaryRequest {
            system: String::new(),
            user: String::new(),
            limit: task.limit,
            warm: Some(warm.clone()),
        };
        match tally.ask(summariser, &request).await {
            // The request that just fitted does not with the instruction: the span by itself does.
            Err(SummarizeError::Overflow { .. }) => {}
            answer => return answer.map(|draft| tally.close(draft)),
        }
    }
    let mut window = summariser.window();
    let mut left = WINDOWS;
    loop {
        let plan = Plan::make(summariser.name(), window, task)?;
        match plan.run(summariser, task, &mut tally).await {
            Err(SummarizeError::Overflow { .. }) if left > 0 => {
                left -= 1;
                window = Tokens(window.0 / 3 * 2);
                tracing::debug!(name = summariser.name(), %window, "the summariser's window is smaller than stated");
            }
            ended => return ended.map(|draft| tally.close(draft)),
        }
    }
}

/// The questions a span needs.
#[derive(Debug)]
struct Plan {
    runtime: String,
    output: Tokens,
    parts: Vec<Vec<Entry>>,
}

impl Plan {
    fn make(name: &str, window: Tokens, task: &Task<'_>) -> Result<Self, SummarizeError> {
        let Task { span, limit, meter, .. } = *task;
        let runtime = prompt::runtime(task.previous, task.instructions, limit);
        // Twice the draft leaves room for a model that reasons, where the window has that room.
        let output = Tokens((window.0 / 4).min(limit.0.saturating_mul(2))).max(limit);
        let prompt = meter.text(SYSTEM) + meter.text(&runtime) + meter.overhead().request + AROUND;
        // Its vocabulary need not be the one that is counted with here.
        let margin = Tokens(window.0 / 12);
        let alone = window.less(output).less(prompt).less(margin);
        let carrying = alone.less(limit);
        let too_small = || SummarizeError::Window { name: name.to_owned(), window, limit };
        if alone < LEAST {
            return Err(too_small());
        }
        let told = |halved, of: Tokens| entries(span, Room { entry: Tokens(of.0 / 3), halved }, meter);
        let whole = told(0, alone);
        if whole.iter().map(|entry| entry.tokens).sum::<Tokens>() <= alone {
            return Ok(Self { runtime, output, parts: vec![whole] });
        }
        if carrying < LEAST {
            return Err(too_small());
        }
        let mut parts = packed(told(0, carrying), carrying);
        for halved in 1..=HALVINGS {
            if parts.len() <= PARTS {
                break;
            }
            parts = packed(told(halved, carrying), carrying);
        }
        Ok(Self { runtime, output, parts })
    }

    async fn run(
        self,
        summariser: &dyn Summarize,
        task: &Task<'_>,
        tally: &mut Tally,
    ) -> Result<Draft, SummarizeError> {
        let mut so_far: Option<Draft> = None;
        let of = self.parts.len();
        for (index, part) in self.parts.iter().enumerate() {
            let notes = so_far.as_ref().map(|draft| cut(&draft.text, task.limit, Lean::Head, task.meter));
            let part_of = Part { number: index + 1, of, so_far: notes.as_deref() };
            let request = SummaryRequest {
                system: SYSTEM.to_owned(),
                user: prompt::question(part, part_of, &self.runtime),
                limit: self.output,
                warm: None,
            };
            let draft = tally.ask(summariser, &request).await?;
            let usable = matches!(draft.finish, Finish::Complete | Finish::Unknown);
            if !usable || draft.text.trim().is_empty() {
                return Ok(draft);
            }
            so_far = Some(draft);
        }
        // A plan has one part at least, and every part that is passed leaves a draft.
        Ok(so_far.expect("the last part left a draft"))
    }
}

/// The entries in parts of at most `room`, between turns where that can be.
fn packed(entries: Vec<Entry>, room: Tokens) -> Vec<Vec<Entry>> {
    let mut parts: Vec<Vec<Entry>> = vec![Vec::new()];
    let mut used = Tokens(0);
    let mut entries = entries.into_iter().peekable();
    while let Some(first) = entries.next() {
        let turn = first.turn;
        let mut group = vec![first];
        while let Some(next) = entries.next_if(|entry| entry.turn == turn) {
            group.push(next);
        }
        let tokens: Tokens = group.iter().map(|entry| entry.tokens).sum();
        if tokens <= room && used + tokens > room {
            parts.push(Vec::new());
            used = Tokens(0);
        }
        for entry in group {
            if used + entry.tokens > room && used > Tokens(0) {
                parts.push(Vec::new());
                used = Tokens(0);
            }
            used += entry.tokens;
            parts.last_mut().expect("there is one from the start").push(entry);
        }
    }
    parts
}

/// What was asked and used so far.
#[derive(Debug, Default)]
struct Tally {
    asks: u64,
    usage: Option<Usage>,
}

impl Tally {
    async fn ask(
        &mut self,
        summariser: &dyn Summarize,
        request: &SummaryRequest,
    ) -> Result<Draft, SummarizeError> {
        self.asks += 1;
        let draft = summariser.summarize(request).await?;
        if let Some(usage) = draft.usage {
            let sum = self.usage.get_or_insert_default();
            sum.uncached += usage.uncached;
            sum.cache_read += usage.cache_read;
            sum.cache_write += usage.cache_write;
            sum.cache_write_hour += usage.cache_write_hour;
            sum.output += usage.output;
        }
        Ok(draft)
    }

    fn close(self, draft: Draft) -> Drafted {
        let Draft { text, finish, model, usage: _ } = draft;
        Drafted { text, finish, usage: self.usage, asks: self.asks, model }
    }
}
