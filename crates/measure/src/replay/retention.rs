//! Retention: facts that were needed later, and how many of them a request still held.
//!
//! The session itself shows what mattered. [`NeededFacts`] reads the events and finds, for each call, the facts
//! from the past that this answer and the following ones used. A [`RetentionScorer`] then checks, call after call, how
//! many of them a policy's request holds. Expensive work is done once a thread: finding the places of each
//! word. A request is then a set of places, with some texts that replace others.

mod attempts;
mod common_names;
mod distinctive_words;
mod needed_facts;
mod score;
mod search_patterns;
mod session_paths;
mod text_places;

use std::ops::AddAssign;

use serde::{Serialize, Serializer, ser::SerializeMap as _};

pub use self::{
    needed_facts::{HORIZON_ANSWERS, NeededFacts},
    score::RetentionScorer,
};

/// Numbers of needed facts that a request held, by the way it held them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactRetention {
    counts: [[u64; 5]; 6],
    /// Messages of users before the call.
    pub user_messages: UserMessageCounts,
}

/// Numbers of users' messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserMessageCounts {
    /// Messages that a request shows in full, or quotes word for word.
    pub kept: u64,
    /// All messages.
    pub all: u64,
}

/// Kind of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NeededFactKind {
    /// A file that is touched later.
    File,
    /// An error that is mentioned later.
    Error,
    /// An identifier or a value that is used later and stood only in results or in users' messages.
    Value,
    /// A demand of the user.
    Constraint,
    /// A failed attempt that is repeated.
    FailedApproach,
    /// A result that is read again.
    ReadAgain,
}

/// Way in which a request holds a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RetentionForm {
    /// In full.
    Verbatim,
    /// In a summary or in the rest of a shortened result.
    Summary,
    /// Only as a name in a summary's list of names.
    NameOnly,
    /// Only through a handle.
    Handle,
    /// Not at all.
    Lost,
}

impl NeededFactKind {
    /// Every kind, in order.
    pub const ALL: [Self; 6] =
        [Self::File, Self::Error, Self::Value, Self::Constraint, Self::FailedApproach, Self::ReadAgain];

    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Error => "error",
            Self::Value => "value",
            Self::Constraint => "constraint",
            Self::FailedApproach => "failed_approach",
            Self::ReadAgain => "read_again",
        }
    }
}

impl RetentionForm {
    /// All ways, the best first.
    pub const ALL: [Self; 5] = [Self::Verbatim, Self::Summary, Self::NameOnly, Self::Handle, Self::Lost];

    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Verbatim => "verbatim",
            Self::Summary => "summary",
            Self::NameOnly => "name_only",
            Self::Handle => "handle",
            Self::Lost => "lost",
        }
    }
}

impl FactRetention {
    /// Number of facts of a kind that were held in a way.
    pub fn count(&self, kind: NeededFactKind, held: RetentionForm) -> u64 {
        self.counts[kind as usize][held as usize]
    }

    /// Number of facts that were held in a way.
    pub fn of(&self, held: RetentionForm) -> u64 {
        NeededFactKind::ALL.into_iter().map(|kind| self.count(kind, held)).sum()
    }

    /// Number of needed facts.
    pub fn total(&self) -> u64 {
        RetentionForm::ALL.into_iter().map(|held| self.of(held)).sum()
    }

    /// Number of needed facts of a kind.
    pub fn needed(&self, kind: NeededFactKind) -> u64 {
        RetentionForm::ALL.into_iter().map(|held| self.count(kind, held)).sum()
    }

    /// Share of the needed facts in the request, in full, in a summary or as a name, from 0 to 1; `None` if
    /// no facts were needed.
    pub fn in_request(&self) -> Option<f64> {
        share(
            self.of(RetentionForm::Verbatim)
                + self.of(RetentionForm::Summary)
                + self.of(RetentionForm::NameOnly),
            self.total(),
        )
    }

    /// Share of the needed facts in the request or reachable by a handle.
    pub fn reachable(&self) -> Option<f64> {
        share(self.total() - self.of(RetentionForm::Lost), self.total())
    }

    fn note(&mut self, kind: NeededFactKind, held: RetentionForm) {
        self.counts[kind as usize][held as usize] += 1;
    }
}

#[expect(clippy::cast_precision_loss, reason = "no session needs 2^52 facts")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl AddAssign for FactRetention {
    fn add_assign(&mut self, other: Self) {
        for (row, others) in self.counts.iter_mut().zip(other.counts) {
            for (count, more) in row.iter_mut().zip(others) {
                *count += more;
            }
        }
        self.user_messages.kept += other.user_messages.kept;
        self.user_messages.all += other.user_messages.all;
    }
}

/// Serialised by kind and way: `{"file": {"verbatim": 3, …}, …, "user_messages": {"kept": 2, "all": 2}}`.
impl Serialize for FactRetention {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(NeededFactKind::ALL.len() + 1))?;
        for kind in NeededFactKind::ALL {
            map.serialize_entry(kind.name(), &RetentionCounts(&self.counts[kind as usize]))?;
        }
        map.serialize_entry("user_messages", &self.user_messages)?;
        map.end()
    }
}

struct RetentionCounts<'c>(&'c [u64; 5]);

impl Serialize for RetentionCounts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(RetentionForm::ALL.into_iter().map(|held| (held.name(), self.0[held as usize])))
    }
}

/// Retention by the number of compactions that a request builds on, which shows if content wears away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RetentionDrift([FactRetention; RetentionDrift::STEPS]);

impl RetentionDrift {
    /// Number of steps: no compaction, one, two, and three or more.
    pub const STEPS: usize = 4;

    /// Adds the retention of a request that builds on so many compactions.
    pub fn add(&mut self, compactions: u64, retention: FactRetention) {
        let last = Self::STEPS - 1;
        self.0[usize::try_from(compactions).unwrap_or(last).min(last)] += retention;
    }

    /// Retention after no compaction, one, two, and three or more.
    pub fn steps(&self) -> &[FactRetention; RetentionDrift::STEPS] {
        &self.0
    }
}

impl AddAssign for RetentionDrift {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}
