//! What a client that never heard of compaction pays for its prompt cache, beside what it would have paid by itself.

use std::sync::Arc;

use epitome::{
    core::{
        Tokens,
        cost::{Cache, Call, Mode, Settings},
        event::{Time, Usage},
        profile::Profiles,
    },
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
    compactions: usize,
    cached: f64,
    cached_direct: f64,
    cost: u64,
    cost_direct: u64,
    causes: Vec<(usize, String)>,
}

/// A provider with a cache of its own.
struct Provider {
    cache: Cache,
    memo: PromptMemo,
    used: Usage,
    cost: u64,
    now: i64,
}

impl Provider {
    fn new() -> Self {
        let profiles = Profiles::builtin();
        let profile = profiles.find(MODEL).unwrap();
        let cache = Cache::new(&profile.cache, &profile.prices, Mode::Breakpoints).unwrap();
        let memo = PromptMemo::new(Arc::new(profile.meter()));
        Self { cache, memo, used: Usage::default(), cost: 0, now: 0 }
    }

    fn serve(&mut self, body: &str) -> Usage {
        self.now += 5_000;
        let prompt = FORMAT.prompt(body, &mut self.memo).unwrap();
        let settings = Settings::default();
        let call =
            Call { at: Time(self.now), model: MODEL, prompt: &prompt, settings: &settings, output: Tokens(50) };
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
        let mut history = vec![json!({"role": "user", "content": "Find out why the build fails, and mend it."})];
        let (mut epochs, mut compactions, mut causes) = (0, 0, Vec::new());
        for turn in 0..self.turns {
            let body = self.body(&history);
            direct.serve(&body);
            let (ticket, outgoing) = gateway.forward(FORMAT, &body);
            let done = &outgoing.done;
            epochs = done.epoch;
            compactions += usize::from(done.compaction.is_some());
            if let Some(cause) = &done.cause {
                causes.push((turn, format!("{cause} {}>{}", done.before.0, done.after.0)));
            }
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
                format!("{turn}.{line}: src/part_{}.rs:{}: warning: unused item `value_{line}`", line * 7 % 31, turn * 13 + line)
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
            causes,
        }
    }
}

#[test]
fn sweep() {
    for window in [24_000, 40_000, 77_000] {
        for (name, lines) in [
            ("steady", (|_| 60) as fn(usize) -> usize),
            ("large", |_| 200),
            ("uneven", |turn| if turn % 5 == 4 { 400 } else { 40 }),
            ("huge", |_| 330),
        ] {
            for marks in [true] {
                let outcome = Work { window, turns: 40, lines, marks }.play();
                eprintln!("{window} {name} {marks}: {outcome:?}");
            }
        }
    }
}
