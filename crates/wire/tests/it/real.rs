//! Rendering over real sessions, where they are at hand.
//!
//! The files are not part of the project: they are looked for in `EPITOME_DATA`, or in `../shared/data` beside the
//! workspace, and the test says so and passes if they are not there. It takes a sample, so that it stays short.

use std::{
    fs,
    path::{Path, PathBuf},
};

use epitome_core::{
    Event, Tokens, budget::Budget, context::Context, fit::fit, pipeline::State, reducers::default_pipeline,
};
use epitome_wire::{
    Format,
    legality::{Rule, Rules, check_against},
    render::settle_thinking,
    transcripts::{Limits, Start, read},
};

use crate::{
    histories::{context, logged},
    rendered::render,
};

/// Files of the sample that are not larger than this, and not more than so many a folder.
const LARGEST: u64 = 1_000_000;
const FILES: usize = 3;
/// Sessions a file, and events a session.
const SESSIONS: usize = 3;
const EVENTS: usize = 400;

fn data() -> Option<PathBuf> {
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
        let Ok(fitted) = fit(context.clone(), &budget, &default_pipeline(), State::default()) else {
            continue;
        };
        for format in Format::ALL {
            render(format, &fitted.context, Rules::of(format));
            rendered += 1;
        }
        try_bound_thinking(&context, fitted.context);
    }
    rendered
}

/// The same for a model that binds its thinking to everything before it.
fn try_bound_thinking(whole: &Context, reduced: Context) {
    let rules = Rules::of(Format::Anthropic).with(Rule::PreservedThinking);
    let Ok(sent) = settle_thinking(whole.clone(), whole, &rules, Tokens::MAX) else { return };
    let before = render(Format::Anthropic, &sent.context, rules.clone());
    if let Ok(settled) = settle_thinking(reduced, &sent.context, &rules, Tokens::MAX) {
        let after = render(Format::Anthropic, &settled.context, rules.clone());
        let found = check_against(Format::Anthropic, &before, &after, &rules);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn real_sessions_are_rendered_legally_to_every_format_at_every_budget() {
    let Some(data) = data() else { return };
    let mut rendered = 0;
    for file in sample(&data) {
        let name = file.display().to_string();
        let reading = read(&name, &fs::read(&file).unwrap(), &Limits::default()).unwrap();
        let threads = reading.sessions.iter().flat_map(|session| &session.threads);
        // A fork begins with its parent's events, which are tried there.
        let whole = threads.filter(|thread| !matches!(thread.start, Start::Fork { .. }));
        for thread in whole.take(SESSIONS) {
            let events: Vec<Event> = thread.events.iter().take(EVENTS).cloned().collect();
            rendered += try_session(events);
        }
    }
    assert!(rendered > 100, "only {rendered} requests were rendered");
    println!("{rendered} requests");
}
