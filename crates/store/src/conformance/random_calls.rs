//! Calls of threads that fork each other at random.

use epitome_core::{Seq, ThreadId};
use proptest::prelude::*;

use super::{
    ConformanceCheck, DatabaseFactory, checks,
    samples::{append, events, in_session, make_call, root},
};
use crate::ThreadStart;

checks! {
    calls_of_a_fork_are_a_copy_of_those_made_by_its_start,
}

/// Of which thread: call, append, or fork at an event.
#[derive(Clone, Debug)]
enum CallStep {
    Call(prop::sample::Index),
    Append(prop::sample::Index),
    Fork(prop::sample::Index, prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<CallStep>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        3 => index().prop_map(CallStep::Call),
        2 => index().prop_map(CallStep::Append),
        2 => (index(), index()).prop_map(|(of, at)| CallStep::Fork(of, at)),
    ];
    prop::collection::vec(step, 1..40)
}

fn calls_of_a_fork_are_a_copy_of_those_made_by_its_start(databases: &DatabaseFactory<'_>) {
    proptest!(ProptestConfig::with_cases(48), |(steps in steps())| {
        let place = databases();
        let store = place.open();
        // Each thread with the heads of the calls it should see, and whose they are.
        let mut threads: Vec<(ThreadId, Vec<(ThreadId, Seq)>)> = vec![(root(&*store, "0"), vec![])];
        for step in &steps {
            match step {
                CallStep::Call(of) => {
                    let at = of.index(threads.len());
                    let (id, calls) = &mut threads[at];
                    prop_assert_eq!(make_call(&*store, *id), calls.len() as u64);
                    calls.push((*id, store.head(*id).unwrap().seq));
                }
                CallStep::Append(of) => {
                    let id = threads[of.index(threads.len())].0;
                    let first = store.head(id).unwrap().seq.next();
                    append(&*store, id, events(first, "ua"));
                }
                CallStep::Fork(of, at) => {
                    let (of, calls) = threads[of.index(threads.len())].clone();
                    let head = store.head(of).unwrap().seq;
                    let at = Seq(at.index(usize::try_from(head.0).unwrap() + 1) as u64);
                    let name = threads.len().to_string();
                    let fork = in_session(&*store, "0", &name, ThreadStart::Fork { of, at });
                    threads.push((fork, calls.into_iter().take_while(|(_, head)| *head <= at).collect()));
                }
            }
        }
        for (id, expected) in &threads {
            let calls = store.calls(*id, 0, usize::MAX).unwrap();
            let seen: Vec<_> = calls.iter().map(|call| (call.thread, call.call.head)).collect();
            prop_assert_eq!(&seen, expected);
            prop_assert!(calls.iter().map(|call| call.number).eq(0..expected.len() as u64));
            prop_assert_eq!(store.last_call(*id).unwrap(), calls.last().cloned());
            for call in calls {
                prop_assert_eq!(store.call(*id, call.number).unwrap(), call);
            }
        }
        let report = store.doctor().unwrap();
        prop_assert!(report.is_healthy(), "{:#?}", report);
    });
}
