//! Arguments of a tool, read strictly: a model that writes a wrong name must learn of it.

use anyhow::{anyhow, bail};
use epitome::{core::event::Timestamp, queries::QueryScope};
use rmcp::model::JsonObject;
use serde_json::Value;

use super::definitions;
use crate::units::parse_time;

/// Longest text that an argument may hold.
const MAX_TEXT_BYTES: usize = 8 * 1024;

/// Arguments of one call.
pub(super) struct ToolArguments(JsonObject);

impl ToolArguments {
    /// Checks the names of the arguments of a tool.
    pub(super) fn read(tool: &str, given: JsonObject) -> anyhow::Result<Self> {
        let known = definitions::argument_names(tool);
        match given.keys().find(|name| !known.contains(name)) {
            Some(unknown) => bail!("`{tool}` has no argument `{unknown}`; it has: {}", known.join(", ")),
            None => Ok(Self(given)),
        }
    }

    /// A text that must be given.
    pub(super) fn required(&self, name: &str) -> anyhow::Result<&str> {
        self.text(name)?.ok_or_else(|| anyhow!("`{name}` is missing"))
    }

    /// A text, if one is given. White space is none.
    pub(super) fn text(&self, name: &str) -> anyhow::Result<Option<&str>> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() > MAX_TEXT_BYTES => {
                bail!("`{name}` is too long: {} bytes of at most {MAX_TEXT_BYTES}", text.len())
            }
            Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(_) => bail!("`{name}` must be a text"),
        }
    }

    /// A whole number within bounds, or what it is by default.
    pub(super) fn number(&self, name: &str, default: usize, most: usize) -> anyhow::Result<usize> {
        let number = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(default),
            Some(value) => value.as_u64().and_then(|number| usize::try_from(number).ok()),
        };
        match number {
            Some(number) if number <= most => Ok(number),
            _ => bail!("`{name}` must be a whole number from 0 to {most}"),
        }
    }

    /// Time from which on something is wanted.
    pub(super) fn time(&self, name: &str) -> anyhow::Result<Option<Timestamp>> {
        self.text(name)?
            .map(|text| parse_time(text).map_err(|error| anyhow!("`{name}`: {error}")))
            .transpose()
    }

    /// Whether all of the caller's sessions are wanted, or those of its project.
    pub(super) fn scope(&self) -> anyhow::Result<QueryScope> {
        match self.text("scope")? {
            None | Some("project" | "session") => Ok(QueryScope::Project),
            Some("all") => Ok(QueryScope::All),
            Some(_) => bail!("`scope` must be `session`, `project` or `all`"),
        }
    }

    /// Returns true if only the caller's own session is wanted.
    pub(super) fn is_session_scope(&self) -> anyhow::Result<bool> {
        Ok(self.text("scope")? == Some("session"))
    }

    /// The arguments with some replaced, to call again. White space around texts is not told again.
    pub(super) fn with(&self, replaced: &[(&str, Value)]) -> Value {
        let trimmed = |(name, value): (&String, &Value)| {
            let value = value.as_str().map_or_else(|| value.clone(), |text| Value::from(text.trim()));
            (name.clone(), value)
        };
        let mut next: JsonObject = self.0.iter().map(trimmed).collect();
        for (name, value) in replaced {
            next.insert((*name).to_owned(), value.clone());
        }
        Value::Object(next)
    }
}
