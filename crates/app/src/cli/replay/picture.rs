//! The pictures of a replay: the session with the most calls, under the first setting.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use epitome_measure::{
    charts::{PictureTitle, PolicySeries, plot, svg},
    replay::{ReplayCandidate, ReplayRow, RequestRoom},
};

use super::{CacheMode, ReplayArgs, ReplaySetting, SummaryAuthorArg, replay_location::ReplayLocation};

/// A session that can be drawn.
pub(super) struct ReplayPicture {
    pub(super) title: PictureTitle,
    /// Calls by contender.
    pub(super) calls: Vec<Vec<ReplayRow>>,
}

impl ReplayPicture {
    /// Number of calls.
    pub(super) fn length(&self) -> usize {
        self.calls.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Draws with letters.
    pub(super) fn plot(&self, contenders: &[ReplayCandidate], width: usize) -> String {
        plot(&self.title, &self.series(contenders), width)
    }

    /// Writes the picture to a file.
    pub(super) fn write(&self, contenders: &[ReplayCandidate], path: &Path) -> anyhow::Result<()> {
        let drawn = svg(&self.title, &self.series(contenders));
        fs::write(path, drawn).with_context(|| format!("cannot write {}", path.display()))
    }

    fn series<'a>(&'a self, contenders: &'a [ReplayCandidate]) -> Vec<PolicySeries<'a>> {
        let calls = contenders.iter().zip(&self.calls);
        calls.map(|(contender, calls)| PolicySeries { policy: contender.name(), calls }).collect()
    }
}

/// Checks that a picture can be written there, before the time for a replay is spent.
pub(super) fn check(path: &Path, places: &[ReplayLocation]) -> anyhow::Result<()> {
    if path.canonicalize().is_ok_and(|path| places.iter().any(|place| place.path().as_ref() == Some(&path))) {
        bail!("--svg {}: this is being replayed; name another file", path.display());
    }
    if path.is_dir() {
        bail!("--svg {}: this is a folder; name a file in it", path.display());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            bail!("--svg {}: there is no folder {}; make it first", path.display(), folder.display())
        }
        _ => Ok(()),
    }
}

/// Command that draws a session again.
pub(super) fn command(args: &ReplayArgs, setting: &ReplaySetting<'_>, place: &ReplayLocation) -> String {
    let mut words = vec!["epitome replay".to_owned(), quoted(&place.given_name())];
    let mut option = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("--{name} {}", quoted(&value))));
    };
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    option("policy", Some(args.policy.join(",")));
    option("model", setting.model.map(|profile| profile.name.clone()));
    let (limit, tokens) = match setting.limit {
        Some(RequestRoom::Window(tokens)) => ("window", Some(tokens)),
        Some(RequestRoom::Request(tokens)) => ("budget", Some(tokens)),
        None => ("budget", None),
    };
    option(limit, tokens.map(|tokens| tokens.0.to_string()));
    option("cache", (setting.cache == CacheMode::Ideal).then(|| "ideal".to_owned()));
    option("summariser", (args.summariser == SummaryAuthorArg::Session).then(|| "session".to_owned()));
    option("models", args.profiles.as_ref().map(path));
    option("svg", args.svg.as_ref().map(path));
    words.join(" ")
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./,:=@%+~".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_word_is_quoted_where_a_shell_would_read_it_otherwise() {
        assert_eq!(quoted("a/b-1.jsonl"), "a/b-1.jsonl");
        assert_eq!(quoted("my session's.jsonl"), r"'my session'\''s.jsonl'");
        assert_eq!(quoted(""), "''");
    }
}
