//! What of the past was needed later, and what a request still held of it.
//!
//! Nobody is asked what mattered: the session itself says it. [`Needs::of`] reads what really happened and finds, for
//! each call, what this answer and the following ones turned out to use of the past. A [`Scorer`] then looks, call after
//! call, how much of that a policy's request holds. Everything that costs time is done once a thread: which place of the
//! session holds which words; a request is then a set of places, and some texts that stand for others.

mod attempts;
mod common;
mod needs;
mod paths;
mod patterns;
mod places;
mod score;
mod words;

use std::ops::AddAssign;

use serde::{Serialize, Serializer, ser::SerializeMap as _};

pub use self::{
    needs::{HORIZON, Needs},
    score::Scorer,
};

/// How many needed facts a request held, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    counts: [[u64; 5]; 6],
    /// The messages of users that were there before the call.
    pub user_messages: UserMessages,
}

/// Messages of users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserMessages {
    /// Those that a request shows as they were, or tells word for word.
    pub kept: u64,
    /// All of them.
    pub all: u64,
}

/// What a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A file that is touched later.
    File,
    /// An error that is referred to later.
    Error,
    /// An identifier or a value that is used later and stood only in results or in what the user said.
    Value,
    /// Something the user demanded.
    Constraint,
    /// Something that was tried in vain and is tried again.
    FailedApproach,
    /// A result that is read again.
    ReadAgain,
}

/// How a request holds a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// As it was.
    Verbatim,
    /// In a summary or in what is left of a result.
    Summary,
    /// Its name stands in a list of names of a summary, and nothing more is said of it.
    NameOnly,
    /// Only a handle leads to it.
    Handle,
    /// Not at all.
    Lost,
}

impl Kind {
    /// Every kind, in order.
    pub const ALL: [Self; 6] =
        [Self::File, Self::Error, Self::Value, Self::Constraint, Self::FailedApproach, Self::ReadAgain];

    /// Its name, as it is written in files.
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

impl Held {
    /// Every way, the best first.
    pub const ALL: [Self; 5] = [Self::Verbatim, Self::Summary, Self::NameOnly, Self::Handle, Self::Lost];

    /// Its name, as it is written in files.
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

impl Retention {
    /// How many facts of a kind were held in a way.
    pub fn count(&self, kind: Kind, held: Held) -> u64 {
        self.counts[kind as usize][held as usize]
    }

    /// How many facts were held in a way.
    pub fn of(&self, held: Held) -> u64 {
        Kind::ALL.into_iter().map(|kind| self.count(kind, held)).sum()
    }

    /// How many facts were needed.
    pub fn total(&self) -> u64 {
        Held::ALL.into_iter().map(|held| self.of(held)).sum()
    }

    /// How many facts of a kind were needed.
    pub fn needed(&self, kind: Kind) -> u64 {
        Held::ALL.into_iter().map(|held| self.count(kind, held)).sum()
    }

    /// The share of the needed facts that stood in the request, as they were, in a summary or as a name, from 0 to 1; none if
    /// nothing was needed.
    pub fn in_request(&self) -> Option<f64> {
        share(self.of(Held::Verbatim) + self.of(Held::Summary) + self.of(Held::NameOnly), self.total())
    }

    /// The share of those that stood there or can be got back by a handle.
    pub fn reachable(&self) -> Option<f64> {
        share(self.total() - self.of(Held::Lost), self.total())
    }

    fn note(&mut self, kind: Kind, held: Held) {
        self.counts[kind as usize][held as usize] += 1;
    }
}

#[expect(clippy::cast_precision_loss, reason = "no session needs 2^52 facts")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl AddAssign for Retention {
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

/// By kind and way: `{"file": {"verbatim": 3, …}, …, "user_messages": {"kept": 2, "all": 2}}`.
impl Serialize for Retention {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Kind::ALL.len() + 1))?;
        for kind in Kind::ALL {
            map.serialize_entry(kind.name(), &Ways(&self.counts[kind as usize]))?;
        }
        map.serialize_entry("user_messages", &self.user_messages)?;
        map.end()
    }
}

struct Ways<'c>(&'c [u64; 5]);

impl Serialize for Ways<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Held::ALL.into_iter().map(|held| (held.name(), self.0[held as usize])))
    }
}

/// Retention by how many compactions a request already stood on: whether what is kept wears away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drift([Retention; Drift::STEPS]);

impl Drift {
    /// None, one, two, and three or more.
    pub const STEPS: usize = 4;

    /// Adds what a request held that stood on so many compactions.
    pub fn add(&mut self, compactions: u64, retention: Retention) {
        let last = Self::STEPS - 1;
        self.0[usize::try_from(compactions).unwrap_or(last).min(last)] += retention;
    }

    /// What was held after no compaction, one, two, and three or more.
    pub fn steps(&self) -> &[Retention; Drift::STEPS] {
        &self.0
    }
}

impl AddAssign for Drift {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}
