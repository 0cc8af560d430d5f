//! A read begins at the floor: a view of what must be read is the view of everything.

use std::sync::Arc;

use epitome_core::{
    ContentPart, Fact, Seq,
    budget::Budget,
    context::{Context, EventNaming},
    event::{Compaction, CompactionTrigger, LoggedEvent, Summary, Timestamp, ToolCall, ToolResult, Usage},
    meter::Meter,
    model_view::{EditRecord, ModelView, NextCall, ReadWindow, SentRecord},
    policy::Policy,
    projection::EventLine,
    seq_set::SeqSet,
    tokens::Tokens,
};
use proptest::prelude::*;

use crate::{histories::history, notation, stage::Stage};

/// A log, of which only what is asked for is read.
struct Log(Vec<Arc<LoggedEvent>>);

impl Log {
    fn of(line: &EventLine) -> Self {
        Self(line.events().cloned().collect())
    }

    fn end(&self) -> Seq {
        self.0.last().map_or(Seq::START, |last| last.id.seq)
    }

    fn through(&self, end: Seq) -> Self {
        Self(self.0.iter().filter(|event| event.id.seq <= end).cloned().collect())
    }

    fn pivot(&self) -> Option<&Arc<LoggedEvent>> {
        let is_undone = |seq: Seq| {
            let word = self.0.iter().rev().find_map(|event| {
                match event.event.fact {
                    Fact::CompactionReverted { compaction } => Some((compaction, event.id.seq, true)),
                    Fact::CompactionRestored { compaction } => Some((compaction, event.id.seq, false)),
                    _ => None,
                }
                .filter(|(compaction, at, _)| *compaction == seq && seq < *at)
            });
            word.is_some_and(|(_, _, undone)| undone)
        };
        let is_held = |event: &&Arc<LoggedEvent>| {
            matches!(event.event.fact, Fact::Compacted(_)) && !is_undone(event.id.seq)
        };
        self.0.iter().rev().find(is_held)
    }

    fn window(&self, window: &ReadWindow) -> Vec<Arc<LoggedEvent>> {
        let without = window.unread_events();
        let is_read = |event: &&Arc<LoggedEvent>| {
            let seq = event.id.seq;
            (window.from() <= seq && !without.contains(seq))
                || ReadWindow::ALWAYS_READ_KINDS.contains(&event.event.fact.kind())
        };
        self.0.iter().filter(is_read).cloned().collect()
    }

    /// The line that must be read.
    fn trimmed(&self, passes: &[EditRecord]) -> EventLine {
        let window = ReadWindow::from_records(passes, self.end(), self.pivot().map(AsRef::as_ref));
        let read = self.window(&window);
        window.line(read.into_iter().map(|event| (event, None)))
    }

    fn events(&self, wanted: &SeqSet, meter: &Meter) -> Vec<(Arc<LoggedEvent>, Vec<Tokens>)> {
        let wanted = self.0.iter().filter(|event| wanted.contains(event.id.seq));
        wanted.map(|event| (Arc::clone(event), meter.pieces(&event.event))).collect()
    }

    /// Gives a view what it needs.
    fn help(&self, view: &mut ModelView) {
        while let Some(needed) = view.needs_more() {
            let events = self.events(&needed, &notation::meter());
            assert!(!events.is_empty(), "{needed} are not in the log");
            view.supply_events(events);
        }
    }
}

fn restore(line: &EventLine, passes: &[EditRecord], last: Option<&SentRecord>) -> ModelView {
    let json = serde_json::to_string(passes).unwrap();
    let passes = serde_json::from_str(&json).unwrap();
    ModelView::restore(line, passes, last.cloned(), notation::meter(), EventNaming::Messages)
}

/// The policies that are built in, and some that fold whatever they can.
fn policies() -> Vec<Policy> {
    let sliding = r#"
        name = "sliding"
        about = "Slides all the time."
        limits = { target = 0.3, trigger = 0.5, force = 0.8 }
        [[reduce]]
        reducer = "cut_outputs"
        when = "on_arrival"
        tokens = { over = 20, head = 5, tail = 5 }
        spare_turns = 0
        [[reduce]]
        reducer = "drop_reasoning"
        [[reduce]]
        reducer = "slide_dialogue"
        max_turns = 2
    "#;
    let narrow = r#"
        name = "narrow"
        about = "Slides whatever can slide, and summarises after that."
        limits = { target = 0.3, trigger = 0.4 }
        [[reduce]]
        reducer = "slide_dialogue"
        max_turns = 3
        max_tokens = 40
        [summary]
        keep = { turns = 2 }
        length = { fixed = 60 }
    "#;
    let dropping = r#"
        name = "dropping"
        about = "Drops the middle."
        limits = { target = 0.3, trigger = 0.5 }
        reduce = [{ reducer = "expire_tool_results", when = "every_call", default = { turns = 2 } }, { reducer = "drop_middle" }]
    "#;
    let mut policies = Policy::builtin().to_vec();
    policies.extend(
        [sliding, sliding, narrow, narrow, dropping, dropping].map(|policy| Policy::read(policy).unwrap()),
    );
    policies
}

fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(policies())
}

fn budget(policy: &Policy, ceiling: u64) -> Budget {
    policy.budget(Budget::new(Tokens(ceiling)))
}

/// Sends a request before every answer.
fn calls(
    events: &[Arc<LoggedEvent>],
    policy: &Policy,
    budget: &Budget,
    mut each: impl FnMut(&mut ModelView),
) -> ModelView {
    let mut stage = Stage::new(notation::meter());
    for (minute, event) in (0..).zip(events) {
        if matches!(event.event.fact, Fact::AssistantSaid { .. }) {
            let now = Some(Timestamp(minute * 60_000));
            if stage.view.prepare(policy, budget, &NextCall { now, ..NextCall::default() }).is_ok() {
                stage.view.sent(now);
                each(&mut stage.view);
            }
        }
        stage.play(event);
    }
    stage.view
}

/// What a context is, as far as anybody can tell: every segment, and what all of them leave out.
fn state(context: &Context) -> Vec<String> {
    let segments = context.segments().iter().map(|segment| {
        let (key, turn, events, body) = (segment.key(), segment.turn(), segment.stands_for(), segment.body());
        let (tokens, words, by) = (segment.tokens(), segment.content_tokens(), segment.last_author());
        format!("{key:?} {:?} turn {turn} {events} {tokens} {words} by {by:?}: {body:?}", segment.fidelity())
    });
    let whole = format!("{} {} turn {}", context.tokens(), context.accounted(), context.last_turn());
    segments.chain([whole, strays(context)]).collect()
}

/// Results that nobody asked for. They are always read, so that everybody knows the same ones.
fn strays(context: &Context) -> String {
    let strays = || context.elided().iter().filter(|elision| &*elision.by == "stray");
    let tokens: Tokens = strays().map(|elision| elision.tokens).sum();
    format!("strays {} {tokens}", SeqSet::union(strays().map(|elision| &elision.events)))
}

/// Compares what two contexts are, and says in what they differ.
fn same(one: &Context, other: &Context) -> Result<(), TestCaseError> {
    prop_assert!(state(one) == state(other), "\n{}\nis not\n{}", notation::show(one), notation::show(other));
    Ok(())
}

/// What was decided, whatever is known of where to read.
fn decided(pass: Option<&EditRecord>) -> Option<EditRecord> {
    pass.map(|pass| EditRecord { floor: None, ..pass.clone() })
}

proptest! {
    /// What is read is enough, at every call, in every fork; and what happens next changes it in the same way.
    #[test]
    fn a_view_of_what_must_be_read_is_the_view_of_everything(
        events in history(60), policy in policy(), ceiling in 60..800u64, fork in 0..70u64
    ) {
        let budget = budget(&policy, ceiling);
        let view = calls(&events, &policy, &budget, |view| {
            let log = Log::of(view.line());
            let trimmed = restore(&log.trimmed(view.passes()), view.passes(), view.last());
            assert_eq!(trimmed.needs_more(), None);
            assert_eq!(trimmed.context().find_inconsistency(), None);
            same(trimmed.context(), view.context()).unwrap();
            assert_eq!(trimmed.epoch(), view.epoch());
        });
        let log = Log::of(view.line());
        let fork = log.through(Seq(fork));
        let passes: Vec<EditRecord> = view.passes().iter().filter(|pass| pass.head <= fork.end()).cloned().collect();
        let mut whole = restore(&EventLine::new(fork.0.iter().cloned()), &passes, None);
        let mut trimmed = restore(&fork.trimmed(view.passes()), &passes, None);
        prop_assert_eq!(trimmed.needs_more(), None);
        same(trimmed.context(), whole.context())?;
        for event in &log.0[fork.0.len()..] {
            let pieces = notation::meter().pieces(&event.event);
            whole.push(Arc::clone(event), pieces.clone());
            trimmed.push(Arc::clone(event), pieces);
            log.help(&mut trimmed);
            same(trimmed.context(), whole.context())?;
        }
    }

    /// The next request is the same, for the same reason.
    #[test]
    fn a_view_of_what_must_be_read_decides_the_same(
        events in history(60), policy in policy(), ceiling in 60..800u64
    ) {
        decides_the_same(&events, &policy, ceiling)?;
    }

    /// A view that forgets as it goes shows and decides what one that remembers does.
    #[test]
    fn a_view_that_forgets_shows_the_same(events in history(60), policy in policy(), ceiling in 60..800u64) {
        forgets_nothing_that_matters(&events, &policy, ceiling)?;
    }
}

/// Plays events to a view, and compares what it decides next with what one decides that was made again of what must be
/// read.
fn decides_the_same(events: &[Arc<LoggedEvent>], policy: &Policy, ceiling: u64) -> Result<(), TestCaseError> {
    let budget = budget(policy, ceiling);
    let mut view = calls(events, policy, &budget, |_| ());
    let log = Log::of(view.line());
    let last = view.last().cloned();
    let mut trimmed = restore(&log.trimmed(view.passes()), view.passes(), last.as_ref());
    log.help(&mut trimmed);
    let moment = NextCall { now: Some(Timestamp(i64::MAX / 2)), ..NextCall::default() };
    let expected = view.prepare(policy, &budget, &moment);
    let mut prepared = trimmed.prepare(policy, &budget, &moment);
    if trimmed.needs_more().is_some() {
        log.help(&mut trimmed);
        prepared = trimmed.prepare(policy, &budget, &moment);
    }
    prop_assert_eq!(trimmed.needs_more(), None);
    prop_assert_eq!(prepared, expected);
    same(trimmed.context(), view.context())?;
    prop_assert_eq!(
        decided(trimmed.sent(None)),
        decided(view.sent(None)),
        "what is recorded is the same, too"
    );
    Ok(())
}

/// Plays events to a view that remembers everything and to one that forgets what it can before every answer.
fn forgets_nothing_that_matters(
    events: &[Arc<LoggedEvent>],
    policy: &Policy,
    ceiling: u64,
) -> Result<(), TestCaseError> {
    let budget = budget(policy, ceiling);
    let mut whole = Stage::new(notation::meter());
    let mut forgetful = Stage::new(notation::meter());
    for event in events {
        if matches!(event.event.fact, Fact::AssistantSaid { .. }) {
            let expected = whole.view.prepare(policy, &budget, &NextCall::default());
            let log = Log::of(whole.view.line());
            let mut prepared = forgetful.view.prepare(policy, &budget, &NextCall::default());
            if forgetful.view.needs_more().is_some() {
                log.help(&mut forgetful.view);
                prepared = forgetful.view.prepare(policy, &budget, &NextCall::default());
            }
            prop_assert_eq!(&prepared, &expected);
            same(forgetful.view.context(), whole.view.context())?;
            if expected.is_ok() {
                prop_assert_eq!(decided(forgetful.view.sent(None)), decided(whole.view.sent(None)));
            }
            forgetful.view.forget();
            knows_the_same(&forgetful.view, &whole.view)?;
        }
        whole.play(event);
        forgetful.play(event);
        Log::of(whole.view.line()).help(&mut forgetful.view);
        knows_the_same(&forgetful.view, &whole.view)?;
    }
    Ok(())
}

/// Compares a view that has forgotten much with the whole one. What it recorded is as good: who opens the session with it
/// sees the same.
fn knows_the_same(forgetful: &ModelView, whole: &ModelView) -> Result<(), TestCaseError> {
    same(forgetful.context(), whole.context())?;
    let passes = forgetful.passes();
    let trimmed = restore(&Log::of(whole.line()).trimmed(passes), passes, forgetful.last());
    same(trimmed.context(), whole.context())
}

/// A call whose result comes late: what the agent said is folded to one note, and what nobody asked for stands between.
const LATE: &str = r#"
user: Go.
assistant: 10 words of "first"
assistant:
  call#a bash {}
result x: Nobody asked.
result a: 10 words of "late"
user: On.
assistant: 40 words of "much"
user: On.
assistant: Yes.
result a: Once more.
user: On.
assistant: Yes.
"#;

const ONE_TURN: &str = r#"
    name = "one turn"
    about = "Keeps a turn."
    limits = { target = 0.05, trigger = 0.1 }
    reduce = [{ reducer = "slide_dialogue", max_turns = 1 }]
"#;

fn check_late(after: &str) {
    let events = notation::read(&format!("{LATE}{after}"));
    forgets_nothing_that_matters(&events, &Policy::read(ONE_TURN).unwrap(), 500).unwrap();
}

#[test]
fn a_call_that_is_read_again_is_read_with_its_late_result() {
    check_late("compacted through 2 keep 3: Short.\n");
}

#[test]
fn a_late_result_that_was_read_without_its_call_finds_it_when_a_compaction_is_undone() {
    check_late(
        "compacted through 3 keep 4: Short.\nuser: On.\nassistant: Yes.\nrevert 13\nassistant: Yes.\n",
    );
}

#[test]
fn why_there_is_an_epoch_is_known_without_what_came_before_the_newest_compaction() {
    let log = r#"
user: Go.
assistant: 60 words of "much"
user: On.
assistant:
  call#a bash {}
assistant: Yes.
result a: Late, so that what was sent has changed.
revert 1
compacted through 7: Short.
"#;
    decides_the_same(&notation::read(log), &Policy::read(ONE_TURN).unwrap(), 500).unwrap();
}

/// A long session, in which every turn calls a tool, and its log.
fn long(
    policy: &Policy,
    budget: &Budget,
    turns: u64,
    mut each: impl FnMut(&mut ModelView),
) -> (ModelView, Log) {
    let meter = notation::meter();
    let mut view = ModelView::new(Arc::clone(&meter), EventNaming::Messages);
    let mut log = Log(Vec::new());
    let mut happen = |view: &mut ModelView, fact: Fact| {
        let event = notation::logged(log.end().0 + 1, fact);
        view.push(Arc::clone(&event), meter.pieces(&event.event));
        log.0.push(event);
    };
    happen(&mut view, Fact::UserSaid { parts: vec![ContentPart::text("Count to a large number.")] });
    for turn in 0..turns {
        view.prepare(policy, budget, &NextCall::default()).unwrap();
        view.sent(None);
        each(&mut view);
        let id = format!("call {turn}");
        let call = ContentPart::ToolCall(ToolCall::function(&*id, "count", "{}"));
        happen(
            &mut view,
            Fact::AssistantSaid { answer: None, model: None, parts: vec![ContentPart::text("Next."), call] },
        );
        happen(&mut view, Fact::UsageReported { answer: None, model: None, usage: Usage::default() });
        let result = ToolResult {
            call: id.into(),
            name: None,
            parts: vec![ContentPart::text("one more ".repeat(6))],
            error: false,
        };
        happen(&mut view, Fact::ToolReturned { results: vec![result], parts: vec![] });
    }
    (view, log)
}

const SLIDE: &str = r#"
    name = "slide"
    about = "Slides."
    limits = { target = 0.5, trigger = 0.9 }
    reduce = [{ reducer = "slide_dialogue", max_turns = 20 }]
"#;

#[test]
fn what_is_read_and_held_of_a_long_session_follows_the_window() {
    let policy = Policy::read(SLIDE).unwrap();
    let budget = budget(&policy, 1_000);
    let mut most = 0;
    let (view, log) = long(&policy, &budget, 10_000, |view| {
        view.forget();
        most = most.max(view.line().events().count());
    });
    assert_eq!(log.0.len(), 30_001);
    assert!(most < 400, "{most} events were held");
    let trimmed = log.trimmed(view.passes());
    let read = trimmed.events().count();
    assert!(
        read < 400 && trimmed.gaps().len() < 3,
        "{read} events are read, in {} pieces",
        trimmed.gaps().len() + 1
    );
    let floor = serde_json::to_string(&view.passes().last().unwrap().floor).unwrap();
    assert!(floor.len() < 400, "{floor}");
    let restored = restore(&trimmed, view.passes(), view.last());
    assert_eq!(state(restored.context()), state(view.context()));
    assert_eq!(restored.needs_more(), None);
}

/// A session of which the first turns are folded, then summarised.
fn folded() -> (ModelView, Log) {
    let policy = Policy::read(SLIDE).unwrap();
    let budget = budget(&policy, 1_000);
    let (mut view, mut log) = long(&policy, &budget, 100, |_| ());
    let end = log.end();
    let compaction = Compaction {
        summary: Summary::Text("Counting.".into()),
        through: Seq(end.0 - 9),
        first_kept: Some(Seq(end.0 - 8)),
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Manual,
    };
    for fact in [Fact::Compacted(compaction), Fact::UserSaid { parts: vec![ContentPart::text("Go on.")] }] {
        let event = notation::logged(log.end().0 + 1, fact);
        view.push(Arc::clone(&event), notation::meter().pieces(&event.event));
        log.0.push(event);
    }
    view.prepare(&policy, &budget, &NextCall::default()).unwrap();
    view.sent(None);
    (view, log)
}

#[test]
fn who_undoes_a_compaction_is_told_what_must_be_read() {
    let (mut whole, mut log) = folded();
    let line = log.trimmed(whole.passes());
    assert!(line.events().count() < 20, "only what the compaction kept is read");
    let mut trimmed = restore(&line, whole.passes(), whole.last());
    assert_eq!(trimmed.needs_more(), None);
    let compaction = log.pivot().unwrap().id.seq;
    let undone = notation::logged(log.end().0 + 1, Fact::CompactionReverted { compaction });
    whole.push(Arc::clone(&undone), vec![]);
    trimmed.push(Arc::clone(&undone), vec![]);
    log.0.push(undone);
    let needed = trimmed.needs_more().unwrap();
    assert_eq!(needed.to_string(), "1-292");
    trimmed.supply_events(log.events(&needed, &notation::meter()));
    assert_eq!(trimmed.needs_more(), None);
    assert_eq!(state(trimmed.context()), state(whole.context()));
    // Who opens the session again knows what the older records said of what is before the compaction.
    let line = log.trimmed(whole.passes());
    assert!(line.events().count() < 250 && line.gaps().len() == 1, "{:?}", line.gaps());
    assert_eq!(state(restore(&line, whole.passes(), whole.last()).context()), state(whole.context()));
}

#[test]
fn a_summary_is_made_of_what_happened_and_not_of_what_notes_say() {
    let policy = Policy::read(SLIDE).unwrap();
    let budget = budget(&policy, 1_000);
    let (view, log) = long(&policy, &budget, 100, |_| ());
    // As if nobody had thought about acting before.
    let mut whole = restore(view.line(), view.passes(), None);
    let mut forgetful = whole.clone();
    forgetful.forget();
    let summarise = Policy::read(
        "name = \"summarise\"\nabout = \"Summarises.\"\nlimits = { target = 0.1, trigger = 0.2 }\nreduce = []\n\
         summary = { keep = { turns = 2 }, length = { fixed = 60 } }",
    );
    let summarise = summarise.unwrap();
    let budget = self::budget(&summarise, 1_000);
    let expected = whole.prepare(&summarise, &budget, &NextCall::default()).unwrap();
    assert!(expected.compaction.is_some());
    let without = forgetful.prepare(&summarise, &budget, &NextCall::default()).unwrap();
    assert_eq!(without.compaction, None, "nothing is summarised that was not read");
    assert!(forgetful.context().tokens() <= budget.ceiling());
    log.help(&mut forgetful);
    assert_eq!(forgetful.prepare(&summarise, &budget, &NextCall::default()).unwrap(), expected);
    assert_eq!(state(forgetful.context()), state(whole.context()));
}

#[test]
fn records_from_before_floors_are_read_and_everything_is_shown() {
    let (view, log) = folded();
    let mut passes = view.passes().to_vec();
    for pass in &mut passes {
        pass.floor = None;
    }
    assert!(!serde_json::to_string(&passes).unwrap().contains("floor"));
    let line = log.trimmed(&passes);
    assert_eq!(line.events().count(), log.0.len());
    assert_eq!(state(restore(&line, &passes, view.last()).context()), state(view.context()));
}
