//! Replays the threads of one place after the other.

use epitome::{
    core::{
        Seq, Tokens,
        budget::{Budget, Reserves},
        cost::Mode,
        profile::Profiles,
    },
    replay::{Contender, Played, Stage, Total, recorded::Compared, unseen::Unseen},
};

use super::{
    Args, Setting,
    dump::Dump,
    notes::Note,
    picture::{self, Picture},
    series::Title,
    subject::{Place, Ready, Subject},
};
use crate::cli::open::Store;

/// Settings and sources of a replay.
pub(super) struct Replay<'a> {
    pub(super) args: &'a Args,
    pub(super) profiles: &'a Profiles,
    pub(super) contenders: Vec<Contender>,
    pub(super) settings: Vec<Setting<'a>>,
    pub(super) dump: Option<Dump>,
    /// True if calls are kept for drawing.
    pub(super) draws: bool,
}

/// Result of replaying a thread.
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) is_main: bool,
    /// Model that was charged first.
    pub(super) model: String,
    pub(super) unseen: Unseen,
    /// By setting and contender.
    pub(super) totals: Vec<Vec<Total>>,
    pub(super) notes: Vec<Note>,
    pub(super) recorded: Recorded,
    pub(super) picture: Option<Picture>,
}

/// Recorded usage of a thread's calls, compared with the simulation.
pub(super) enum Recorded {
    /// The comparison is switched off, or made for another thread with the same calls.
    NotAsked,
    /// The thread records no usage.
    Silent,
    /// The accuracy of the simulation.
    Told(Box<Compared>),
}

impl Outcome {
    fn new(subject: &Subject) -> Self {
        Self {
            name: subject.name.clone(),
            is_main: subject.is_main,
            model: String::new(),
            unseen: Unseen::assumed(),
            totals: Vec::new(),
            notes: Vec::new(),
            recorded: Recorded::NotAsked,
            picture: None,
        }
    }

    /// Returns true if there was any call.
    pub(super) fn has_calls(&self) -> bool {
        self.totals.iter().flatten().any(|total| total.calls > 0)
    }

    fn note(&mut self, notes: Vec<Note>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

impl Replay<'_> {
    /// Replays all threads of a place.
    pub(super) fn place(&self, place: &Place, store: &Store) -> anyhow::Result<Vec<Outcome>> {
        place.subjects(store)?.iter().map(|subject| self.subject(subject, place)).collect()
    }

    fn subject(&self, subject: &Subject, place: &Place) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::new(subject);
        for settings in self.settings.chunk_by(Setting::asks_the_same) {
            let Some(first) = settings.first() else { continue };
            let ready = subject.ready(first.model, self.profiles)?;
            if outcome.totals.is_empty() {
                outcome.model.clone_from(&ready.profile.name);
                outcome.unseen = ready.part.unseen;
                outcome.notes.clone_from(&ready.notes);
                outcome.recorded = self.recorded(subject, &ready, first)?;
            }
            for settings in settings.chunk_by(|one, other| one.window == other.window) {
                let Some(setting) = settings.first() else { continue };
                let window = setting.window.unwrap_or_else(|| whole(&ready));
                for (setting, calls) in settings.iter().zip(self.play(subject, &ready, settings, window)?) {
                    let totals: Vec<Total> = calls.iter().map(|calls| calls.iter().collect()).collect();
                    outcome.note(Note::of_outcome(&totals, &ready.part.unseen, window));
                    if outcome.totals.is_empty() && self.draws && subject.is_main {
                        let title = self.title(&outcome, setting, window, place);
                        outcome.picture = Some(Picture { title, calls });
                    }
                    outcome.totals.push(totals);
                }
            }
        }
        Ok(outcome)
    }

    /// Replays a thread under every contender; returns the calls by setting and contender. Settings differ in
    /// their cache alone, so a request is made once for all of them.
    fn play(
        &self,
        subject: &Subject,
        ready: &Ready<'_>,
        settings: &[Setting<'_>],
        window: Tokens,
    ) -> anyhow::Result<Vec<Vec<Vec<Played>>>> {
        let modes: Vec<Mode> = settings.iter().map(|setting| setting.cache.into()).collect();
        let stage = Stage { profile: ready.profile, format: ready.format, window, modes: &modes };
        let mut all = vec![Vec::new(); modes.len()];
        for contender in &self.contenders {
            let mut file = match &self.dump {
                Some(dump) if subject.is_main => Some(dump.file(contender.name(), subject, ready.format)?),
                _ => None,
            };
            let mut failed = None;
            let played = ready.part.play(&stage, contender, |shown| {
                if let Some(file) = &mut file
                    && failed.is_none()
                {
                    failed = file.write(&shown).err();
                }
            })?;
            match (failed, file) {
                (Some(error), _) => return Err(error),
                (None, Some(file)) => file.finish()?,
                (None, None) => {}
            }
            all.iter_mut().zip(played).for_each(|(all, played)| all.push(played));
        }
        Ok(all)
    }

    /// Replays a thread as it was sent, to the model that answered. Calls that forks share are left out,
    /// because they would be compared twice.
    fn recorded(
        &self,
        subject: &Subject,
        ready: &Ready<'_>,
        setting: &Setting<'_>,
    ) -> anyhow::Result<Recorded> {
        if self.args.no_recorded || self.args.csv || subject.own > Seq(1) {
            return Ok(Recorded::NotAsked);
        }
        let own = match setting.model {
            None => None,
            Some(_) => Some(subject.as_recorded(self.profiles)?),
        };
        let compared = own.as_ref().unwrap_or(&ready.recorded).compare(&subject.name);
        Ok(compared.map_or(Recorded::Silent, |compared| Recorded::Told(Box::new(compared))))
    }

    fn title(&self, outcome: &Outcome, setting: &Setting<'_>, window: Tokens, place: &Place) -> Title {
        Title {
            session: outcome.name.clone(),
            model: outcome.model.clone(),
            window: Some(window),
            source: picture::command(self.args, setting, place),
            notes: outcome.notes.iter().map(Note::sentence).collect(),
        }
    }
}

/// Window of a thread's model.
fn whole(ready: &Ready<'_>) -> Tokens {
    Budget::for_profile(ready.profile, Reserves::default()).ceiling()
}
