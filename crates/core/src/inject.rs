//! Injection: hooks add content beside the newest message of the user, once for each message.
//!
//! Injection makes contexts larger and reduction makes them smaller, and the two are independent: each hook
//! has a reserve, the reserves of those that are about to add are kept free under the ceiling before anything is
//! reduced, and a hook's text must fit its own. So no reduction is needed afterwards, and none is made. Added content is
//! an event like any other: it is recorded, and sent again in its place, where it counts as what it is and no reserve is
//! kept for it any more.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use crate::{
    event::{ContentPart, Event, Fact, LoggedEvent, Timestamp},
    id::Seq,
    meter::Meter,
    tokens::Tokens,
};

/// Adds content beside a user's message: memories, the state of a project, the time of day.
///
/// It is asked once for each message of the user, before the message is first sent. It may read the events
/// and change none of them. Its content, wrapped as a message, must not cost more than its reserve.
///
/// ```
/// use epitome_core::{
///     event::ContentPart,
///     inject::{HookInput, Hook},
///     tokens::Tokens,
/// };
///
/// #[derive(Debug)]
/// struct Remember(Vec<(&'static str, &'static str)>);
///
/// impl Hook for Remember {
///     fn name(&self) -> &str {
///         "remember"
///     }
///
///     fn reserve(&self) -> Tokens {
///         Tokens(500)
///     }
///
///     fn inject(&self, asked: &HookInput<'_>) -> Vec<ContentPart> {
///         let said = asked.message.event.fact.text();
///         let facts = self.0.iter().filter(|(topic, _)| said.contains(topic));
///         facts.map(|(_, fact)| ContentPart::text(*fact)).collect()
///     }
/// }
/// ```
pub trait Hook: Debug + Send + Sync {
    /// Name of the hook. No two hooks of a session may have the same name.
    fn name(&self) -> &str;

    /// The most that it may ever add.
    fn reserve(&self) -> Tokens;

    /// Content that it adds beside the newest message: text and media. It may be empty.
    fn inject(&self, asked: &HookInput<'_>) -> Vec<ContentPart>;

    /// Returns true if what it adds is of use for one message only: with the next message of the user it leaves the
    /// requests, which opens an epoch. By default everything that it added stays where it was sent.
    fn is_replaced(&self) -> bool {
        false
    }
}

/// Input of a hook.
#[derive(Clone, Copy, Debug)]
pub struct HookInput<'a> {
    /// The newest message of the user.
    pub message: &'a LoggedEvent,
    /// Events before it, oldest first.
    pub before: &'a [&'a LoggedEvent],
}

/// The hooks of a session, in the order in which they add.
#[derive(Debug, Default)]
pub struct Hooks(Vec<Box<dyn Hook>>);

/// Reason for which nothing was injected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// Two hooks have the same name, by which their contents are recognised.
    #[error("setting up the hooks: two are called `{hook}`; give each a name of its own")]
    SameName {
        /// The name.
        hook: String,
    },
    /// A hook added more than it may.
    #[error(
        "injecting what the hook `{hook}` adds to message {beside}: it needs {needed} tokens, and {reserve} are reserved \
         for it; let it add less, or reserve more"
    )]
    OverReserve {
        /// The hook.
        hook: String,
        /// The message.
        beside: Seq,
        /// Tokens that it needs.
        needed: Tokens,
        /// Tokens that it may use.
        reserve: Tokens,
    },
    /// A hook added something that no user can say.
    #[error(
        "injecting what the hook `{hook}` adds to message {beside}: {what} cannot be part of a user's message; let it \
         add text or media"
    )]
    Unsayable {
        /// The hook.
        hook: String,
        /// The message.
        beside: Seq,
        /// Kind of content that it added.
        what: &'static str,
    },
}

impl Hooks {
    /// Hooks that add in this order.
    pub fn new(hooks: Vec<Box<dyn Hook>>) -> Result<Self, InjectError> {
        let mut names = BTreeSet::new();
        for hook in &hooks {
            if !names.insert(hook.name()) {
                return Err(InjectError::SameName { hook: hook.name().to_owned() });
            }
        }
        Ok(Self(hooks))
    }

    /// Sum of all reserves: the most that they may add beside one message.
    pub fn reserve(&self) -> Tokens {
        self.0.iter().map(|hook| hook.reserve()).sum()
    }

    /// Names of the hooks whose content leaves the requests with the next message of the user.
    pub fn replaced(&self) -> Vec<String> {
        self.0.iter().filter(|hook| hook.is_replaced()).map(|hook| hook.name().to_owned()).collect()
    }

    /// Sum of the reserves of the hooks that will be asked for the newest message: the room that must stay free under the
    /// ceiling. `events` are those of the thread, oldest first.
    pub fn due<'a>(&self, events: impl IntoIterator<Item = &'a Arc<LoggedEvent>>) -> Tokens {
        if self.0.is_empty() {
            return Tokens(0);
        }
        let events: Vec<&LoggedEvent> = events.into_iter().map(AsRef::as_ref).collect();
        let Some(open) = OpenMessage::of(&events) else { return Tokens(0) };
        open.missing(&self.0).map(|hook| hook.reserve()).sum()
    }

    /// Asks each hook that has not yet added to the newest message, and returns their additions, to be
    /// appended as they are. `events` are those of the thread, oldest first.
    ///
    /// A message that was answered is left alone: an addition would now stand after the answer and not beside
    /// the message. If one hook fails, no addition is made at all.
    pub fn inject<'a>(
        &self,
        events: impl IntoIterator<Item = &'a Arc<LoggedEvent>>,
        meter: &Meter,
        time: Option<Timestamp>,
    ) -> Result<Vec<Event>, InjectError> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let events: Vec<&LoggedEvent> = events.into_iter().map(AsRef::as_ref).collect();
        let Some(open) = OpenMessage::of(&events) else { return Ok(Vec::new()) };
        let message = open.message;
        let asked = HookInput { message, before: open.before };
        let mut added = Vec::new();
        for hook in open.missing(&self.0) {
            let mut parts = hook.inject(&asked);
            parts.retain(|part| !is_blank(part));
            if !parts.is_empty() {
                check(hook.as_ref(), message.id.seq, &parts, meter)?;
                let fact =
                    Fact::Injected { hook: hook.name().to_owned(), beside: Some(message.id.seq), parts };
                added.push(Event::from_fact(fact, time));
            }
        }
        Ok(added)
    }
}

/// The newest message of the user while nothing has answered it.
struct OpenMessage<'e> {
    message: &'e LoggedEvent,
    before: &'e [&'e LoggedEvent],
    since: &'e [&'e LoggedEvent],
}

impl<'e> OpenMessage<'e> {
    fn of(events: &'e [&'e LoggedEvent]) -> Option<Self> {
        let is_message = |event: &&LoggedEvent| matches!(event.event.fact, Fact::UserSaid { .. });
        let newest = events.iter().rposition(is_message)?;
        let since = &events[newest + 1..];
        let is_open = !since.iter().any(|event| is_answer(event));
        is_open.then_some(Self { message: events[newest], before: &events[..newest], since })
    }

    /// The hooks that have not added to it.
    fn missing<'h>(&self, hooks: &'h [Box<dyn Hook>]) -> impl Iterator<Item = &'h Box<dyn Hook>> {
        let place = self.message.id.seq;
        hooks.iter().filter(move |hook| !self.since.iter().any(|event| is_of(event, hook.name(), place)))
    }
}

/// Returns true for a blank text, which providers refuse.
fn is_blank(part: &ContentPart) -> bool {
    matches!(part, ContentPart::Text { text } if text.trim().is_empty())
}

fn is_answer(event: &LoggedEvent) -> bool {
    matches!(event.event.fact, Fact::AssistantSaid { .. } | Fact::ToolReturned { .. })
}

/// Returns true if an event is a hook's addition to a message.
fn is_of(event: &LoggedEvent, name: &str, message: Seq) -> bool {
    match &event.event.fact {
        Fact::Injected { hook, beside, .. } => hook == name && *beside == Some(message),
        _ => false,
    }
}

fn check(hook: &dyn Hook, beside: Seq, parts: &[ContentPart], meter: &Meter) -> Result<(), InjectError> {
    if let Some(what) = parts.iter().find_map(unsayable) {
        return Err(InjectError::Unsayable { hook: hook.name().to_owned(), beside, what });
    }
    let (needed, reserve) = (meter.overhead().message + meter.parts(parts), hook.reserve());
    if needed > reserve {
        return Err(InjectError::OverReserve { hook: hook.name().to_owned(), beside, needed, reserve });
    }
    Ok(())
}

/// Kind of a part that no user can send; `None` if the part is allowed.
fn unsayable(part: &ContentPart) -> Option<&'static str> {
    match part {
        ContentPart::Text { .. } | ContentPart::Media(_) => None,
        ContentPart::Reasoning { .. } => Some("reasoning"),
        ContentPart::ToolCall(_) => Some("a tool call"),
        ContentPart::Refusal { .. } => Some("a refusal"),
        ContentPart::Opaque { .. } => Some("a provider's own block"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::ToolCall,
        notation::{logged, meter, read},
    };

    /// Adds so many words to every message, and says how many events it was shown.
    #[derive(Debug)]
    struct Says {
        name: &'static str,
        words: usize,
        reserve: u64,
    }

    impl Hook for Says {
        fn name(&self) -> &str {
            self.name
        }

        fn reserve(&self) -> Tokens {
            Tokens(self.reserve)
        }

        fn inject(&self, asked: &HookInput<'_>) -> Vec<ContentPart> {
            let word = format!("{}/{}", asked.message.id.seq, asked.before.len());
            vec![ContentPart::text("\n"), ContentPart::text(vec![word; self.words].join(" "))]
        }
    }

    fn hooks(hooks: &[(&'static str, usize, u64)]) -> Hooks {
        let hooks = hooks
            .iter()
            .map(|&(name, words, reserve)| Box::new(Says { name, words, reserve }) as Box<dyn Hook>);
        Hooks::new(hooks.collect()).unwrap()
    }

    /// Additions, as `hook beside words`.
    fn added(hooks: &Hooks, events: &[Arc<LoggedEvent>]) -> Vec<String> {
        let told = |event: Event| match event.fact {
            Fact::Injected { ref hook, beside: Some(beside), .. } => {
                format!("{hook} {beside} {}", event.fact.text())
            }
            other => panic!("{other:?} is not injected"),
        };
        hooks.inject(events, &meter(), None).unwrap().into_iter().map(told).collect()
    }

    #[test]
    fn each_hook_adds_once_to_the_newest_message_and_in_order() {
        let hooks = hooks(&[("memory", 2, 2), ("silent", 0, 5), ("time", 1, 3)]);
        assert_eq!(hooks.reserve(), Tokens(10));
        let mut events = read("system: Rules.\nuser: One.\nassistant: Yes.\nuser: Two.\n");
        assert_eq!(added(&hooks, &events), ["memory 4 4/3 4/3", "time 4 4/3"]);
        let parts = vec![ContentPart::text("before")];
        events.push(logged(
            5,
            Fact::Injected { hook: "memory".into(), beside: Some(Seq(4)), parts: parts.clone() },
        ));
        assert_eq!(added(&hooks, &events), ["time 4 4/3"]);
        events.push(logged(
            6,
            Fact::Injected { hook: "time".into(), beside: Some(Seq(2)), parts: parts.clone() },
        ));
        assert_eq!(
            added(&hooks, &events),
            ["time 4 4/3"],
            "what stands beside another message is something else"
        );
        events.push(logged(7, Fact::Injected { hook: "time".into(), beside: Some(Seq(4)), parts }));
        assert_eq!(added(&hooks, &events), Vec::<String>::new());
    }

    #[test]
    fn a_message_that_was_answered_is_left_alone() {
        let hooks = hooks(&[("memory", 1, 5)]);
        let check = |log: &str, expect: &[&str]| assert_eq!(added(&hooks, &read(log)), expect, "{log}");
        check("user: One.\n", &["memory 1 1/0"]);
        check("user: One.\nusage\npin 1\n", &["memory 1 1/0"]);
        check("user: One.\nassistant: Yes.\n", &[]);
        check("user: One.\nassistant:\n  call#a bash {}\nuser: Wait.\nresult a: Done.\n", &[]);
        check("system: Rules.\n", &[]);
        check("", &[]);
    }

    #[test]
    fn a_hook_over_its_reserve_is_named_with_the_numbers() {
        let hooks = hooks(&[("time", 1, 1), ("memory", 9, 8)]);
        let error = hooks.inject(&read("user: One.\n"), &meter(), None).unwrap_err();
        let (needed, reserve) = (Tokens(9), Tokens(8));
        assert_eq!(
            error,
            InjectError::OverReserve { hook: "memory".into(), beside: Seq(1), needed, reserve }
        );
        insta::assert_snapshot!(error, @"injecting what the hook `memory` adds to message 1: it needs 9 tokens, and 8 are reserved for it; let it add less, or reserve more");
    }

    #[test]
    fn two_hooks_of_one_name_are_refused() {
        let twin = || Box::new(Says { name: "memory", words: 1, reserve: 1 }) as Box<dyn Hook>;
        let error = Hooks::new(vec![twin(), twin()]).unwrap_err();
        insta::assert_snapshot!(error, @"setting up the hooks: two are called `memory`; give each a name of its own");
    }

    /// Adds a call, which only a model can make.
    #[derive(Debug)]
    struct Calls;

    impl Hook for Calls {
        fn name(&self) -> &'static str {
            "calls"
        }

        fn reserve(&self) -> Tokens {
            Tokens(100)
        }

        fn inject(&self, _: &HookInput<'_>) -> Vec<ContentPart> {
            vec![ContentPart::text("fine"), ContentPart::ToolCall(ToolCall::function("a", "bash", "{}"))]
        }
    }

    #[test]
    fn what_no_user_can_say_is_refused() {
        let hooks = Hooks::new(vec![Box::new(Calls)]).unwrap();
        let error = hooks.inject(&read("user: One.\n"), &meter(), None).unwrap_err();
        insta::assert_snapshot!(error, @"injecting what the hook `calls` adds to message 1: a tool call cannot be part of a user's message; let it add text or media");
    }
}
