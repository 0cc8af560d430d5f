//! Settings of mode `compact`, from a table of the file and from flags, which take precedence.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use epitome::{core::Tokens, session::OverflowCheck, summarise::SummaryInstructions, wire::Format};
use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};
use toml::Spanned;

use super::{
    CompactModeConfig, ConfiguredSummariser, address,
    file::{ConfigText, EnvironmentLookup, secret, word},
    hooks::{ConfiguredHook, HookContent},
};
use crate::units;

/// Largest share of sessions that may be held out: with two groups, half is the most that makes sense.
const MOST_HELD_OUT: f64 = 0.5;

/// Converts between a share and millionths.
const MILLION: f64 = 1e6;

/// Most letters in a command or a model's name.
const MAX_NAME_LETTERS: usize = 128;

/// The table `[compact]` of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCompact {
    window: Option<Spanned<RawWindow>>,
    holdout: Option<Spanned<f64>>,
    command: Option<Spanned<String>>,
    #[serde(default)]
    recall: bool,
    auto: Option<bool>,
    compaction_items: Option<Spanned<String>>,
    #[serde(default)]
    tool_output: BTreeMap<String, Spanned<u64>>,
    focus: Option<Spanned<String>>,
    #[serde(default)]
    notes: Vec<Spanned<String>>,
    idle: Option<Spanned<String>>,
    memory_files: Option<Spanned<PathBuf>>,
    #[serde(default)]
    summariser: RawSummariser,
    careful_summariser: Option<Spanned<RawCarefulSummariser>>,
    #[serde(default)]
    hook: Vec<RawHook>,
}

/// A table `[[compact.hook]]` of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHook {
    name: Spanned<String>,
    reserve: Spanned<u64>,
    text: Option<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    replace: bool,
}

/// The table `[compact.summariser]` of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSummariser {
    #[serde(rename = "use")]
    known: Option<Spanned<String>>,
    model: Option<Spanned<String>>,
    url: Option<Spanned<String>>,
    format: Option<Spanned<String>>,
    key_env: Option<Spanned<String>>,
    timeout: Option<Spanned<String>>,
}

/// The table `[compact.careful_summariser]` of the file: a model, within the time of the usual summariser.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCarefulSummariser {
    model: Option<Spanned<String>>,
    url: Option<Spanned<String>>,
    format: Option<Spanned<String>>,
    key_env: Option<Spanned<String>>,
}

impl RawCompact {
    /// Checks the table and makes settings of it.
    pub(super) fn read(
        self,
        page: &ConfigText<'_>,
        environment: EnvironmentLookup<'_>,
    ) -> anyhow::Result<CompactModeConfig> {
        Ok(CompactModeConfig {
            window: self.window.map(|said| page.read(&said, RawWindow::read)).transpose()?,
            holdout: self.holdout.map_or(Ok(0), |said| page.read(&said, |share| holdout(*share)))?,
            command: self.command.map(|said| page.read(&said, |word| command(word))).transpose()?,
            recall: self.recall,
            overflow_check: overflow_check(self.auto),
            own_items: self
                .compaction_items
                .map_or(Ok(false), |said| page.read(&said, |word| compaction_items(word)))?,
            tool_limits: tool_limits(page, &self.tool_output)?,
            instructions: SummaryInstructions {
                focus: self.focus.map(|said| page.read(&said, |text| words("focus", text))).transpose()?,
                extra: notes(page, &self.notes)?,
            },
            idle: self.idle.map(|said| page.read(&said, |text| units::time(text))).transpose()?,
            memory_files: self.memory_files.map(|said| page.read(&said, |path| folder(path))).transpose()?,
            careful: self
                .careful_summariser
                .map(|said| careful(page, said, &self.summariser, environment))
                .transpose()?,
            hooks: hooks(page, self.hook)?,
            summary_time: self
                .summariser
                .timeout
                .as_ref()
                .map(|said| page.read(said, |text| units::time(text)))
                .transpose()?,
            summariser: self.summariser.read(page, environment)?,
        })
    }
}

impl RawSummariser {
    fn read(
        self,
        page: &ConfigText<'_>,
        environment: EnvironmentLookup<'_>,
    ) -> anyhow::Result<ConfiguredSummariser> {
        let Self { known, model, url, format, key_env, timeout: _ } = self;
        let details = [&model, &url, &format, &key_env].into_iter().flatten().next();
        match (&known, &model, &url) {
            (Some(known), ..) if details.is_some() => Err(page.value(
                known,
                "`use` needs nothing beside it: take it out, or else `model`, `url`, `format` and `key_env`",
            )),
            (Some(known), ..) => page.read(known, |name| {
                self::known(name).ok_or_else(|| {
                    let name = units::printable(name);
                    format!("`{name}` is no summariser: write built-in or session, or `model` and `url` instead of `use`")
                })
            }),
            (None, Some(model), Some(url)) => Ok(ConfiguredSummariser::Model {
                model: page.read(model, |name| model_name(name))?,
                base: page.read(url, |url| address::base(url))?,
                format: format.map_or(Ok(Format::OpenaiChat), |said| {
                    page.read(&said, |name| name.parse().map_err(|error| format!("{error}")))
                })?,
                key: key_env.map(|name| page.read(&name, |name| secret(name, environment))).transpose()?,
            }),
            (None, ..) => match details {
                Some(said) => Err(page.value(
                    said,
                    "a summariser of your own has a `model` and a `url`: give both, or neither for the built-in one",
                )),
                None => Ok(ConfiguredSummariser::BuiltIn),
            },
        }
    }
}

/// The check of usage that `auto` asks for.
fn overflow_check(auto: Option<bool>) -> OverflowCheck {
    if auto == Some(false) { OverflowCheck::Off } else { OverflowCheck::On }
}

/// Smallest limit for the outputs of a tool: below it a line about what is missing takes most of it.
const MIN_TOOL_TOKENS: u64 = 100;

/// Reads who answers requests for compaction items.
fn compaction_items(word: &str) -> Result<bool, String> {
    match word {
        "provider" => Ok(false),
        "gateway" => Ok(true),
        _ => Err(format!(
            "`{}` is nobody who answers requests for compaction items: write provider (the gateway steps in where it \
             cannot) or gateway",
            units::printable(word)
        )),
    }
}

/// Reads the sizes to which outputs of tools are cut.
fn tool_limits(
    page: &ConfigText<'_>,
    said: &BTreeMap<String, Spanned<u64>>,
) -> anyhow::Result<BTreeMap<String, u64>> {
    let limit = |(tool, tokens): (&String, &Spanned<u64>)| {
        let tokens = page.read(tokens, |tokens| {
            if *tokens < MIN_TOOL_TOKENS {
                return Err(format!(
                    "{tokens} tokens are too few for an output: {MIN_TOOL_TOKENS} is the least"
                ));
            }
            Ok(*tokens)
        })?;
        Ok((tool.clone(), tokens))
    };
    said.iter().map(limit).collect()
}

/// Most letters of a focus and of a note.
const MAX_WORDS_LETTERS: usize = 2_000;

/// Most notes: no more are told to a summariser.
const MAX_NOTES: usize = 32;

/// Checks a text for summarisers.
fn words(key: &str, text: &str) -> Result<String, String> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err(format!("`{key}` is empty: say what summaries should attend to, or leave it out")),
        letters if letters > MAX_WORDS_LETTERS => {
            Err(format!("`{key}` has {letters} letters: {MAX_WORDS_LETTERS} is the most"))
        }
        _ => Ok(text.to_owned()),
    }
}

fn notes(page: &ConfigText<'_>, said: &[Spanned<String>]) -> anyhow::Result<Vec<String>> {
    if let Some(more) = said.get(MAX_NOTES) {
        return Err(page.value(more, format_args!("there are more than {MAX_NOTES} notes")));
    }
    said.iter().map(|note| page.read(note, |text| words("notes", text))).collect()
}

fn folder(path: &Path) -> Result<PathBuf, String> {
    if path.as_os_str().is_empty() {
        return Err("`memory_files` is empty: name a folder, or leave it out".to_owned());
    }
    Ok(path.to_owned())
}

/// Reads the summariser of what users ask for. It is asked beside another, and needs an address of its own.
fn careful(
    page: &ConfigText<'_>,
    said: Spanned<RawCarefulSummariser>,
    usual: &RawSummariser,
    environment: EnvironmentLookup<'_>,
) -> anyhow::Result<ConfiguredSummariser> {
    let at = said.span().start;
    let is_built_in =
        usual.model.is_none() && usual.known.as_ref().is_none_or(|known| known.get_ref() != "session");
    let why = "a careful summariser writes what users ask for, beside one that works in the background: give \
               [compact.summariser] a model too, or use = \"session\"";
    if is_built_in {
        return Err(page.wrong(at, why));
    }
    let RawCarefulSummariser { model, url, format, key_env } = said.into_inner();
    let named = RawSummariser { known: None, model, url, format, key_env, timeout: None };
    match named.read(page, environment)? {
        model @ ConfiguredSummariser::Model { .. } => Ok(model),
        ConfiguredSummariser::BuiltIn | ConfiguredSummariser::Session => {
            Err(page.wrong(at, "a careful summariser has a `model` and a `url`"))
        }
    }
}

fn hooks(page: &ConfigText<'_>, said: Vec<RawHook>) -> anyhow::Result<Vec<ConfiguredHook>> {
    let mut hooks: Vec<ConfiguredHook> = Vec::new();
    for RawHook { name, reserve, text, file, replace: is_replaced } in said {
        let named = page.read(&name, |name| word(name))?;
        if hooks.iter().any(|hook| hook.name == named) {
            return Err(page.value(&name, format_args!("there is another hook `{named}` above")));
        }
        let reserve = page.read(&reserve, |tokens| match tokens {
            0 => Err("`reserve` is 0, so that the hook could add nothing".to_owned()),
            tokens => Ok(Tokens(*tokens)),
        })?;
        let content = match (text, file) {
            (Some(text), None) => HookContent::Text(page.read(&text, |text| match text.trim() {
                "" => Err("`text` is empty: say what the hook adds".to_owned()),
                text => Ok(text.to_owned()),
            })?),
            (None, Some(file)) => HookContent::File(page.read(&file, |path| folder(path))?),
            (Some(_), Some(_)) | (None, None) => {
                return Err(
                    page.value(&name, "a hook has either `text`, or `file`, which is read anew each time")
                );
            }
        };
        hooks.push(ConfiguredHook { name: named, reserve, content, is_replaced });
    }
    Ok(hooks)
}

/// Summarisers that need no address.
fn known(name: &str) -> Option<ConfiguredSummariser> {
    match name {
        "built-in" => Some(ConfiguredSummariser::BuiltIn),
        "session" => Some(ConfiguredSummariser::Session),
        _ => None,
    }
}

/// Reads a summariser as flags name it: `built-in`, `session`, or an address and a model there.
pub(super) fn summariser(
    named: &str,
    model: Option<&str>,
    key_env: Option<&str>,
    environment: EnvironmentLookup<'_>,
) -> Result<ConfiguredSummariser, String> {
    match (known(named), model) {
        (Some(known), None) if key_env.is_none() => Ok(known),
        (Some(_), _) => Err(format!(
            "--summariser {named} needs neither --summariser-model nor --summariser-key-env: leave them out, or give the \
             address of the model"
        )),
        (None, None) => Err("--summariser is the address of a model, built-in or session: with an address, \
                             give --summariser-model too"
            .to_owned()),
        (None, Some(model)) => Ok(ConfiguredSummariser::Model {
            model: model_name(model).map_err(|why| format!("--summariser-model: {why}"))?,
            base: address::base(named).map_err(|why| format!("--summariser: {why}"))?,
            format: Format::OpenaiChat,
            key: key_env
                .map(|name| secret(name, environment))
                .transpose()
                .map_err(|why| format!("--summariser-key-env: {why}"))?,
        }),
    }
}

/// The size of a model's window as a file has it: a number, or text such as `'128k'`.
#[derive(Debug)]
pub(super) enum RawWindow {
    Number(u64),
    Text(String),
}

impl RawWindow {
    /// Checks the size.
    pub(super) fn read(&self) -> Result<u64, String> {
        match self {
            Self::Number(0) => {
                Err("`window` is 0, so that nothing would fit: give the tokens of the model's \
                                    window, or leave it out"
                    .to_owned())
            }
            Self::Number(tokens) => Ok(*tokens),
            Self::Text(text) => units::parse_tokens(text),
        }
    }
}

impl<'de> Deserialize<'de> for RawWindow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrTextVisitor;
        impl Visitor<'_> for NumberOrTextVisitor {
            type Value = RawWindow;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tokens, such as 128_000 or '128k'")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<RawWindow, E> {
                let wrong = || E::invalid_value(de::Unexpected::Signed(number), &self);
                u64::try_from(number).map(RawWindow::Number).map_err(|_| wrong())
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawWindow, E> {
                Ok(RawWindow::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(NumberOrTextVisitor)
    }
}

/// Converts a share of sessions to millionths.
fn holdout(share: f64) -> Result<u32, String> {
    if !(0.0..=MOST_HELD_OUT).contains(&share) {
        return Err(format!(
            "`holdout` is the share of sessions that are left as they are, to compare with: write 0 for none, up to \
             {MOST_HELD_OUT}, such as 0.1"
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "just checked to be at most half a million"
    )]
    Ok((share * MILLION).round() as u32)
}

/// Reads such a share from a flag.
pub(super) fn holdout_flag(text: &str) -> Result<u32, String> {
    text.parse().map_or_else(|_| holdout(f64::NAN), holdout)
}

/// Checks the command by which users have the session compacted. An ordinary word would also match in other
/// messages.
pub(super) fn command(text: &str) -> Result<String, String> {
    let is_word = text.chars().all(|letter| !letter.is_whitespace() && !letter.is_control());
    let is_marked = text.starts_with(|first: char| !first.is_alphanumeric()) && text.chars().count() > 1;
    if is_word && is_marked && text.len() <= MAX_NAME_LETTERS {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "`{}` is no command: write one word after a sign, such as /compact, which nobody says by chance",
            units::printable(text)
        ))
    }
}

fn model_name(name: &str) -> Result<String, String> {
    if name.trim().is_empty() || name.len() > MAX_NAME_LETTERS || name.chars().any(char::is_control) {
        return Err(
            "this is no name of a model: write it as its provider does, such as gpt-5-mini".to_owned()
        );
    }
    Ok(name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_kept_in_parts_of_a_million() {
        for (text, expect) in
            [("0", 0), ("0.1", 100_000), ("0.5", 500_000), ("0.000001", 1), ("1e-2", 10_000)]
        {
            assert_eq!(holdout_flag(text), Ok(expect), "{text}");
        }
        for text in ["", "-0.1", "0.51", "10", "10%", "nan", "inf", "some"] {
            let said = holdout_flag(text).expect_err(text);
            assert!(said.contains("up to 0.5"), "{said}");
        }
    }

    #[test]
    fn a_command_is_no_word_that_somebody_says_by_chance() {
        for text in ["/compact", "!c", ":compact-now", "/компакт"] {
            assert_eq!(command(text), Ok(text.to_owned()));
        }
        for text in ["", "/", "compact", "/compact now", " /compact", "/a\n", &"/x".repeat(100)] {
            assert!(command(text).is_err(), "{text}");
        }
    }
}
