//! What calls are about: by which a failure and a later success are found to belong together.

use std::collections::HashSet;

use serde_json::Value;

use super::{sentences::one_line, tools::ToolEffect};
use crate::{event::ToolCall, hash_chain::Digest};

/// How long the name of what a call is about may be.
pub(super) const MAX_SUBJECT_CHARS: usize = 120;

/// What a call was about, in words that stay the same: a command, or the tool and its target, which is a file or the first
/// text that it was given.
pub fn subject(call: &ToolCall, done: &[ToolEffect]) -> String {
    let command = done.iter().find_map(|effect| match effect {
        ToolEffect::Ran { command, .. } => Some(command),
        _ => None,
    });
    if let Some(command) = command {
        return format!("`{}`", one_line(command, MAX_SUBJECT_CHARS));
    }
    let given = || match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(given)) => given.values().find_map(Value::as_str).map(str::to_owned),
        _ => None,
    };
    let path = done.iter().find_map(ToolEffect::path).map(plain_path);
    let target = path.or_else(given).unwrap_or_default();
    one_line(&format!("{} {target}", one_line(&call.name.0, 60)), MAX_SUBJECT_CHARS)
}

/// A path as it is told: without what says nothing, in one line. A line break in it is written as an escape.
pub(super) fn plain_path(path: &str) -> String {
    let path = path.trim();
    let path = path.strip_prefix("./").unwrap_or(path).replace('\r', "\\r").replace('\n', "\\n");
    one_line(&path, usize::MAX)
}

/// The files that a command sets back to what was committed, as it names them; `.` for all.
pub(super) fn restored_paths(command: &str) -> Vec<&str> {
    let mut words = command.split_once("git ").map_or("", |(_, rest)| rest).split_whitespace();
    let sets_back = matches!(words.next(), Some("checkout" | "restore"));
    let rest: Vec<&str> = words.take_while(|word| !matches!(*word, "&&" | ";" | "|" | "||")).collect();
    let is_kept = rest.iter().any(|word| matches!(*word, "-b" | "--staged"));
    let files = rest.into_iter().filter(|word| !word.starts_with('-'));
    if sets_back && !is_kept { files.collect() } else { Vec::new() }
}

/// Whether a name on a command line means a file.
pub(super) fn is_same_file(path: &str, name: &str) -> bool {
    let (path, name) = (path.trim_start_matches("./"), name.trim_start_matches("./"));
    let tail = |long: &str, short: &str| long.strip_suffix(short).is_some_and(|head| head.ends_with('/'));
    !name.is_empty() && (path == name || tail(path, name) || tail(name, path))
}

/// What a call replaces by what, as digests: enough to see that a later call does the opposite.
#[derive(Clone, Debug)]
pub(super) struct ReplacementDigest {
    pub(super) old: String,
    pub(super) new: String,
    /// The beginning of the first line that it takes out; empty if it only adds some.
    pub(super) removed: String,
}

/// What a call replaces in a file: each pair of an old text and a new one that it names as such.
pub(super) fn replacements(call: &ToolCall) -> Vec<ReplacementDigest> {
    const MOST: usize = 64;
    let Ok(Value::Object(arguments)) = serde_json::from_str::<Value>(&call.arguments) else {
        return Vec::new();
    };
    let nested = arguments.get("edits").and_then(Value::as_array).into_iter().flatten();
    let all = std::iter::once(&arguments).chain(nested.filter_map(Value::as_object)).take(MOST);
    let pairs = all.filter_map(|fields| {
        let text = |starts: [&str; 2]| {
            let named = fields.iter().find(|(name, _)| starts.iter().any(|start| name.starts_with(start)));
            named.and_then(|(_, value)| value.as_str()).filter(|text| !text.trim().is_empty())
        };
        let (old, new) = (text(["old", "search"])?, text(["new", "replace"])?);
        let kept: HashSet<&str> = new.lines().map(str::trim).collect();
        let removed = old.lines().map(str::trim).find(|line| !line.is_empty() && !kept.contains(line));
        let removed = one_line(removed.unwrap_or_default(), 60);
        Some(ReplacementDigest { old: short_digest(old), new: short_digest(new), removed })
    });
    pairs.collect()
}

/// A few letters by which a text is known again, by later builds too: summaries are stored.
pub(super) fn short_digest(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string().chars().take(16).collect()
}
