//! Who speaks in the user messages of real sessions, where they are at hand.

use std::{collections::BTreeMap, fs, path::Path};

use epitome_core::{
    ContentPart, Event, Fact,
    client_text::{spans, user_words, user_words_of},
};
use epitome_wire::transcripts::{TranscriptLimits, read};

use crate::real::data;

/// Marks of texts that clients write, as they were found in the files by eye. Where a line of what the user is said to have
/// written begins with one, a row of the table is missing or does not match.
const MARKS: [&str; 21] = [
    "<task-notification>",
    "<subagent_notification>",
    "<system-reminder>",
    "<environment_context>",
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<bash-",
    "<turn_aborted>",
    "<recommended_plugins>",
    "<synara_host_context>",
    "# AGENTS.md instructions",
    "## My request for Codex:",
    "[Request interrupted by user",
    "This session is being continued from",
    "Operation stopped by hook:",
    "Base directory for this skill:",
    "Called the Read tool with",
    "▣ DCP |",
    "If you need specific details from before exiting plan mode",
    "###",
];

/// Letters by writer.
#[derive(Default)]
struct Letters {
    of_user: usize,
    of_client: BTreeMap<&'static str, usize>,
}

impl Letters {
    fn add(&mut self, event: &Event, file: &str) {
        let Fact::UserSaid { parts } = &event.fact else { return };
        for part in parts {
            let ContentPart::Text { text } = part else { continue };
            for span in spans(text) {
                let letters = span.range.len();
                match span.kind {
                    Some(kind) => *self.of_client.entry(kind.name()).or_default() += letters,
                    None => self.of_user += letters,
                }
            }
            // What is the user's stays so when it is asked again.
            let words = user_words(text);
            assert!(words.len() <= text.len(), "{file}");
        }
        let words = user_words_of(parts);
        let left = words.lines().find(|line| MARKS.iter().any(|mark| line.trim_start().starts_with(mark)));
        // Headings of what people paste begin with hashes too.
        let left = left.filter(|line| !line.starts_with("### ") && !line.starts_with("####"));
        assert_eq!(left, None, "{file}");
    }
}

fn count(folder: &Path) -> Letters {
    let mut letters = Letters::default();
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let name = file.display().to_string();
        let reading = read(&name, &fs::read(&file).unwrap(), &TranscriptLimits::default()).unwrap();
        let threads = reading.sessions.iter().flat_map(|session| &session.threads);
        threads.flat_map(|thread| &thread.events).for_each(|event| letters.add(event, &name));
    }
    letters
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn no_mark_of_a_client_is_left_in_the_words_of_real_users() {
    let Some(data) = data() else { return };
    let mut folders: Vec<_> = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders.into_iter().filter(|path| path.is_dir()) {
        let Letters { of_user, of_client } = count(&folder);
        let sum: usize = of_client.values().sum();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let share = sum * 100 / (sum + of_user).max(1);
        println!("{name}: {of_user} letters by users, {sum} by clients ({share} %): {of_client:?}");
        assert!(of_user > 0, "nobody speaks in {name}");
        // In these every reader leaves texts of clients where they stood: within or as user messages.
        let is_expected = ["claude-code", "codex", "opencode", "pi", "tau-bench", "tau2", "swe-agent"]
            .contains(&name.as_str());
        assert!(sum > 0 || !is_expected, "no client writes in {name}");
    }
}
