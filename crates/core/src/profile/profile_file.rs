//! The file format of profiles: the fields of a family or a model, each by itself.
//!
//! A model has the fields of its family, overlaid by the built-in file's fields for the model, and these by
//! the user's. So an entry is all fields and none of them required, and laying one over another is the only
//! operation.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
};

use serde::Deserialize;
use toml::Spanned;

use super::{
    CompactionThresholds, ModelDegradation, ModelWindow, Profile, ProfileError, ProfileField, Tokenizer,
    price::TokenPrices,
    rules::{CacheRules, ProviderRule, WireProtocol},
    units::{CalendarDate, Share},
};
use crate::{meter::TokenOverhead, tokens::Tokens};

/// Contents of a file.
#[derive(Debug, Default)]
pub(super) struct ProfilePatches {
    pub(super) families: Vec<ProfilePatch>,
    pub(super) models: Vec<ProfilePatch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    #[serde(default)]
    family: Vec<Spanned<ProfilePatch>>,
    #[serde(default)]
    model: Vec<Spanned<ProfilePatch>>,
}

/// Fields that are set for a family or a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfilePatch {
    pub(super) name: String,
    /// The line of the file where it stands.
    #[serde(skip)]
    pub(super) line: usize,
    #[serde(skip)]
    origin: PatchOrigin,
    pub(super) family: Option<String>,
    #[serde(default)]
    pub(super) aliases: Vec<String>,
    #[serde(default)]
    pub(super) patterns: Vec<String>,
    source: Option<String>,
    #[serde(default)]
    unverified: BTreeSet<ProfileField>,
    date: Option<CalendarDate>,
    provider: Option<String>,
    wire: Option<WireProtocol>,
    window: Option<u64>,
    input_limit: Option<NonZeroU64>,
    output_limit: Option<NonZeroU64>,
    tokenizer: Option<Tokenizer>,
    margin: Option<Share>,
    overhead: Option<OverheadPatch>,
    price: Option<TokenPrices>,
    cache: Option<CacheRules>,
    #[serde(default)]
    legality: BTreeMap<ProviderRule, bool>,
    thresholds: Option<ThresholdsPatch>,
    degradation: Option<ModelDegradation>,
}

/// File that an entry is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatchOrigin {
    #[default]
    Builtin,
    User,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverheadPatch {
    request: Option<Tokens>,
    message: Option<Tokens>,
    summary: Option<Tokens>,
    call: Option<Tokens>,
    tool: Option<Tokens>,
    tools: Option<Tokens>,
    image: Option<Tokens>,
    document_bytes_a_token: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThresholdsPatch {
    trigger: Option<Share>,
    target: Option<Share>,
    force: Option<Share>,
}

/// Reads a file.
pub(super) fn read(text: &str, origin: PatchOrigin) -> Result<ProfilePatches, ProfileError> {
    let file: ProfileFile = toml::from_str(text).map_err(|error| ProfileError::File {
        line: error.span().map_or(1, |span| line_at(text, span.start)),
        reason: error.message().to_owned(),
    })?;
    let placed = |patch: Spanned<ProfilePatch>| {
        let line = line_at(text, patch.span().start);
        ProfilePatch { line, origin, ..patch.into_inner() }
    };
    if let Some(family) = file.family.iter().find(|family| family.get_ref().has_names()) {
        return Err(ProfileError::File {
            line: line_at(text, family.span().start),
            reason: "`family`, `aliases` and `patterns` are for models, not for families".to_owned(),
        });
    }
    Ok(ProfilePatches {
        families: file.family.into_iter().map(placed).collect(),
        models: file.model.into_iter().map(placed).collect(),
    })
}

fn line_at(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

impl ProfilePatch {
    fn has_names(&self) -> bool {
        self.family.is_some() || !self.aliases.is_empty() || !self.patterns.is_empty()
    }

    /// Returns true if all of a field is set here.
    fn says(&self, field: ProfileField) -> bool {
        match field {
            ProfileField::Window => self.window.is_some(),
            ProfileField::InputLimit => self.input_limit.is_some(),
            ProfileField::OutputLimit => self.output_limit.is_some(),
            ProfileField::Price => {
                self.price.as_ref().is_some_and(|price| price.input.is_some() && price.output.is_some())
            }
            // These fields are set in pieces, and one piece does not verify the others.
            ProfileField::Overhead | ProfileField::Cache | ProfileField::Legality => false,
        }
    }

    /// This, with missing values from `base`. Names add up; the line is this one's.
    pub(super) fn merged_over(self, base: Self) -> Self {
        // An overridden value is as reliable as the file that sets it.
        let mut unverified = base.unverified;
        unverified.retain(|field| !self.says(*field));
        unverified.extend(&self.unverified);
        let mut legality = base.legality;
        legality.extend(self.legality);
        Self {
            name: self.name,
            line: self.line,
            origin: self.origin.max(base.origin),
            family: self.family.or(base.family),
            aliases: [base.aliases, self.aliases].concat(),
            patterns: [base.patterns, self.patterns].concat(),
            source: self.source.or(base.source),
            unverified,
            date: self.date.or(base.date),
            provider: self.provider.or(base.provider),
            wire: self.wire.or(base.wire),
            window: self.window.or(base.window),
            input_limit: self.input_limit.or(base.input_limit),
            output_limit: self.output_limit.or(base.output_limit),
            tokenizer: self.tokenizer.or(base.tokenizer),
            margin: self.margin.or(base.margin),
            overhead: layered(self.overhead, base.overhead, OverheadPatch::over),
            price: layered(self.price, base.price, TokenPrices::merged_over),
            cache: layered(self.cache, base.cache, CacheRules::merged_over),
            legality,
            thresholds: layered(self.thresholds, base.thresholds, ThresholdsPatch::over),
            degradation: self.degradation.or(base.degradation),
        }
    }

    /// The profile, with default values for missing fields.
    pub(super) fn resolve(self) -> Result<Profile, ProfileError> {
        let Self { name, line, .. } = self;
        let lower = |names: Vec<String>| names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        let Some(wire) = self.wire else { return Err(ProfileError::NoWire { line, model: name }) };
        let said = self.thresholds.unwrap_or_default();
        let usual = CompactionThresholds::default();
        let thresholds = CompactionThresholds {
            trigger: said.trigger.unwrap_or(usual.trigger),
            target: said.target.unwrap_or(usual.target),
            force: said.force.unwrap_or(usual.force),
        };
        if !thresholds.are_ordered() {
            return Err(ProfileError::Thresholds { line, model: name, thresholds });
        }
        Ok(Profile {
            name: name.to_ascii_lowercase(),
            aliases: lower(self.aliases),
            patterns: lower(self.patterns),
            source: self.source.unwrap_or_else(|| "the user's own".to_owned()),
            unverified: self.unverified,
            overridden: self.origin == PatchOrigin::User,
            date: self.date,
            provider: self.provider.unwrap_or_else(|| "unknown".to_owned()),
            wire,
            window: match self.window {
                None => ModelWindow::Unknown,
                Some(0) => ModelWindow::Unlimited,
                Some(tokens) => ModelWindow::Of(Tokens(tokens)),
            },
            input_limit: self.input_limit.map(|limit| Tokens(limit.get())),
            output_limit: self.output_limit.map(|limit| Tokens(limit.get())),
            tokenizer: self.tokenizer.unwrap_or(Tokenizer::Estimate),
            margin: self.margin.unwrap_or(Share::percent(10)),
            overhead: self.overhead.unwrap_or_default().resolve(),
            prices: self.price.unwrap_or_default(),
            cache: self.cache.unwrap_or_default(),
            legality: self.legality.into_iter().filter_map(|(rule, holds)| holds.then_some(rule)).collect(),
            thresholds,
            degradation: self.degradation,
        })
    }
}

/// One of two, or the first laid over the second.
fn layered<T>(over: Option<T>, base: Option<T>, lay: impl FnOnce(T, T) -> T) -> Option<T> {
    match (over, base) {
        (Some(over), Some(base)) => Some(lay(over, base)),
        (over, base) => over.or(base),
    }
}

impl OverheadPatch {
    fn over(self, base: Self) -> Self {
        Self {
            request: self.request.or(base.request),
            message: self.message.or(base.message),
            summary: self.summary.or(base.summary),
            call: self.call.or(base.call),
            tool: self.tool.or(base.tool),
            tools: self.tools.or(base.tools),
            image: self.image.or(base.image),
            document_bytes_a_token: self.document_bytes_a_token.or(base.document_bytes_a_token),
        }
    }

    fn resolve(self) -> TokenOverhead {
        let usual = TokenOverhead::default();
        TokenOverhead {
            request: self.request.unwrap_or(usual.request),
            message: self.message.unwrap_or(usual.message),
            summary: self.summary.unwrap_or(usual.summary),
            call: self.call.unwrap_or(usual.call),
            tool: self.tool.unwrap_or(usual.tool),
            tools: self.tools.unwrap_or(usual.tools),
            image: self.image.unwrap_or(usual.image),
            document_bytes_a_token: self.document_bytes_a_token.unwrap_or(usual.document_bytes_a_token),
        }
    }
}

impl ThresholdsPatch {
    fn over(self, base: Self) -> Self {
        Self {
            trigger: self.trigger.or(base.trigger),
            target: self.target.or(base.target),
            force: self.force.or(base.force),
        }
    }
}
