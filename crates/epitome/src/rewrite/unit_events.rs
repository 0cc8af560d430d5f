//! Map from the units of a client's history to events.

use epitome_core::{ChainLink, Digest, Event, Fact, LoggedEvent, Seq, ThreadId};
use epitome_store::{Store, StoreError};

/// Number of events read at a time.
const PAGE: usize = 4_096;

/// Map from the units of a client's history to events: each has those after the unit before it, up to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitEventMap {
    ends: Vec<Seq>,
    /// Compaction by the client that the first units stand for, and the number of those units.
    lead: Option<(Seq, usize)>,
    /// The last event that was read.
    through: Seq,
    /// A compaction by the client whose number of units is not known yet, and its digest.
    restarted: Option<(Seq, Digest)>,
}

impl UnitEventMap {
    /// The units of a thread's history, through an event.
    pub(crate) fn read(store: &dyn Store, thread: ThreadId, through: Seq) -> Result<Self, StoreError> {
        // Events before a history that began anew are not part of it.
        let begins = store.last_client_compaction(thread, through)?.map_or(Seq::START, Seq::previous);
        let mut units = Self { through: begins, ..Self::default() };
        loop {
            let page = store.digests(thread, units.through.next(), PAGE)?;
            let full = page.len() == PAGE;
            for (seq, digest, link) in page {
                if seq > through {
                    return Ok(units);
                }
                units.take(seq, digest, link);
            }
            if !full {
                return Ok(units);
            }
        }
    }

    /// Takes the next event.
    pub(crate) fn push(&mut self, event: &LoggedEvent) {
        if event.id.seq > self.through {
            self.take(event.id.seq, event.event.normal, event.link.normal);
        }
    }

    /// Takes an event by its place, its digest and the normalised link after it.
    pub(crate) fn take(&mut self, seq: Seq, digest: Option<Digest>, link: Digest) {
        self.through = seq;
        match digest {
            // Only a compaction by the client begins a chain anew.
            Some(digest) if digest == link => {
                self.ends.clear();
                self.lead = None;
                self.restarted = Some((seq, digest));
            }
            Some(_) => self.ends.push(seq),
            None => {}
        }
    }

    /// The last event that was read.
    pub(crate) fn through(&self) -> Seq {
        self.through
    }

    /// The end of each unit of a history with these digests.
    pub(crate) fn ends(&mut self, digests: impl Iterator<Item = Digest>) -> &[Seq] {
        if let Some((_, restart)) = self.restarted {
            let mut link = ChainLink::ROOT.normal;
            let lead = digests.map(|digest| {
                link = ChainLink::advance_normal(link, digest);
                link
            });
            let lead = lead.take_while(|link| *link != restart).count() + 1;
            self.set_lead(lead);
        }
        &self.ends
    }

    /// Sets the number of first units that the client's compaction stands for.
    pub(crate) fn set_lead(&mut self, lead: usize) {
        if let Some((seq, _)) = self.restarted.take() {
            self.ends.splice(0..0, std::iter::repeat_n(seq, lead));
            self.lead = Some((seq, lead));
        }
    }

    /// Compaction by the client that the first units stand for, and the number of those units.
    pub(crate) fn lead(&self) -> Option<(Seq, usize)> {
        self.lead
    }

    /// The events of a unit: those after the first, up to the second. A unit that a compaction stands for has none.
    pub(crate) fn of(&self, unit: usize) -> Option<(Seq, Seq)> {
        let end = self.ends.get(unit).copied().filter(|_| unit >= self.lead.map_or(0, |(_, lead)| lead))?;
        Some((unit.checked_sub(1).map_or(Seq::START, |before| self.ends[before]), end))
    }
}

/// Returns true if an event is an item of a client's history.
pub(crate) fn is_item(event: &Event) -> bool {
    match &event.fact {
        Fact::UserSaid { .. } | Fact::AssistantSaid { .. } | Fact::ToolReturned { .. } => true,
        Fact::Instructed { .. } | Fact::Carried { .. } => event.normal.is_some(),
        _ => false,
    }
}
