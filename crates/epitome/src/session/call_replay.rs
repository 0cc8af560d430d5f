//! Past calls, made again from the records: the proof of the model's view.

use std::sync::Arc;

use epitome_core::{
    Digest, Fact, LoggedEvent, Seq, ThreadId, Tokens,
    context::EventNaming,
    cost::Prompt,
    event::InstructionKind,
    meter::{Meter, TokenOverhead},
    model_view::{EditRecord, ModelView, SentRecord},
    profile::Tokenizer,
    projection::EventLine,
    seq_set::SeqSet,
};
use epitome_store::{Store, ThreadStart, records::CallRow};
use epitome_wire::{Format, PromptMemo, render::RenderedRequest};

use super::{
    RecalledEvent,
    error::SessionError,
    setup::RecordedRendering,
    state::window_of,
    thread_reading::{parse, read_line, read_window},
};
use crate::rewrite::{RewriteRecord, RewriteRecords};

/// A past call, made again.
#[derive(Clone, Debug)]
pub struct ReplayedCall {
    /// Its record.
    pub row: CallRow,
    /// Its format.
    pub format: Format,
    /// The request, rendered from the log and the records.
    pub rendered: RenderedRequest,
    /// Its view: the parts that were shown, those that were not, and their places.
    pub view: ModelView,
}

impl ReplayedCall {
    /// Returns true if the bytes are those that were sent.
    pub fn is_same(&self) -> bool {
        Digest::of(self.rendered.body.as_bytes()) == self.row.call.hash
    }
}

/// Renders a past call of a thread's view again, from the log and the records beside it alone.
pub fn replay_call(store: &dyn Store, thread: ThreadId, call: u64) -> Result<ReplayedCall, SessionError> {
    let row = store.call(thread, call)?;
    CallReplayer::read(store, thread, Some(row.call.head))?.replay(row)
}

/// Data from which a thread's calls are made again, read once for any number of calls.
#[doc(hidden)]
pub struct CallReplayer<'s> {
    store: &'s dyn Store,
    thread: ThreadId,
    /// Records of clients' requests.
    scripts: RewriteRecords,
    line: EventLine,
    /// Decisions for calls, by their numbers.
    passes: Vec<(u64, EditRecord)>,
    meter: Arc<Meter>,
}

impl<'s> CallReplayer<'s> {
    /// Reads the data, through an event or to the end.
    pub fn read(store: &'s dyn Store, thread: ThreadId, through: Option<Seq>) -> Result<Self, SessionError> {
        let meter = Arc::new(meter());
        let line = read_line(store, thread, &meter, through)?;
        let mut passes = Vec::new();
        for (number, head, pass) in store.edit_records(thread)? {
            if through.is_none_or(|through| head <= through) {
                passes.push((number, parse::<EditRecord>("pass", number, &pass)?));
            }
        }
        let scripts = RewriteRecords::read(store, thread)?;
        Ok(Self { store, thread, scripts, line, passes, meter })
    }

    /// The events.
    pub fn line(&self) -> &EventLine {
        &self.line
    }

    /// Decisions for calls, by their numbers.
    pub fn passes(&self) -> &[(u64, EditRecord)] {
        &self.passes
    }

    /// Meter that counts here.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Renders a call again.
    pub fn replay(&self, row: CallRow) -> Result<ReplayedCall, SessionError> {
        let rendering = rendering(self.store, &row)?;
        let mut line = EventLine::default();
        for (event, pieces) in
            self.line.events_with_counts().take_while(|(event, _)| event.id.seq <= row.call.head)
        {
            line.push(Arc::clone(event), pieces.unwrap_or_default().to_vec());
        }
        let passes = self.passes.iter().filter(|(number, _)| *number <= row.number);
        let passes = passes.map(|(_, pass)| pass.clone()).collect();
        let sent = parse::<Option<SentRecord>>("sent", row.number, &row.call.sent)?;
        // Handles are written in the name of the thread that made the call: a fork shows them as they were sent.
        let names = EventNaming::Thread(row.thread);
        let view = ModelView::restore(&line, passes, sent, Arc::clone(&self.meter), names);
        let rendered = match &rendering.weave {
            Some(plan) => {
                let body =
                    self.scripts.rebuild_body(self.store, self.thread, &row, &rendering, plan, &line)?;
                RenderedRequest { body, messages: Vec::new() }
            }
            None => rendering
                .format
                .render(view.context(), &rendering.options)
                .map_err(crate::compact::CompactError::from)?,
        };
        Ok(ReplayedCall { row, format: rendering.format, rendered, view })
    }

    /// The view that would be sent now without further decisions: all events, with all decisions made.
    pub fn now(&self, thread: ThreadId, last: Option<&CallRow>) -> Result<ModelView, SessionError> {
        let sent = last
            .map(|row| parse::<Option<SentRecord>>("sent", row.number, &row.call.sent))
            .transpose()?
            .flatten();
        let passes = self.passes.iter().map(|(_, pass)| pass.clone()).collect();
        Ok(ModelView::restore(&self.line, passes, sent, Arc::clone(&self.meter), EventNaming::Thread(thread)))
    }
}

/// The window for which the newest call of a thread's view was made, of those that saw nothing after `through`;
/// `None` if none was given, so that the model's profile counts.
pub fn window(
    store: &dyn Store,
    thread: ThreadId,
    through: Option<Seq>,
) -> Result<Option<Tokens>, SessionError> {
    let mut row = store.last_composed_call(thread)?;
    while let Some(CallRow { number, call, .. }) = row {
        if through.is_none_or(|through| call.head <= through) {
            return Ok(window_of(&call));
        }
        row = number.checked_sub(1).map(|before| store.call(thread, before)).transpose()?;
    }
    Ok(None)
}

/// Form in which the requests of a thread name parts they leave out: handles if its model has a tool to recall them,
/// given by its client or offered with its last call, and else no names at all.
pub fn names_of(store: &dyn Store, thread: ThreadId, line: &EventLine) -> Result<EventNaming, SessionError> {
    let last = store.last_composed_call(thread)?;
    let script = last.as_ref().and_then(|last| last.call.script.as_deref());
    let is_tools = |event: &&Arc<LoggedEvent>| {
        matches!(event.event.fact, Fact::Instructed { what: InstructionKind::Tools, .. })
    };
    let tools = line.events().rfind(is_tools);
    let can_ask = script.is_some_and(RewriteRecord::offers_recall)
        || tools.is_some_and(|tools| tools.event.fact.has_recall_tool());
    Ok(EventNaming::Thread(thread).shown_if(can_ask))
}

/// The same, with an error if the result is not the request that was sent.
pub fn verify_call(store: &dyn Store, thread: ThreadId, call: u64) -> Result<ReplayedCall, SessionError> {
    let replayed = replay_call(store, thread, call)?;
    if replayed.is_same() {
        return Ok(replayed);
    }
    Err(SessionError::NotReproduced {
        call,
        found: Digest::of(replayed.rendered.body.as_bytes()).to_string(),
        sent: replayed.row.call.hash.to_string(),
        why: "the log or a record was changed behind the store's back, or another version renders differently",
    })
}

/// The events of a thread's view that a handle stands for, as stubs and summaries write it; each once, in order.
pub fn recall(store: &dyn Store, thread: ThreadId, handle: &str) -> Result<Vec<RecalledEvent>, SessionError> {
    let mut recalled = Vec::new();
    recall_while(store, thread, handle, &mut |event| {
        recalled.push(RecalledEvent { event });
        true
    })?;
    Ok(recalled)
}

/// The same one by one, as long as `take` wants more. A handle may name any range, so little more is read than is
/// taken.
pub fn recall_while(
    store: &dyn Store,
    thread: ThreadId,
    handle: &str,
    take: &mut dyn FnMut(LoggedEvent) -> bool,
) -> Result<(), SessionError> {
    let lost = || SessionError::Handle { handle: excerpt(handle), names: EventNaming::Thread(thread) };
    let (owner, events) = handle.trim().trim_start_matches("recall ").split_once(':').ok_or_else(lost)?;
    let named = named(events, store.head(thread)?.seq).ok_or_else(lost)?;
    if named.is_empty() || !is_in_view(store, thread, owner)? {
        return Err(lost());
    }
    for run in named.runs() {
        let mut from = run.first;
        while from <= run.last {
            let few = usize::try_from(run.last.0 - from.0)
                .unwrap_or(RECALLED_EVENTS_PER_PAGE)
                .min(RECALLED_EVENTS_PER_PAGE - 1)
                + 1;
            let page = store.read(thread, from, few)?;
            let Some(newest) = page.last() else { break };
            from = newest.id.seq.next();
            for event in page.into_iter().filter(|event| event.id.seq <= run.last) {
                if !take(event) {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Number of recalled events read at a time.
const RECALLED_EVENTS_PER_PAGE: usize = 32;

/// The events that a handle names, as far as they exist; `None` if it names none.
fn named(events: &str, head: Seq) -> Option<SeqSet> {
    let mut runs = Vec::new();
    for run in events.split(',').map(str::trim) {
        let (from, through) = run.split_once('-').unwrap_or((run, run));
        let (from, through) = (from.trim().parse().ok()?, through.trim().parse().ok()?);
        let (first, last) = (Seq(from).max(Seq::START.next()), Seq(through).min(head));
        if first <= last {
            runs.push(SeqSet::run(first, last));
        }
    }
    Some(SeqSet::union(&runs))
}

/// Part of a handle that an error repeats.
fn excerpt(handle: &str) -> String {
    const MAX_QUOTED_HANDLE_CHARS: usize = 80;
    match handle.char_indices().nth(MAX_QUOTED_HANDLE_CHARS) {
        Some((end, _)) => format!("{}…", &handle[..end]),
        None => handle.to_owned(),
    }
}

/// Returns true if a thread, or one that it was forked from, has this name. A fork shows handles that were written in
/// its parents, whose numbers it shares.
fn is_in_view(store: &dyn Store, thread: ThreadId, name: &str) -> Result<bool, SessionError> {
    let mut here = thread;
    loop {
        if here.matches_abbreviation(name) {
            return Ok(true);
        }
        match store.thread(here)?.start {
            ThreadStart::Fork { of, .. } => here = of,
            ThreadStart::Root | ThreadStart::Spawned { .. } => return Ok(false),
        }
    }
}

fn rendering(store: &dyn Store, row: &CallRow) -> Result<RecordedRendering, SessionError> {
    let text = store.content(row.call.rendering)?.unwrap_or_default();
    parse::<RecordedRendering>("rendering", row.number, &text)
}

/// A meter for rendering. Bytes do not depend on counts, so any meter will do, and this one has counted most of them
/// already.
fn meter() -> Meter {
    Meter::new(Tokenizer::O200k.counter(), TokenOverhead::default())
}

/// The last request as a cache sees it; `None` if there was none, or it cannot be made again.
pub(super) fn prompt_of(
    store: &dyn Store,
    thread: ThreadId,
    last: Option<&CallRow>,
    passes: &[EditRecord],
    pivot: Option<&LoggedEvent>,
    meter: &Arc<Meter>,
) -> Option<Prompt> {
    let last = last.filter(|last| last.call.script.is_none())?;
    let end = last.call.head;
    // The compaction in force is still the same, unless one was made, undone or redone since.
    let words = ["compacted", "compaction_reverted", "compaction_restored"];
    let is_same = store.events_of_kinds(thread, &words).ok()?.iter().all(|word| word.id.seq <= end);
    let line = if is_same {
        read_window(store, thread, passes, (end, pivot), meter).ok()?
    } else {
        read_line(store, thread, meter, Some(end)).ok()?
    };
    let sent = parse::<SentRecord>("sent", last.number, &last.call.sent).ok()?;
    let view = ModelView::restore(
        &line,
        passes.to_vec(),
        Some(sent),
        Arc::clone(meter),
        EventNaming::Thread(last.thread),
    );
    let rendering = rendering(store, last).ok()?;
    let rendered = rendering.format.render(view.context(), &rendering.options).ok()?;
    let mut memo = PromptMemo::new(Arc::clone(meter));
    rendering.format.prompt(&rendered.body, &mut memo).ok()
}

#[cfg(test)]
mod tests {
    use epitome_core::{ContentPart, Event, Fact, SessionId};
    use epitome_store::{NewThread, StoreOptions, records::NewSession, temporary_store};

    use super::*;

    #[test]
    fn a_handle_names_each_event_once_and_none_that_is_not_there() {
        let check = |events: &str, expect: Option<&[(u64, u64)]>| {
            let named = named(events, Seq(5));
            let runs = named.map(|named| named.runs().iter().map(|run| (run.first.0, run.last.0)).collect());
            assert_eq!(runs, expect.map(<[_]>::to_vec), "{events}");
        };
        check("2", Some(&[(2, 2)]));
        check("4, 1-2,2 - 2,1-2", Some(&[(1, 2), (4, 4)]));
        check("0-18446744073709551615", Some(&[(1, 5)]));
        check("6-9", Some(&[]));
        check("3-2", Some(&[]));
        check("", None);
        check("2,x", None);
        check("-3", None);
        check("18446744073709551616", None);
    }

    #[test]
    fn no_more_is_recalled_than_is_taken() {
        let store = temporary_store(StoreOptions::default()).unwrap();
        let (session, thread) = (SessionId::derived(&["s"]), ThreadId::derived(&["t"]));
        let new = NewSession {
            id: session,
            key: None,
            title: String::new(),
            source: "test".to_owned(),
            created: None,
            principal: String::new(),
        };
        store.create_session(&new).unwrap();
        let new =
            NewThread { id: thread, session, name: "main".to_owned(), start: ThreadStart::Root, key: None };
        store.open(&new).unwrap();
        let said = |number: usize| {
            Event::from_fact(
                Fact::UserSaid { parts: vec![ContentPart::Text { text: format!("word {number}") }] },
                None,
            )
        };
        store.append(thread, Seq::START, (1..=100).map(said).collect()).unwrap();
        let handle = format!("recall {}:{}", thread.short(), vec!["1-100"; 2_000].join(","));
        assert_eq!(recall(&*store, thread, &handle).unwrap().len(), 100);
        let mut taken = Vec::new();
        recall_while(&*store, thread, &handle, &mut |event| {
            taken.push(event.id.seq.0);
            taken.len() < 40
        })
        .unwrap();
        assert_eq!(taken, (1..=40).collect::<Vec<_>>());
        let lost = recall(&*store, thread, &format!("somebody's:{}", "1,".repeat(9_000))).unwrap_err();
        assert!(lost.to_string().len() < 400, "{lost}");
    }
}
