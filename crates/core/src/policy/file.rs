//! The file format of policies.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Table, Value};

use super::{Limits, Policy, PolicyError, Step, SummaryRules, When};
use crate::{context::Tier, profile::Share, reducers::AnyReducer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    about: Option<String>,
    /// The built-in policy that holds where this file says nothing.
    base: Option<Spanned<String>>,
    limits: Option<Spanned<Limits>>,
    caps: Option<BTreeMap<Tier, Share>>,
    reduce: Option<Vec<Spanned<Table>>>,
    /// `false`, or how.
    summary: Option<Spanned<Value>>,
}

pub(super) fn read(text: &str) -> Result<Policy, PolicyError> {
    let file: File = toml::from_str(text).map_err(|error| PolicyError::File {
        line: error.span().map_or(1, |span| line_at(text, span.start)),
        reason: error.message().trim_end().to_owned(),
    })?;
    let wrong = |at: usize, reason: String| PolicyError::File { line: line_at(text, at), reason };
    let base = match &file.base {
        Some(base) => {
            Some(Policy::named(base.get_ref()).map_err(|error| wrong(base.span().start, error.to_string()))?)
        }
        None => None,
    };
    let missing =
        |field: &str| wrong(0, format!("`{field}` is missing; only a policy with a `base` may go without"));
    let name = file.name.or_else(|| base.map(|base| base.name.clone())).ok_or_else(|| missing("name"))?;
    let about = file.about.or_else(|| base.map(|base| base.about.clone())).ok_or_else(|| missing("about"))?;
    let limits = limits(file.limits, base, &wrong)?;
    let reduce = match (file.reduce, base) {
        (Some(steps), _) => {
            let read = |step: Spanned<Table>| {
                let at = step.span().start;
                self::step(step.into_inner()).map_err(|reason| wrong(at, reason))
            };
            steps.into_iter().map(read).collect::<Result<_, _>>()?
        }
        (None, Some(base)) => base.reduce.clone(),
        (None, None) => return Err(missing("reduce")),
    };
    let caps = file.caps.or_else(|| base.map(|base| base.caps.clone())).unwrap_or_default();
    let summary = match file.summary {
        Some(said) => summary(said, &wrong)?,
        None => base.and_then(|base| base.summary),
    };
    Ok(Policy { name, about, limits, caps, reduce, summary })
}

/// The limits of a file, over those of its base, in an order that can settle.
fn limits(
    said: Option<Spanned<Limits>>,
    base: Option<&Policy>,
    wrong: impl Fn(usize, String) -> PolicyError,
) -> Result<Limits, PolicyError> {
    let base = base.map_or_else(Limits::default, |base| base.limits);
    let Some(said) = said else { return Ok(base) };
    let at = said.span().start;
    let said = said.into_inner();
    let limits = Limits {
        trigger: said.trigger.or(base.trigger),
        target: said.target.or(base.target),
        force: said.force.or(base.force),
        cold: said.cold.or(base.cold),
    };
    // On a window of usual size; a share and a number of tokens may stand in either order on others.
    let usual = crate::tokens::Tokens(200_000);
    let named = [("target", limits.target), ("trigger", limits.trigger), ("force", limits.force)];
    let given: Vec<_> = named.iter().filter_map(|(name, level)| Some((name, (*level)?.of(usual)))).collect();
    for pair in given.windows(2) {
        let ((lower, low), (upper, high)) = (pair[0], pair[1]);
        if low > high || (*lower == "target" && low == high) {
            let reason = format!("`{lower}` must be below `{upper}`, or it would act on every call");
            return Err(wrong(at, reason));
        }
    }
    if let Some(zero) = given.iter().find(|(_, tokens)| tokens.0 == 0) {
        return Err(wrong(at, format!("`{}` must be above 0", zero.0)));
    }
    Ok(limits)
}

fn summary(
    said: Spanned<Value>,
    wrong: impl Fn(usize, String) -> PolicyError,
) -> Result<Option<SummaryRules>, PolicyError> {
    let at = said.span().start;
    match said.into_inner() {
        Value::Boolean(false) => Ok(None),
        Value::Boolean(true) => Ok(Some(SummaryRules::default())),
        rules => SummaryRules::deserialize(rules)
            .map(Some)
            .map_err(|error| wrong(at, format!("`summary`: {}", error.message().trim_end()))),
    }
}

fn step(mut table: Table) -> Result<Step, String> {
    let when = match table.remove("when") {
        Some(when) => {
            When::deserialize(when).map_err(|error| format!("`when`: {}", error.message().trim_end()))?
        }
        None => When::default(),
    };
    let name = table.get("reducer").and_then(Value::as_str).map(str::to_owned);
    let reducer = AnyReducer::deserialize(table).map_err(|error| {
        let reason = error.message().trim_end().to_owned();
        match name {
            Some(name) => format!("reducer `{name}`: {reason}"),
            None => format!("a reducer needs its name, as `reducer = \"prune\"`: {reason}"),
        }
    })?;
    Ok(Step { when, reducer })
}

fn line_at(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}
