//! What a request costs: rendering it, seeing it as a cache does and as one that passes, and checking it.
//!
//! `cargo run --release -p epitome-wire --example measure_request`

use std::{hint::black_box, sync::Arc, time::Instant};

use epitome_core::{
    ChainLink, LoggedEvent,
    context::{Context, EventNaming},
    id::{EventId, Seq, ThreadId},
    meter::{Meter, TokenOverhead},
    projection::{EventLine, project},
    tokens::EstimateCounter,
};
use epitome_wire::{
    Format, PromptMemo, WireError,
    incoming::{IncomingRequest, MessageMemo},
    legality::{ProviderRules, check},
    render::{CacheBreakpoints, RenderOptions, recount},
};
use serde_json::{Value, json};

/// Turns of a call and its result: about 400 KB.
const TURNS: usize = 90;

/// How often each thing is measured. The quickest counts: other programs' work is not ours.
const TIMES: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for format in [Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic] {
        measure(format)?;
    }
    Ok(())
}

fn measure(format: Format) -> Result<(), Box<dyn std::error::Error>> {
    let context = context(format)?;
    let plain = RenderOptions::of(format);
    let placed =
        RenderOptions { breakpoints: CacheBreakpoints::Placed { most: 4, lifetime: 300 }, ..plain.clone() };
    let body = format.render(&context, &placed)?.body;
    println!("{format}: {} KB", body.len() / 1_000);
    timed("render", || format.render(&context, &plain).map(|rendered| rendered.body.len()).ok());
    timed("render with breakpoints placed", || {
        format.render(&context, &placed).map(|rendered| rendered.body.len()).ok()
    });
    timed("prompt, nothing known", || {
        let mut memo = PromptMemo::new(Arc::clone(context.meter()));
        format.prompt(&body, &mut memo).map(|prompt| prompt.blocks.len()).ok()
    });
    let mut memo = PromptMemo::new(Arc::clone(context.meter()));
    timed("prompt, all known", || format.prompt(&body, &mut memo).map(|prompt| prompt.blocks.len()).ok());
    timed("seen, nothing known", || {
        IncomingRequest::read(format, &body, &MessageMemo::default()).map(|seen| seen.units().len()).ok()
    });
    let memo = MessageMemo::default();
    timed("seen, all known", || {
        IncomingRequest::read(format, &body, &memo).map(|seen| seen.units().len()).ok()
    });
    timed("legality", || check(format, &body, &ProviderRules::of(format)).len());
    timed("recount", || recount(format, &body, context.meter()).ok());
    Ok(())
}

fn timed<T>(what: &str, mut run: impl FnMut() -> T) {
    let once = |_| {
        let begun = Instant::now();
        black_box(run());
        begun.elapsed()
    };
    let quickest = (0..TIMES).map(once).min().unwrap_or_default();
    println!("  {what:<32} {:>8.3} ms", quickest.as_secs_f64() * 1e3);
}

fn context(format: Format) -> Result<Context, WireError> {
    let events = format.decode_request(&request(format).to_string())?;
    let thread = ThreadId::derived(&["measured"]);
    let logged = events.into_iter().zip(1..).map(|(event, seq)| {
        Arc::new(LoggedEvent { id: EventId { thread, seq: Seq(seq) }, event, link: ChainLink::ROOT })
    });
    let meter = Arc::new(Meter::new(Arc::new(EstimateCounter), TokenOverhead::default()));
    Ok(project(&EventLine::new(logged), meter, EventNaming::Messages))
}

/// What an agent sends in the middle of its work.
fn request(format: Format) -> Value {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string", "description": "The file to read."}}});
    let tools: Vec<Value> = (0..20)
        .map(|tool| {
            let (name, description) = (format!("tool_{tool}"), "Reads a file.\nUse it often. ".repeat(60));
            match format {
                Format::Anthropic => json!({"name": name, "description": description, "input_schema": schema}),
                Format::OpenaiChat => {
                    json!({"type": "function", "function": {"name": name, "description": description, "parameters": schema}})
                }
                Format::OpenaiResponses => {
                    json!({"type": "function", "name": name, "description": description, "parameters": schema})
                }
                Format::Gemini => unreachable!("it is tried in tests of its own"),
            }
        })
        .collect();
    let mut history = vec![json!({"role": "user", "content": "Find out why the test fails."})];
    for turn in 0..TURNS {
        let line =
            |line: usize| format!("{line:>5}\tlet value_{turn} = \"line {line}\"; // {}\n", turn * line);
        let (id, output) = (format!("call_{turn}"), (0..70).map(line).collect::<String>());
        let (said, path) =
            (format!("Let me look at file {turn}."), json!({"path": format!("src/{turn}.rs")}));
        match format {
            Format::Anthropic => history.extend([
                json!({"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "It may be there. ".repeat(10), "signature": "c2ln".repeat(60)},
                    {"type": "text", "text": said}, {"type": "tool_use", "id": id, "name": "tool_1", "input": path}]}),
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": output}]}),
            ]),
            Format::OpenaiChat => history.extend([
                json!({"role": "assistant", "content": said, "tool_calls": [
                    {"id": id, "type": "function", "function": {"name": "tool_1", "arguments": path.to_string()}}]}),
                json!({"role": "tool", "tool_call_id": id, "content": output}),
            ]),
            Format::OpenaiResponses => history.extend([
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]}),
                json!({"type": "function_call", "call_id": id, "name": "tool_1", "arguments": path.to_string()}),
                json!({"type": "function_call_output", "call_id": id, "output": output}),
            ]),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
    }
    let system = "Be careful. \"Quote\" what you find.\n".repeat(800);
    match format {
        Format::Anthropic => json!({"model": "m", "system": system, "tools": tools, "messages": history}),
        Format::OpenaiChat => {
            history.insert(0, json!({"role": "system", "content": system}));
            json!({"model": "m", "tools": tools, "messages": history})
        }
        Format::OpenaiResponses => {
            json!({"model": "m", "instructions": system, "tools": tools, "input": history})
        }
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}
