//! The invariants of summaries, over generated sessions.

use std::{collections::BTreeSet, sync::Arc};

use epitome_core::{
    ContentPart, Fact, Seq,
    context::EventNaming,
    event::{CompactionTrigger, LoggedEvent, Pin, ToolCall, ToolResult},
    meter::{Meter, TokenOverhead},
    projection::{EventLine, project},
    seq_set::SeqSet,
    summary::{
        ConstraintForce, ItemDetail, SectionCaps, StructuredSummary, SummaryItem, SummarySection,
        compaction::{CompactionSettings, SummaryLength, VerbatimTail},
        summarise,
    },
    tokens::{EstimateCounter, TokenCounter, Tokens},
};
use proptest::{prelude::*, sample::Index};

use crate::{
    histories::history,
    notation::{Words, logged},
};

/// Sessions in which everything a summary looks for is said, each event with its own mark `x<seq>x`.
fn session(most: usize) -> impl Strategy<Value = Vec<Arc<LoggedEvent>>> {
    prop::collection::vec((0..SAYINGS.len(), 0..6u64), 1..most).prop_map(|steps| {
        let mut facts: Vec<Fact> = Vec::new();
        for (saying, number) in steps {
            push(&mut facts, SAYINGS[saying], number);
        }
        (1..).zip(facts).map(|(seq, fact)| logged(seq, fact)).collect()
    })
}

/// Who says it, and what: `#` becomes the event's own mark, `%` a small number, which repeats.
const SAYINGS: [&str; 24] = [
    "user Please build part % of #.",
    "user Never touch folder% in #.",
    "user You can now change folder%, says #.",
    "user We go with plan % because of #.",
    "user Tomorrow: do thing % for #.",
    "user It says \"TypeError: bad value #\" again.",
    "assistant I chose store % over # because it is small.",
    "assistant Switching from store % to # after all.",
    "assistant That didn't work, # is still broken. Let me try way %.",
    "assistant Way % works for #.",
    "assistant Next steps:\n- write test % of #\n- ship it",
    "assistant The problem was # all along.",
    "bash make target%",
    "fail make target%",
    "fail make # target%",
    "read src/f%.rs",
    "read src/#.rs",
    "edit src/f%.rs",
    "edit src/#.rs",
    "edit_fail src/f%.rs",
    "plan % #",
    "pin remember # and %",
    "pin_event %",
    "beside also never break # or %",
];

fn push(facts: &mut Vec<Fact>, saying: &str, number: u64) {
    let (kind, words) = saying.split_once(' ').expect("who and what");
    let mark = format!("x{}x", facts.len() + 1);
    let words = words.replace('#', &mark).replace('%', &number.to_string());
    let said = |parts| Fact::AssistantSaid { answer: None, model: None, parts };
    let mut exchange = |name: &str,
                        arguments: serde_json::Value,
                        output: &str,
                        error: bool,
                        beside: Vec<ContentPart>| {
        let call = ToolCall::function("call_1", name, arguments.to_string());
        facts.push(said(vec![ContentPart::ToolCall(call)]));
        let result =
            ToolResult { call: "call_1".into(), name: None, parts: vec![ContentPart::text(output)], error };
        facts.push(Fact::ToolReturned { results: vec![result], parts: beside });
    };
    let json = |name: &str, value: &str| serde_json::json!({ name: value });
    let failed = format!("error: cannot build {mark}");
    match kind {
        "user" => facts.push(Fact::UserSaid { parts: vec![ContentPart::text(words)] }),
        "assistant" => facts.push(said(vec![ContentPart::text(words)])),
        "bash" => exchange("bash", json("command", &words), "fine", false, vec![]),
        "fail" => exchange("bash", json("command", &words), &failed, true, vec![]),
        "read" => exchange("read_file", json("path", &words), "never say this", false, vec![]),
        "edit" => exchange("edit_file", json("path", &words), "done", false, vec![]),
        "edit_fail" => exchange("edit_file", json("path", &words), &failed, true, vec![]),
        "plan" => {
            let todos = serde_json::json!({ "todos": [
                { "content": format!("step {words}"), "status": "pending" },
                { "content": format!("done {words}"), "status": "completed" },
            ]});
            exchange("TodoWrite", todos, "ok", false, vec![]);
        }
        "pin" => facts.push(Fact::Pinned { pin: Pin::Text(words) }),
        "pin_event" => facts.push(Fact::Pinned { pin: Pin::Event(Seq(number)) }),
        "beside" => exchange("bash", json("command", "true"), "fine", false, vec![ContentPart::text(words)]),
        other => panic!("nobody is called `{other}`"),
    }
}

/// Summaries of a session cut into spans, each on top of the one before.
fn chain(events: &[Arc<LoggedEvent>], spans: usize, caps: &SectionCaps) -> Vec<StructuredSummary> {
    let mut briefs: Vec<StructuredSummary> = Vec::new();
    for span in events.chunks(events.len().div_ceil(spans).max(1)) {
        briefs.push(summarise(span, briefs.last(), caps));
    }
    briefs
}

const SMALL: SectionCaps = SectionCaps {
    session_intent: 2,
    files_modified: 3,
    files_read: 2,
    commands: 2,
    key_decisions: 2,
    failed_approaches: 2,
    errors: 2,
    next_steps: 2,
    trail: 300,
    index: 200,
    standing: 120_000,
};

const LARGE: SectionCaps = SectionCaps {
    session_intent: usize::MAX,
    files_modified: usize::MAX,
    files_read: usize::MAX,
    commands: usize::MAX,
    key_decisions: usize::MAX,
    failed_approaches: usize::MAX,
    errors: usize::MAX,
    next_steps: usize::MAX,
    trail: 40000,
    index: 20000,
    standing: 120_000,
};

/// Shown and folded items of a section.
fn all(brief: &StructuredSummary, section: SummarySection) -> u64 {
    let folded = brief.folded.iter().filter(|row| row.section == section).map(|row| row.count);
    brief.section(section).filter(|item| !brief.is_overtaken(item)).count() as u64 + folded.sum::<u64>()
}

/// The marks in a text: which events it speaks of.
fn marks(text: &str) -> Vec<u64> {
    text.split('x').filter_map(|piece| piece.parse().ok()).collect()
}

fn meters() -> [Meter; 2] {
    let meter = |counter: Arc<dyn TokenCounter>| Meter::new(counter, TokenOverhead::default());
    [meter(Arc::new(Words)), meter(Arc::new(EstimateCounter))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_summary_is_the_same_every_time(events in session(60)) {
        prop_assert_eq!(chain(&events, 3, &SMALL), chain(&events, 3, &SMALL));
        let brief = summarise(&events, None, &SectionCaps::default());
        let json = serde_json::to_string(&brief).unwrap();
        prop_assert_eq!(serde_json::from_str::<StructuredSummary>(&json).unwrap(), brief);
    }

    #[test]
    fn every_item_names_events_that_happened(events in session(80), spans in 1..6usize) {
        let mut end = 0;
        for (span, brief) in events.chunks(events.len().div_ceil(spans).max(1)).zip(chain(&events, spans, &SMALL)) {
            end += span.len() as u64;
            let items = brief.items.iter().map(|item| &item.sources);
            for sources in items.chain(brief.folded.iter().map(|row| &row.sources)) {
                prop_assert!(!sources.is_empty());
                prop_assert!(sources.first() >= Some(Seq(1)) && sources.last() <= Some(Seq(end)));
            }
            for item in &brief.items {
                prop_assert!(!item.text.trim().is_empty() && !item.text.contains('\n'));
                prop_assert!(item.text.chars().count() <= 900, "{}", item.text);
            }
        }
    }

    #[test]
    fn what_must_be_kept_is_kept_through_five_compactions(events in session(80)) {
        let briefs = chain(&events, 5, &SectionCaps::default());
        for pair in briefs.windows(2) {
            for item in pair[0].items.iter().filter(|item| item.section.must_keep()) {
                // A sentence may be told together with its neighbour from then on.
                let kept = pair[1]
                    .section(item.section)
                    .any(|next| next.identity() == item.identity() || next.text.contains(&item.text));
                prop_assert!(kept, "{:?} is lost from {:?}", item, pair[1].section(item.section).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn what_is_shown_and_what_is_folded_add_up(events in session(80)) {
        let (small, large) = (summarise(&events, None, &SMALL), summarise(&events, None, &LARGE));
        for section in SummarySection::ALL {
            prop_assert_eq!(all(&small, section), all(&large, section), "{:?}", section);
            prop_assert!(small.section(section).count() <= SMALL.of(section));
        }
        for pair in chain(&events, 4, &SMALL).windows(2) {
            for section in SummarySection::ALL.into_iter().filter(|section| section.must_keep()) {
                prop_assert!(all(&pair[0], section) <= all(&pair[1], section));
            }
        }
    }

    #[test]
    fn a_fork_inside_the_span_learns_nothing_of_what_came_after(
        events in session(80), spans in 1..4usize, at in any::<Index>(),
    ) {
        let brief = chain(&events, spans, &SMALL).pop().unwrap();
        let fork = Seq(at.index(events.len() + 1) as u64 + 1);
        let before = brief.before(fork);
        for item in &before.items {
            prop_assert!(item.sources.last() < Some(fork));
            // What an item says comes from its events: the marks of later ones are not in it.
            prop_assert!(marks(&item.text).iter().all(|seq| *seq < fork.0), "{item:?} leaks into {fork}");
        }
        for row in &before.folded {
            prop_assert!(row.sources.last() < Some(fork));
        }
        for meter in meters() {
            let text = before.render(&SeqSet::default(), Tokens::MAX, &meter, EventNaming::Messages);
            prop_assert!(marks(&text).iter().all(|seq| *seq < fork.0));
        }
        // A summary of what lies before the fork alone knows at least what is left.
        let later = SeqSet::run(fork, Seq(u64::MAX));
        prop_assert!(before.items.iter().all(|item| item.sources.runs().iter().all(|run| !later.contains(run.last))));
    }

    #[test]
    fn a_rendered_summary_keeps_to_its_limit_and_counts_what_it_leaves_out(
        events in session(80), limit in 0..2_000u64,
    ) {
        let brief = chain(&events, 2, &SectionCaps::default()).pop().unwrap();
        let covered = SeqSet::run(Seq(1), Seq(events.len() as u64));
        for meter in meters() {
            let text = brief.render(&covered, Tokens(limit), &meter, EventNaming::Messages);
            let least = meter.text(&brief.render(&covered, Tokens(0), &meter, EventNaming::Messages));
            prop_assert!(meter.text(&text) <= Tokens(limit).max(least), "{} > {limit}", meter.text(&text));
            prop_assert_eq!(&brief.render(&covered, Tokens(limit), &meter, EventNaming::Messages), &text);
            let first_line = text.lines().next().unwrap();
            prop_assert_eq!(EventNaming::Messages.handles_in(first_line), covered.clone());
            let mut sections = text.split("## ").skip(1).peekable();
            for section in SummarySection::ALL {
                // A section that says nothing is not written.
                let own = |body: &&str| body.starts_with(&format!("{}\n", section.title()));
                let body = sections.next_if(own).unwrap_or_default();
                let lines: Vec<&str> = body.lines().filter(|line| line.starts_with("- ")).collect();
                let counted: Vec<u64> = lines
                    .iter()
                    .filter(|line| line.contains(" not told here; "))
                    .filter_map(|line| line[2..].split(' ').next()?.parse().ok())
                    .collect();
                let shown = (lines.len() - counted.len()) as u64;
                prop_assert_eq!(shown + counted.iter().sum::<u64>(), all(&brief, section), "{}", text);
                let always = match section {
                    SummarySection::Pins | SummarySection::CurrentTask => brief.section(section).count(),
                    SummarySection::Constraints => {
                        let rule = |item: &&SummaryItem| item.detail == Some(ItemDetail::Wish(ConstraintForce::Rule));
                        brief.section(section).filter(rule).count()
                    }
                    _ if section.must_keep() => brief.section(section).count().min(1),
                    _ => 0,
                };
                prop_assert!(shown >= always as u64, "{} of {} in {:?}: {}", shown, always, section, text);
            }
            prop_assert!(sections.next().is_none());
        }
    }

    /// Any history at all, also such as no sane agent produces.
    #[test]
    fn any_history_can_be_summarised_and_drafted(events in history(60), turns in 0..6u64) {
        let brief = summarise(&events, None, &SectionCaps::default());
        prop_assert!(brief.items.iter().all(|item| !item.sources.is_empty()));
        let [meter, _] = meters().map(Arc::new);
        let line = EventLine::new(events.iter().cloned());
        let drafting = CompactionSettings { keep: VerbatimTail::Turns(turns), length: SummaryLength::Fixed(Tokens(400)), caps: SMALL, most: None, limit: None, unanswered: None };
        let Ok(draft) = drafting.draft(None, &project(&line, Arc::clone(&meter), EventNaming::Messages), &line, CompactionTrigger::Threshold) else { return Ok(()) };
        let before = project(&line, Arc::clone(&meter), EventNaming::Messages);
        prop_assert_eq!(draft.tokens_before, Some(before.tokens()));
        prop_assert!(draft.tokens_after < draft.tokens_before);
        // No call is parted from its result: what the new context shows has no stray that was none before.
        let strays = |line: &EventLine| -> BTreeSet<u64> {
            let context = project(line, Arc::clone(&meter), EventNaming::Messages);
            let strays = context.elided().iter().filter(|elision| matches!(&*elision.by, "stray" | "late"));
            strays.flat_map(|elision| elision.events.runs().to_vec()).flat_map(|run| run.first.0..=run.last.0).collect()
        };
        let old = strays(&line);
        let mut compacted = line.clone();
        let head = events.len() as u64 + 1;
        compacted.push_uncounted(logged(head, Fact::Compacted(draft.clone())));
        let new = strays(&compacted);
        prop_assert!(new.is_subset(&old), "{:?} are parted by {:?}", new, draft.first_kept);
        prop_assert_eq!(Some(project(&compacted, meter, EventNaming::Messages).tokens()), draft.tokens_after);
    }
}

/// Ever longer, ever new: the summary stops growing.
#[test]
fn a_summary_is_bounded_however_long_the_session() {
    let span = |from: u64| -> Vec<Arc<LoggedEvent>> {
        let mut facts = Vec::new();
        for (number, saying) in (0..).zip(SAYINGS.iter().cycle().take(240)) {
            push(&mut facts, saying, from + number);
        }
        (from..).zip(facts).map(|(seq, fact)| logged(seq, fact)).collect()
    };
    let mut brief = None;
    let mut from = 1;
    let mut sizes = Vec::new();
    for _ in 0..40 {
        let events = span(from);
        from += events.len() as u64;
        brief = Some(summarise(&events, brief.as_ref(), &SectionCaps::default()));
        sizes.push(serde_json::to_string(&brief).unwrap().len());
    }
    let brief = brief.unwrap();
    for section in SummarySection::ALL {
        assert!(brief.section(section).count() <= SectionCaps::default().of(section), "{section:?}");
    }
    let (early, late) = (sizes[9], sizes[39]);
    assert!(late < early + early / 5, "it grew from {early} to {late} bytes: {sizes:?}");
    assert!(brief.items.iter().all(|item| item.sources.runs().len() <= 12));
    assert!(brief.folded.len() <= SummarySection::ALL.len());
}
