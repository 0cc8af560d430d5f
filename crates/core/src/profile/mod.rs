//! Profiles: the known facts about each model, as data with a source and a date.
//!
//! The built-in file is `profiles.toml`; a user's file has the same form and is laid over it, field by field.
//! Unknown facts are absent and never guessed: a model without a price has no cost, a model without a window
//! is never compacted ahead of time, and a name that matches no profile is an error that names its
//! neighbours.

mod model_names;
mod price;
mod profile_file;
mod rules;
mod units;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::profile_file::{PatchOrigin, ProfilePatch};
pub use self::{
    model_names::bare,
    price::{LongInputPrices, TokenPrices, UnknownPriceError},
    rules::{CacheRules, CacheWriteMode, InvalidationScope, ProviderRule, RequestAspect, WireProtocol},
    units::{CalendarDate, Money, Price, PriceMultiple, Share},
};
#[cfg(feature = "bpe")]
use crate::tokens::O200kCounter;
use crate::{
    meter::{Meter, TokenOverhead},
    tokens::{EstimateCounter, TokenCounter, Tokens},
};

/// Known facts about a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// The model's name, in small letters.
    pub name: String,
    /// Other names it goes by.
    pub aliases: Vec<String>,
    /// Names it goes by in which `*` stands for anything.
    pub patterns: Vec<String>,
    /// Source of all these facts.
    pub source: String,
    /// Fields that were not found in the provider's own documents.
    pub unverified: BTreeSet<ProfileField>,
    /// Date on which the source was read.
    pub date: Option<CalendarDate>,
    /// True if the user's file sets any field.
    pub overridden: bool,
    /// Provider that runs the model.
    pub provider: String,
    /// The request format it is spoken to in.
    pub wire: WireProtocol,
    /// Capacity in tokens, input and output together.
    pub window: ModelWindow,
    /// The most input it takes, where that is stated apart.
    pub input_limit: Option<Tokens>,
    /// The most it answers.
    pub output_limit: Option<Tokens>,
    /// Vocabulary in which the model counts tokens.
    pub tokenizer: Tokenizer,
    /// Share by which the counts may be too low, before any usage has been reported.
    pub margin: Share,
    /// The wrapping around texts.
    pub overhead: TokenOverhead,
    /// Prices of tokens.
    pub prices: TokenPrices,
    /// Behaviour of its prompt cache.
    pub cache: CacheRules,
    /// Demands on a request.
    pub legality: BTreeSet<ProviderRule>,
    /// Sizes at which to compact and to which.
    pub thresholds: CompactionThresholds,
    /// Sizes at which it has been seen to get worse.
    pub degradation: Option<ModelDegradation>,
}

/// A fact of a profile that may be unverified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileField {
    /// Capacity of the model.
    Window,
    /// The most input it takes.
    InputLimit,
    /// The most it answers.
    OutputLimit,
    /// The wrapping around texts.
    Overhead,
    /// Prices of tokens.
    Price,
    /// Behaviour of its prompt cache.
    Cache,
    /// Demands on a request.
    Legality,
}

/// Capacity of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelWindow {
    /// An unknown limit. No session is compacted ahead of time; a refusal by the provider shows the limit.
    Unknown,
    /// Any amount; written as 0.
    Unlimited,
    /// This much.
    Of(Tokens),
}

/// Vocabulary in which a model counts tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tokenizer {
    /// OpenAI's `o200k_base`.
    O200k,
    /// Its own, which is not public.
    Estimate,
}

impl Tokenizer {
    /// Returns true if this build counts as the model does.
    pub fn is_exact(self) -> bool {
        match self {
            Self::O200k => cfg!(feature = "bpe"),
            Self::Estimate => false,
        }
    }

    /// The nearest counter this build has. Its name says which: counts are stored under it.
    pub fn counter(self) -> Arc<dyn TokenCounter> {
        match self {
            #[cfg(feature = "bpe")]
            Self::O200k => Arc::new(O200kCounter),
            #[cfg(not(feature = "bpe"))]
            Self::O200k => Arc::new(EstimateCounter),
            Self::Estimate => Arc::new(EstimateCounter),
        }
    }
}

/// Sizes at which to compact and to which, as shares of the window less the output's reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CompactionThresholds {
    /// Background work begins.
    pub trigger: Share,
    /// A compaction goes down to this.
    pub target: Share,
    /// The next call waits for a compaction.
    pub force: Share,
}

impl Default for CompactionThresholds {
    fn default() -> Self {
        Self { trigger: Share::percent(55), target: Share::percent(45), force: Share::percent(85) }
    }
}

impl CompactionThresholds {
    fn are_ordered(self) -> bool {
        Share::percent(0) < self.target && self.target < self.trigger && self.trigger <= self.force
    }
}

/// Sizes at which a model has been seen to get worse, as shares of a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelDegradation {
    /// Source of the observation.
    pub source: String,
    /// Window with which it was made, which need not be the one the provider states today. `None` for an observation
    /// about a family: the shares are then of each model's own window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Tokens>,
    /// Range in which it begins: from, to.
    pub onset: [Share; 2],
    /// The most to fill: from, to.
    pub recommended_max: [Share; 2],
}

/// Sizes at which a model gets worse, in tokens by the provider's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DegradationSizes {
    /// From here on it may.
    pub onset: Tokens,
    /// The most to fill.
    pub most: Tokens,
}

impl Profile {
    /// Sizes at which it gets worse, if that was observed: the beginning of the onset's range, and the end of the range
    /// that is recommended. Of a window that differs from the observed one the smaller counts.
    pub fn degradation_sizes(&self) -> Option<DegradationSizes> {
        let ModelDegradation { window, onset: [onset, _], recommended_max: [_, most], .. } =
            self.degradation.as_ref()?;
        let stated = match self.window {
            ModelWindow::Of(stated) => Some(stated),
            ModelWindow::Unknown | ModelWindow::Unlimited => None,
        };
        let of = stated.into_iter().chain(*window).min()?;
        Some(DegradationSizes { onset: onset.of(of), most: most.of(of) })
    }

    /// Counter for the content of requests to this model.
    pub fn meter(&self) -> Meter {
        Meter::new(self.tokenizer.counter(), self.overhead)
    }

    /// Returns true if the model demands this.
    pub fn demands(&self, rule: ProviderRule) -> bool {
        self.legality.contains(&rule)
    }
}

/// All profiles there are.
#[derive(Clone, Debug)]
pub struct Profiles {
    families: BTreeMap<String, ProfilePatch>,
    models: Vec<ProfilePatch>,
    /// One for each model, in the same order.
    resolved: Vec<Profile>,
    /// Index of the profile with a name or an alias.
    by_name: BTreeMap<String, usize>,
}

/// Something is wrong with a file of profiles.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// It is not TOML, or a field is unknown or has a wrong value.
    #[error("line {line}: {reason}")]
    File {
        /// Line of the error.
        line: usize,
        /// The error, and the expected value.
        reason: String,
    },
    /// A model is of a family that does not exist.
    #[error("line {line}: `{model}` is of the family `{family}`, which does not exist; there are {known}")]
    NoFamily {
        /// Line of the error.
        line: usize,
        /// The model.
        model: String,
        /// The family.
        family: String,
        /// The families there are.
        known: String,
    },
    /// The format for speaking to a model is missing.
    #[error("line {line}: `{model}` needs `family`, or `wire` to say which request format it takes")]
    NoWire {
        /// Line of the error.
        line: usize,
        /// The model.
        model: String,
    },
    /// Thresholds that would never settle.
    #[error(
        "line {line}: `{model}` has target {}, trigger {}, force {}; they must be above 0, in this order, and target \
         below trigger",
        thresholds.target, thresholds.trigger, thresholds.force
    )]
    Thresholds {
        /// Line of the error.
        line: usize,
        /// The model.
        model: String,
        /// Resulting thresholds.
        thresholds: CompactionThresholds,
    },
    /// Two models go by one name.
    #[error(
        "line {line}: `{model}` goes by `{name}`, which is a name of `{other}`; take it from one of them"
    )]
    NameTaken {
        /// Line of the error.
        line: usize,
        /// The model.
        model: String,
        /// The name.
        name: String,
        /// Model that has the name already.
        other: String,
    },
}

/// A model no profile is about.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no profile is about the model `{model}`{}; add one to a profile of your own", near(.nearest))]
pub struct UnknownModelError {
    /// The model; a text that is too long to be a name is cut.
    pub model: String,
    /// The names nearest to it.
    pub nearest: Vec<String>,
}

fn near(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!(" (nearest: {})", names.join(", ")),
    }
}

impl Profiles {
    /// The profiles that come with the program.
    pub fn builtin() -> Self {
        static BUILTIN: LazyLock<Profiles> = LazyLock::new(|| {
            let mut profiles = Profiles {
                families: BTreeMap::new(),
                models: Vec::new(),
                resolved: Vec::new(),
                by_name: BTreeMap::new(),
            };
            profiles
                .lay(include_str!("../profiles.toml"), PatchOrigin::Builtin)
                .expect("a test reads the built-in file");
            profiles
        });
        BUILTIN.clone()
    }

    /// Lays a user's file over the profiles: fields replace fields, names add up, new models are added. A
    /// file with any error has no effect.
    ///
    /// ```
    /// use epitome_core::profile::Profiles;
    ///
    /// let mut profiles = Profiles::builtin();
    /// profiles.with_overrides(
    ///     r#"
    ///     [[model]]
    ///     name = "claude-opus-4-5"
    ///     aliases = ["our-opus"]
    ///     price.input = 4.5
    ///     "#,
    /// )?;
    /// assert_eq!(profiles.find("our-opus")?.name, "claude-opus-4-5");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_overrides(&mut self, toml: &str) -> Result<(), ProfileError> {
        let mut laid = self.clone();
        laid.lay(toml, PatchOrigin::User)?;
        *self = laid;
        Ok(())
    }

    /// The profile of a model, however its name is written.
    pub fn find(&self, model: &str) -> Result<&Profile, UnknownModelError> {
        let candidates = model_names::candidates(model);
        let found = candidates.iter().find_map(|name| match self.by_name.get(name) {
            Some(at) => Some(&self.resolved[*at]),
            None => self.by_pattern(name),
        });
        found.ok_or_else(|| UnknownModelError {
            model: model.chars().take(80).collect(),
            nearest: model_names::nearest(model, self.resolved.iter().map(|profile| profile.name.as_str()))
                .into_iter()
                .map(str::to_owned)
                .collect(),
        })
    }

    /// Every profile, in the order of the files.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.resolved.iter()
    }

    /// The profile with the longest pattern that matches: the one that says most.
    fn by_pattern(&self, name: &str) -> Option<&Profile> {
        let patterns =
            self.resolved.iter().flat_map(|profile| profile.patterns.iter().map(move |p| (p, profile)));
        let matching = patterns.filter(|(pattern, _)| model_names::matches(pattern, name));
        matching.max_by_key(|(pattern, _)| pattern.len()).map(|(_, profile)| profile)
    }

    fn lay(&mut self, toml: &str, origin: PatchOrigin) -> Result<(), ProfileError> {
        let said = profile_file::read(toml, origin)?;
        for family in said.families {
            let laid = match self.families.remove(&family.name) {
                Some(base) => family.merged_over(base),
                None => family,
            };
            self.families.insert(laid.name.clone(), laid);
        }
        for model in said.models {
            match self.models.iter_mut().find(|known| known.name.eq_ignore_ascii_case(&model.name)) {
                Some(known) => *known = model.merged_over(known.clone()),
                None => self.models.push(model),
            }
        }
        self.resolve()
    }

    fn resolve(&mut self) -> Result<(), ProfileError> {
        let resolved: Result<Vec<Profile>, _> =
            self.models.iter().map(|model| self.profile_of(model)).collect();
        self.resolved = resolved?;
        self.by_name = BTreeMap::new();
        for (at, profile) in self.resolved.iter().enumerate() {
            for name in std::iter::once(&profile.name).chain(&profile.aliases) {
                match self.by_name.insert(name.clone(), at) {
                    Some(other) if other != at => {
                        return Err(ProfileError::NameTaken {
                            line: self.models[at].line,
                            model: profile.name.clone(),
                            name: name.clone(),
                            other: self.resolved[other].name.clone(),
                        });
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn profile_of(&self, model: &ProfilePatch) -> Result<Profile, ProfileError> {
        let Some(family) = &model.family else { return model.clone().resolve() };
        let base = self.families.get(family).ok_or_else(|| ProfileError::NoFamily {
            line: model.line,
            model: model.name.clone(),
            family: family.clone(),
            known: self.families.keys().cloned().collect::<Vec<_>>().join(", "),
        })?;
        model.clone().merged_over(base.clone()).resolve()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::Usage;

    fn overridden(toml: &str) -> Result<Profiles, ProfileError> {
        let mut profiles = Profiles::builtin();
        profiles.with_overrides(toml).map(|()| profiles)
    }

    #[test]
    fn what_no_document_of_the_provider_says_is_marked_until_someone_says_it_anew() {
        let marked = |profiles: &Profiles, model: &str| {
            profiles.find(model).unwrap().unverified.iter().copied().collect::<Vec<_>>()
        };
        let builtin = Profiles::builtin();
        assert_eq!(marked(&builtin, "gpt-5.1"), [ProfileField::InputLimit]);
        assert_eq!(
            marked(&builtin, "claude-opus-4-5"),
            [ProfileField::Overhead],
            "its family's mark is its own"
        );
        assert!(marked(&builtin, "gemini-2.5-pro").contains(&ProfileField::Price));
        assert!(marked(&builtin, "claude-sonnet-4-5[1m]").contains(&ProfileField::Price));
        let own = "[[model]]\nname = \"gpt-5.1\"\ninput_limit = 272_000\nunverified = [\"price\"]";
        assert_eq!(marked(&overridden(own).unwrap(), "gpt-5.1"), [ProfileField::Price]);
        let wrong = overridden("[[model]]\nname = \"gpt-5.1\"\nunverified = [\"prices\"]").unwrap_err();
        assert!(wrong.to_string().contains("line 3") && wrong.to_string().contains("prices"), "{wrong}");
    }

    #[test]
    fn every_built_in_profile_says_where_it_is_from_and_makes_sense() {
        let profiles = Profiles::builtin();
        assert!(profiles.iter().count() >= 35);
        for profile in profiles.iter() {
            let Profile { name, prices, cache, .. } = profile;
            assert!(profile.source.len() > 10 && profile.date.is_some() && !profile.overridden, "{name}");
            assert!(profile.provider != "unknown", "{name}");
            assert!(profile.thresholds.are_ordered(), "{name}");
            assert!(profile.demands(ProviderRule::CallsAnswered), "{name}");
            if let ModelWindow::Of(window) = profile.window {
                assert!((100_000..=2_000_000).contains(&window.0), "{name}");
                assert!(profile.input_limit.unwrap_or(window) <= window, "{name}");
                assert!(profile.output_limit.is_none_or(|limit| limit < window), "{name}");
            }
            assert_eq!(prices.input.is_some(), prices.output.is_some(), "{name}");
            assert!(prices.input <= prices.output, "{name}");
            if prices.input.is_some() {
                assert!(prices.cache_read.is_some_and(|read| read <= PriceMultiple::ONE), "{name}");
                let write = prices.cache_write.expect("a priced model prices its cache");
                assert!(write.parts() == 0 || write >= PriceMultiple::ONE, "{name}");
                assert!(prices.cache_write_hour.is_none_or(|hour| hour >= write), "{name}");
            }
            assert!(
                prices
                    .long
                    .is_none_or(|long| long.input >= PriceMultiple::ONE && long.output >= PriceMultiple::ONE),
                "{name}"
            );
            assert!(cache.breakpoints.is_none_or(|most| (1..=4).contains(&most)), "{name}");
            if let Some(ModelDegradation { onset, recommended_max, .. }) = &profile.degradation {
                assert!(onset[0] < onset[1] && recommended_max[0] < recommended_max[1], "{name}");
                assert!(recommended_max[0] < onset[0] && profile.thresholds.trigger < onset[0], "{name}");
            }
            assert_eq!(profiles.find(name).as_ref().map(|found| &found.name), Ok(name));
        }
    }

    #[test]
    fn a_model_is_found_however_its_name_is_written() {
        let profiles = Profiles::builtin();
        let check = |model: &str, expected: &str| {
            assert_eq!(profiles.find(model).map(|profile| profile.name.as_str()), Ok(expected), "{model}");
        };
        check("claude-opus-4-5-20251101", "claude-opus-4-5");
        check("Claude-Opus-4-5", "claude-opus-4-5");
        check("anthropic/claude-opus-4-5", "claude-opus-4-5");
        check("openrouter/anthropic/claude-opus-4-8", "claude-opus-4-8");
        check("us.anthropic.claude-opus-4-6-v1:0", "claude-opus-4-6");
        check("claude-opus-4-8[1m]", "claude-opus-4-8");
        check("claude-sonnet-4-5-20250929", "claude-sonnet-4-5");
        check("claude-sonnet-4-5-20250929[1m]", "claude-sonnet-4-5[1m]");
        check("claude-haiku-4-5@20251001", "claude-haiku-4-5");
        check("gpt-5.6", "gpt-5.6-sol");
        check("gpt-5.1-codex", "gpt-5.1");
        check("gpt-4.1-2025-04-14", "gpt-4.1");
        check("gpt-4.1-mini-2025-04-14", "gpt-4.1-mini");
        check("ft:gpt-4.1-2025-04-14:sierra:tau2-full-sft:BzrYdMNm", "gpt-4.1-tuned");
        check("models/gemini-2.5-flash", "gemini-2.5-flash");
        check("google/gemini-3-pro-preview", "gemini-3-pro");
        check("meta-llama/llama-4-maverick", "llama-4-maverick");
        check("openai/openrouter-llama-4-maverick", "llama-4-maverick");
        check(" mimo-v2.5-free\n", "mimo-v2.5-free");
    }

    #[test]
    fn an_unknown_model_is_not_guessed() {
        let profiles = Profiles::builtin();
        let check = |model: &str, expected: &str| {
            assert_eq!(profiles.find(model).unwrap_err().to_string(), expected);
        };
        check(
            "claude-opus-4-55",
            "no profile is about the model `claude-opus-4-55` (nearest: claude-opus-4-5, claude-opus-4-6, \
             claude-opus-4-7); add one to a profile of your own",
        );
        check(
            "gpt-4.1-nano",
            "no profile is about the model `gpt-4.1-nano` (nearest: gpt-4.1-mini, gpt-4.1-tuned, gpt-4.1); add one \
             to a profile of your own",
        );
        check("<synthetic>", "no profile is about the model `<synthetic>`; add one to a profile of your own");
        check(
            "claude-opus-4-5[1m]",
            "no profile is about the model `claude-opus-4-5[1m]` (nearest: claude-opus-4-5, \
             claude-opus-4-6, claude-opus-4-7); add one to a profile of your own",
        );
        assert_eq!(profiles.find(&"x".repeat(1_000_000)).unwrap_err().model.len(), 80);
    }

    #[test]
    fn the_table_of_degradation_is_all_there() {
        let profiles = Profiles::builtin();
        let row = |model: &str| {
            let profile = profiles.find(model).unwrap();
            let ModelDegradation { window, onset: [from, to], recommended_max: [low, high], .. } =
                profile.degradation.as_ref().unwrap();
            let CompactionThresholds { trigger, target, force } = profile.thresholds;
            let window = window.unwrap();
            format!(
                "{model}: {window}, onset {from}-{to}, max {low}-{high}; trigger {trigger}, target {target}, force {force}"
            )
        };
        let models = ["claude-opus-4-5", "gpt-5.2", "gemini-3-pro", "deepseek-v3.2", "grok-4.20"];
        insta::assert_snapshot!(models.map(row).join("\n"), @r"
        claude-opus-4-5: 200000, onset 65 %-75 %, max 60 %-70 %; trigger 55 %, target 45 %, force 85 %
        gpt-5.2: 400000, onset 70 %-80 %, max 65 %-75 %; trigger 55 %, target 45 %, force 85 %
        gemini-3-pro: 2000000, onset 60 %-70 %, max 55 %-65 %; trigger 50 %, target 45 %, force 85 %
        deepseek-v3.2: 256000, onset 80 %-90 %, max 75 %-85 %; trigger 70 %, target 60 %, force 85 %
        grok-4.20: 512000, onset 75 %-85 %, max 70 %-80 %; trigger 70 %, target 60 %, force 85 %
        ");
    }

    #[test]
    fn a_file_of_the_users_changes_single_fields_and_adds_models() {
        let profiles = overridden(
            r#"
            [[model]]
            name = "Claude-Opus-4-5"
            aliases = ["Our-Opus"]
            price.input = 4.5
            thresholds.trigger = 0.6
            overhead.message = 9
            legality.prefill_refused = true
            cache.invalidated_by.images = "all"

            [[model]]
            name = "house-model"
            family = "openai"
            patterns = ["house-*"]
            window = 64_000
            "#,
        )
        .unwrap();
        let (before, after) = (Profiles::builtin(), profiles.find("our-opus").unwrap());
        let before = before.find("claude-opus-4-5").unwrap();
        let expected = Profile {
            aliases: vec!["our-opus".to_owned()],
            overridden: true,
            prices: TokenPrices { input: after.prices.input, ..before.prices },
            thresholds: CompactionThresholds { trigger: Share::percent(60), ..before.thresholds },
            overhead: TokenOverhead { message: Tokens(9), ..before.overhead },
            legality: before.legality.iter().copied().chain([ProviderRule::PrefillRefused]).collect(),
            cache: after.cache.clone(),
            ..before.clone()
        };
        assert_eq!(*after, expected);
        assert_eq!(after.prices.input.map(Price::micro_dollars), Some(4_500_000));
        assert_eq!(after.cache.invalidated_by[&RequestAspect::Images], InvalidationScope::All);
        assert_eq!(after.cache.invalidated_by[&RequestAspect::Tools], InvalidationScope::All);
        assert_eq!(after.cache.minimum_prefix, before.cache.minimum_prefix);

        let house = profiles.find("house-of-cards").unwrap();
        assert_eq!(
            (house.window, house.wire),
            (ModelWindow::Of(Tokens(64_000)), WireProtocol::OpenaiResponses)
        );
        let usage = Usage { uncached: Tokens(1), ..Usage::default() };
        assert!(house.prices.cost(&usage).is_err());
    }

    #[test]
    fn a_change_to_a_family_reaches_its_models() {
        let profiles =
            overridden("[[family]]\nname = \"xai\"\nthresholds.trigger = 0.9\nthresholds.force = 0.95")
                .unwrap();
        let grok = profiles.find("grok-4.20").unwrap();
        assert_eq!((grok.thresholds.trigger, grok.overridden), (Share::percent(90), true));
    }

    #[test]
    fn the_longest_pattern_says_most() {
        let model = |name: &str, pattern: &str| {
            format!("[[model]]\nname = \"{name}\"\nwire = \"anthropic\"\npatterns = [\"{pattern}\"]\n")
        };
        let profiles =
            overridden(&format!("{}{}", model("any", "in-house-*"), model("small", "in-house-small*")))
                .unwrap();
        let found = |name: &str| profiles.find(name).unwrap().name.clone();
        assert_eq!((found("in-house-small-2"), found("in-house-2")), ("small".to_owned(), "any".to_owned()));
    }

    #[test]
    fn a_wrong_file_says_where_and_why_and_changes_nothing() {
        let wrong = |toml: &str| overridden(toml).unwrap_err().to_string();
        let model = "\n[[model]]\nname = \"x\"\n";
        let all = [
            wrong("\n\nwindow ="),
            wrong(&format!("{model}windw = 5")),
            wrong(&format!("{model}price = {{ inptu = 5 }}")),
            wrong(&format!("{model}thresholds.trigger = 55")),
            wrong(&format!("{model}window = -5")),
            wrong(&format!("{model}output_limit = 0")),
            wrong(&format!("{model}wire = \"antropic\"")),
            wrong(&format!("{model}legality.no_such_rule = true")),
            wrong(&format!("{model}date = 2026-11-15T10:00:00Z")),
            wrong("[[model]]\nwindow = 5"),
            wrong(model),
            wrong(&format!("{model}family = \"opanai\"")),
            wrong(&format!("{model}family = \"openai\"\nthresholds.target = 0.6")),
            wrong(&format!("{model}family = \"openai\"\naliases = [\"gpt-5\"]")),
            wrong("\n[[family]]\nname = \"f\"\naliases = [\"g\"]"),
        ];
        insta::assert_snapshot!(all.join("\n"), @r"
        line 3: string values must be quoted, expected literal string
        line 4: unknown field `windw`, expected one of `name`, `family`, `aliases`, `patterns`, `source`, `unverified`, `date`, `provider`, `wire`, `window`, `input_limit`, `output_limit`, `tokenizer`, `margin`, `overhead`, `price`, `cache`, `legality`, `thresholds`, `degradation`
        line 4: unknown field `inptu`, expected one of `input`, `output`, `cache_read`, `cache_write`, `cache_write_hour`, `long`
        line 4: expected a number from 0 to 1, found 55
        line 4: invalid value: integer `-5`, expected u64
        line 4: invalid value: integer `0`, expected a nonzero u64
        line 4: unknown variant `antropic`, expected one of `anthropic`, `openai-chat`, `openai-responses`, `gemini`
        line 4: unknown variant `no_such_rule`, expected one of `roles_alternate`, `first_is_user`, `calls_answered`, `results_first`, `no_empty_text`, `thinking_verbatim`, `thinking_stays_in_open_loop`, `preserved_thinking`, `reasoning_stays_with_item`, `reasoning_returned`, `calls_signed`, `compaction_item_opaque`, `prefill_refused`
        line 4: expected a day such as 2026-11-15, found 2026-11-15T10:00:00Z
        line 1: missing field `name`
        line 2: `x` needs `family`, or `wire` to say which request format it takes
        line 2: `x` is of the family `opanai`, which does not exist; there are anthropic, deepseek, google, openai, openai-automatic, openai-compatible, opencode-free, xai
        line 2: `x` has target 60 %, trigger 55 %, force 85 %; they must be above 0, in this order, and target below trigger
        line 2: `x` goes by `gpt-5`, which is a name of `gpt-5`; take it from one of them
        line 2: `family`, `aliases` and `patterns` are for models, not for families
        ");

        let mut profiles = Profiles::builtin();
        let before: Vec<Profile> = profiles.iter().cloned().collect();
        let half_right = "[[model]]\nname = \"gpt-5\"\nwindow = 1\n[[model]]\nname = \"x\"";
        assert!(profiles.with_overrides(half_right).is_err());
        assert!(profiles.iter().eq(&before));
    }

    #[test]
    fn without_a_vocabulary_a_model_is_counted_by_estimate_under_the_estimates_name() {
        let profiles = Profiles::builtin();
        let name = |model: &str| profiles.find(model).unwrap().meter().name();
        assert_eq!(name("claude-opus-5"), EstimateCounter.name());
        assert_eq!(name("gpt-5"), if cfg!(feature = "bpe") { "o200k" } else { EstimateCounter.name() });
    }

    proptest! {
        #[test]
        fn no_name_and_no_file_is_too_strange(model in "\\PC{0,60}", toml in "\\PC{0,60}") {
            let mut profiles = Profiles::builtin();
            let _ = (profiles.find(&model).is_ok(), profiles.with_overrides(&toml));
        }
    }
}
