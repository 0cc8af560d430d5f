//! The file format of policies: the file's values over those of its base, checked field by field.
//!
//! A person writes these files and makes mistakes, so everything is read with its place, and an error names
//! the line it stands in.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use toml::{Spanned, Table, Value};

use super::{LimitSize, Policy, PolicyError, PolicyLimits, PolicyStep, StepTiming, SummaryRules};
use crate::{
    context::Tier,
    pipeline::Reducer,
    profile::Share,
    reducers::{AnyReducer, Blocks},
    summary::compaction::SummaryLength,
    tokens::Tokens,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    name: Option<Spanned<String>>,
    about: Option<String>,
    /// The built-in policy for values that this file does not set.
    base: Option<Spanned<String>>,
    #[serde(default)]
    limits: PolicyFileLimits,
    caps: Option<BTreeMap<Tier, Spanned<Share>>>,
    reduce: Option<Vec<Spanned<PolicyFileStep>>>,
    summary: Option<Spanned<PolicyFileSummary>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PolicyFileLimits {
    trigger: Option<Spanned<LimitSize>>,
    target: Option<Spanned<LimitSize>>,
    force: Option<Spanned<LimitSize>>,
    cold: Option<Spanned<LimitSize>>,
    heeds_degradation: Option<bool>,
}

/// The fields of a step: its reducer, when it is run, its numbers.
type PolicyFileStep = BTreeMap<String, Spanned<Value>>;

/// `false`, `true`, or how.
struct PolicyFileSummary(Option<SummaryRules>);

/// An error, and its place in the file.
struct PolicyFileError {
    at: usize,
    reason: String,
}

impl PolicyFileError {
    fn new(at: usize, reason: impl Into<String>) -> Self {
        Self { at, reason: reason.into() }
    }

    /// Something that only a policy over another may go without.
    fn missing(field: &str) -> Self {
        Self::new(0, format!("{field} is missing; only a policy with a `base` may go without"))
    }
}

pub(super) fn read(text: &str) -> Result<Policy, PolicyError> {
    let file: Result<PolicyFile, _> = toml::from_str(text);
    let policy = match file {
        Ok(file) => policy(file),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            Err(PolicyFileError::new(at, plain(&error)))
        }
    };
    policy.map_err(|PolicyFileError { at, reason }| PolicyError::File { line: line_at(text, at), reason })
}

fn policy(file: PolicyFile) -> Result<Policy, PolicyFileError> {
    let base = file.base.as_ref().map(base).transpose()?;
    let name = match (file.name, base) {
        (Some(name), _) if name.get_ref().trim().is_empty() => {
            return Err(PolicyFileError::new(name.span().start, "`name` is empty"));
        }
        (Some(name), _) => name.into_inner(),
        (None, Some(base)) => base.name.clone(),
        (None, None) => return Err(PolicyFileError::missing("`name`")),
    };
    let about = match (file.about, base) {
        (Some(about), _) => about,
        (None, Some(base)) => base.about.clone(),
        (None, None) => return Err(PolicyFileError::missing("`about`")),
    };
    let reduce = match (file.reduce, base) {
        (Some(steps), _) => steps.into_iter().map(step).collect::<Result<_, _>>()?,
        (None, Some(base)) => base.reduce.clone(),
        (None, None) => {
            return Err(PolicyFileError::missing("`reduce`, the list of steps, or `reduce = []` for none,"));
        }
    };
    let caps = match (file.caps, base) {
        (Some(said), _) => caps(said)?,
        (None, base) => base.map(|base| base.caps.clone()).unwrap_or_default(),
    };
    let summary = match file.summary {
        Some(said) => summary(said)?,
        None => base.and_then(|base| base.summary),
    };
    let limits = limits(&file.limits, base.map_or_else(PolicyLimits::default, |base| base.limits))?;
    Ok(Policy { name, about, limits, caps, reduce, summary })
}

fn base(said: &Spanned<String>) -> Result<&'static Policy, PolicyFileError> {
    let found = Policy::builtin().iter().find(|policy| policy.name == *said.get_ref());
    found.ok_or_else(|| {
        let reason = format!("`base`: there is no built-in policy `{}`; {}", said.get_ref(), known());
        PolicyFileError::new(said.span().start, reason)
    })
}

fn known() -> String {
    let names: Vec<&str> = Policy::builtin().iter().map(|policy| policy.name.as_str()).collect();
    format!("there are {}", names.join(", "))
}

/// The limits of a file, over those of its base, in an order that can settle.
fn limits(said: &PolicyFileLimits, base: PolicyLimits) -> Result<PolicyLimits, PolicyFileError> {
    let level = |said: &Option<Spanned<LimitSize>>| said.as_ref().map(|said| *said.get_ref());
    let limits = PolicyLimits {
        trigger: level(&said.trigger).or(base.trigger),
        target: level(&said.target).or(base.target),
        force: level(&said.force).or(base.force),
        cold: level(&said.cold).or(base.cold),
        heeds_degradation: said.heeds_degradation.unwrap_or(base.heeds_degradation),
    };
    let named = |name, level: Option<LimitSize>, said: &Option<Spanned<LimitSize>>| CheckedLimit {
        name,
        size: level.map(|level| level.of(USUAL, Tokens(0))),
        at: said.as_ref().map(|said| said.span().start),
    };
    let target = named("target", limits.target, &said.target);
    let trigger = named("trigger", limits.trigger, &said.trigger);
    let force = named("force", limits.force, &said.force);
    let cold = named("cold", limits.cold, &said.cold);
    if let Some(zero) = [target, trigger, force, cold].iter().find(|limit| limit.size == Some(Tokens(0))) {
        return Err(PolicyFileError::new(zero.at.unwrap_or(0), format!("`{}` must be above 0", zero.name)));
    }
    target.below(trigger)?;
    target.below(force)?;
    trigger.not_above(force)?;
    cold.not_above(force)?;
    Ok(limits)
}

/// A window of usual size. A share and a number of tokens may stand in either order on others;
/// [`Policy::budget`] sees to it that they settle there too.
const USUAL: Tokens = Tokens(200_000);

/// A limit in a window of usual size, and its place in this file, if the file sets it.
#[derive(Clone, Copy)]
struct CheckedLimit {
    name: &'static str,
    size: Option<Tokens>,
    at: Option<usize>,
}

impl CheckedLimit {
    /// Checks that the size after acting leaves room below the size at which it acts again.
    fn below(self, upper: Self) -> Result<(), PolicyFileError> {
        self.check(upper, |low, high| low < high, "be below", "every call would reset the cache")
    }

    fn not_above(self, upper: Self) -> Result<(), PolicyFileError> {
        self.check(upper, |low, high| low <= high, "not be above", "it would never be reached")
    }

    fn check(
        self,
        upper: Self,
        holds: impl Fn(Tokens, Tokens) -> bool,
        must: &str,
        otherwise: &str,
    ) -> Result<(), PolicyFileError> {
        let (Some(low), Some(high)) = (self.size, upper.size) else { return Ok(()) };
        if holds(low, high) {
            return Ok(());
        }
        // One of the two is said in this file, or the base would not have been read.
        let at = self.at.or(upper.at).unwrap_or(0);
        let reason = format!(
            "`{}` must {must} `{}`, or {otherwise}: of {USUAL} tokens they are {low} and {high}",
            self.name, upper.name
        );
        Err(PolicyFileError::new(at, reason))
    }
}

fn caps(said: BTreeMap<Tier, Spanned<Share>>) -> Result<BTreeMap<Tier, Share>, PolicyFileError> {
    let check = |(tier, share): (Tier, Spanned<Share>)| {
        if share.get_ref().of(USUAL) == Tokens(0) {
            return Err(PolicyFileError::new(
                share.span().start,
                "a cap must be above 0, or nothing could ever meet it",
            ));
        }
        Ok((tier, share.into_inner()))
    };
    said.into_iter().map(check).collect()
}

fn summary(said: Spanned<PolicyFileSummary>) -> Result<Option<SummaryRules>, PolicyFileError> {
    let at = said.span().start;
    let PolicyFileSummary(rules) = said.into_inner();
    let wrong = |reason: &str| Err(PolicyFileError::new(at, format!("`summary`: {reason}")));
    match rules.map(|rules| rules.length) {
        Some(SummaryLength::Fixed(Tokens(0)) | SummaryLength::Scaled { most: Tokens(0), .. }) => {
            wrong("a `length` of 0 leaves nothing to say")
        }
        Some(SummaryLength::Scaled { least, most, .. }) if least > most => {
            wrong(&format!("the least `length`, {least}, is above the most, {most}"))
        }
        Some(SummaryLength::Scaled { percent, .. }) if percent == 0 || percent > 100 => {
            wrong(&format!("a `length` of {percent} percent of the span; expected 1 to 100"))
        }
        Some(SummaryLength::Fixed(_) | SummaryLength::Scaled { .. }) | None => Ok(rules),
    }
}

/// Written by hand, because an untagged enum names neither the error nor its place.
impl<'de> Deserialize<'de> for PolicyFileSummary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SummaryVisitor;
        impl<'de> Visitor<'de> for SummaryVisitor {
            type Value = PolicyFileSummary;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`false`, `true`, or a table with `keep`, `length`, `caps`, `shape`, `paid`")
            }

            fn visit_bool<E>(self, wanted: bool) -> Result<PolicyFileSummary, E> {
                Ok(PolicyFileSummary(wanted.then(SummaryRules::default)))
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<PolicyFileSummary, M::Error> {
                let rules = SummaryRules::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PolicyFileSummary(Some(rules)))
            }
        }
        deserializer.deserialize_any(SummaryVisitor)
    }
}

fn step(said: Spanned<PolicyFileStep>) -> Result<PolicyStep, PolicyFileError> {
    let at = said.span().start;
    let mut fields = said.into_inner();
    let when = fields.remove("when").map(when).transpose()?.unwrap_or_default();
    let known: Vec<&str> = AnyReducer::all().iter().map(Reducer::name).collect();
    let Some(reducer) = fields.remove("reducer") else {
        let reason = format!("a step needs its `reducer`: one of {}", known.join(", "));
        return Err(PolicyFileError::new(at, reason));
    };
    let place = reducer.span().start;
    let name = match reducer.get_ref() {
        Value::String(name) if known.contains(&name.as_str()) => name.clone(),
        Value::String(name) => {
            let reason = format!("there is no reducer `{name}`; there are {}", known.join(", "));
            return Err(PolicyFileError::new(place, reason));
        }
        other => {
            let reason = format!("`reducer` is a name in quotes, and not of type {}", other.type_str());
            return Err(PolicyFileError::new(place, reason));
        }
    };
    let named = || Table::from_iter([("reducer".to_owned(), Value::String(name.clone()))]);
    let mut whole = named();
    for (field, value) in fields {
        // Every field may be left out, so each can be tried by itself to find the place of the wrong one.
        let at = value.span().start;
        let mut alone = named();
        alone.insert(field.clone(), value.get_ref().clone());
        if let Err(error) = AnyReducer::deserialize(alone) {
            let message = plain(&error);
            let about = if message.contains(&format!("`{field}`")) { "" } else { &format!("`{field}`: ") };
            return Err(PolicyFileError::new(at, format!("reducer `{name}`: {about}{message}")));
        }
        whole.insert(field, value.into_inner());
    }
    let reducer = AnyReducer::deserialize(whole)
        .map_err(|error| PolicyFileError::new(at, format!("reducer `{name}`: {}", plain(&error))))?;
    if let AnyReducer::Blocks(Blocks(config)) = &reducer
        && config.trigger(USUAL) == Tokens(0)
    {
        let reason = "reducer `blocks`: `compact_at_pct` must be above `compact_budget_threshold_pct`, or it would compact \
                      before every call";
        return Err(PolicyFileError::new(at, reason));
    }
    Ok(PolicyStep { when, reducer })
}

fn when(said: Spanned<Value>) -> Result<StepTiming, PolicyFileError> {
    let at = said.span().start;
    let value = said.into_inner();
    if !value.is_str() {
        let reason = format!("`when` is a name in quotes, and not of type {}", value.type_str());
        return Err(PolicyFileError::new(at, reason));
    }
    StepTiming::deserialize(value)
        .map_err(|error| PolicyFileError::new(at, format!("`when`: {}", plain(&error))))
}

/// Text of an error for a person who writes policies and not Rust.
fn plain(error: &toml::de::Error) -> String {
    const WORDS: [(&str, &str); 4] = [
        ("expected u64", "expected a whole number"),
        ("expected usize", "expected a whole number"),
        ("expected a sequence", "expected a list of tables"),
        ("wanted string or table", "expected a name in quotes, or a table such as `{ tokens = 30_000 }`"),
    ];
    let message = error.message().trim_end().to_owned();
    WORDS.iter().fold(message, |message, (rust, plain)| message.replace(rust, plain))
}

fn line_at(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}
