//! Rendering over real sessions, where they are at hand.
//!
//! The files are not part of the project: they are looked for in `EPITOME_DATA`, or in `../shared/data` beside the
//! workspace, and the test says so and passes if they are not there. It takes a sample, so that it stays short.

use std::{
    fs,
    path::{Path, PathBuf},
};

use epitome_core::{
    Event, Fact, Tokens,
    budget::Budget,
    context::Context,
    cost::{Prompt, RequestExtension, extends},
    fit::fit,
    pipeline::ReducerState,
    reducers::default_pipeline,
};
use epitome_wire::{
    Format,
    legality::{ProviderRule, ProviderRules, check, check_against},
    render::{CacheBreakpoints, RenderOptions, settle_thinking},
    transcripts::{TranscriptLimits, TranscriptThreadStart, read},
};

use crate::{
    breakpoints::Cache,
    histories::{context, logged},
    prompts::memo,
    rendered::render,
};

/// Files of the sample that are not larger than this, and not more than so many a folder.
const LARGEST: u64 = 1_000_000;
const FILES: usize = 3;
/// Sessions a file, and events a session.
const SESSIONS: usize = 3;
const EVENTS: usize = 400;

pub(crate) fn data() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("EPITOME_DATA").map_or_else(beside, PathBuf::from);
    let found = data.join("MANIFEST.json").is_file();
    if !found {
        println!("skipped: no real sessions at {}", data.display());
    }
    found.then_some(data)
}

/// The same files every time: of each folder some that are far apart.
fn sample(data: &Path) -> Vec<PathBuf> {
    let mut sample = Vec::new();
    let mut folders: Vec<PathBuf> = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders.into_iter().filter(|path| path.is_dir()) {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.metadata().unwrap().len() <= LARGEST);
        files.sort();
        let step = (files.len() / FILES).max(1);
        sample.extend(files.into_iter().step_by(step).take(FILES));
    }
    sample
}

/// What is rendered of a session: everything, and what fits smaller and smaller budgets.
fn try_session(events: Vec<Event>) -> usize {
    let context = context(&logged(events));
    let mut rendered = 0;
    for share in [100, 50, 10] {
        let budget = Budget::new(Tokens(context.tokens().0 * share / 100));
        let Ok(fitted) = fit(context.clone(), &budget, &default_pipeline(), ReducerState::default()) else {
            continue;
        };
        for format in Format::ALL {
            render(format, &fitted.context, ProviderRules::of(format));
            rendered += 1;
        }
        try_bound_thinking(&context, fitted.context);
    }
    rendered
}

/// The same for a model that binds its thinking to everything before it.
fn try_bound_thinking(whole: &Context, reduced: Context) {
    let rules = ProviderRules::of(Format::Anthropic).with(ProviderRule::PreservedThinking);
    let Ok(sent) = settle_thinking(whole.clone(), whole, &rules, Tokens::MAX) else { return };
    let before = render(Format::Anthropic, &sent.context, rules.clone());
    if let Ok(settled) = settle_thinking(reduced, &sent.context, &rules, Tokens::MAX) {
        let after = render(Format::Anthropic, &settled.context, rules.clone());
        let found = check_against(Format::Anthropic, &before, &after, &rules);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// The requests of a session as its agent sent them, up to each answer: every one begins with all of the one before, and
/// with breakpoints Anthropic's cache has all of it. Gives back how many there were.
fn grow(format: Format, events: &[Event]) -> usize {
    let breakpoints = CacheBreakpoints::Placed { most: 4, lifetime: 300 };
    let options = RenderOptions { breakpoints, ..RenderOptions::of(format) };
    let logged = logged(events.to_vec());
    let (mut cache, mut memo) = (Cache::default(), memo());
    let mut sent = Prompt::default();
    let mut last = None;
    let mut calls = 0;
    // A greeting that nobody asked for was no call.
    let asked = |event: &Event| matches!(event.fact, Fact::UserSaid { .. });
    let first = events.iter().position(asked).unwrap_or(events.len());
    for (index, event) in events.iter().enumerate().skip(first) {
        let Fact::AssistantSaid { answer, .. } = &event.fact else { continue };
        if answer.is_some() && last.replace(answer) == Some(answer) {
            continue;
        }
        let body = format.render(&context(&logged[..index]), &options).unwrap().body;
        assert!(check(format, &body, &options.rules).is_empty());
        let prompt = format.prompt(&body, &mut memo).unwrap();
        assert_eq!(extends(&sent, &prompt), RequestExtension::Extends, "{format}, event {index}");
        let hit = cache.ask(&prompt);
        assert!(format != Format::Anthropic || hit == sent.blocks.len(), "{hit} of {}", sent.blocks.len());
        sent = prompt;
        calls += 1;
    }
    calls
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn real_sessions_only_grow_at_their_end_and_are_read_from_the_cache() {
    let Some(data) = data() else { return };
    let mut calls = 0;
    for events in sessions(&data) {
        calls += Format::ALL.map(|format| grow(format, &events)).iter().sum::<usize>();
    }
    assert!(calls > 1_000, "only {calls} requests were rendered");
    println!("{calls} requests");
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn real_sessions_are_rendered_legally_to_every_format_at_every_budget() {
    let Some(data) = data() else { return };
    let rendered: usize = sessions(&data).map(try_session).sum();
    assert!(rendered > 100, "only {rendered} requests were rendered");
    println!("{rendered} requests");
}

/// The beginnings of some sessions of every sample.
fn sessions(data: &Path) -> impl Iterator<Item = Vec<Event>> {
    sample(data).into_iter().flat_map(|file| {
        let name = file.display().to_string();
        let reading = read(&name, &fs::read(&file).unwrap(), &TranscriptLimits::default()).unwrap();
        let threads = reading.sessions.into_iter().flat_map(|session| session.threads);
        // A fork begins with its parent's events, which are tried there.
        let whole = threads.filter(|thread| !matches!(thread.start, TranscriptThreadStart::Fork { .. }));
        whole.take(SESSIONS).map(|thread| thread.events.into_iter().take(EVENTS).collect())
    })
}
