//! Injection and reduction share a budget and nothing else.

use std::sync::Arc;

use epitome_core::{
    ContentPart, Seq,
    budget::Budget,
    context::{Context, EventNaming, ExtendOutcome, SegmentBody},
    event::{Fact, LoggedEvent},
    fit::fit,
    inject::{Hook, HookInput, Hooks, InjectError},
    meter::{Meter, TokenOverhead},
    pipeline::ReducerState,
    projection::{EventLine, project},
    reducers::default_pipeline,
    tokens::{EstimateCounter, Tokens},
};
use proptest::prelude::*;

use crate::{
    histories::history,
    notation::{context, logged, show},
};

fn meter() -> Arc<Meter> {
    Arc::new(Meter::new(Arc::new(EstimateCounter), TokenOverhead::default()))
}

/// Adds so many words.
#[derive(Debug)]
struct Says(String, usize, Tokens);

impl Hook for Says {
    fn name(&self) -> &str {
        &self.0
    }

    fn reserve(&self) -> Tokens {
        self.2
    }

    fn inject(&self, _: &HookInput<'_>) -> Vec<ContentPart> {
        vec![ContentPart::text("word ".repeat(self.1))]
    }
}

/// Hooks that add so many words each, and may add so many tokens.
pub(crate) fn hooks(words: &[(usize, u64)]) -> Hooks {
    let hooks = words.iter().enumerate();
    let hooks = hooks.map(|(index, &(words, reserve))| {
        Box::new(Says(format!("hook {index}"), words, Tokens(reserve))) as Box<dyn Hook>
    });
    Hooks::new(hooks.collect()).unwrap()
}

fn append(context: &mut Context, events: &[Arc<LoggedEvent>], fact: Fact) {
    let event = logged(events.len() as u64 + 1, fact);
    assert_eq!(context.extend(&event, None), ExtendOutcome::Grown);
}

proptest! {
    /// The reserves lower the ceiling once; what hooks add then fits, and nothing is reduced again.
    #[test]
    fn what_hooks_add_fits_without_another_reduction(
        mut events in history(30),
        words in prop::collection::vec((0..60usize, 1..200u64), 0..4),
        ceiling in 300..4_000u64,
    ) {
        events.push(logged(events.len() as u64 + 1, Fact::UserSaid { parts: vec![ContentPart::text("And now?")] }));
        let hooks = hooks(&words);
        let budget = Budget::new(Tokens(ceiling));
        let whole = project(&EventLine::new(events.iter().cloned()), meter(), EventNaming::Messages);
        let Ok(fitted) = fit(whole, &budget.with_reserve(hooks.reserve()), &default_pipeline(), ReducerState::default()) else {
            return Ok(());
        };
        let before = fitted.context.segments().to_vec();
        let mut context = fitted.context;
        match hooks.inject(&events, &meter(), None) {
            Ok(added) => {
                prop_assert_eq!(added.len(), words.iter().filter(|(words, _)| *words > 0).count());
                let beside = Seq(events.len() as u64);
                for event in added {
                    let place = matches!(event.fact, Fact::Injected { beside: Some(place), .. } if place == beside);
                    prop_assert!(place, "{:?}", event.fact);
                    append(&mut context, &events, event.fact.clone());
                    events.push(logged(events.len() as u64 + 1, event.fact));
                }
                prop_assert!(context.tokens() <= Tokens(ceiling), "{}", show(&context));
                prop_assert_eq!(&context.segments()[..before.len()], before.as_slice(), "only the end has grown");
                prop_assert_eq!(hooks.inject(&events, &meter(), None).unwrap(), vec![], "once for each message");
            }
            Err(InjectError::OverReserve { needed, reserve, .. }) => prop_assert!(needed > reserve),
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

#[test]
fn injected_content_stands_after_the_newest_message_at_the_very_end() {
    let shown = context("system: Rules.\nuser: One.\nassistant: Yes.\nuser: Two.\ninject memory: A fact.\n");
    let [.., asked, injected] = shown.segments() else { panic!("there are five segments") };
    assert!(asked.is_user());
    assert!(
        matches!(injected.body(), SegmentBody::User { event, .. } if matches!(event.event.fact, Fact::Injected { .. }))
    );
}
