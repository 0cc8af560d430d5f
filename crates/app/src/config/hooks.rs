//! Hooks from a configuration: a text, or a file that is read anew each time.

use std::path::{Path, PathBuf};

use epitome::core::{
    ContentPart, Tokens,
    inject::{Hook, HookInput},
};

/// A hook of a configuration: it adds the same to each message of the user, or what stands in a file then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfiguredHook {
    /// Name of the hook.
    pub(crate) name: String,
    /// The most that it adds.
    pub(crate) reserve: Tokens,
    /// What it adds.
    pub(crate) content: HookContent,
    /// True if that leaves the requests with the next message of the user.
    pub(crate) is_replaced: bool,
}

/// What a hook adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HookContent {
    /// This text.
    Text(String),
    /// The text of this file, if there is one.
    File(PathBuf),
}

impl ConfiguredHook {
    /// Makes a relative path start at a folder.
    pub(super) fn set_folder(&mut self, folder: &Path) {
        if let HookContent::File(path) = &mut self.content {
            *path = folder.join(&*path);
        }
    }

    fn text(&self) -> Option<String> {
        let text = match &self.content {
            HookContent::Text(text) => text.clone(),
            HookContent::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => text,
                Err(error) => {
                    // The session goes on without it: a file may be written a moment later.
                    tracing::warn!(hook = self.name, path = %path.display(), %error, "a hook has nothing to add");
                    return None;
                }
            },
        };
        (!text.trim().is_empty()).then_some(text)
    }
}

impl Hook for ConfiguredHook {
    fn name(&self) -> &str {
        &self.name
    }

    fn reserve(&self) -> Tokens {
        self.reserve
    }

    fn inject(&self, _: &HookInput<'_>) -> Vec<ContentPart> {
        self.text().map(ContentPart::text).into_iter().collect()
    }

    fn is_replaced(&self) -> bool {
        self.is_replaced
    }
}
