//! Places in forks that a request needs for its own sake: beside the answer it has already, and with its examples protected as
//! instructions or not.

use epitome_core::{Event, Seq, ThreadId, Tokens, budget::Budget};
use epitome_store::{
    NewThread, Store, StoreError, ThreadStart,
    records::{CallRow, HeadPromotion, ThreadOpening},
};
use epitome_wire::incoming::IncomingRequest;

use super::{
    client_examples::{self, ExampleBudget},
    thread_cache::CachedThread,
};
use crate::{
    recorder::{
        PlacementKind,
        placement::{RequestPlace, ThreadKind},
    },
    session::{SessionError, setup::SessionSetup},
};

/// Moves a request that already has an answer to a fork, which holds the question and the decisions made for it,
/// so that its new answer stands beside the old one. A fork that waits for its answer still is the same question,
/// asked again.
pub(super) fn beside_its_answer(store: &dyn Store, place: RequestPlace) -> Result<RequestPlace, StoreError> {
    if place.placed != PlacementKind::Forked || place.opens.is_some() {
        return Ok(place);
    }
    let of = store.thread(place.thread)?;
    let at = decided(store, place.thread, place.after)?;
    let mut time = 0_u64;
    loop {
        time += 1;
        let told = [of.id.to_string(), at.to_string(), "again".to_owned(), time.to_string()];
        let id = ThreadId::derived(&told.each_ref().map(String::as_str)).beside(of.id.uuid());
        match store.thread(id) {
            Ok(known) if known.head.link.normal == place.link => {
                return Ok(RequestPlace {
                    thread: id,
                    after: known.head.seq,
                    placed: PlacementKind::Retried,
                    ..place
                });
            }
            Ok(_) => {}
            Err(StoreError::UnknownThread(_)) => {
                let start = ThreadStart::Fork { of: of.id, at };
                let key = place.key.clone();
                let thread = NewThread { id, session: place.session, name: of.name, start, key };
                let head = match place.line {
                    ThreadKind::Main => HeadPromotion::Yes,
                    ThreadKind::Side => HeadPromotion::No,
                };
                let opens = Some(ThreadOpening { session: None, thread, head });
                return Ok(RequestPlace { thread: id, after: at, opens, ..place });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Moves the fork point of a fork that begins with another answer to after the decisions made for the question, so
/// that the fork keeps them.
pub(super) fn after_its_call(store: &dyn Store, mut place: RequestPlace) -> Result<RequestPlace, StoreError> {
    if let Some(opens) = &mut place.opens
        && let ThreadStart::Fork { of, at } = &mut opens.thread.start
    {
        *at = decided(store, *of, *at)?;
        place.after = *at;
    }
    Ok(place)
}

/// The same history in a fork in which its examples are not instructions. The beginning of a session is not a
/// fork, and has not been written yet.
pub(super) fn without_examples(
    store: &dyn Store,
    place: RequestPlace,
    seen: &IncomingRequest<'_>,
) -> Result<RequestPlace, StoreError> {
    let of = match &place.opens {
        Some(ThreadOpening { thread: NewThread { start: ThreadStart::Fork { of, .. }, .. }, .. }) => *of,
        Some(_) => return Ok(place),
        None => place.thread,
    };
    let Some(at) = client_examples::before_examples(store, of)? else { return Ok(place) };
    let name = store.thread(of)?.name;
    Ok(told_again(place, (of, at), (name, "without examples"), seen.events(0)))
}

/// The same history in a fork in which its examples are instructions, if it has any and a limit now demands a
/// compaction for the first time. Before that they need no protection, and a compaction that someone requests may
/// summarise them.
pub(super) fn with_examples(
    store: &dyn Store,
    cached: &CachedThread,
    place: &RequestPlace,
    seen: &IncomingRequest<'_>,
) -> Result<Option<RequestPlace>, SessionError> {
    if place.opens.is_some() || place.placed != PlacementKind::Continued {
        return Ok(None);
    }
    let (budget, new) = {
        let state = cached.engine.state()?;
        let (context, budget) = (state.view().context(), state.budget());
        // No token is shorter than a byte: nearly always nothing need be counted.
        let bytes = Tokens(place.new.iter().map(|event| event.raw.json.len() as u64).sum());
        if context.summary().is_some() || context.tokens() + bytes <= budget.force() {
            return Ok(None);
        }
        let new: Tokens = place.new.iter().map(|event| state.setup.meter.event(event, None)).sum();
        if context.tokens() + new <= budget.force() {
            return Ok(None);
        }
        (budget, new)
    };
    let thread = store.thread(place.thread)?;
    if thread.start != ThreadStart::Root {
        return Ok(None);
    }
    let (setup, seen_first) = (cached.setup(), client_examples::first_seen(store, place.thread)?);
    let room = example_room(&setup, &budget);
    let room = ExampleBudget { asked: new, ..room };
    let mut new = seen.events(0);
    let ends = new.iter().enumerate().filter(|(_, event)| event.normal.is_some());
    let first = ends.take(seen_first).last().map_or(0, |(at, _)| at + 1);
    let Some(at) = client_examples::last_opening_event(store, place.thread)? else { return Ok(None) };
    if !client_examples::convert_to_instructions(&mut new[..first], room) {
        return Ok(None);
    }
    let place = RequestPlace { new: Vec::new(), opens: None, key: place.key.clone(), ..*place };
    Ok(Some(told_again(place, (thread.id, at), (thread.name, "with examples"), new)))
}

/// Room for examples within a budget.
pub(super) fn example_room<'s>(setup: &'s SessionSetup, budget: &Budget) -> ExampleBudget<'s> {
    let (ceiling, force, asked) = (budget.ceiling(), budget.force(), Tokens(0));
    ExampleBudget { ceiling, force, asked, meter: &setup.meter }
}

/// The place of a history that is repeated from a thread's opening on, in a fork of this kind.
fn told_again(
    place: RequestPlace,
    (of, at): (ThreadId, Seq),
    (name, kind): (String, &str),
    new: Vec<Event>,
) -> RequestPlace {
    let told = [of.to_string(), at.to_string(), kind.to_owned(), place.link.to_string()];
    let id = ThreadId::derived(&told.each_ref().map(String::as_str)).beside(of.uuid());
    let start = ThreadStart::Fork { of, at };
    let thread = NewThread { id, session: place.session, name, start, key: place.key.clone() };
    let head = if place.line == ThreadKind::Main { HeadPromotion::Yes } else { HeadPromotion::No };
    let opens = Some(ThreadOpening { session: None, thread, head });
    RequestPlace { thread: id, after: at, new, opens, placed: PlacementKind::Forked, ..place }
}

/// Place of a question, including all decisions made for it before it was answered.
fn decided(store: &dyn Store, thread: ThreadId, after: Seq) -> Result<Seq, StoreError> {
    let mut from = after.next();
    let answered = loop {
        let page = store.digests(thread, from, 64)?;
        match (page.iter().find(|(_, digest, _)| digest.is_some()), page.last()) {
            (Some((seq, ..)), _) => break *seq,
            (None, Some((last, ..))) => from = last.next(),
            (None, None) => break Seq(u64::MAX),
        }
    };
    let mut row = store.last_call(thread)?;
    while let Some(CallRow { number, call, .. }) = row {
        if call.head < after {
            break;
        }
        if call.head < answered {
            return Ok(call.head);
        }
        row = number.checked_sub(1).map(|before| store.call(thread, before)).transpose()?;
    }
    Ok(after)
}
