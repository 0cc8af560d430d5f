//! The gate over sessions that really happened: lies made of what is true in them, and the drafts of a real model.
//!
//! The sessions are not part of the project: they are looked for in `EPITOME_DATA`, or in `../shared/data` beside the
//! repository. The drafts need a model too, and are asked for by hand.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use epitome::{
    core::{
        ContentPart, Fact, LoggedEvent, Tokens,
        client_text::user_words_of,
        draft_gate::{DraftFinish, DraftSource, offered_sentences, verify},
        meter::{Meter, TokenOverhead},
        profile::Tokenizer,
        summary::{SectionCaps, SummarySection, summarise},
    },
    summarise::{DraftTask, RemoteSummariser, ServerTimeouts, SummaryInstructions, draft},
    wire::{
        Format,
        transcripts::{TranscriptLimits, read},
    },
};

use crate::notation::logged;

/// Files a folder, sessions a file and events a session that are looked at.
const FILES: usize = 4;
const SESSIONS: usize = 3;
const EVENTS: usize = 400;

/// The folder of real sessions; none, and a word about it, where there is none.
pub(crate) fn data() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = env::var_os("EPITOME_DATA").map_or_else(beside, PathBuf::from);
    let found = data.join("MANIFEST.json").is_file();
    if !found {
        println!("skipped: no real sessions at {}", data.display());
    }
    found.then_some(data)
}

/// The same sessions every time: of each folder some that are far apart, with their names.
fn sessions(data: &Path) -> Vec<(String, Vec<Arc<LoggedEvent>>)> {
    const LARGEST: u64 = 4_000_000;
    let mut sessions = Vec::new();
    let mut folders: Vec<PathBuf> = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders.into_iter().filter(|path| path.is_dir()) {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.metadata().unwrap().len() <= LARGEST);
        files.sort();
        let step = (files.len() / FILES).max(1);
        for file in files.into_iter().step_by(step).take(FILES) {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let Ok(reading) = read(&name, &fs::read(&file).unwrap(), &TranscriptLimits::default()) else {
                continue;
            };
            for session in reading.sessions.into_iter().take(SESSIONS) {
                let Some(thread) = session.threads.into_iter().next() else { continue };
                let events = (1..).zip(thread.events.into_iter().take(EVENTS));
                let events = events.map(|(seq, event)| logged(seq, event.fact));
                sessions.push((name.clone(), events.collect()));
            }
        }
    }
    sessions
}

fn meter() -> Meter {
    Meter::new(Tokenizer::O200k.counter(), TokenOverhead::default())
}

fn texts(parts: &[ContentPart]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        ContentPart::Text { text } => Some(text.as_str()),
        _ => None,
    })
}

/// Sentences of a text that are long enough to say something, and short enough to be an item.
fn sentences(text: &str) -> Vec<String> {
    let is_sentence = |said: &str| {
        (5..=30).contains(&said.split_whitespace().count()) && !said.contains(['|', '`', '[', '?', ':'])
    };
    let lines = text.lines().map(|line| line.trim().trim_start_matches(['-', '*', '#', ' ']));
    let said = lines.flat_map(|line| line.split(". ")).map(|said| said.trim().trim_end_matches('.'));
    said.filter(|said| is_sentence(said)).map(|said| format!("{said}.")).collect()
}

/// What was said in a session, by whom.
#[derive(Default)]
struct Said {
    agent: Vec<String>,
    user: Vec<String>,
    tools: Vec<String>,
    /// The letters of everything that the agent said.
    all: String,
}

impl Said {
    fn of(events: &[Arc<LoggedEvent>]) -> Self {
        let mut said = Self::default();
        for event in events {
            match &event.event.fact {
                Fact::AssistantSaid { parts, .. } => {
                    said.agent.extend(texts(parts).flat_map(sentences));
                    said.all.extend(texts(parts).map(letters));
                }
                Fact::UserSaid { parts } => said.user.extend(sentences(&user_words_of(parts))),
                Fact::ToolReturned { results, .. } => {
                    let outputs = results.iter().flat_map(|result| texts(&result.parts));
                    said.tools.extend(outputs.flat_map(sentences));
                }
                _ => {}
            }
        }
        said
    }
}

fn letters(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Lies made of what was said: by kind. What somebody said after all is none.
fn lies(said: &Said) -> Vec<(&'static str, String)> {
    const EACH: usize = 12;
    let mut lies: Vec<(&'static str, String)> = Vec::new();
    let words: Vec<&str> = said.agent.iter().flat_map(|said| said.split_whitespace()).collect();
    let is_figure = |word: &str| word.starts_with(|letter: char| letter.is_ascii_digit());
    let is_name = |word: &str| word.trim_end_matches('.').contains(['/', '.', '_']) && !is_figure(word);
    let other = |word: &str, like: &dyn Fn(&str) -> bool| {
        let bare = |word: &str| word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_owned();
        words.iter().map(|word| bare(word)).find(|other| like(other) && *other != bare(word))
    };
    for (at, sentence) in said.agent.iter().enumerate() {
        for word in sentence.split(' ') {
            if is_figure(word) {
                let wrong = other(word, &is_figure).unwrap_or_else(|| "7301".to_owned());
                lies.push(("wrong figure", sentence.replacen(word, &wrong, 1)));
            } else if is_name(word) {
                let wrong = other(word, &is_name).unwrap_or_else(|| "src/invented.rs".to_owned());
                lies.push(("wrong name", sentence.replacen(word, &wrong, 1)));
            }
        }
        for (one, two) in
            [(" is ", " is not "), (" are ", " are not "), (" was ", " was never "), (" has ", " has no ")]
        {
            if sentence.contains(two) {
                lies.push(("negation taken out", sentence.replacen(two, one, 1)));
            } else if sentence.contains(one) {
                lies.push(("negation put in", sentence.replacen(one, two, 1)));
            }
        }
        for negated in [" not ", " never ", "n't "] {
            lies.push(("negation taken out", sentence.replacen(negated, " ", 1)));
        }
        for join in [" because ", " so ", " since "] {
            if let Some((effect, cause)) = sentence.trim_end_matches('.').split_once(join) {
                lies.push(("swapped cause and effect", format!("{cause}{join}{effect}.")));
            }
        }
        for own in ["I ", "I'll ", "I will ", "I've "] {
            if let Some(deed) = sentence.strip_prefix(own) {
                lies.push(("wrong owner", format!("The user {deed}")));
            }
        }
        for plan in ["I'll ", "I will ", "Let me ", "We should ", "I can ", "I need to "] {
            if let Some(deed) = sentence.strip_prefix(plan) {
                lies.push(("plan as done", format!("I {deed}")));
                let (verb, rest) = deed.split_once(' ').unwrap_or((deed, ""));
                lies.push(("plan as done", format!("{}ed {rest}", verb.trim_end_matches('e'))));
            }
        }
        for (one, two) in
            [(" before ", " after "), (" after ", " before "), (" from ", " to "), (" with ", " without ")]
        {
            if sentence.contains(one) {
                lies.push(("inverted meaning", sentence.replacen(one, two, 1)));
            }
        }
        lies.push(("invented order", format!("The user wants this: {sentence}")));
        lies.push(("false source", format!("{} as agreed. [1]", sentence.trim_end_matches('.'))));
        if let Some(next) = said.agent.get(at + 7) {
            let half = |text: &str| text.split_whitespace().count() / 2;
            let begin: Vec<&str> = sentence.split_whitespace().take(half(sentence)).collect();
            let end: Vec<&str> = next.split_whitespace().skip(half(next)).collect();
            lies.push(("two sentences as one", format!("{} {}", begin.join(" "), end.join(" "))));
        }
    }
    lies.extend(said.user.iter().map(|order| ("order of the user", order.clone())));
    lies.extend(said.tools.iter().map(|order| ("words of a tool", order.clone())));
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    lies.retain(|(kind, lie)| {
        let is_lie = !said.all.contains(&letters(lie));
        let count = told.entry(kind).or_default();
        *count += usize::from(is_lie);
        is_lie && *count <= EACH
    });
    lies
}

/// What of the lines a draft puts into the summary.
fn installed(events: &[Arc<LoggedEvent>], section: SummarySection, lines: &[String]) -> BTreeSet<String> {
    let caps = SectionCaps { key_decisions: 10_000, failed_approaches: 10_000, ..SectionCaps::default() };
    let source = DraftSource {
        span: events,
        previous: None,
        caps: &caps,
        replaces: Tokens::MAX,
        limit: Tokens::MAX,
        focus: None,
    };
    let draft = format!("## {}\n- {}\n", section.title(), lines.join("\n- "));
    let Ok(verified) = verify(&draft, DraftFinish::Complete, &source, &meter()) else {
        return BTreeSet::new();
    };
    let ground = summarise(events, None, &caps);
    let told = |section| ground.section(section).map(|item| item.text.as_str());
    let models = [SummarySection::KeyDecisions, SummarySection::FailedApproaches];
    let ground: BTreeSet<&str> = models.into_iter().flat_map(told).collect();
    let new = models.into_iter().flat_map(|section| verified.brief.section(section));
    new.map(|item| item.text.clone()).filter(|text| !ground.contains(text.as_str())).collect()
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn lies_over_real_sessions_are_not_installed() {
    let Some(data) = data() else { return };
    let (mut told, mut believed): (BTreeMap<&str, usize>, Vec<String>) = (BTreeMap::new(), Vec::new());
    let (mut said, mut admitted) = (0, 0);
    let (mut pointed, mut taken) = (0, 0);
    for (name, events) in sessions(&data) {
        let spoken = Said::of(&events);
        let lies = lies(&spoken);
        for (kind, _) in &lies {
            *told.entry(kind).or_default() += 1;
        }
        let plain = lies.iter().map(|(_, lie)| lie.clone());
        // The same lies behind numbers of sentences that were said: the recorded words take their place.
        let numbers: Vec<String> = offered_sentences(&events).keys().map(ToString::to_string).collect();
        let numbered =
            lies.iter().zip(numbers.iter().cycle()).map(|((_, lie), number)| format!("{number} {lie}"));
        let (plain, numbered): (Vec<String>, Vec<String>) = (plain.collect(), numbered.collect());
        for (section, drafted) in [SummarySection::KeyDecisions, SummarySection::FailedApproaches]
            .into_iter()
            .flat_map(|section| [(section, &plain), (section, &numbered)])
        {
            for text in installed(&events, section, drafted) {
                // Of two sentences one may be true.
                let whole = |lie: &str| letters(lie.trim_end_matches(" [1]")) == letters(&text);
                let lie = lies.iter().find(|(_, lie)| whole(lie));
                believed.extend(lie.map(|(kind, _)| format!("{name}, {kind}: {text}")));
            }
        }
        let true_ones: Vec<String> =
            spoken.agent.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        said += true_ones.len();
        admitted += installed(&events, SummarySection::KeyDecisions, &true_ones).len();
        let listed = offered_sentences(&events);
        pointed += listed.values().map(|text| letters(text)).collect::<BTreeSet<_>>().len();
        taken += installed(&events, SummarySection::KeyDecisions, &numbers).len();
    }
    println!("{told:#?}\n{} told, {} installed: {believed:#?}", told.values().sum::<usize>(), believed.len());
    println!("{admitted} of {said} of the agents' own sentences admitted word for word");
    println!("{taken} of {pointed} sentences that are offered admitted by their numbers");
    assert!(told.len() >= 12 && told.values().sum::<usize>() >= 300, "{told:?}");
    assert!(believed.is_empty());
}

/// Stretches of real sessions: folder, what the file's name holds, what the session's key ends with, first and last event.
/// Each is the stretch of at most 2 400 letters of its session in which the agent says most, and ends with a turn.
const STRETCHES: [(&str, &str, &str, u64, u64); 15] = [
    ("claude-code", "deeac353", "", 324, 333),
    ("claude-code", "0a76fbfe", "", 230, 240),
    ("claude-code", "030e1e67", "", 53, 53),
    ("codex", "019d7e3d", "", 47, 51),
    ("codex", "019e9ea7", "", 90, 100),
    ("codex", "019e7db7", "", 95, 97),
    ("gemini", "f7633853", "", 47, 54),
    ("opencode", "ses_03454849affem5J4uKAgWxP7vF", "", 84, 86),
    ("opencode", "ses_07ac41142ffeddbVHcJxVQEWuA", "", 144, 145),
    ("openhands", "multi_swe_bench_examples_output", "#2", 13, 36),
    ("openhands", "multi_swe_bench_examples_output", "#1", 60, 71),
    ("pi", "019f8537", "", 91, 92),
    ("swe-agent", "1867__default_sys-env_cursors", "", 21, 26),
    ("swe-agent", "replay__marshmallow-code__marshmallow-1867__function_calling_replace", "", 3, 12),
    ("tau2", "button-claude", "0a3eefa3-cc7b-436f-9916-5fa7f6d25bf8", 11, 14),
];

/// A stretch of a session.
fn stretch(
    data: &Path,
    (folder, file, key, first, last): (&str, &str, &str, u64, u64),
) -> Vec<Arc<LoggedEvent>> {
    let files = fs::read_dir(data.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let path = files.into_iter().find(|path| name(path).contains(file)).unwrap();
    let reading =
        read(&path.to_string_lossy(), &fs::read(&path).unwrap(), &TranscriptLimits::default()).unwrap();
    let session = reading.sessions.into_iter().find(|session| session.key.ends_with(key)).unwrap();
    let events = (1..).zip(session.threads.into_iter().next().unwrap().events);
    let events = events.filter(|(seq, _)| (first..=last).contains(seq));
    events.map(|(seq, event)| logged(seq, event.fact)).collect()
}

/// Asks a model on `EPITOME_MODEL_PORT` for drafts of stretches of real sessions, keeps them in `EPITOME_DRAFTS`, and says
/// what becomes of every line. Drafts that are there already are judged again and not asked for.
#[tokio::test]
#[ignore = "needs a model, and a person who reads what it wrote"]
async fn drafts_of_a_real_model() {
    const LIMIT: Tokens = Tokens(250);
    let Some(data) = data() else { return };
    let folder = PathBuf::from(env::var_os("EPITOME_DRAFTS").unwrap());
    let port = env::var("EPITOME_MODEL_PORT").unwrap_or_default();
    let wait = std::time::Duration::from_mins(20);
    let remote = RemoteSummariser::builder(
        Format::OpenaiChat,
        format!("http://127.0.0.1:{port}/v1"),
        "local",
        Tokens(16_000),
    )
    .timeouts(ServerTimeouts { connect: wait, first_byte: wait, whole: wait })
    .build()
    .unwrap();
    let meter = meter();
    for place in STRETCHES {
        let (_, name, key, ..) = place;
        let span = &stretch(&data, place);
        let file = folder.join(format!("{name}{}.md", key.replace('/', "-")));
        if !file.exists() {
            let instructions = SummaryInstructions::default();
            let task = DraftTask {
                span,
                previous: None,
                instructions: &instructions,
                limit: LIMIT,
                meter: &meter,
                warm: None,
            };
            let Ok(drafted) = draft(&remote, &task).await else { continue };
            fs::write(&file, drafted.text).unwrap();
        }
        let text = fs::read_to_string(&file).unwrap();
        let caps = SectionCaps::default();
        let source = DraftSource {
            span,
            previous: None,
            caps: &caps,
            replaces: Tokens::MAX,
            limit: Tokens::MAX,
            focus: None,
        };
        println!(
            "\n=== {name}{key}, events {:?} to {:?}",
            span.first().map(|e| e.id.seq),
            span.last().map(|e| e.id.seq)
        );
        match verify(&text, DraftFinish::Complete, &source, &meter) {
            Ok(verified) => {
                let report = verified.report;
                let own = |section| verified.brief.section(section).filter(|item| item.key.is_none());
                for item in own(SummarySection::KeyDecisions).chain(own(SummarySection::FailedApproaches)) {
                    println!("  admitted [{}] {}", item.sources, item.text);
                }
                for dropped in report.dropped {
                    println!("  dropped {:?} {:?} {}", dropped.by, dropped.section, dropped.text);
                }
                println!("  {} items, {} repeated, {} unread", report.items, report.repeated, report.unread);
            }
            Err(rejected) => println!("  {rejected}\n{text}"),
        }
    }
}
