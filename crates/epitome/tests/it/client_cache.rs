//! What a client that never heard of compaction pays for its prompt cache, beside what it would have paid by itself.

use std::sync::Arc;

use epitome::{
    core::{
        Tokens,
        cost::{CacheAssumption, SettingDigests, SimulatedCache, SimulatedCall},
        event::{Timestamp, Usage},
        profile::Profiles,
    },
    recorder::{PlacementKind, RequestArrival},
    rewrite::{ClientCache, RequestDisposition, RequestOverrides, UnknownCacheReason, compose},
    session::Session,
    wire::{Format, PromptMemo},
};
use serde_json::{Value, json};

use super::compose::{Gateway, mark, sent};

const FORMAT: Format = Format::Anthropic;
const MODEL: &str = "claude-sonnet-4-5";

/// How an agent works on its task: one tool call a turn.
#[derive(Clone, Copy)]
struct Work {
    /// What the model's window holds.
    window: u64,
    turns: usize,
    /// How many lines the tool returns in a turn.
    lines: fn(usize) -> usize,
    /// Whether the client asks for a cache at the end of its newest message.
    marks: bool,
}

/// What became of it.
#[derive(Debug)]
struct Outcome {
    epochs: u64,
    compactions: u64,
    cached: f64,
    cached_direct: f64,
    cost: u64,
    cost_direct: u64,
}

/// A provider with a cache of its own.
struct Provider {
    cache: SimulatedCache,
    memo: PromptMemo,
    used: Usage,
    cost: u64,
    now: i64,
}

impl Provider {
    fn new() -> Self {
        let profiles = Profiles::builtin();
        let profile = profiles.find(MODEL).unwrap();
        let cache =
            SimulatedCache::new(&profile.cache, &profile.prices, CacheAssumption::Breakpoints).unwrap();
        let memo = PromptMemo::new(Arc::new(profile.meter()));
        Self { cache, memo, used: Usage::default(), cost: 0, now: 0 }
    }

    fn serve(&mut self, body: &str) -> Usage {
        self.now += 5_000;
        let prompt = FORMAT.prompt(body, &mut self.memo).unwrap();
        let settings = SettingDigests::default();
        let call = SimulatedCall {
            at: Timestamp(self.now),
            model: MODEL,
            prompt: &prompt,
            settings: &settings,
            output: Tokens(50),
        };
        let charge = self.cache.serve(&call);
        self.used.uncached += charge.usage.uncached;
        self.used.cache_read += charge.usage.cache_read;
        self.used.cache_write += charge.usage.cache_write;
        self.cost += charge.money.unwrap().0;
        charge.usage
    }

    fn cached(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = self.used.cache_read.0 as f64 / self.used.input().0 as f64;
        share
    }
}

impl Work {
    fn body(&self, history: &[Value]) -> String {
        let mut history = history.to_vec();
        if self.marks {
            mark(history.last_mut().unwrap());
        }
        let tool = json!({"type": "object", "properties": {"command": {"type": "string"}}});
        json!({"model": MODEL, "max_tokens": 1_024, "system": "You are careful. ".repeat(40), "messages": history,
            "tools": [{"name": "bash", "input_schema": tool}]})
        .to_string()
    }

    fn play(self) -> Outcome {
        let mut gateway = Gateway::new();
        gateway.composing.window = Some(Tokens(self.window));
        let (mut composed, mut direct) = (Provider::new(), Provider::new());
        let mut history =
            vec![json!({"role": "user", "content": "Find out why the build fails, and mend it."})];
        let (mut epochs, mut compactions) = (0, 0);
        for turn in 0..self.turns {
            let body = self.body(&history);
            direct.serve(&body);
            let (ticket, outgoing) = gateway.forward(FORMAT, &body);
            let done = &outgoing.done;
            epochs = done.epoch;
            compactions += u64::from(done.compaction.is_some());
            let usage = composed.serve(&sent(&outgoing, &body));
            let call = format!("call_{turn}");
            let content = json!([{"type": "text", "text": format!("Now step {turn}.")},
                {"type": "tool_use", "id": call, "name": "bash", "input": {"command": format!("step {turn}")}}]);
            let answer = json!({"id": format!("msg_{turn}"), "type": "message", "role": "assistant", "model": MODEL,
                "stop_reason": "tool_use", "content": content, "usage": {"input_tokens": usage.uncached.0,
                "cache_read_input_tokens": usage.cache_read.0, "cache_creation_input_tokens": usage.cache_write.0,
                "output_tokens": 50}});
            gateway.answer(ticket, FORMAT, &answer);
            history.push(json!({"role": "assistant", "content": content}));
            let lines = (0..(self.lines)(turn)).map(|line| {
                format!(
                    "{turn}.{line}: src/part_{}.rs:{}: warning: unused item `value_{line}`",
                    line * 7 % 31,
                    turn * 13 + line
                )
            });
            let output = lines.collect::<Vec<_>>().join("\n");
            history.push(json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call, "content": output}]}));
        }
        Outcome {
            epochs,
            compactions,
            cached: composed.cached(),
            cached_direct: direct.cached(),
            cost: composed.cost,
            cost_direct: direct.cost,
        }
    }
}

/// A request that brings examples along: pairs of a question and an answer that nobody asked here.
fn with_examples(format: Format, pairs: usize, asks: &str) -> String {
    let message = |role: &str, text: String| json!({"role": role, "content": text});
    let pair = |number: usize| {
        let text = format!(
            "Ticket {number}: the printer on floor {number} is out of paper again, and tray {number} jams. "
        );
        [message("user", text.repeat(4)), message("assistant", format!("hardware, floor {number}"))]
    };
    let mut history: Vec<Value> = (0..pairs).flat_map(pair).collect();
    history.push(message("user", asks.to_owned()));
    match format {
        Format::Anthropic => {
            json!({"model": MODEL, "max_tokens": 100, "system": "Sort tickets.", "messages": history})
        }
        Format::OpenaiChat => {
            history.insert(0, message("system", "Sort tickets.".to_owned()));
            json!({"model": "gpt-4.1", "max_tokens": 100, "messages": history})
        }
        Format::OpenaiResponses => json!({"model": "gpt-4.1", "max_output_tokens": 100,
            "instructions": "Sort tickets.", "input": history, "store": false}),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
    .to_string()
}

#[test]
fn a_request_that_is_first_seen_and_fits_goes_on_whole() {
    for format in crate::SCRIPTED {
        for window in [9_000, 12_000] {
            let mut gateway = Gateway::new();
            gateway.composing.window = Some(Tokens(window));
            let body = with_examples(format, 50, "Ticket 51: the lift is stuck.");
            let (ticket, outgoing) = gateway.forward(format, &body);
            let done = &outgoing.done;
            assert!(done.before > Tokens(window / 3), "{format}: {done:?}");
            assert!(done.compaction.is_none() && done.before == done.after, "{format} of {window}: {done:?}");
            assert!(sent(&outgoing, &body).contains("hardware, floor 0"), "{format}");
            // Nor is what follows summarised before the policy's trigger.
            let answer = match format {
                Format::Anthropic => {
                    json!({"id": "m", "type": "message", "role": "assistant", "model": MODEL,
                    "stop_reason": "end_turn", "content": [{"type": "text", "text": "lift"}],
                    "usage": {"input_tokens": 5, "output_tokens": 2}})
                }
                Format::OpenaiChat => {
                    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4.1",
                    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "lift"}}]})
                }
                Format::OpenaiResponses => {
                    json!({"id": "r", "object": "response", "created_at": 1, "model": "gpt-4.1",
                    "status": "completed", "output": [{"type": "message", "id": "msg", "role": "assistant",
                        "status": "completed", "content": [{"type": "output_text", "text": "lift", "annotations": []}]}]})
                }
                Format::Gemini => unreachable!("it is tried in tests of its own"),
            };
            gateway.answer(ticket, format, &answer);
            let body = with_examples(format, 50, "Ticket 52: the roof leaks.");
            let (_, outgoing) = gateway.forward(format, &body);
            assert_eq!(outgoing.done.before, outgoing.done.after, "{format}: {:?}", outgoing.done);
        }
    }
}

#[tokio::test]
async fn a_history_that_a_session_takes_over_and_that_fits_is_sent_whole() {
    let body = with_examples(Format::Anthropic, 50, "Ticket 51: the lift is stuck.");
    let request = Format::Anthropic.decode_request(&body).unwrap();
    let session = Session::builder(Format::Anthropic, MODEL).window(Tokens(12_000)).begin().await.unwrap();
    session.append(request).await.unwrap();
    let request = session.next_request().await.unwrap();
    assert!(request.tokens > Tokens(12_000 * 2 / 5), "{}", request.tokens);
    assert!(request.body.contains("hardware, floor 0"), "{}", request.body);
}

/// What a cache would have held of each request of a client that gives each of them another session.
fn caches(marks: bool) -> Vec<(Tokens, ClientCache)> {
    let work = Work { window: 12_000, turns: 0, lines: |_| 0, marks };
    let mut gateway = Gateway::new();
    gateway.composing.window = Some(Tokens(work.window));
    let mut history = vec![json!({"role": "user", "content": "Find out why the build fails, and mend it."})];
    let mut found = Vec::new();
    for turn in 0..12_usize {
        let text = format!("{turn}: warning: unused item. ").repeat(150);
        history.push(json!({"role": "assistant", "content": format!("Step {turn}.")}));
        history.push(json!({"role": "user", "content": text}));
        let body = work.body(&history);
        let name = turn.to_string();
        let header = |asked: &str| (asked == "x-epitome-session").then_some(name.as_str());
        let at = Timestamp(1_000 * i64::try_from(turn).unwrap());
        let arrival = RequestArrival {
            principal: "",
            format: FORMAT,
            body: &body,
            shared: None,
            header: &header,
            at,
            purpose: None,
        };
        let composed =
            compose(&gateway.recorder, &arrival, &gateway.composing, &RequestOverrides::default()).unwrap();
        assert_eq!(composed.ticket.placed, PlacementKind::Began, "turn {turn}");
        let RequestDisposition::Forward(outgoing) = composed.way else { panic!("turn {turn}") };
        found.push((outgoing.done.before, outgoing.done.cache));
        let answer = json!({"id": name, "type": "message", "role": "assistant", "model": MODEL,
            "stop_reason": "end_turn", "content": [{"type": "text", "text": "Hm."}],
            "usage": {"input_tokens": 5, "output_tokens": 2}});
        gateway.answer(composed.ticket, FORMAT, &answer);
    }
    found
}

#[test]
fn the_cache_a_client_would_have_had_knows_no_sessions() {
    let found = caches(true);
    // While everything went on as it came, what was used is what would have been.
    assert_eq!(found[0].1, ClientCache::AsUsed);
    let held = found.windows(2).filter_map(|pair| match pair[1].1 {
        ClientCache::Held(held) => Some((pair[0].0, held)),
        _ => None,
    });
    let held: Vec<(Tokens, Tokens)> = held.collect();
    assert!(held.len() >= 3, "{found:?}");
    for (sent, held) in held {
        // By bytes, so not to the token.
        assert!(held.0 * 10 > sent.0 * 9 && held.0 * 10 < sent.0 * 11, "{held} of {sent}: {found:?}");
    }
    // Who asks for no cache would have had none.
    assert!(caches(false).iter().all(|(_, cache)| *cache == ClientCache::Unasked));
}

/// How a request goes on that is not composed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bypass {
    /// It is recorded and relayed.
    Relayed,
    /// It passes and nobody reads it.
    Unread,
}

/// What a cache would have held of a request that is composed after several that were not, and what it costs as it came.
fn cache_after(bypass: Bypass) -> (Tokens, ClientCache) {
    let work = Work { window: 12_000, turns: 0, lines: |_| 0, marks: true };
    let mut gateway = Gateway::new();
    gateway.composing.window = Some(Tokens(work.window));
    let mut history = vec![json!({"role": "user", "content": "Find out why the build fails, and mend it."})];
    let mut found = None;
    for turn in 0..20_usize {
        let body = work.body(&history);
        let at = Timestamp(1_000 * i64::try_from(turn).unwrap());
        let header = |_: &str| None;
        let (principal, format, shared, purpose) = ("", FORMAT, None, None);
        let arrival = RequestArrival { principal, format, body: &body, shared, header: &header, at, purpose };
        let answer = json!({"id": turn.to_string(), "type": "message", "role": "assistant", "model": MODEL,
            "stop_reason": "end_turn", "content": [{"type": "text", "text": format!("Step {turn}.")}],
            "usage": {"input_tokens": 5, "output_tokens": 2}});
        match (bypass, (10..19).contains(&turn)) {
            (Bypass::Relayed, true) => {
                let ticket = gateway.recorder.record(&arrival).unwrap();
                gateway.answer(ticket, FORMAT, &answer);
            }
            (Bypass::Unread, true) => gateway.recorder.note_unread("", at),
            (_, false) => {
                let wishes = RequestOverrides::default();
                let composed = compose(&gateway.recorder, &arrival, &gateway.composing, &wishes).unwrap();
                let RequestDisposition::Forward(outgoing) = composed.way else { panic!("turn {turn}") };
                found = Some((outgoing.done.before, outgoing.done.cache));
                gateway.answer(composed.ticket, FORMAT, &answer);
            }
        }
        history.push(json!({"role": "assistant", "content": format!("Step {turn}.")}));
        let text = format!("{turn}: warning: unused item. ").repeat(150);
        history.push(json!({"role": "user", "content": text}));
    }
    found.unwrap()
}

#[test]
fn what_was_relayed_is_in_the_cache_that_a_client_would_have_had() {
    let (full, cache) = cache_after(Bypass::Relayed);
    let ClientCache::Held(held) = cache else { panic!("{cache:?}") };
    // All of it but the newest of twenty steps.
    assert!(held.0 * 100 > full.0 * 90 && held < full, "{held} of {full}");
}

#[test]
fn nobody_says_what_a_cache_would_have_held_where_requests_passed_unread() {
    let (_, cache) = cache_after(Bypass::Unread);
    assert_eq!(cache, ClientCache::Unknown(UnknownCacheReason::Unseen));
}

/// Steps of a few thousand tokens each, as agents of LangGraph or pydantic-ai make them.
const STEPS: Work = Work { window: 40_000, turns: 40, lines: |_| 330, marks: true };

#[test]
fn compactions_that_could_have_waited_are_not_made_for_a_trifle_nor_taken_for_thrashing() {
    for marks in [false, true] {
        // Three steps fit between two compactions, and no policy can change that.
        let outcome = Work { marks, ..STEPS }.play();
        assert!(outcome.epochs <= 13, "{outcome:?}");
        assert_eq!(outcome.epochs, outcome.compactions, "nothing is left to bare notes: {outcome:?}");
        assert!(outcome.cached >= 0.45, "{outcome:?}");
    }
}

#[test]
fn where_steps_are_small_beside_the_window_the_cache_is_read_nearly_as_without_compaction() {
    let outcome = Work { window: 128_000, turns: 60, lines: |_| 200, ..STEPS }.play();
    assert!((1..=4).contains(&outcome.epochs), "{outcome:?}");
    assert!(outcome.cached + 0.10 >= outcome.cached_direct, "{outcome:?}");
    assert!(outcome.cost < outcome.cost_direct, "{outcome:?}");
}
