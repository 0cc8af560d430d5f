//! The part of a configuration that commands go by which act on sessions: policy, profiles, who summarises, and what a
//! summary should attend to.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use epitome::core::profile::Profiles;
use etcetera::BaseStrategy;

use super::{
    CompactModeConfig,
    file::{EnvironmentLookup, database_of, session_settings},
};

/// The configuration file of this run, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigPath(Option<PathBuf>);

impl ConfigPath {
    /// The file that was named, or else the one in the user's configuration directory, if it is there.
    pub(crate) fn find(named: Option<PathBuf>) -> Self {
        let usual = || {
            let strategy = etcetera::choose_base_strategy().ok()?;
            Some(strategy.config_dir().join("epitome").join("config.toml")).filter(|path| path.is_file())
        };
        Self(named.filter(|path| !path.as_os_str().is_empty()).or_else(usual))
    }

    /// The file.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }

    /// The database that the file names.
    pub(crate) fn database(&self) -> anyhow::Result<Option<PathBuf>> {
        self.path().map_or(Ok(None), |path| database_of(path, &read(path)?))
    }

    /// What the file says of sessions; without a file, nothing.
    pub(crate) fn session_settings(&self) -> anyhow::Result<SessionSettings> {
        let environment: EnvironmentLookup<'_> = &|name| std::env::var(name).ok();
        self.path().map_or_else(
            || Ok(SessionSettings::default()),
            |path| session_settings(path, &read(path)?, environment),
        )
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read the configuration {}", path.display()))
}

/// The built-in profiles, overridden by those of a file.
pub(crate) fn read_profiles(file: Option<&Path>) -> anyhow::Result<Profiles> {
    let mut profiles = Profiles::builtin();
    if let Some(path) = file {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        profiles.with_overrides(&text).with_context(|| format!("in {}", path.display()))?;
    }
    Ok(profiles)
}

/// What a configuration says of sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionSettings {
    /// Name or file of the policy.
    pub(crate) policy: Option<String>,
    /// File of profiles.
    pub(crate) profiles: Option<PathBuf>,
    /// Who summarises, and how.
    pub(crate) compact: CompactModeConfig,
}
