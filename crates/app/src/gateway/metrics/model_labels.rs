//! Models as labels. A label costs memory for as long as the gateway runs, and clients may send any name, so
//! the number of labels is limited: a model with a profile has the profile's name, and of all other models
//! the first few have their own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use epitome::core::{
    Tokens,
    profile::{ModelWindow, Profiles, TokenPrices},
};

/// Most models without a profile that have labels of their own.
const MAX_UNKNOWN_LABELS: usize = 32;
/// Most names that are remembered; a forgotten one is only looked up again.
const REMEMBERED: usize = 1024;
/// Most letters of a name that are kept.
const MAX_NAME_LETTERS: usize = 64;

/// Names of models and the labels under which they are counted.
#[derive(Debug)]
pub(super) struct ModelLabelCache {
    profiles: Arc<Profiles>,
    met: Mutex<SeenModels>,
}

#[derive(Debug, Default)]
struct SeenModels {
    by_name: HashMap<String, CountedModel>,
    unknown: HashMap<String, Arc<str>>,
}

/// Label, prices and window of a model.
#[derive(Clone, Debug)]
pub(super) struct CountedModel {
    /// Label of the model.
    pub(super) label: Arc<str>,
    /// Prices, if known.
    pub(super) prices: Option<TokenPrices>,
    /// Window, if known.
    pub(super) window: Option<Tokens>,
}

impl ModelLabelCache {
    /// Starts without any models.
    pub(super) fn new(profiles: Arc<Profiles>) -> Self {
        Self { profiles, met: Mutex::default() }
    }

    /// Label, prices and window of the model that a client calls `name`.
    pub(super) fn get(&self, name: &str) -> CountedModel {
        // Every change under this lock is complete, so a poisoned lock is usable.
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counted) = met.by_name.get(name) {
            return counted.clone();
        }
        let counted = match self.profiles.find(name) {
            Ok(profile) => CountedModel {
                label: Arc::from(profile.name.as_str()),
                prices: Some(profile.prices),
                window: match profile.window {
                    ModelWindow::Of(tokens) => Some(tokens),
                    ModelWindow::Unknown | ModelWindow::Unlimited => None,
                },
            },
            Err(_) => CountedModel { label: met.label(name), prices: None, window: None },
        };
        if met.by_name.len() >= REMEMBERED {
            met.by_name.clear();
        }
        // A name longer than any label is no model's, so it is not remembered.
        if name.len() <= 4 * MAX_NAME_LETTERS {
            met.by_name.insert(name.to_owned(), counted.clone());
        }
        counted
    }
}

impl SeenModels {
    fn label(&mut self, name: &str) -> Arc<str> {
        let plain = plain(name);
        if let Some(label) = self.unknown.get(&plain) {
            return Arc::clone(label);
        }
        if self.unknown.len() >= MAX_UNKNOWN_LABELS {
            return Arc::from("other");
        }
        let label: Arc<str> = Arc::from(plain.as_str());
        self.unknown.insert(plain, Arc::clone(&label));
        label
    }
}

/// Reduces a name to letters that need no escape anywhere.
fn plain(name: &str) -> String {
    let letter = |letter: char| {
        if letter.is_ascii_alphanumeric() || "-._:/@+".contains(letter) { letter } else { '_' }
    };
    match name {
        "" => "unnamed".to_owned(),
        name => name.chars().take(MAX_NAME_LETTERS).map(letter).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models() -> ModelLabelCache {
        ModelLabelCache::new(Arc::new(Profiles::builtin()))
    }

    #[test]
    fn a_known_model_has_its_profiles_name_however_it_is_written() {
        let models = models();
        let counted = models.get("anthropic/claude-opus-4-5-20251101");
        assert_eq!(&*counted.label, "claude-opus-4-5");
        assert!(counted.prices.is_some());
    }

    #[test]
    fn what_a_client_calls_a_model_never_breaks_a_line() {
        let label = models().get("x\"} 1\nepitome_requests_total 99\\");
        assert_eq!(&*label.label, "x___1_epitome_requests_total_99_");
        assert_eq!(&*models().get("").label, "unnamed");
        assert_eq!(models().get(&"m".repeat(10_000)).label.len(), MAX_NAME_LETTERS);
    }

    #[test]
    fn unknown_models_beyond_the_first_are_counted_together() {
        let models = models();
        for number in 0..MAX_UNKNOWN_LABELS {
            assert_eq!(*models.get(&format!("mine-{number}")).label, format!("mine-{number}"));
        }
        assert_eq!(&*models.get("one-more").label, "other");
        assert_eq!(&*models.get("mine-3").label, "mine-3");
        for number in 0..(2 * REMEMBERED) {
            models.get(&format!("flood-{number}"));
        }
        assert_eq!(&*models.get("mine-3").label, "mine-3");
        assert!(models.met.lock().unwrap().by_name.len() <= REMEMBERED);
    }
}
