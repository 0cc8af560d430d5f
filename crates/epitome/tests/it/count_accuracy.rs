//! Margins over sessions that really happened: they are learned from the calls up to some point, and hold for the calls after it.

use std::{fs, path::Path, sync::Arc};

use epitome::{
    compact::line,
    core::{
        Event, Tokens,
        id::ModelName,
        meter::Meter,
        profile::{Profile, Profiles},
    },
    recorded_calls::{RecordedCall, counted},
    token_margin::CountAccuracy,
    wire::transcripts::{TranscriptLimits, read},
};

use super::model_drafts::data;

/// Calls of a session with one model, whose transcript may hide what its requests began with.
struct Recording {
    events: Vec<Event>,
    model: ModelName,
    profile: Profile,
}

/// Growth that is large enough for a ratio.
const MEASURED: Tokens = Tokens(2_000);

/// Calls of a session that margins are learned at.
const PLACES: usize = 6;

fn recordings(data: &Path) -> Vec<Recording> {
    let profiles = Profiles::builtin();
    let mut recordings = Vec::new();
    for folder in ["claude-code", "pi"] {
        let mut files: Vec<_> =
            fs::read_dir(data.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let Ok(reading) = read(&name, &fs::read(&file).unwrap(), &TranscriptLimits::default()) else {
                continue;
            };
            for session in &reading.sessions {
                let events = session.thread_events(session.head);
                let meter = Arc::new(Profiles::builtin().find("claude-opus-4-5").unwrap().meter());
                let calls = counted(&line(events.iter().cloned()).count_missing(&meter), &meter);
                let Some(model) = calls.iter().rev().find_map(|call| call.model.clone()) else { continue };
                let Ok(profile) = profiles.find(&model.0) else { continue };
                if !profile.tokenizer.is_exact() {
                    recordings.push(Recording { events, model, profile: profile.clone() });
                }
            }
        }
    }
    recordings
}

impl Recording {
    fn calls(&self, events: &[Event], meter: &Arc<Meter>) -> Vec<RecordedCall> {
        let line = line(events.iter().cloned()).count_missing(meter);
        counted(&line, meter).into_iter().filter(|call| call.model.as_ref() == Some(&self.model)).collect()
    }

    /// Later calls within the bound that was learned before them, and all of them.
    fn held(&self) -> (usize, usize) {
        let meter = Arc::new(self.profile.meter());
        let all = self.calls(&self.events, &meter);
        let (mut held, mut tried) = (0, 0);
        for place in 1..=PLACES {
            let known = &self.events[..self.events.len() * place / (PLACES + 1)];
            let learned = CountAccuracy::from_calls(
                &line(known.iter().cloned()).count_missing(&meter),
                &meter,
                Some(self.profile.margin),
                |model| *model == self.model,
            );
            let before = self.calls(known, &meter).len();
            for (grown, reported) in growths(&all, before) {
                tried += 1;
                held += usize::from(reported <= learned.bound(grown));
            }
        }
        (held, tried)
    }
}

/// Growth of each call after the first `known` ones beyond the first call on the same stretch, counted and reported.
fn growths(calls: &[RecordedCall], known: usize) -> Vec<(Tokens, Tokens)> {
    let mut growths = Vec::new();
    let mut start: Option<(&RecordedCall, Tokens, Tokens)> = None;
    for (number, call) in calls.iter().enumerate() {
        let Some(input) = call.usage.map(|usage| usage.input()) else { continue };
        match &mut start {
            Some((first, base, concealed))
                if first.standing == call.standing && input + Tokens(500) > *base =>
            {
                let grown = call.counted.less(first.counted);
                if number >= known && grown >= MEASURED {
                    growths.push((grown, input.less(*base + *concealed)));
                }
                *concealed += call.concealed;
            }
            _ => start = Some((call, input, call.concealed)),
        }
    }
    growths
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn margins_learned_from_real_calls_hold_for_95_of_100_later_ones() {
    let Some(data) = data() else { return };
    let recordings = recordings(&data);
    let (held, tried) = recordings
        .iter()
        .map(Recording::held)
        .fold((0, 0), |(held, tried), (more, others)| (held + more, tried + others));
    println!("{held} of {tried} later calls in {} sessions", recordings.len());
    assert!(tried > 1_000, "{tried} calls are too few to say");
    assert!(held * 100 >= tried * 95, "{held} of {tried}");
}
