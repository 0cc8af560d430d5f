//! Replays the threads of one place after the other.

use epitome::core::{
    Seq, Tokens,
    budget::{Budget, WindowReserves},
    cost::CacheAssumption,
    profile::Profiles,
};
use epitome_measure::{
    charts::PictureTitle,
    replay::{
        PreparedReplay, ReplayAssumption, ReplayCandidate, ReplayConditions, ReplayRow, ReplaySubject,
        ReplayTotals, RequestRoom, hidden_overhead::HiddenOverhead, recorded_usage::ThreadComparison,
    },
};

use super::{
    ReplayArgs, ReplaySetting,
    dump::RequestDump,
    picture::{self, ReplayPicture},
    replay_location::ReplayLocation,
};
use crate::cli::store_lookup::DatabaseLocation;

/// Settings and sources of a replay.
pub(super) struct ThreadReplayer<'a> {
    pub(super) args: &'a ReplayArgs,
    pub(super) profiles: &'a Profiles,
    pub(super) contenders: Vec<ReplayCandidate>,
    pub(super) settings: Vec<ReplaySetting<'a>>,
    pub(super) dump: Option<RequestDump>,
    /// True if calls are kept for drawing.
    pub(super) draws: bool,
}

/// Result of replaying a thread.
pub(super) struct ThreadReplayOutcome {
    pub(super) name: String,
    pub(super) is_main: bool,
    /// Model that was charged first.
    pub(super) model: String,
    pub(super) unseen: HiddenOverhead,
    /// By setting and contender.
    pub(super) totals: Vec<Vec<ReplayTotals>>,
    pub(super) notes: Vec<ReplayAssumption>,
    pub(super) recorded: RecordedUsageCheck,
    pub(super) picture: Option<ReplayPicture>,
}

/// Recorded usage of a thread's calls, compared with the simulation.
pub(super) enum RecordedUsageCheck {
    /// The comparison is switched off, or made for another thread with the same calls.
    NotAsked,
    /// The thread records no usage.
    Silent,
    /// The accuracy of the simulation.
    Told(Box<ThreadComparison>),
}

impl ThreadReplayOutcome {
    fn new(subject: &ReplaySubject) -> Self {
        Self {
            name: subject.name.clone(),
            is_main: subject.is_main,
            model: String::new(),
            unseen: HiddenOverhead::unknown(),
            totals: Vec::new(),
            notes: Vec::new(),
            recorded: RecordedUsageCheck::NotAsked,
            picture: None,
        }
    }

    /// Returns true if there was any call.
    pub(super) fn has_calls(&self) -> bool {
        self.totals.iter().flatten().any(|total| total.calls > 0)
    }

    fn note(&mut self, notes: Vec<ReplayAssumption>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

impl ThreadReplayer<'_> {
    /// Replays all threads of a place.
    pub(super) fn replay_all(
        &self,
        place: &ReplayLocation,
        store: &DatabaseLocation,
    ) -> anyhow::Result<Vec<ThreadReplayOutcome>> {
        place.subjects(store)?.iter().map(|subject| self.subject(subject, place)).collect()
    }

    fn subject(
        &self,
        subject: &ReplaySubject,
        place: &ReplayLocation,
    ) -> anyhow::Result<ThreadReplayOutcome> {
        let mut outcome = ThreadReplayOutcome::new(subject);
        for settings in self.settings.chunk_by(ReplaySetting::asks_the_same) {
            let Some(first) = settings.first() else { continue };
            let plain = subject.prepare(first.model, self.profiles)?;
            // A live session has all of its requests, so what the transcript lacks is made up.
            let whole_subject =
                first.limit.is_some_and(is_live).then(|| subject.with_instructions(&plain)).transpose()?;
            let whole_ready =
                whole_subject.as_ref().map(|whole| whole.prepare(first.model, self.profiles)).transpose()?;
            let (subject, ready) = (whole_subject.as_ref().unwrap_or(subject), whole_ready.unwrap_or(plain));
            if outcome.totals.is_empty() {
                outcome.model.clone_from(&ready.profile.name);
                outcome.unseen = ready.part.unseen;
                outcome.notes.clone_from(&ready.notes);
                outcome.recorded = self.recorded(subject, &ready, first)?;
            }
            for settings in settings.chunk_by(|one, other| one.limit == other.limit) {
                let Some(setting) = settings.first() else { continue };
                let limit = setting.limit.unwrap_or_else(|| RequestRoom::Request(whole(&ready)));
                let window = limit.tokens();
                for (setting, calls) in settings.iter().zip(self.play(subject, &ready, settings, limit)?) {
                    let totals: Vec<ReplayTotals> =
                        calls.iter().map(|calls| calls.iter().collect()).collect();
                    outcome.note(ReplayAssumption::of_outcome(&totals, &ready.part.unseen, window));
                    if outcome.totals.is_empty() && self.draws && subject.is_main {
                        let title = self.title(&outcome, setting, window, place);
                        outcome.picture = Some(ReplayPicture { title, calls });
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
        subject: &ReplaySubject,
        ready: &PreparedReplay<'_>,
        settings: &[ReplaySetting<'_>],
        limit: RequestRoom,
    ) -> anyhow::Result<Vec<Vec<Vec<ReplayRow>>>> {
        let modes: Vec<CacheAssumption> = settings.iter().map(|setting| setting.cache.into()).collect();
        let (profile, format, profiles, modes) = (ready.profile, ready.format, self.profiles, &modes);
        let stage = ReplayConditions { profile, format, limit, profiles, modes };
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
        subject: &ReplaySubject,
        ready: &PreparedReplay<'_>,
        setting: &ReplaySetting<'_>,
    ) -> anyhow::Result<RecordedUsageCheck> {
        if self.args.no_recorded || self.args.csv || subject.own > Seq(1) {
            return Ok(RecordedUsageCheck::NotAsked);
        }
        let own = match setting.model {
            None => None,
            Some(_) => Some(subject.as_recorded(self.profiles)?),
        };
        let compared = own.as_ref().unwrap_or(&ready.recorded).compare(&subject.name);
        Ok(compared
            .map_or(RecordedUsageCheck::Silent, |compared| RecordedUsageCheck::Told(Box::new(compared))))
    }

    fn title(
        &self,
        outcome: &ThreadReplayOutcome,
        setting: &ReplaySetting<'_>,
        window: Tokens,
        place: &ReplayLocation,
    ) -> PictureTitle {
        PictureTitle {
            session: outcome.name.clone(),
            model: outcome.model.clone(),
            window: Some(window),
            source: picture::command(self.args, setting, place),
            notes: outcome.notes.iter().map(ReplayAssumption::sentence).collect(),
        }
    }
}

fn is_live(limit: RequestRoom) -> bool {
    matches!(limit, RequestRoom::Window(_))
}

/// Window of a thread's model.
fn whole(ready: &PreparedReplay<'_>) -> Tokens {
    Budget::for_profile(ready.profile, WindowReserves::default()).ceiling()
}
