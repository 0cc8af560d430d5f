//! The gate: a model's draft becomes a summary, or is turned away.
//!
//! Nothing that must be kept depends on the draft. The built-in summary of the span is the ground, with the items of the
//! summary before carried in it by identity; of the draft only sentences are added that the agent itself said and nothing
//! has refuted since, each with the events that bear it. So a model that forgets loses nothing, one that invents adds
//! nothing, and one that obeys what it was to summarise gains no authority: task, orders, constraints and next steps are
//! told by code.

mod admit;
mod draft;
mod form;
mod report;
mod secrets;
pub(crate) use self::secrets::{holds_secret, without_keys};
mod sentences;
mod support;
mod text;
mod whole;
mod words;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::{
    admit::Gate,
    draft::{Draft, read},
    sentences::numbered,
    support::Speech,
    whole::{judge, without_reasoning},
};
pub use self::{
    form::form,
    report::{Dropped, Report, Retired},
    sentences::{NumberedSentences, SentenceNumber, offered, with_words},
};
use crate::{
    event::Logged,
    meter::Meter,
    pairing::{Exchange, Outcome, pair},
    seq_set::SeqSet,
    summary::{
        Brief, Caps, Detail, Focus, Item, Ledger, Section, StepOrigin, call_subject, summarise_for,
        tools::deeds, work_key,
    },
    tokens::Tokens,
};

/// Makes a summary of a draft, or says why it is none.
///
/// What comes out is the built-in summary of the span on top of the one before, with the sentences of the draft that the
/// span bears. It is a function of its arguments alone.
///
/// ```
/// use std::sync::Arc;
/// use epitome_core::{
///     meter::{Meter, Overhead}, summary::Caps, tokens::{Estimate, Tokens},
///     verify::{Finish, Rejected, Source, verify},
/// };
///
/// let meter = Meter::new(Arc::new(Estimate), Overhead::default());
/// let (caps, replaces, limit) = (Caps::default(), Tokens(9_000), Tokens(900));
/// let source = Source { span: &[], previous: None, caps: &caps, replaces, limit, focus: None };
/// let refused = verify(" ", Finish::Complete, &source, &meter);
/// assert_eq!(refused, Err(Rejected::Empty));
/// ```
pub fn verify(draft: &str, finish: Finish, source: &Source<'_>, meter: &Meter) -> Result<Verified, Rejected> {
    let draft = readable(draft, finish, source, meter)?;
    let ground = summarise_for(source.focus, source.span, source.previous, source.caps);
    let speech = Speech::of(source.span, &ground);
    let chooses = draft.items.iter().any(|item| item.chosen.is_some());
    let sentences = if chooses { numbered(source.span) } else { NumberedSentences::new() };
    let mut gate = Gate::new(&ground, &speech, &sentences);
    gate.report = Report { items: draft.items.len() as u64, unread: draft.unread, ..Report::default() };
    gate.retire(&ground);
    draft.items.iter().for_each(|item| gate.decide(item));
    let Report { items, repeated, secrets, ref admitted, .. } = gate.report;
    if items > secrets && repeated == 0 && admitted.is_empty() {
        return Err(Rejected::NothingTrue { items });
    }
    gate.report.pending = wait(&mut gate.ledger, source);
    let Gate { ledger, mut report, .. } = gate;
    let brief = Brief { focus: ground.focus.clone(), ..ledger.settle(source.caps) };
    let is_told = |section: &Section| {
        brief.section(*section).next().is_some() || brief.folded.iter().any(|row| row.section == *section)
    };
    report.filled = Section::ALL.into_iter().filter(is_told).collect();
    report.secrets_in_source = brief.items.iter().filter(|item| holds_secret(&item.text)).count() as u64;
    Ok(Verified { brief, report })
}

/// What a draft is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The events it tells of, oldest first.
    pub span: &'a [Arc<Logged>],
    /// The summary of what came before them.
    pub previous: Option<&'a Brief>,
    /// How many items are shown.
    pub caps: &'a Caps,
    /// What the context costs that the summary takes the place of.
    pub replaces: Tokens,
    /// How long the draft may be, before anything is carried.
    pub limit: Tokens,
    /// What the summary should attend to.
    pub focus: Option<&'a Focus>,
}

/// A summary that was let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The summary.
    pub brief: Brief,
    /// What became of the draft.
    pub report: Report,
}

/// How a model ended its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It said all it had to say.
    Complete,
    /// It was stopped by a limit.
    CutOff,
    /// It refused.
    Refused,
    /// It called a tool.
    CalledTool,
    /// Nobody said.
    #[default]
    Unknown,
}

/// Why a draft is no summary.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Rejected {
    /// Nothing was written.
    #[error("the summary is refused: the model wrote nothing. Ask again, or use another model")]
    Empty,
    /// It ends in the middle.
    #[error("the summary is refused: it ends in the middle. Allow a longer answer, or ask for a shorter one")]
    CutOff,
    /// The model did not want to.
    #[error("the summary is refused: the model declined to write one. Use another model")]
    Refusal,
    /// The model wanted something done.
    #[error("the summary is refused: the model called a tool instead of summarising. Use another model")]
    ToolCall,
    /// Every section says that there is nothing to say.
    #[error("the summary is refused: every section of it is empty, and the span is not. Use another model")]
    AllNone,
    /// It only thought.
    #[error("the summary is refused: the model reasoned and then said nothing. Allow a longer answer")]
    ReasoningOnly,
    /// It is no smaller than what it stands for.
    #[error(
        "the summary is refused: it has {draft} tokens and stands for {replaces}. Ask for a shorter one, or wait until \
         there is more to summarise"
    )]
    Larger {
        /// The draft's size.
        draft: Tokens,
        /// The size of what it stands for.
        replaces: Tokens,
    },
    /// It is longer than it may be.
    #[error("the summary is refused: it has {draft} tokens and may have {limit}. Ask for a shorter one")]
    OverTarget {
        /// The draft's size.
        draft: Tokens,
        /// What was allowed.
        limit: Tokens,
    },
    /// No section was found in it: the model went on with the conversation, or wrote in another form.
    #[error("the summary is refused: it has none of the sections (it begins “{begins}”). Use another model")]
    Unparsable {
        /// How it begins.
        begins: String,
    },
    /// Nothing it says was said by the agent and still holds.
    #[error("the summary is refused: the agent said none of its {items} items. Use another model")]
    NothingTrue {
        /// How many items there were.
        items: u64,
    },
}

/// The draft, if it can be one: complete, of sections, and short enough.
fn readable(draft: &str, finish: Finish, source: &Source<'_>, meter: &Meter) -> Result<Draft, Rejected> {
    match finish {
        Finish::Refused => return Err(Rejected::Refusal),
        Finish::CalledTool => return Err(Rejected::ToolCall),
        Finish::Complete | Finish::CutOff | Finish::Unknown => {}
    }
    let text = without_reasoning(draft)?;
    let draft = read(text);
    judge(text, finish, &draft)?;
    let tokens = meter.text(text);
    if tokens >= source.replaces {
        return Err(Rejected::Larger { draft: tokens, replaces: source.replaces });
    }
    if tokens > source.limit {
        return Err(Rejected::OverTarget { draft: tokens, limit: source.limit });
    }
    let said_something = source.span.iter().any(|event| event.event.fact.is_message());
    if draft.items.is_empty() && draft.unasked == 0 && said_something {
        return Err(Rejected::AllNone);
    }
    Ok(draft)
}

/// With what the key of a call begins that nothing came back from.
const PENDING: &str = "pending call ";

/// Notes the calls that nothing came back from, and strikes those that something did come back from by now. Says how many
/// calls of the span are waited for.
fn wait(ledger: &mut Ledger, source: &Source<'_>) -> u64 {
    const SHOWN: usize = 8;
    let paired = pair(source.span.iter().map(|event| (event.id.seq, &event.event.fact)));
    let subject = |exchange: &Exchange<'_>| call_subject(exchange.call, &deeds(exchange.call, None));
    let (open, done): (Vec<&Exchange<'_>>, Vec<&Exchange<'_>>) =
        paired.exchanges.iter().partition(|exchange| exchange.outcome == Outcome::Unanswered);
    let waiting: Vec<String> = ledger
        .newest(Section::NextSteps)
        .filter_map(|item| item.key.clone().filter(|key| key.starts_with(PENDING)))
        .collect();
    if !waiting.is_empty() {
        let late = paired.strays.iter().map(|(_, result)| format!("{PENDING}{} ", result.call));
        let late: Vec<String> = late.collect();
        let again: Vec<String> = done.iter().map(|exchange| format!(" {}", subject(exchange))).collect();
        for key in waiting {
            let came =
                late.iter().any(|start| key.starts_with(start)) || again.iter().any(|end| key.ends_with(end));
            if came {
                ledger.strike(Section::NextSteps, &key);
            }
        }
    }
    let older = open.len().saturating_sub(SHOWN);
    let mut note = |text: String, key: String, sources: SeqSet| {
        let detail = Some(Detail::Step(StepOrigin::Tracked));
        ledger.put(Item { section: Section::NextSteps, text, key: Some(key), sources, detail });
    };
    for exchange in &open[older..] {
        let subject = subject(exchange);
        let key = work_key(&format!("{PENDING}{} {subject}", exchange.call.id));
        note(format!("Called {subject}, and no result came."), key, SeqSet::one(exchange.at));
    }
    if older > 0 {
        let mut sources = SeqSet::default();
        open[..older].iter().for_each(|exchange| sources.insert(exchange.at));
        note(format!("Of {older} earlier calls no result came either."), format!("{PENDING}others"), sources);
    }
    open.len() as u64
}
