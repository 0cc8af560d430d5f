//! What a client says of its project and its surroundings is in every request, word for word, however often its session is
//! compacted: in the user's message with a prompt, in one text with it, or in between.

use std::sync::Arc;

use epitome::{
    compact_request,
    core::{Tokens, policy::Policy},
    session::verify_call,
    store::{StoreOptions, temporary_store},
    summarise::{Summarize, SummaryFuture, SummaryRequest},
    wire::{
        Format,
        legality::{self, ProviderRules},
    },
};
use serde_json::{Value, json};

use super::{
    agent::{self, Hands},
    compose::{Agent, Gateway, result, sent},
};

/// Project instructions and the date, as Claude Code sends them.
fn project(rule: &str, date: &str) -> String {
    format!(
        "<system-reminder>\nAs you answer the user's questions, you can use the following context:\n# claudeMd\n\
         Codebase and user instructions are shown below.\n\nContents of /work/shop/CLAUDE.md (project instructions):\n\n\
         # Shop\n- {rule}\n- Run \"make check\" — always.\n- Never `git push`; <system-reminder> is a tag.\n\n\
         # currentDate\nToday's date is {date}.\n\n      IMPORTANT: this context may or may not be relevant.\n\
         </system-reminder>"
    )
}

const SKILLS: &str = "<system-reminder>\nThe following skills are available for use with the Skill tool:\n\n\
                      - deploy: rolls the shop out\n- audit: reads the books\n</system-reminder>";
const SURROUNDINGS: &str = "<system-reminder>\n# Environment\nPrimary working directory: /work/shop\nPlatform: linux\n\
                            </system-reminder>";
const NAG: &str = "<system-reminder>\nThe TodoWrite tool hasn't been used recently. This is just a gentle reminder.\n\
                   </system-reminder>";
const PROMPT: &str = "Find out why the build fails, and mend it.";

/// A user's message, in one text or in parts.
fn message(format: Format, texts: &[&str], is_one_text: bool) -> Value {
    if is_one_text {
        return json!({"role": "user", "content": texts.join("\n")});
    }
    let kind = if format == Format::OpenaiResponses { "input_text" } else { "text" };
    let parts: Vec<Value> = texts.iter().map(|text| json!({"type": kind, "text": text})).collect();
    json!({"role": "user", "content": parts})
}

/// Every text of a request, one after the other.
fn texts(body: &str) -> String {
    fn gather(value: &Value, all: &mut String) {
        match value {
            Value::String(text) => {
                all.push_str(text);
                all.push('\u{1}');
            }
            Value::Array(items) => items.iter().for_each(|item| gather(item, all)),
            Value::Object(members) => members.values().for_each(|member| gather(member, all)),
            _ => {}
        }
    }
    let mut all = String::new();
    gather(&serde_json::from_str(body).unwrap(), &mut all);
    all
}

impl Agent {
    /// The user speaks while tools run: beside their results, where a provider wants the roles to alternate.
    fn asked(&mut self, texts: &[&str]) {
        let said = message(self.format, texts, true);
        match self.history.last_mut() {
            Some(last) if self.format == Format::Anthropic => {
                let block = json!({"type": "text", "text": said["content"]});
                last["content"].as_array_mut().unwrap().push(block);
            }
            _ => self.history.push(said),
        }
    }
}

/// A task behind a gateway.
struct Task {
    gateway: Gateway,
    agent: Agent,
    epochs: u64,
}

impl Task {
    fn new(policy: &Policy, format: Format, first: Value) -> Self {
        let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
        gateway.composing.policy = policy.clone();
        agent.history = vec![first];
        Self { gateway, agent, epochs: 0 }
    }

    /// One turn; gives every text that was sent.
    fn turn(&mut self) -> String {
        let (format, body) = (self.agent.format, self.agent.body());
        let (ticket, outgoing) = self.gateway.forward(format, &body);
        let woven = sent(&outgoing, &body);
        let found = legality::check(format, &woven, &ProviderRules::of(format));
        assert!(found.is_empty(), "{found:?}\n{woven}");
        self.epochs = outgoing.done.epoch;
        let (thread, call) = outgoing.done.call.unwrap();
        self.gateway.answer(ticket, format, &self.agent.answer());
        let again = verify_call(&**self.gateway.recorder.store(), thread, call).unwrap();
        assert_eq!(again.rendered.body, woven, "call {call}");
        let turn = self.agent.turns;
        self.agent.goes_on(&format!("{}\n{}", result(turn), result(turn + 100)));
        texts(&woven)
    }

    fn restart(mut self) -> Self {
        self.gateway = self.gateway.restarted();
        self
    }
}

#[track_caller]
fn holds(sent: &str, blocks: &[&str], of: &str) {
    for block in blocks {
        assert!(sent.contains(block), "{of} lacks\n{block}\nin\n{sent}");
    }
}

#[test]
fn what_stands_beside_a_prompt_is_in_every_request() {
    let project = project("Use tabs.", "2026-11-15");
    let blocks = [project.as_str(), SKILLS, SURROUNDINGS];
    for policy in Policy::builtin() {
        for (format, is_one_text) in
            crate::SCRIPTED.into_iter().flat_map(|format| [(format, false), (format, true)])
        {
            let first = message(format, &[&project, SKILLS, SURROUNDINGS, NAG, PROMPT], is_one_text);
            let mut task = Task::new(policy, format, first);
            for turn in 0..36 {
                if turn % 10 == 9 {
                    task = task.restart();
                }
                let sent = task.turn();
                let of = format!("{}, {format}, one text: {is_one_text}, turn {turn}", policy.name);
                holds(&sent, &blocks, &of);
                for block in blocks {
                    assert_eq!(sent.matches(block).count(), 1, "{of}: {block}\nin\n{sent}");
                }
                assert!(sent.contains(PROMPT) || policy.name != "epitome", "{of}: {sent}");
            }
            assert!(task.epochs >= 1, "{}, {format}: {}", policy.name, task.epochs);
            if policy.name == "epitome" {
                assert!(task.epochs >= 3, "{format}: {}", task.epochs);
            }
        }
    }
}

#[test]
fn the_newest_form_takes_the_place_of_the_older_one() {
    let (old, new) = (project("Use tabs.", "2026-11-15"), project("Use spaces.", "2026-11-16"));
    let changed = "<system-reminder>\nThe date has changed. Today's date is now 2026-11-17. DO NOT mention this.\n\
                   </system-reminder>";
    for format in crate::SCRIPTED {
        let policy = Policy::named("epitome").unwrap();
        let mut task = Task::new(policy, format, message(format, &[&old, SURROUNDINGS, PROMPT], false));
        for _ in 0..14 {
            holds(&task.turn(), &[&old, SURROUNDINGS], "before");
        }
        task.agent.asked(&[&new, "Go on with the tests.", changed]);
        let epochs = task.epochs;
        let mut turns = 0;
        while task.epochs < epochs + 3 {
            let sent = task.turn();
            holds(&sent, &[&new, changed, SURROUNDINGS], &format!("{format}, after {turns} turns"));
            // What was sent does not change; the next summary takes the new form.
            if task.epochs > epochs {
                assert!(!sent.contains(&old), "{format}: the old form is still there\n{sent}");
            }
            turns += 1;
            assert!(turns < 60, "{format}: it never fills its window");
        }
    }
}

#[test]
fn what_codex_sends_between_turns_stays_too() {
    let agents = "# AGENTS.md instructions for /work/shop\n\n<INSTRUCTIONS>\nUse \"tabs\".\n</INSTRUCTIONS>";
    let here = "<environment_context>\n  <cwd>/work/shop</cwd>\n  <shell>zsh</shell>\n</environment_context>";
    let there =
        "<environment_context>\n  <cwd>/work/shop/till</cwd>\n  <shell>zsh</shell>\n</environment_context>";
    let nested =
        "# AGENTS.md instructions for /work/shop/till\n\n<INSTRUCTIONS>\nRound down.\n</INSTRUCTIONS>";
    let format = Format::OpenaiResponses;
    let policy = Policy::named("epitome").unwrap();
    let mut task = Task::new(policy, format, message(format, &[agents, here, PROMPT], false));
    for _ in 0..9 {
        holds(&task.turn(), &[agents, here], "codex");
    }
    task.agent.history.push(message(format, &[nested], false));
    task.agent.history.push(message(format, &[there], false));
    let allowed = "<permissions instructions>\nNever ask.\n</permissions instructions>";
    task.agent
        .history
        .push(json!({"role": "developer", "content": [{"type": "input_text", "text": allowed}]}));
    task.agent.history.push(json!({"role": "user", "content": "Now the till."}));
    while task.epochs < 5 {
        holds(&task.turn(), &[agents, nested, there, allowed], "codex, elsewhere");
        assert!(task.agent.turns < 90, "it never fills its window");
    }
    assert!(!task.turn().contains(here), "where it was before");
}

#[test]
fn what_there_is_no_room_for_is_named_and_the_rest_stays() {
    let format = Format::Anthropic;
    let large = format!(
        "<system-reminder>\n# Handbook instructions\n{}</system-reminder>",
        "Mind the gap.\n".repeat(2_000)
    );
    let policy = Policy::named("epitome").unwrap();
    let mut task = Task::new(policy, format, message(format, &[&large, SURROUNDINGS, SKILLS, PROMPT], false));
    for turn in 0..20 {
        let sent = task.turn();
        holds(&sent, &[SURROUNDINGS, SKILLS], &format!("turn {turn}"));
        if task.epochs > 0 {
            assert!(!sent.contains(&large), "turn {turn}");
            assert!(
                sent.contains("[no room for system-reminder: # Handbook instructions: "),
                "turn {turn}: {sent}"
            );
        }
    }
    assert!(task.epochs > 1, "{}", task.epochs);
}

/// A model that writes what the span bears out, and nothing of what stands.
#[derive(Debug)]
struct Faithful;

impl Summarize for Faithful {
    fn name(&self) -> &'static str {
        "faithful"
    }

    fn window(&self) -> Tokens {
        Tokens(100_000)
    }

    fn summarize<'a>(&'a self, _: &'a SummaryRequest) -> SummaryFuture<'a> {
        Box::pin(async { Ok(agent::good()) })
    }
}

#[tokio::test]
async fn a_session_of_the_library_keeps_it_whoever_summarises_and_when_it_is_reopened() {
    let project = project("Use tabs.", "2026-11-15");
    let said = format!("{project}\n{SURROUNDINGS}\n{}", agent::TASK);
    for by_model in [false, true] {
        let hands = Hands::default();
        let store = temporary_store(StoreOptions::default()).unwrap();
        let builder = || {
            let builder = agent::builder(&hands).policy(&agent::summaries_only()).store(Arc::clone(&store));
            if by_model { builder.summariser(Faithful) } else { builder }
        };
        let mut session = builder().begin().await.unwrap();
        session.user(&said).await.unwrap();
        for turn in 0..60 {
            hands.set(turn);
            if turn % 20 == 19 {
                let id = session.id();
                drop(session);
                session = builder().resume(id).await.unwrap();
            }
            let request = agent::turn_of(&session, turn, &agent::output(turn)).await;
            let sent = texts(&request.body);
            holds(&sent, &[&project, SURROUNDINGS], &format!("by a model: {by_model}, turn {turn}"));
            assert_eq!(sent.matches(&project).count(), 1, "turn {turn}");
        }
        let log = agent::log(&*store, &session);
        assert!(agent::count(&log, "compacted") >= 3, "{}", agent::count(&log, "compacted"));
        for row in store.calls(session.thread(), 0, 1_000).unwrap() {
            assert!(verify_call(&*store, session.thread(), row.number).unwrap().is_same());
        }
    }
}

#[test]
fn a_request_without_a_session_keeps_it_too() {
    let project = project("Use tabs.", "2026-11-15");
    for format in crate::SCRIPTED {
        let mut agent = Agent::new(format);
        agent.history = vec![message(format, &[&project, SURROUNDINGS, PROMPT], true)];
        for turn in 0..30 {
            agent.goes_on(&result(turn));
        }
        agent.history.push(json!({"role": "user", "content": "And now?"}));
        for budget in [3_000, 6_000, 12_000] {
            let made = compact_request(format, agent.body().as_bytes(), Tokens(budget)).unwrap();
            holds(&texts(&made.rendered.body), &[&project, SURROUNDINGS], &format!("{format} in {budget}"));
        }
    }
}
