//! The invariants of a context, over generated histories.

use std::{collections::BTreeSet, sync::Arc};

use epitome_core::{
    ContentPart, Fact, Seq,
    budget::Budget,
    context::{
        Context, ContextMessage, EventNaming, ExtendOutcome, Fidelity, SegmentBody, SegmentEdit, Tier,
        VisibleOutcome,
    },
    event::{CallForm, InstructionKind, LoggedEvent},
    fit::{FitError, FittedContext, fit},
    loop_blocks::{BlockConfig, CompactionScope},
    meter::{Meter, TokenOverhead},
    pairing::{self, CallOutcome},
    pipeline::{Reducer, ReducerOutput, ReducerState},
    projection::{EventLine, Projection, project},
    reducers::{
        AnyReducer, Blocks, CutOutputs, DropReasoning, EvictMedia, ExpireToolResults, Prune, ReasoningScope,
        ReferOutputs, ResultRetention, SlideDialogue, TokenLimit, default_pipeline,
    },
    tokens::Tokens,
};
use proptest::{prelude::*, sample::Index};

use crate::{
    histories::{forked, history},
    notation::{Words, show},
};

/// Counts words, and wraps them as providers do.
fn meter() -> Arc<Meter> {
    Arc::new(Meter::new(Arc::new(Words), TokenOverhead::default()))
}

fn line(events: &[Arc<LoggedEvent>]) -> EventLine {
    let mut line = EventLine::default();
    for event in events {
        line.push(Arc::clone(event), meter().pieces(&event.event));
    }
    line
}

fn whole(events: &[Arc<LoggedEvent>]) -> Context {
    project(&line(events), meter(), EventNaming::Messages)
}

fn fitted(context: Context, ceiling: u64, target: u64) -> Result<FittedContext, FitError> {
    let budget = Budget::new(Tokens(ceiling)).with_target(Tokens(target.min(ceiling)));
    fit(context, &budget, &default_pipeline(), ReducerState::default())
}

/// Whether a provider ever sees it; written anew here, so that the test does not ask the code.
fn is_rendered(event: &LoggedEvent) -> bool {
    match event.event.fact.kind() {
        "carried" => event.event.normal.is_some(),
        "compaction_requested"
        | "compaction_reverted"
        | "compaction_restored"
        | "pinned"
        | "unpinned"
        | "usage_reported"
        | "model_changed" => false,
        _ => true,
    }
}

/// Every event that a provider would see is shown, stubbed, summarised or left out by someone, and nothing else is.
fn assert_accounted(context: &Context, events: &[Arc<LoggedEvent>]) {
    let accounted = context.accounted();
    for event in events.iter().filter(|event| is_rendered(event)) {
        assert!(
            accounted.contains(event.id.seq),
            "{} is unaccounted for in\n{}",
            event.id.seq,
            show(context)
        );
    }
    assert!(accounted.last().unwrap_or_default().0 <= events.len() as u64);
}

/// What every provider demands: after an answer each of its calls is answered once, before anything else.
fn assert_legal(context: &Context) {
    let mut segments = 0;
    let mut open: Vec<(Seq, usize)> = Vec::new();
    for message in context.messages() {
        if !matches!(message, ContextMessage::Returned(_)) {
            assert!(open.is_empty(), "unanswered calls in\n{}", show(context));
        }
        match message {
            ContextMessage::Answer(answer) => {
                assert!(answer.fragments.iter().all(|fragment| !fragment.parts.is_empty()));
                for fragment in &answer.fragments {
                    segments += fragment.parts.len();
                    let parts = fragment.event.event.fact.parts();
                    for (place, _) in &fragment.parts {
                        if let ContentPart::ToolCall(_) = parts[*place] {
                            open.push((fragment.event.id.seq, *place));
                        }
                    }
                    let calls =
                        fragment.shown().filter(|part| matches!(part, ContentPart::ToolCall(_))).count();
                    assert!(calls <= parts.len());
                }
            }
            ContextMessage::Returned(returned) => {
                segments += usize::from(returned.beside.is_some());
                for outcome in &returned.outcomes {
                    let call = (outcome.caller.id.seq, outcome.part);
                    let at = open.iter().position(|one| *one == call);
                    open.remove(at.expect("only calls of the answer before are answered, each once"));
                    assert_eq!(outcome.event().map(|event| event.id), returned.event.map(|event| event.id));
                    if let Some(result) = outcome.result() {
                        assert_eq!(Some(&result.call), outcome.call().map(|call| &call.id));
                    }
                }
            }
            _ => segments += 1,
        }
    }
    assert!(open.is_empty(), "unanswered calls in\n{}", show(context));
    assert_eq!(segments, context.segments().len(), "each segment is part of one message");
}

/// What an answer led to is never left out while the reasoning that led to it stays.
fn assert_no_reasoning_alone(context: &Context) {
    let shown: BTreeSet<(Seq, usize)> = context.segments().iter().filter_map(place).collect();
    for segment in context.segments().iter().filter(|segment| segment.tier() == Tier::Reasoning) {
        let SegmentBody::Answer { event, part } = segment.body() else { continue };
        let next = event.event.fact.parts()[part + 1..]
            .iter()
            .position(|part| !matches!(part, ContentPart::Reasoning { .. }))
            .map(|ahead| part + 1 + ahead);
        if let Some(next) = next {
            assert!(shown.contains(&(event.id.seq, next)), "reasoning stands alone in\n{}", show(context));
        }
    }
}

fn place(segment: &epitome_core::context::Segment) -> Option<(Seq, usize)> {
    match segment.body() {
        SegmentBody::Answer { event, part } | SegmentBody::Exchange { event, part, .. } => {
            Some((event.id.seq, *part))
        }
        _ => None,
    }
}

fn assert_sound(context: &Context, events: &[Arc<LoggedEvent>]) {
    assert_eq!(context.find_inconsistency(), None);
    assert_accounted(context, events);
    assert_legal(context);
}

fn assert_same(one: &Context, other: &Context) {
    assert_eq!(show(one), show(other));
    assert_eq!(one.segments(), other.segments());
    assert_eq!(one.elided(), other.elided());
}

/// Reducers with numbers small enough for generated histories to meet them.
fn eager() -> Vec<AnyReducer> {
    let limit = TokenLimit { over: Tokens(20), head: Tokens(5), tail: Tokens(5) };
    vec![
        AnyReducer::CutOutputs(CutOutputs {
            tokens: Some(limit),
            lines: Some(4),
            share: None,
            spare_turns: 0,
            tools: Vec::new(),
        }),
        AnyReducer::EvictMedia(EvictMedia { keep_newest: 1 }),
        AnyReducer::DropReasoning(DropReasoning { scope: ReasoningScope::All }),
        AnyReducer::ReferOutputs(ReferOutputs { spare_turns: 0 }),
        AnyReducer::Prune(Prune { protect: Tokens(5), more_than: Tokens(5), ..Prune::default() }),
        AnyReducer::ExpireToolResults(ExpireToolResults {
            default: ResultRetention::Turns(0),
            ..ExpireToolResults::default()
        }),
        AnyReducer::ExpireToolResults(ExpireToolResults {
            default: ResultRetention::Last(1),
            ..ExpireToolResults::default()
        }),
        AnyReducer::Blocks(Blocks(BlockConfig {
            compaction_scope: CompactionScope::FixedCount(1),
            keep_first_turns: 1,
            keep_recent_turns: 1,
            max_summary_tokens: Tokens(60),
            tool_output_max_lines: 4,
            ..BlockConfig::default()
        })),
        AnyReducer::SlideDialogue(SlideDialogue { max_turns: Some(1), max_tokens: None }),
        AnyReducer::SlideDialogue(SlideDialogue { max_turns: None, max_tokens: Some(Tokens(40)) }),
    ]
}

proptest! {
    /// Invariant 6: every segment names its events, and nothing is unaccounted for.
    #[test]
    fn a_projection_is_sound(events in history(40)) {
        let context = whole(&events);
        assert_sound(&context, &events);
        assert_no_reasoning_alone(&context);
    }

    #[test]
    fn extending_one_by_one_is_projecting_in_one_go(events in history(40)) {
        let mut projection = Projection::new(meter(), EventNaming::Messages);
        for (index, event) in events.iter().enumerate() {
            projection.push(Arc::clone(event), meter().pieces(&event.event));
            assert_same(projection.context(), &whole(&events[..=index]));
        }
    }

    /// The counts come from the log; without them the same numbers are counted.
    #[test]
    fn the_logs_counts_and_counting_agree(events in history(20)) {
        assert_same(&whole(&events), &project(&EventLine::new(events.iter().cloned()), meter(), EventNaming::Messages));
    }

    #[test]
    fn calls_find_the_results_that_pairing_finds(mut events in history(40)) {
        events.retain(|event| !matches!(event.event.fact, Fact::Compacted(_)));
        let paired = pairing::pair(events.iter().map(|event| (event.id.seq, &event.event.fact)));
        let expected: Vec<Option<Seq>> = paired.exchanges.iter().map(|exchange| match exchange.outcome {
            CallOutcome::Returned { at, .. } => Some(at),
            CallOutcome::Unanswered => None,
        }).collect();
        let context = whole(&events);
        let found: Vec<Option<Seq>> = context.segments().iter().filter_map(|segment| match segment.body() {
            SegmentBody::Exchange { outcome: VisibleOutcome::Returned { event, .. }, .. } => Some(Some(event.id.seq)),
            SegmentBody::Exchange { outcome: VisibleOutcome::Unanswered, .. } => Some(None),
            _ => None,
        }).collect();
        prop_assert_eq!(found, expected);
    }

    /// Invariant 4: within the budget, or a refusal; and a refusal is exact.
    #[test]
    fn the_ceiling_is_kept_or_the_essential_set_is_over_it(
        events in history(40), ceiling in 0..4_000u64, target in 0..4_000u64,
    ) {
        let context = whole(&events);
        match fitted(context.clone(), ceiling, target) {
            Ok(fitted) => {
                prop_assert!(fitted.context.tokens() <= Tokens(ceiling));
                prop_assert!(fitted.context.tokens() <= context.tokens());
                assert_sound(&fitted.context, &events);
                assert_no_reasoning_alone(&fitted.context);
            }
            Err(refusal) => {
                prop_assert!(refusal.needed > Tokens(ceiling));
                let request = meter().overhead().request;
                prop_assert_eq!(refusal.prefix + refusal.newest + refusal.open + request, refusal.needed);
                let least = fitted(context.clone(), refusal.needed.0, refusal.needed.0).unwrap();
                prop_assert!(
                    least.context.tokens() == refusal.needed,
                    "{refusal}\nbut\n{}of\n{}",
                    show(&least.context),
                    show(&context),
                );
                prop_assert!(fitted(context, refusal.needed.0 - 1, ceiling).is_err());
            }
        }
    }

    /// Invariant 2: the same in, the same out.
    #[test]
    fn a_reduction_is_deterministic(events in history(30), ceiling in 0..2_000u64) {
        let once = fitted(whole(&events), ceiling, ceiling / 2);
        let again = fitted(whole(&events), ceiling, ceiling / 2);
        match (once, again) {
            (Ok(once), Ok(again)) => {
                assert_same(&once.context, &again.context);
                prop_assert_eq!((once.state, once.steps), (again.state, again.steps));
            }
            (once, again) => prop_assert_eq!(once.err(), again.err()),
        }
    }

    #[test]
    fn each_reducer_alone_is_sound_and_never_makes_more(events in history(40), target in 0..2_000u64) {
        let context = whole(&events);
        let budget = Budget::new(Tokens(target))
            .with_cap(Tier::ToolResults, Tokens(target / 4))
            .with_cap(Tier::Dialogue, Tokens(target / 4));
        for reducer in AnyReducer::all().into_iter().chain(eager()) {
            let ReducerOutput { context: reduced, .. } = reducer.reduce(context.clone(), &budget, ReducerState::default());
            assert_sound(&reduced, &events);
            if !matches!(reducer, AnyReducer::CutOutputs(_)) {
                assert_no_reasoning_alone(&reduced);
            }
            prop_assert!(reduced.tokens() <= context.tokens(), "{}", reducer.name());
            prop_assert_eq!(reduced.accounted(), context.accounted());
            assert_essential_stays(&context, &reduced, &reducer);
        }
    }

    #[test]
    fn nothing_over_the_budget_leaves_no_trace(events in history(30)) {
        let context = whole(&events);
        let fitted = fitted(context.clone(), context.tokens().0, u64::MAX).unwrap();
        assert_same(&fitted.context, &context);
        prop_assert!(fitted.steps.is_empty());
    }

    #[test]
    fn an_edit_that_changes_nothing_leaves_no_trace(events in history(30)) {
        let context = whole(&events);
        let same = context.clone().edit("nobody", |_, segment| match segment.shown() {
            Some(parts) => SegmentEdit::Replace { parts: parts.to_vec(), fidelity: Fidelity::Stub },
            None => SegmentEdit::line("x".into(), Fidelity::Stub),
        });
        assert_same(&same, &context);
        let long = "word ".repeat(usize::try_from(context.tokens().0).unwrap());
        let same = same.fold("nobody", std::slice::from_ref(&(0..usize::MAX)), |_| long.clone());
        assert_same(&same, &context);
        prop_assert_eq!(same.changes(), context.changes());
    }

    /// A reduced context grows like any other: late results find what stands for their calls.
    #[test]
    fn a_reduced_context_can_be_extended(events in history(40), cut in any::<Index>(), ceiling in 0..1_000u64) {
        let cut = cut.index(events.len() + 1);
        let Ok(FittedContext { mut context, .. }) = fitted(whole(&events[..cut]), ceiling, ceiling) else { return Ok(()) };
        let mut taken = cut;
        for event in &events[cut..] {
            if context.extend(event, None) == ExtendOutcome::Moved {
                break;
            }
            taken += 1;
            prop_assert_eq!(context.extend(event, None), ExtendOutcome::Known);
        }
        assert_sound(&context, &events[..taken]);
    }

    /// Messages that nobody touched are whole, and together they are all that was sent.
    #[test]
    fn what_nobody_touched_is_recognised_as_whole(events in history(40)) {
        let strays: BTreeSet<Seq> = whole(&events).elided().iter().flat_map(|elision| elision.events.runs())
            .flat_map(|run| run.first.0..=run.last.0).map(Seq).collect();
        for message in whole(&events).messages() {
            match message {
                ContextMessage::Answer(answer) => {
                    prop_assert!(answer.fragments.iter().all(epitome_core::context::AnswerFragment::is_whole));
                }
                ContextMessage::Returned(returned) => if let Some(event) = returned.event {
                    let here = returned.outcomes.len() == event.event.fact.results().len();
                    let beside = returned.beside.is_some() || event.event.fact.parts().is_empty();
                    prop_assert_eq!(returned.is_whole(), here && beside && !strays.contains(&event.id.seq));
                },
                _ => {}
            }
        }
    }

    /// Caps are met as far as what is essential, pinned, small or unknown allows; the whole need not be over.
    #[test]
    fn a_cap_brings_its_tier_down(
        events in history(40),
        cap in 0..500u64,
        tier in prop::sample::select(vec![
            Tier::Summaries, Tier::Dialogue, Tier::Reasoning, Tier::ToolResults, Tier::Media,
        ]),
    ) {
        let context = whole(&events);
        let budget = Budget::new(Tokens(u64::MAX)).with_cap(tier, Tokens(cap));
        let over = context.counted_against(tier) > Tokens(cap);
        let (ReducerOutput { context: reduced, .. }, steps) =
            default_pipeline().run(context.clone(), &budget, ReducerState::default());
        prop_assert_eq!(!steps.is_empty(), over);
        let found = reduced.counted_against(tier);
        prop_assert!(found <= context.counted_against(tier));
        prop_assert!(
            found <= Tokens(cap) || !could_go(&reduced, tier),
            "{tier:?} is {found}, and {cap} at most, in\n{}of\n{}", show(&reduced), show(&context),
        );
    }

    /// What has nothing to do with a tier is not touched for its sake.
    #[test]
    fn a_cap_on_reasoning_or_summaries_leaves_everything_else(
        events in history(40),
        cap in 0..500u64,
        tier in prop::sample::select(vec![Tier::Summaries, Tier::Reasoning]),
    ) {
        let context = whole(&events);
        let budget = Budget::new(Tokens(u64::MAX)).with_cap(tier, Tokens(cap));
        let (ReducerOutput { context: reduced, .. }, _) =
            default_pipeline().run(context.clone(), &budget, ReducerState::default());
        let others = [
            Tier::Prefix, Tier::Summaries, Tier::Dialogue, Tier::Reasoning, Tier::ToolResults, Tier::Media,
        ];
        for other in others.into_iter().filter(|other| *other != tier) {
            prop_assert_eq!(reduced.tier_tokens(other), context.tier_tokens(other));
        }
    }

    /// A fork sees what a copy of the thread would see: whose a shared event is makes no difference.
    #[test]
    fn a_fork_sees_what_a_copy_would_see(forked in forked(25), ceiling in 0..2_000u64) {
        let (fork, copy) = (whole(&forked.fork), whole(&forked.copy));
        prop_assert_eq!(show(&fork), show(&copy));
        assert_sound(&fork, &forked.fork);
        match (fitted(fork, ceiling, ceiling), fitted(copy, ceiling, ceiling)) {
            (Ok(fork), Ok(copy)) => {
                prop_assert_eq!(show(&fork.context), show(&copy.context));
                prop_assert_eq!((fork.state, fork.steps), (copy.state, copy.steps));
                assert_sound(&fork.context, &forked.fork);
            }
            (fork, copy) => prop_assert_eq!(fork.err(), copy.err()),
        }
    }

    /// A fork goes on from the very view its parent had there.
    #[test]
    fn a_fork_goes_on_from_what_its_parent_saw(forked in forked(25)) {
        let mut projection = Projection::new(meter(), EventNaming::Messages);
        for event in &forked.fork[..forked.shared] {
            projection.push(Arc::clone(event), meter().pieces(&event.event));
        }
        assert_same(projection.context(), &whole(&forked.parent[..forked.shared]));
        for event in &forked.fork[forked.shared..] {
            projection.push(Arc::clone(event), meter().pieces(&event.event));
        }
        assert_same(projection.context(), &whole(&forked.fork));
    }
}

/// Whether something large of a tier is left that its reducer may take.
fn could_go(context: &Context, tier: Tier) -> bool {
    let essential = context.essential();
    let pinned: BTreeSet<u64> = context
        .segments()
        .iter()
        .filter(|segment| context.is_pinned(segment))
        .map(epitome_core::context::Segment::turn)
        .collect();
    let large = |tokens: Tokens| tokens > Tokens(80);
    context.segments().iter().enumerate().any(|(index, segment)| {
        let stays = || essential.contains(index) || pinned.contains(&segment.turn());
        match tier {
            Tier::Prefix => false,
            Tier::Summaries => segment.tier() == tier,
            Tier::Reasoning => segment.tier() == tier && index < essential.loop_start() && !stays(),
            Tier::Media => {
                let media =
                    segment.parts_with_tokens().filter(|(part, _)| matches!(part, ContentPart::Media(_)));
                media.map(|(_, tokens)| tokens).any(large) && !stays()
            }
            Tier::ToolResults => {
                let can_be_named = segment.call().is_some_and(|call| {
                    call.form == CallForm::Function
                        && call.name.0 == "read_file"
                        && call.arguments.starts_with(r#"{"path""#)
                });
                can_be_named
                    && segment.fidelity() <= Fidelity::Cut
                    && large(segment.content_tokens())
                    && !stays()
            }
            Tier::Dialogue => {
                let said = matches!(segment.body(), SegmentBody::Answer { .. }) && segment.tier() == tier;
                said && segment.turn() < context.last_turn() && large(segment.tokens()) && !stays()
            }
        }
    })
}

/// Nobody leaves out the prefix, the newest message or the open exchange.
fn assert_essential_stays(before: &Context, after: &Context, reducer: &AnyReducer) {
    let shown: BTreeSet<_> = after.segments().iter().filter_map(key).collect();
    let essential = before.essential();
    for (index, segment) in before.segments().iter().enumerate() {
        let reasoning = segment.tier() == Tier::Reasoning && matches!(reducer, AnyReducer::DropReasoning(_));
        if essential.contains(index)
            && !reasoning
            && let Some(key) = key(segment)
        {
            assert!(shown.contains(&key), "{} left out {index} of\n{}", reducer.name(), show(before));
        }
    }
}

fn key(segment: &epitome_core::context::Segment) -> Option<(Seq, usize)> {
    match segment.body() {
        SegmentBody::Answer { event, part } | SegmentBody::Exchange { event, part, .. } => {
            Some((event.id.seq, part + 2))
        }
        SegmentBody::User { event, .. } => Some((event.id.seq, 1)),
        SegmentBody::Prefix(event)
        | SegmentBody::Instruction(event)
        | SegmentBody::Carried(event)
        | SegmentBody::Summary(event) => Some((event.id.seq, 0)),
        SegmentBody::Note(_) => None,
    }
}

/// The generator is worth its name only if it meets the cases the properties are about.
#[test]
fn generated_histories_hold_every_case() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..400 {
        let events = history(40).new_tree(&mut runner).unwrap().current();
        let context = whole(&events);
        for segment in context.segments() {
            seen.insert(format!("{:?}", segment.tier()));
            match segment.body() {
                SegmentBody::Summary(_) => seen.insert("a pivot".into()),
                SegmentBody::Instruction(_) => seen.insert("an instruction in the middle".into()),
                SegmentBody::Exchange { outcome: VisibleOutcome::Unanswered, .. } => {
                    seen.insert("an interrupted call".into())
                }
                SegmentBody::Exchange { outcome: VisibleOutcome::Returned { .. }, .. } => {
                    seen.insert("a result".into())
                }
                _ => false,
            };
        }
        seen.extend(context.elided().iter().map(|elision| format!("elided: {}", elision.by)));
        if events.windows(2).any(|pair| pair[0].id.thread != pair[1].id.thread) {
            seen.insert("a fork".into());
        }
        let models: BTreeSet<_> = events
            .iter()
            .filter_map(|event| match &event.event.fact {
                Fact::AssistantSaid { model, .. } => model.clone(),
                _ => None,
            })
            .collect();
        if models.len() > 1 {
            seen.insert("a model switch".into());
        }
        let updated = |event: &&Arc<LoggedEvent>| {
            matches!(&event.event.fact, Fact::Instructed { what: InstructionKind::System, .. })
        };
        if events.iter().filter(updated).count() > 1 {
            seen.insert("a system prompt that changed".into());
        }
        match fitted(context, 300, 200) {
            Ok(fitted) => seen.extend(
                fitted
                    .steps
                    .iter()
                    .filter(|step| step.after < step.before)
                    .map(|step| step.reducer.to_owned()),
            ),
            Err(_) => drop(seen.insert("a refusal".into())),
        }
    }
    let seen: Vec<String> = seen.into_iter().collect();
    insta::assert_snapshot!(seen.join("\n"), @r"
    Dialogue
    Media
    Prefix
    Reasoning
    Summaries
    ToolResults
    a fork
    a model switch
    a pivot
    a refusal
    a result
    a system prompt that changed
    an instruction in the middle
    an interrupted call
    cut_outputs
    drop_middle
    drop_reasoning
    drop_superseded_reads
    elided: empty
    elided: pivot
    elided: stray
    evict_media
    expire_tool_results
    refer_outputs
    split_turn
    summarise_turns
    ");
}
