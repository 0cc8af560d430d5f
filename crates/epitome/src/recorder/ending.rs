//! How a request ended, as it is written down.

use epitome_core::{Digest, Event, Fact, Link, ThreadId};
use epitome_store::{
    EventLog, Head, NewThread, Start, StoreError,
    records::{BecomesHead, Commit, NewExchange, Opens},
};
use epitome_wire::seen::recognisable;

use super::{End, Ending, RecordError, Recorder, Ticket, at};

/// What is kept of the exchange beside the log.
pub(super) fn exchange(ticket: &Ticket, end: &End) -> NewExchange {
    NewExchange {
        head: ticket.head,
        time: ticket.at,
        client: ticket.client.name().to_owned(),
        purpose: ticket.purpose.name().to_owned(),
        format: ticket.format.to_string(),
        model: ticket.model.as_ref().map(|model| model.0.clone()),
        status: end.status,
        ending: end.ending.name().to_owned(),
        bytes_in: ticket.bytes,
        bytes_out: end.bytes,
        first_byte: end.first_byte,
        took: end.took,
        observed: end.observed.clone(),
        error: None,
    }
}

/// What was answered. An answer that broke off is kept beside the history: the client may send it back, or not.
pub(super) fn answer(ticket: &Ticket, end: End) -> Vec<Event> {
    let came = match end.ending {
        Ending::Complete => recognisable(ticket.format, end.answer),
        Ending::Refused | Ending::Cut | Ending::Cancelled | Ending::Unreached => {
            end.answer.into_iter().map(beside_the_history).collect()
        }
    };
    came.into_iter().map(|event| at(event, end.at)).collect()
}

fn beside_the_history(event: Event) -> Event {
    match event.fact {
        Fact::UsageReported { .. } | Fact::Carried { .. } => Event { normal: None, ..event },
        _ => Event { fact: Fact::Carried { kind: "answer_cut".to_owned() }, normal: None, ..event },
    }
}

impl Recorder {
    /// Writes an answer down whose request is no longer the end of its thread: in a thread of its own, unless it says what
    /// the thread says there already.
    pub(super) fn beside(&self, ticket: &Ticket, commit: Commit) -> Result<(ThreadId, Head), RecordError> {
        let says = self.store.digests(ticket.thread, ticket.head.next(), 64)?;
        let mut said = says.iter().filter_map(|(_, digest, _)| *digest);
        let mut says_the_same = true;
        for digest in commit.events.iter().filter_map(|event| event.normal) {
            says_the_same &= said.next() == Some(digest);
        }
        let known = self.store.thread(ticket.thread)?;
        if says_the_same {
            let commit = Commit::new(ticket.thread, known.head.seq, Vec::new(), commit.records);
            let head = self.store.commit(commit)?;
            return Ok((ticket.thread, head));
        }
        let id = ThreadId::derived(&[
            &ticket.thread.to_string(),
            &ticket.head.to_string(),
            &chained(ticket.link, &commit.events).to_string(),
        ]);
        let thread = NewThread {
            id,
            session: ticket.session,
            name: known.name,
            start: Start::Fork { of: ticket.thread, at: ticket.head },
            key: ticket.key.clone(),
        };
        let opens = Opens { session: None, thread, head: BecomesHead::Yes };
        let commit = Commit { thread: id, opens: Some(opens), ..commit };
        match self.store.commit(commit) {
            Ok(head) => Ok((id, head)),
            // The very same answer has come in the same place before.
            Err(StoreError::Conflict { .. }) => Ok((id, self.store.head(id)?)),
            Err(error) => Err(error.into()),
        }
    }
}

fn chained(link: Digest, events: &[Event]) -> Digest {
    events.iter().filter_map(|event| event.normal).fold(link, Link::normal_after)
}
