//! The gate: a model's draft becomes a summary, or is turned away.
//!
//! Nothing that must be kept depends on the draft. The built-in summary of the span is the ground, with the items of the
//! summary before carried in it by identity; of the draft only items are added that the span bears out, each with the
//! events that do. So a model that forgets loses nothing, one that invents adds nothing, and one that obeys what it was to
//! summarise gains no authority: pins and constraints are the user's words, whatever a draft calls them.

mod admit;
mod draft;
mod evidence;
mod form;
mod names;
mod report;
mod secrets;
pub(crate) use self::secrets::{holds_secret, without_keys};
mod text;
mod whole;

use std::{collections::HashSet, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::{
    admit::Gate,
    draft::{Draft, read},
    evidence::{Claim, Evidence},
    form::{PENDING, is_the_models, named},
    whole::{judge, without_reasoning},
};
pub use self::{
    form::form,
    report::{Dropped, Kept, Report, Superseded, WhyKept},
};
use crate::{
    event::Logged,
    meter::Meter,
    pairing::{Exchange, Outcome, pair},
    seq_set::SeqSet,
    summary::{
        Brief, Caps, Detail, Focus, Item, Ledger, Section, StepOrigin, call_subject, one_line, summarise_for,
        tools::deeds, work_key,
    },
    tokens::Tokens,
};

/// Makes a summary of a draft, or says why it is none.
///
/// What comes out is the built-in summary of the span on top of the one before, with the items of the draft that the span
/// bears out. It is a function of its arguments alone.
///
/// ```
/// use std::{collections::HashSet, sync::Arc};
/// use epitome_core::{
///     meter::{Meter, Overhead}, summary::Caps, tokens::{Estimate, Tokens},
///     verify::{Finish, Rejected, Source, verify},
/// };
///
/// let meter = Meter::new(Arc::new(Estimate), Overhead::default());
/// let (caps, replaces, limit) = (Caps::default(), Tokens(9_000), Tokens(900));
/// let source = Source { span: &[], previous: None, caps: &caps, replaces, limit, focus: None };
/// let refused = verify("I can't help with that.", Finish::Complete, &source, &meter);
/// assert_eq!(refused, Err(Rejected::Refusal));
/// ```
pub fn verify(draft: &str, finish: Finish, source: &Source<'_>, meter: &Meter) -> Result<Verified, Rejected> {
    let draft = readable(draft, finish, source, meter)?;
    let ground = summarise_for(source.focus, source.span, source.previous, source.caps);
    let mut evidence = Evidence::default();
    let claims: Vec<Claim> = draft.items.iter().map(|said| evidence.look_for(&said.text)).collect();
    let reasons: Vec<Claim> = draft.superseded.iter().map(|(_, reason)| evidence.look_for(reason)).collect();
    hear(&mut evidence, source, &ground);
    let mut gate = Gate::new(&ground, source, &evidence, &draft);
    gate.report = Report { items: draft.items.len() as u64, unread: draft.unread, ..Report::default() };
    for ((name, reason), claim) in draft.superseded.iter().zip(&reasons) {
        let founded = evidence.missing(claim).is_none() && !holds_secret(reason);
        let reason = if founded { reason.as_str() } else { "" };
        supersede(&mut gate, source.previous, name, reason);
    }
    for (said, claim) in draft.items.iter().zip(&claims) {
        if holds_secret(&said.text) {
            gate.report.secrets += 1;
        } else if let Some(name) = evidence.missing(claim) {
            gate.report.drop(said.section, &said.text, Some(name.shown()));
        } else {
            gate.decide(said, claim);
        }
    }
    let Report { items, repeated, ref admitted, .. } = gate.report;
    if items > 0 && repeated == 0 && admitted.is_empty() {
        return Err(Rejected::NothingTrue { items });
    }
    gate.report.pending = wait(&mut gate.ledger, source);
    gate.restore(&ground);
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
    /// What came back is the message of an error.
    #[error(
        "the summary is refused: it is the text of an error (“{begins}”). Look at the summariser's server"
    )]
    ErrorText {
        /// How it begins.
        begins: String,
    },
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
    /// Everything it says is made up, forbidden or nobody's word.
    #[error("the summary is refused: the span bears out none of its {items} items. Use another model")]
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
    if draft.items.is_empty() && said_something {
        return Err(Rejected::AllNone);
    }
    Ok(draft)
}

/// Reads everything that may bear a draft out: the span, and what summaries say already.
fn hear(evidence: &mut Evidence, source: &Source<'_>, ground: &Brief) {
    for event in source.span {
        let at = SeqSet::one(event.id.seq);
        event.event.fact.visit_text(&mut |text| evidence.read(text, &at));
    }
    let earlier = source.previous.into_iter().flat_map(|previous| &previous.items);
    let mut heard: HashSet<&str> = HashSet::new();
    // Most items are carried as they are, and most keys are words of their item.
    for item in ground.items.iter().chain(earlier).filter(|item| heard.insert(&item.text)) {
        evidence.read(&item.text, &item.sources);
        let words = match &item.detail {
            Some(Detail::Error { words, .. }) => Some(words),
            _ => None,
        };
        for hidden in item.key.iter().chain(words).filter(|words| !item.text.contains(words.as_str())) {
            evidence.read(hidden, &item.sources);
        }
    }
}

/// Takes out an item that no longer holds. It is counted from then on, so that it can still be found.
fn supersede(gate: &mut Gate<'_>, previous: Option<&Brief>, name: &str, reason: &str) {
    let Some(item) = named(previous, name) else {
        gate.report.keep(name, WhyKept::Unknown);
        return;
    };
    let now = gate.ledger.get(item.section, item.identity());
    let why = match now {
        _ if reason.is_empty() => Some(WhyKept::NoReason),
        _ if !is_the_models(item) => Some(WhyKept::NotTheModels),
        None => Some(WhyKept::Unknown),
        // Whatever the reason: the span has shown it again, or shown it otherwise.
        Some(now) if now.sources.last() > item.sources.last() || now.text != item.text => {
            Some(WhyKept::StillSpokenOf)
        }
        Some(_) => None,
    };
    if let Some(why) = why {
        gate.report.keep(name, why);
        return;
    }
    gate.ledger.retire(item.section, item.identity());
    let (text, reason) = (item.text.clone(), one_line(reason, 300));
    gate.report.supersede(Superseded { section: item.section, text, reason });
}

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
