//! Undo, redo, forks and handoff: rendered contexts of one story in which three compactions follow each other.

use std::{fmt::Write as _, sync::Arc};

use epitome::{
    core::{
        ContentPart, Event, Fact, LoggedEvent, Seq, Tokens,
        context::{Context, EventNaming, Segment, SegmentBody},
        event::{Compaction, CompactionTrigger, Pin, Summary},
        id::EventId,
        lineage::{CompactionStatus, covered_by},
        meter::Meter,
        projection::{EventLine, project},
        seq_set::SeqSet,
        summary::{
            PinError, SectionCaps, StructuredSummary, SummaryItem, SummarySection,
            compaction::{CompactionSettings, CompactionSpan, SummaryLength, VerbatimTail},
        },
        turn::TurnBuilder,
    },
    lineage::{
        ForkDraftSettings, ForkMode, NotPinnedError, RedoError, UndoError, compactions, fork, handoff,
        line_until, pin, pins, redo, redo_of, undo, undo_of, unpin,
    },
};

use crate::notation::{logged, meter, read, show};

const DRAFTING: CompactionSettings = CompactionSettings {
    keep: VerbatimTail::Turns(1),
    length: SummaryLength::Fixed(Tokens(150)),
    caps: CAPS,
    most: None,
    limit: None,
    unanswered: None,
};

const CAPS: SectionCaps = SectionCaps {
    session_intent: 16,
    files_modified: 120,
    files_read: 60,
    commands: 40,
    key_decisions: 40,
    failed_approaches: 40,
    errors: 40,
    next_steps: 24,
    trail: 0,
    index: 0,
    standing: 120_000,
};

/// A thread while it is told.
#[derive(Clone, Default)]
struct Story {
    line: EventLine,
}

impl Story {
    fn head(&self) -> Seq {
        self.line.last().map_or(Seq::START, |last| last.id.seq)
    }

    fn append(mut self, events: impl IntoIterator<Item = Event>) -> Self {
        for event in events {
            self.line.push_uncounted(logged(self.head().next().0, event.fact));
        }
        self
    }

    /// What happens next, in the notation of the specs.
    fn tell(self, log: &str) -> Self {
        let events: Vec<Event> = read(log).iter().map(|event| event.event.clone()).collect();
        self.append(events)
    }

    fn context(&self) -> Context {
        project(&self.line, meter(), EventNaming::Messages)
    }

    /// A compaction by the built-in summariser.
    fn compact(self) -> Self {
        let compaction = DRAFTING
            .draft(None, &self.context(), &self.line, CompactionTrigger::Manual)
            .expect("enough to compact");
        self.append([Event::from_fact(Fact::Compacted(compaction), None)])
    }

    fn undo(self) -> Self {
        let event = undo(&self.line).expect("something to undo");
        self.append([event])
    }

    fn redo(self) -> Self {
        let event = redo(&self.line).expect("something to redo");
        self.append([event])
    }

    fn fork(&self, at: u64, mode: ForkMode) -> Self {
        let events = fork(&self.line, Seq(at), mode, &drafter(&meter()));
        Self { line: line_until(&self.line, Seq(at)) }.append(events)
    }

    fn handoff(&self, brief: Option<StructuredSummary>) -> Self {
        let goal = Event::from_fact(Fact::UserSaid { parts: vec![ContentPart::text("Now the docs.")] }, None);
        let events = handoff(&self.line, goal, brief, &drafter(&meter()));
        self.clone().append(events)
    }

    /// What is sent, and under a summary what it says.
    fn show(&self) -> String {
        let context = self.context();
        let mut shown = String::new();
        let mut bodies = context.segments().iter().map(Segment::body);
        for line in show(&context).lines() {
            let Some(SegmentBody::Summary(event)) = bodies.next() else {
                let _ = writeln!(shown, "{line}");
                continue;
            };
            let _ = writeln!(shown, "{}", line.split_once("  This message").map_or(line, |(line, _)| line));
            for item in brief(event).into_iter().flat_map(|brief| &brief.items) {
                let _ = writeln!(shown, "  {}: {} [{}]", item.section.title(), item.text, item.sources);
            }
            for folded in brief(event).into_iter().flat_map(|brief| &brief.folded) {
                let _ = writeln!(
                    shown,
                    "  {}: {} more [{}]",
                    folded.section.title(),
                    folded.count,
                    folded.sources
                );
            }
        }
        shown
    }

    /// Which turns each compaction covers.
    fn covered(&self) -> Vec<(u64, Vec<u64>)> {
        let turns = TurnBuilder::of(self.line.events().map(|event| &**event));
        let numbers = |ids: Vec<EventId>| ids.iter().map(|id| id.seq.0).collect();
        let compactions = turns.iter().filter(|turn| turn.is_compaction());
        compactions.map(|turn| (turn.id.seq.0, numbers(covered_by(&turns, turn.id).unwrap()))).collect()
    }
}

fn brief(event: &LoggedEvent) -> Option<&StructuredSummary> {
    match &event.event.fact {
        Fact::Compacted(Compaction { summary: Summary::Structured { brief, .. }, .. }) => Some(brief),
        _ => None,
    }
}

fn drafter(meter: &Arc<Meter>) -> ForkDraftSettings<'_> {
    ForkDraftSettings { drafting: &DRAFTING, meter, names: EventNaming::Messages }
}

/// Events 1 to 9.
fn beginning() -> Story {
    Story::default().tell(
        "
system: Rules.
user: Add a cache to the server. Never touch the lock file.
assistant: Reading.
  call#a read_file {\"path\":\"src/cache.rs\"}
  -> 200 words of \"code\"
assistant: We will use an LRU map, because it is simple.
  call#b edit_file {\"path\":\"src/cache.rs\",\"old\":\"a\",\"new\":\"b\"}
  -> ok
user: Now run the tests.
assistant: Running.
  call#c bash {\"command\":\"make test\"}
  !> error: cache is poisoned
",
    )
}

/// Four events more, after a compaction.
const MIDDLE: &str = "
user: Fix the poisoned cache.
assistant: Patching.
  call#d edit_file {\"path\":\"src/lock.rs\",\"old\":\"a\",\"new\":\"b\"}
  -> 150 words of \"patched\"
assistant: Patched the lock guard.
";

/// Four more, after another.
const END: &str = "
user: Write a changelog entry.
assistant: Writing.
  call#e write_file {\"path\":\"CHANGELOG.md\",\"content\":\"x\"}
  -> 150 words of \"written\"
assistant: The entry is there.
";

fn once() -> Story {
    beginning().compact()
}

fn twice() -> Story {
    once().tell(MIDDLE).compact()
}

fn thrice() -> Story {
    twice().tell(END).compact()
}

#[test]
fn the_first_compaction_stands_for_what_came_before_what_it_kept() {
    insta::assert_snapshot!(once().tell("user: Go on.").show(), @r#"
    prefix      1       verbatim      1  Rules.
    summary     2-6, 10 summary      66
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Last said: We will use an LRU map, because it is simple. [5]
      Files Modified: src/cache.rs (edited) [3-6]
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    user        11      verbatim      2  Go on.
    total 81
    "#);
}

#[test]
fn the_second_compaction_holds_what_the_first_held() {
    insta::assert_snapshot!(twice().tell("user: Go on.").show(), @"
    prefix      1       verbatim      1  Rules.
    summary     2-13, 15 summary     112
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Session Intent: Now run the tests. [7]
      Session Intent: Fix the poisoned cache. [11]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Fix the poisoned cache. [11]
      Current Task: Last said: Patching. [12]
      Files Modified: src/cache.rs (edited) [3-6]
      Files Modified: src/lock.rs (edited) [12-13]
      Commands: `make test` → failed [8-9]
      Errors Encountered: error: cache is poisoned — from `make test`; not seen again [8-9]
    answer      14      verbatim      4  Patched the lock guard.
    user        16      verbatim      2  Go on.
    total 119
    ");
}

#[test]
fn the_third_compaction_holds_what_all_before_it_held() {
    insta::assert_snapshot!(thrice().tell("user: Go on.").show(), @"
    prefix      1       verbatim      1  Rules.
    summary     2-18, 20 summary     117
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Session Intent: Now run the tests. [7]
      Session Intent: Fix the poisoned cache. [11]
      Session Intent: Write a changelog entry. [16]
      Constraints: Never touch the lock file. [2]
      Current Task: Write a changelog entry. [16]
      Current Task: Last said: Writing. [17]
      Files Modified: src/cache.rs (edited) [3-6]
      Files Modified: src/lock.rs (edited) [12-13]
      Files Modified: CHANGELOG.md (written) [17-18]
      Commands: `make test` → failed [8-9]
      Errors Encountered: error: cache is poisoned — from `make test`; not seen again [8-9]
    answer      19      verbatim      4  The entry is there.
    user        21      verbatim      2  Go on.
    total 124
    ");
    let story = thrice();
    assert_eq!(story.covered(), [(10, vec![3, 5]), (15, vec![8, 10, 12]), (20, vec![14, 15, 17])]);
    let turns = TurnBuilder::of(story.line.events().map(|event| &**event));
    assert!(turns.windows(2).all(|pair| pair[1].parent == Some(pair[0].id)), "the chain of parents is whole");
}

#[test]
fn undoing_and_redoing_leads_through_the_same_contexts_in_both_directions() {
    let story = thrice();
    let shown: Vec<String> = [
        story.clone(),
        story.clone().undo(),
        story.clone().undo().undo(),
        story.clone().undo().undo().undo(),
    ]
    .iter()
    .map(Story::show)
    .collect();
    insta::assert_snapshot!(shown[1], @r#"
    prefix      1       verbatim      1  Rules.
    summary     2-13, 15 summary     112
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Session Intent: Now run the tests. [7]
      Session Intent: Fix the poisoned cache. [11]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Fix the poisoned cache. [11]
      Current Task: Last said: Patching. [12]
      Files Modified: src/cache.rs (edited) [3-6]
      Files Modified: src/lock.rs (edited) [12-13]
      Commands: `make test` → failed [8-9]
      Errors Encountered: error: cache is poisoned — from `make test`; not seen again [8-9]
    answer      14      verbatim      4  Patched the lock guard.
    user        16      verbatim      4  Write a changelog entry.
    answer      17      verbatim      1  Writing.
    exchange    17-18   verbatim    152  write_file {"path":"CHANGELOG.md","content":"x"} -> written written written written written written written written written written written written writ ……  written written written written written
    answer      19      verbatim      4  The entry is there.
    left out    20      by pivot, 0 tokens
    total 278
    "#);
    insta::assert_snapshot!(shown[2], @r#"
    prefix      1       verbatim      1  Rules.
    summary     2-6, 10 summary      66
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Last said: We will use an LRU map, because it is simple. [5]
      Files Modified: src/cache.rs (edited) [3-6]
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    user        11      verbatim      4  Fix the poisoned cache.
    answer      12      verbatim      1  Patching.
    exchange    12-13   verbatim    152  edit_file {"path":"src/lock.rs","old":"a","new":"b"} -> patched patched patched patched patched patched patched patched patched patched patched patched patc ……  patched patched patched patched patched
    answer      14      verbatim      4  Patched the lock guard.
    user        16      verbatim      4  Write a changelog entry.
    answer      17      verbatim      1  Writing.
    exchange    17-18   verbatim    152  write_file {"path":"CHANGELOG.md","content":"x"} -> written written written written written written written written written written written written writ ……  written written written written written
    answer      19      verbatim      4  The entry is there.
    left out    15, 20  by pivot, 0 tokens
    total 401
    "#);
    insta::assert_snapshot!(shown[3], @r#"
    prefix      1       verbatim      1  Rules.
    user        2       verbatim     11  Add a cache to the server. Never touch the lock file.
    answer      3       verbatim      1  Reading.
    exchange    3-4     verbatim    202  read_file {"path":"src/cache.rs"} -> code code code code code code code code code code code code code code code code code code code code  ……  code code code code code code code code
    answer      5       verbatim     10  We will use an LRU map, because it is simple.
    exchange    5-6     verbatim      3  edit_file {"path":"src/cache.rs","old":"a","new":"b"} -> ok
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    user        11      verbatim      4  Fix the poisoned cache.
    answer      12      verbatim      1  Patching.
    exchange    12-13   verbatim    152  edit_file {"path":"src/lock.rs","old":"a","new":"b"} -> patched patched patched patched patched patched patched patched patched patched patched patched patc ……  patched patched patched patched patched
    answer      14      verbatim      4  Patched the lock guard.
    user        16      verbatim      4  Write a changelog entry.
    answer      17      verbatim      1  Writing.
    exchange    17-18   verbatim    152  write_file {"path":"CHANGELOG.md","content":"x"} -> written written written written written written written written written written written written writ ……  written written written written written
    answer      19      verbatim      4  The entry is there.
    left out    10, 15, 20 by pivot, 0 tokens
    total 562
    "#);
    let undone = story.clone().undo().undo().undo();
    assert_eq!(undo(&undone.line).unwrap_err(), UndoError::NoneHolds);
    let (one, two, three) =
        (undone.clone().redo(), undone.clone().redo().redo(), undone.redo().redo().redo());
    assert_eq!(
        [three.show(), two.show(), one.show()],
        [shown[0].clone(), shown[1].clone(), shown[2].clone()]
    );
    assert_eq!(redo(&three.line).unwrap_err(), RedoError::NoneUndone);
    // What each compaction summarised does not depend on what became of it.
    assert_eq!(three.covered(), story.covered());
}

#[test]
fn what_happens_after_an_undo_stays_when_it_is_redone() {
    let story = once().undo().tell("user: And then?\nassistant: Then this.");
    insta::assert_snapshot!(story.clone().redo().show(), @r#"
    prefix      1       verbatim      1  Rules.
    summary     2-6, 10 summary      66
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Last said: We will use an LRU map, because it is simple. [5]
      Files Modified: src/cache.rs (edited) [3-6]
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    user        12      verbatim      2  And then?
    answer      13      verbatim      2  Then this.
    total 83
    "#);
    assert_eq!(story.clone().redo().covered(), once().covered());
}

#[test]
fn a_compaction_made_after_an_undo_takes_the_place_of_what_was_undone() {
    let story = twice().undo().tell(END).compact();
    let newest = story.head();
    assert_eq!(redo(&story.line).unwrap_err(), RedoError::Covered { undone: twice().head(), by: newest });
    // It covers what the undone one had covered.
    assert_eq!(story.covered().last(), Some(&(21, vec![8, 10, 12, 14, 18])));
    // Undone too, it is what comes back first, and then nothing is left that would be seen.
    let back = story.clone().undo().redo();
    assert_eq!(back.show(), story.show());
    assert!(matches!(redo(&back.line), Err(RedoError::Covered { .. })));
    assert_eq!(back.covered(), story.covered());
}

#[test]
fn a_certain_compaction_is_undone_and_brought_back() {
    let story = twice();
    let [first, second] = compactions(&story.line)[..] else { panic!("two compactions") };
    let (first, second) = (first.compaction.id.seq, second.compaction.id.seq);
    // The older one is hidden behind the newer one, until that is undone.
    let undone = story.clone().append([undo_of(&story.line, first).unwrap()]);
    assert_eq!(undone.show(), story.show());
    assert_eq!(undone.clone().undo().show(), story.clone().undo().undo().show());
    assert_eq!(
        undo_of(&undone.line, first).unwrap_err(),
        UndoError::Undone { compaction: first, at: undone.head() }
    );
    assert_eq!(undo_of(&story.line, Seq(1)).unwrap_err(), UndoError::NoCompaction(Seq(1)));
    assert_eq!(redo(&undone.line).unwrap_err(), RedoError::Covered { undone: first, by: second });
    let back = undone.clone().append([redo_of(&undone.line, first).unwrap()]);
    assert_eq!(redo_of(&back.line, first).unwrap_err(), RedoError::Holds(first));
    assert_eq!(redo_of(&back.line, Seq(99)).unwrap_err(), RedoError::NoCompaction(Seq(99)));
    assert_eq!(back.clone().undo().show(), story.clone().undo().show());
    let standing: Vec<CompactionStatus> =
        compactions(&undone.line).iter().map(|stood| stood.standing).collect();
    assert_eq!(standing, [CompactionStatus::Undone, CompactionStatus::Holds]);
    assert_eq!(undo(&EventLine::default()).unwrap_err(), UndoError::NoneHolds);
    assert_eq!(redo(&EventLine::default()).unwrap_err(), RedoError::NoneUndone);
}

/// The story has compactions at 10, 15 and 20; it is forked just before each, at each and just after.
#[test]
fn a_fork_with_the_summary_knows_what_was_known_by_then() {
    let story = thrice().tell("user: Go on.\nassistant: Yes.");
    let at = |at: u64| story.fork(at, ForkMode::SummaryIfCompacted).show();
    insta::assert_snapshot!(at(6), @r#"
    prefix      1       verbatim      1  Rules.
    summary     2-4, 7  summary      65
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Last said: Reading. [3]
      Files Read: src/cache.rs [3-4]
    answer      5       verbatim     10  We will use an LRU map, because it is simple.
    exchange    5-6     verbatim      3  edit_file {"path":"src/cache.rs","old":"a","new":"b"} -> ok
    total 79
    "#);
    insta::assert_snapshot!(at(9), @r#"
    prefix      1       verbatim      1  Rules.
    summary     2-6, 10 summary      66
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Last said: We will use an LRU map, because it is simple. [5]
      Files Modified: src/cache.rs (edited) [3-6]
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    total 79
    "#);
}

#[test]
fn a_fork_between_two_compactions_stands_on_the_first_and_knows_nothing_of_the_second() {
    let story = thrice().tell("user: Go on.\nassistant: Yes.");
    let at = |at: u64| story.fork(at, ForkMode::SummaryIfCompacted).show();
    insta::assert_snapshot!(at(11), @r#"
    prefix      1       verbatim      1  Rules.
    summary     2-6, 10 summary      66
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Last said: We will use an LRU map, because it is simple. [5]
      Files Modified: src/cache.rs (edited) [3-6]
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    user        11      verbatim      4  Fix the poisoned cache.
    total 83
    "#);
    insta::assert_snapshot!(at(14), @"
    prefix      1       verbatim      1  Rules.
    summary     2-13, 15 summary     112
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Session Intent: Now run the tests. [7]
      Session Intent: Fix the poisoned cache. [11]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Fix the poisoned cache. [11]
      Current Task: Last said: Patching. [12]
      Files Modified: src/cache.rs (edited) [3-6]
      Files Modified: src/lock.rs (edited) [12-13]
      Commands: `make test` → failed [8-9]
      Errors Encountered: error: cache is poisoned — from `make test`; not seen again [8-9]
    answer      14      verbatim      4  Patched the lock guard.
    total 117
    ");
}

#[test]
fn a_fork_after_two_compactions_stands_on_the_second_and_one_after_the_last_shares_it() {
    let story = thrice().tell("user: Go on.\nassistant: Yes.");
    let at = |at: u64| story.fork(at, ForkMode::SummaryIfCompacted).show();
    insta::assert_snapshot!(at(16), @"
    prefix      1       verbatim      1  Rules.
    summary     2-15, 17 summary      98
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Session Intent: Now run the tests. [7]
      Session Intent: Fix the poisoned cache. [11]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Fix the poisoned cache. [11]
      Current Task: Last said: Patched the lock guard. [14]
      Files Modified: src/cache.rs (edited) [3-6]
      Files Modified: src/lock.rs (edited) [12-13]
      Commands: `make test` → failed [8-9]
      Errors Encountered: error: cache is poisoned — from `make test`; not seen again [8-9]
    user        16      verbatim      4  Write a changelog entry.
    total 103
    ");
    insta::assert_snapshot!(at(19), @"
    prefix      1       verbatim      1  Rules.
    summary     2-18, 20 summary     117
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Session Intent: Now run the tests. [7]
      Session Intent: Fix the poisoned cache. [11]
      Session Intent: Write a changelog entry. [16]
      Constraints: Never touch the lock file. [2]
      Current Task: Write a changelog entry. [16]
      Current Task: Last said: Writing. [17]
      Files Modified: src/cache.rs (edited) [3-6]
      Files Modified: src/lock.rs (edited) [12-13]
      Files Modified: CHANGELOG.md (written) [17-18]
      Commands: `make test` → failed [8-9]
      Errors Encountered: error: cache is poisoned — from `make test`; not seen again [8-9]
    answer      19      verbatim      4  The entry is there.
    total 122
    ");
    insta::assert_snapshot!(at(21), @"
    prefix      1       verbatim      1  Rules.
    summary     2-18, 20 summary     117
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Session Intent: Now run the tests. [7]
      Session Intent: Fix the poisoned cache. [11]
      Session Intent: Write a changelog entry. [16]
      Constraints: Never touch the lock file. [2]
      Current Task: Write a changelog entry. [16]
      Current Task: Last said: Writing. [17]
      Files Modified: src/cache.rs (edited) [3-6]
      Files Modified: src/lock.rs (edited) [12-13]
      Files Modified: CHANGELOG.md (written) [17-18]
      Commands: `make test` → failed [8-9]
      Errors Encountered: error: cache is poisoned — from `make test`; not seen again [8-9]
    answer      19      verbatim      4  The entry is there.
    user        21      verbatim      2  Go on.
    total 124
    ");
    // At a compaction, the fork is as its parent was.
    assert_eq!([at(10), at(15), at(20)], [once().show(), twice().show(), thrice().show()]);
}

#[test]
fn a_fork_in_full_shows_everything_word_for_word() {
    let story = thrice().tell("user: Go on.\nassistant: Yes.");
    let at = |at: u64| story.fork(at, ForkMode::InFull).show();
    insta::assert_snapshot!(at(9), @r#"
    prefix      1       verbatim      1  Rules.
    user        2       verbatim     11  Add a cache to the server. Never touch the lock file.
    answer      3       verbatim      1  Reading.
    exchange    3-4     verbatim    202  read_file {"path":"src/cache.rs"} -> code code code code code code code code code code code code code code code code code code code code  ……  code code code code code code code code
    answer      5       verbatim     10  We will use an LRU map, because it is simple.
    exchange    5-6     verbatim      3  edit_file {"path":"src/cache.rs","old":"a","new":"b"} -> ok
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    total 240
    "#);
    insta::assert_snapshot!(at(10), @r#"
    prefix      1       verbatim      1  Rules.
    user        2       verbatim     11  Add a cache to the server. Never touch the lock file.
    answer      3       verbatim      1  Reading.
    exchange    3-4     verbatim    202  read_file {"path":"src/cache.rs"} -> code code code code code code code code code code code code code code code code code code code code  ……  code code code code code code code code
    answer      5       verbatim     10  We will use an LRU map, because it is simple.
    exchange    5-6     verbatim      3  edit_file {"path":"src/cache.rs","old":"a","new":"b"} -> ok
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    left out    10      by pivot, 0 tokens
    total 240
    "#);
    insta::assert_snapshot!(at(11), @r#"
    prefix      1       verbatim      1  Rules.
    user        2       verbatim     11  Add a cache to the server. Never touch the lock file.
    answer      3       verbatim      1  Reading.
    exchange    3-4     verbatim    202  read_file {"path":"src/cache.rs"} -> code code code code code code code code code code code code code code code code code code code code  ……  code code code code code code code code
    answer      5       verbatim     10  We will use an LRU map, because it is simple.
    exchange    5-6     verbatim      3  edit_file {"path":"src/cache.rs","old":"a","new":"b"} -> ok
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    user        11      verbatim      4  Fix the poisoned cache.
    left out    10      by pivot, 0 tokens
    total 244
    "#);
}

#[test]
fn a_fork_in_full_between_compactions_shows_what_the_first_covered() {
    let story = thrice().tell("user: Go on.\nassistant: Yes.");
    let at = |at: u64| story.fork(at, ForkMode::InFull).show();
    insta::assert_snapshot!(at(14), @r#"
    prefix      1       verbatim      1  Rules.
    user        2       verbatim     11  Add a cache to the server. Never touch the lock file.
    answer      3       verbatim      1  Reading.
    exchange    3-4     verbatim    202  read_file {"path":"src/cache.rs"} -> code code code code code code code code code code code code code code code code code code code code  ……  code code code code code code code code
    answer      5       verbatim     10  We will use an LRU map, because it is simple.
    exchange    5-6     verbatim      3  edit_file {"path":"src/cache.rs","old":"a","new":"b"} -> ok
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    user        11      verbatim      4  Fix the poisoned cache.
    answer      12      verbatim      1  Patching.
    exchange    12-13   verbatim    152  edit_file {"path":"src/lock.rs","old":"a","new":"b"} -> patched patched patched patched patched patched patched patched patched patched patched patched patc ……  patched patched patched patched patched
    answer      14      verbatim      4  Patched the lock guard.
    left out    10      by pivot, 0 tokens
    total 401
    "#);
    insta::assert_snapshot!(at(15), @r#"
    prefix      1       verbatim      1  Rules.
    user        2       verbatim     11  Add a cache to the server. Never touch the lock file.
    answer      3       verbatim      1  Reading.
    exchange    3-4     verbatim    202  read_file {"path":"src/cache.rs"} -> code code code code code code code code code code code code code code code code code code code code  ……  code code code code code code code code
    answer      5       verbatim     10  We will use an LRU map, because it is simple.
    exchange    5-6     verbatim      3  edit_file {"path":"src/cache.rs","old":"a","new":"b"} -> ok
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    user        11      verbatim      4  Fix the poisoned cache.
    answer      12      verbatim      1  Patching.
    exchange    12-13   verbatim    152  edit_file {"path":"src/lock.rs","old":"a","new":"b"} -> patched patched patched patched patched patched patched patched patched patched patched patched patc ……  patched patched patched patched patched
    answer      14      verbatim      4  Patched the lock guard.
    left out    10, 15  by pivot, 0 tokens
    total 401
    "#);
    insta::assert_snapshot!(at(16), @r#"
    prefix      1       verbatim      1  Rules.
    user        2       verbatim     11  Add a cache to the server. Never touch the lock file.
    answer      3       verbatim      1  Reading.
    exchange    3-4     verbatim    202  read_file {"path":"src/cache.rs"} -> code code code code code code code code code code code code code code code code code code code code  ……  code code code code code code code code
    answer      5       verbatim     10  We will use an LRU map, because it is simple.
    exchange    5-6     verbatim      3  edit_file {"path":"src/cache.rs","old":"a","new":"b"} -> ok
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    user        11      verbatim      4  Fix the poisoned cache.
    answer      12      verbatim      1  Patching.
    exchange    12-13   verbatim    152  edit_file {"path":"src/lock.rs","old":"a","new":"b"} -> patched patched patched patched patched patched patched patched patched patched patched patched patc ……  patched patched patched patched patched
    answer      14      verbatim      4  Patched the lock guard.
    user        16      verbatim      4  Write a changelog entry.
    left out    10, 15  by pivot, 0 tokens
    total 405
    "#);
}

#[test]
fn a_fork_in_full_after_the_last_compaction_shows_everything() {
    let story = thrice().tell("user: Go on.\nassistant: Yes.");
    let at = |at: u64| story.fork(at, ForkMode::InFull).show();
    insta::assert_snapshot!(at(21), @r#"
    prefix      1       verbatim      1  Rules.
    user        2       verbatim     11  Add a cache to the server. Never touch the lock file.
    answer      3       verbatim      1  Reading.
    exchange    3-4     verbatim    202  read_file {"path":"src/cache.rs"} -> code code code code code code code code code code code code code code code code code code code code  ……  code code code code code code code code
    answer      5       verbatim     10  We will use an LRU map, because it is simple.
    exchange    5-6     verbatim      3  edit_file {"path":"src/cache.rs","old":"a","new":"b"} -> ok
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    user        11      verbatim      4  Fix the poisoned cache.
    answer      12      verbatim      1  Patching.
    exchange    12-13   verbatim    152  edit_file {"path":"src/lock.rs","old":"a","new":"b"} -> patched patched patched patched patched patched patched patched patched patched patched patched patc ……  patched patched patched patched patched
    answer      14      verbatim      4  Patched the lock guard.
    user        16      verbatim      4  Write a changelog entry.
    answer      17      verbatim      1  Writing.
    exchange    17-18   verbatim    152  write_file {"path":"CHANGELOG.md","content":"x"} -> written written written written written written written written written written written written writ ……  written written written written written
    answer      19      verbatim      4  The entry is there.
    user        21      verbatim      2  Go on.
    left out    10, 15, 20 by pivot, 0 tokens
    total 564
    "#);
    for place in 1..=story.head().0 {
        let fork = story.fork(place, ForkMode::InFull);
        let is_summary = |body: &SegmentBody| matches!(body, SegmentBody::Summary(_));
        assert!(!fork.context().segments().iter().any(|segment| is_summary(segment.body())), "{place}");
        assert_eq!(undo(&fork.line).unwrap_err(), UndoError::NoneHolds);
    }
}

#[test]
fn a_fork_after_the_newest_compaction_shares_it() {
    let story = thrice().tell("user: Go on.\nassistant: Yes.");
    for at in thrice().head().0..=story.head().0 + 3 {
        assert_eq!(fork(&story.line, Seq(at), ForkMode::SummaryIfCompacted, &drafter(&meter())), []);
    }
    // What was undone is nobody's summary.
    let undone = once().undo();
    assert_eq!(fork(&undone.line, Seq(8), ForkMode::SummaryIfCompacted, &drafter(&meter())), []);
}

#[test]
fn a_fork_where_a_summary_would_save_nothing_gets_none() {
    let story = thrice();
    for at in 0..=3 {
        assert_eq!(fork(&story.line, Seq(at), ForkMode::SummaryIfCompacted, &drafter(&meter())), [], "{at}");
    }
}

/// The words of a model that saw more than the fork may know.
#[test]
fn what_a_model_wrote_is_kept_if_it_was_of_the_past_and_left_away_if_it_gives_away_more() {
    let item = |text: &str, from: u64, to: u64| SummaryItem {
        section: SummarySection::KeyDecisions,
        text: text.to_owned(),
        key: None,
        sources: SeqSet::run(Seq(from), Seq(to)),
        detail: None,
    };
    let written = StructuredSummary {
        items: vec![
            item("Eviction stays simple on purpose.", 2, 3),
            item("Eviction stays simple, and the guard in lock.rs was patched.", 2, 3),
            item("Everything about the server.", 2, 12),
        ],
        folded: vec![],
        ..StructuredSummary::default()
    };
    let story = beginning().tell(MIDDLE);
    let compaction = Compaction {
        summary: Summary::Structured { text: "Summary.".into(), brief: Box::new(written) },
        through: story.head(),
        first_kept: None,
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Threshold,
    };
    let story = story.append([Event::from_fact(Fact::Compacted(compaction), None)]);
    insta::assert_snapshot!(story.fork(9, ForkMode::SummaryIfCompacted).show(), @r#"
    prefix      1       verbatim      1  Rules.
    summary     2-6, 10 summary      76
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Last said: We will use an LRU map, because it is simple. [5]
      Files Modified: src/cache.rs (edited) [3-6]
      Key Decisions: Eviction stays simple on purpose. [2-3]
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    total 89
    "#);
}

#[test]
fn a_fork_of_what_only_has_a_text_for_a_summary_gets_the_built_in_one() {
    let story = beginning().tell("compacted through 9: The lock guard was patched later.\n");
    insta::assert_snapshot!(story.fork(9, ForkMode::SummaryIfCompacted).show(), @r#"
    prefix      1       verbatim      1  Rules.
    summary     2-6, 10 summary      66
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Last said: We will use an LRU map, because it is simple. [5]
      Files Modified: src/cache.rs (edited) [3-6]
    user        7       verbatim      4  Now run the tests.
    answer      8       verbatim      1  Running.
    exchange    8-9     verbatim      7  bash {"command":"make test"} -> error: cache is poisoned
    total 79
    "#);
}

#[test]
fn what_was_pinned_by_the_fork_is_pinned_there_whatever_came_later() {
    let pinned = beginning().tell("pin: Port 8080.\npin 2");
    let story = pinned.tell(MIDDLE).tell("unpin: Port 8080.\npin: Later.\n").compact();
    let at = |at: u64| {
        let fork = story.fork(at, ForkMode::SummaryIfCompacted);
        let events: Vec<Arc<LoggedEvent>> = fork.line.events().cloned().collect();
        let pins = |event: &Arc<LoggedEvent>| {
            brief(event).map(|brief| {
                brief.section(SummarySection::Pins).map(|item| item.text.clone()).collect::<Vec<_>>()
            })
        };
        events.iter().rev().find_map(pins)
    };
    let asked = "Add a cache to the server. Never touch the lock file.".to_owned();
    assert_eq!(at(11), Some(vec!["Port 8080.".to_owned(), asked.clone()]));
    assert_eq!(at(story.head().0), Some(vec![asked, "Later.".to_owned()]));
}

#[test]
fn a_handoff_takes_along_a_summary_of_everything_and_the_goal() {
    insta::assert_snapshot!(beginning().handoff(None).show(), @"
    prefix      1       verbatim      1  Rules.
    summary     2-10    summary     108
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Session Intent: Now run the tests. [7]
      Constraints: Never touch the lock file. [2]
      Current Task: The first request. [2]
      Current Task: Now run the tests. [7]
      Current Task: Last said: Running. [8]
      Files Modified: src/cache.rs (edited) [3-6]
      Commands: `make test` → failed [8-9]
      Errors Encountered: error: cache is poisoned — from `make test`; failed when last tried [8-9]
    user        11      verbatim      3  Now the docs.
    total 112
    ");
    insta::assert_snapshot!(twice().tell(END).handoff(None).show(), @"
    prefix      1       verbatim      1  Rules.
    summary     2-20    summary     125
      Session Intent: Add a cache to the server. Never touch the lock file. [2]
      Session Intent: Now run the tests. [7]
      Session Intent: Fix the poisoned cache. [11]
      Session Intent: Write a changelog entry. [16]
      Constraints: Never touch the lock file. [2]
      Current Task: Write a changelog entry. [16]
      Current Task: Last said: The entry is there. [19]
      Files Modified: src/cache.rs (edited) [3-6]
      Files Modified: src/lock.rs (edited) [12-13]
      Files Modified: CHANGELOG.md (written) [17-18]
      Commands: `make test` → failed [8-9]
      Errors Encountered: error: cache is poisoned — from `make test`; not seen again [8-9]
    user        21      verbatim      3  Now the docs.
    total 129
    ");
}

#[test]
fn a_handoff_takes_the_summary_it_is_given_and_the_pins() {
    let story = beginning().tell("pin: Port 8080.");
    let cutting = CompactionSpan::of_everything(&story.context(), &story.line, &DRAFTING).unwrap();
    assert_eq!((cutting.first, cutting.first_kept), (Seq(2), Seq(11)));
    let text = "Finish the cache.".to_owned();
    let sources = SeqSet::one(Seq(2));
    let given = SummaryItem { section: SummarySection::CurrentTask, text, key: None, sources, detail: None };
    let given = StructuredSummary { items: vec![given], folded: vec![], ..StructuredSummary::default() };
    insta::assert_snapshot!(story.handoff(Some(given)).show(), @r"
    prefix      1       verbatim      1  Rules.
    summary     2-11    summary      40
      Pinned: Port 8080. [10]
      Current Task: Finish the cache. [2]
    user        12      verbatim      3  Now the docs.
    total 44
    ");
}

#[test]
fn a_handoff_of_next_to_nothing_is_only_the_goal() {
    insta::assert_snapshot!(Story::default().handoff(None).show(), @r"
    user        1       verbatim      3  Now the docs.
    total 3
    ");
    insta::assert_snapshot!(Story::default().tell("user: Hi.\nassistant: Hello.").handoff(None).show(), @r"
    user        1       verbatim      1  Hi.
    answer      2       verbatim      1  Hello.
    user        3       verbatim      3  Now the docs.
    total 5
    ");
    // A summary of which nothing has come since is handed on as it is.
    let compacted = beginning().tell("compacted through 9: All of it.\n");
    insta::assert_snapshot!(compacted.handoff(None).show(), @r"
    prefix      1       verbatim      1  Rules.
    summary     2-10    summary       3  All of it.
    user        11      verbatim      3  Now the docs.
    total 7
    ");
}

#[test]
fn pins_hold_until_they_are_taken_away() {
    let story = beginning().tell("pin: Port 8080.\npin 2\npin: Port 8080.\n");
    let text = |text: &str| Pin::Text(text.to_owned());
    assert_eq!(pins(&story.line), [text("Port 8080."), Pin::Event(Seq(2))]);
    let without = story.clone().append([unpin(&story.line, text("Port 8080.")).unwrap()]);
    assert_eq!(pins(&without.line), [Pin::Event(Seq(2))]);
    assert_eq!(unpin(&without.line, text("Port 8080.")), Err(NotPinnedError));
    let again = without.clone().append([pin(&without.line, text("Port 8080.")).unwrap()]);
    assert_eq!(pins(&again.line), [Pin::Event(Seq(2)), text("Port 8080.")]);
    for (wrong, event) in [(0, Seq(0)), (99, Seq(99))] {
        let refused = pin(&again.line, Pin::Event(Seq(wrong))).unwrap_err();
        assert_eq!(refused, PinError::NoSuchEvent { event, head: again.head() });
    }
    assert_eq!(pin(&again.line, text("  ")), Err(PinError::Empty));
    let full = (0..18).fold(again, |story, at| {
        let event = pin(&story.line, text(&at.to_string())).unwrap();
        story.append([event])
    });
    assert_eq!(pin(&full.line, text("one more")), Err(PinError::TooMany));
    let freed = full.clone().append([unpin(&full.line, text("7")).unwrap()]);
    assert!(pin(&freed.line, text("one more")).is_ok(), "what was taken away makes room");
}
