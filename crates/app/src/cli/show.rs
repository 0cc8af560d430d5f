//! `show`: a session turn by turn, as it happened.

use std::{
    collections::{BTreeMap, HashMap},
    process::ExitCode,
};

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome::{
    core::{
        ContentPart, EventId, Fact, LoggedEvent, Seq, Tokens,
        client_text::{ClientTextKind, is_user_speaking, spans, user_words_of},
        event::{InstructionKind, ToolResult},
        pairing::{CallOutcome, pair},
    },
    store::{
        Store, ThreadStart,
        records::{SessionRow, ThreadRow, TurnRow},
    },
};
use serde_json::{Value, json};

use super::{
    history::turn_json,
    output::{BOLD, CliOutput, DIM, NAME, NOTE},
    sessions::SessionJson,
    store_lookup::{self, DatabaseLocation},
    text_format,
};

#[derive(ClapArgs)]
pub(crate) struct ShowArgs {
    /// Session: its id, the start or the last eight digits of it, or its title.
    session: String,

    /// Thread; by default the session's current thread.
    #[arg(long)]
    thread: Option<String>,

    /// Show only this turn, or these turns: `12`, `12-20`, `12-`.
    #[arg(long, value_name = "TURNS", value_parser = parse_turns)]
    turns: Option<(usize, usize)>,

    /// Show whole texts instead of their first lines.
    #[arg(long)]
    full: bool,
}

fn parse_turns(given: &str) -> Result<(usize, usize), String> {
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("`{text}` is not a turn's number"));
    match given.split_once('-') {
        None => number(given).map(|turn| (turn, turn)),
        Some((first, "")) => Ok((number(first)?, usize::MAX)),
        Some((first, last)) => Ok((number(first)?, number(last)?)),
    }
}

pub(crate) fn run(args: &ShowArgs, store: &DatabaseLocation, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let session = store.find_session(&args.session)?;
    let thread = store_lookup::thread(&*store, &session, args.thread.as_deref())?;
    let view = ThreadDisplay::read(&*store, &session, &thread)?;
    let (first, last) = args.turns.unwrap_or((1, usize::MAX));
    if args.turns.is_some() && (first == 0 || first > last || first > view.turns.len()) {
        bail!("there are no such turns: the thread has turns 1 to {}", view.turns.len());
    }
    let chosen = view.turns.iter().enumerate().filter(|(index, _)| (first..=last).contains(&(index + 1)));
    if out.is_json() {
        let turns: Vec<Value> = chosen.map(|(index, row)| view.turn_json(index + 1, row)).collect();
        let threads: Vec<Value> = view.threads.iter().map(thread_json).collect();
        out.object(&json!({
            "session": SessionJson::from(&session), "thread": thread.id, "threads": threads, "turns": turns,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    view.heading(&session, &thread, &mut out)?;
    let mut loop_shown = None;
    for (index, row) in chosen {
        if loop_shown != Some(row.turn.loop_index) {
            loop_shown = Some(row.turn.loop_index);
            out.line(format_args!("\n{BOLD}loop {}{BOLD:#}", row.turn.loop_index + 1))?;
        }
        view.turn(index + 1, row, if args.full { usize::MAX } else { text_format::width() }, &mut out)?;
    }
    if last == usize::MAX {
        view.pending(&mut out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A thread, read once, with the data for showing any of its turns.
struct ThreadDisplay {
    events: BTreeMap<Seq, LoggedEvent>,
    counts: HashMap<Seq, Tokens>,
    turns: Vec<TurnRow>,
    threads: Vec<ThreadRow>,
    /// Position of each call's result.
    returned: HashMap<(Seq, usize), (Seq, usize)>,
    strays: usize,
}

impl ThreadDisplay {
    fn read(store: &dyn Store, session: &SessionRow, thread: &ThreadRow) -> anyhow::Result<Self> {
        let events = store_lookup::events(store, thread.id, None)?;
        let counts = store.event_counts(thread.id, Seq(1), usize::MAX)?;
        let paired = pair(events.iter().map(|logged| (logged.id.seq, &logged.event.fact)));
        let mut returned = HashMap::new();
        let mut nth: HashMap<Seq, usize> = HashMap::new();
        for exchange in &paired.exchanges {
            let index = nth.entry(exchange.at).or_default();
            if let CallOutcome::Returned { at, result } = exchange.outcome {
                let results = events[usize::try_from(at.0 - 1)?].event.fact.results();
                let place = results.iter().position(|other| std::ptr::eq(other, result)).unwrap_or_default();
                returned.insert((exchange.at, *index), (at, place));
            }
            *index += 1;
        }
        let strays = paired.strays.len();
        Ok(Self {
            returned,
            strays,
            counts: counts.into_iter().map(|(id, tokens)| (id.seq, tokens)).collect(),
            turns: store.turns(thread.id)?,
            threads: store.threads(session.id)?,
            events: events.into_iter().map(|logged| (logged.id.seq, logged)).collect(),
        })
    }

    fn heading(&self, session: &SessionRow, thread: &ThreadRow, out: &mut CliOutput) -> anyhow::Result<()> {
        out.line(format_args!(
            "{BOLD}{}{BOLD:#}",
            text_format::one_line(&session.title, text_format::width())
        ))?;
        out.line(format_args!(
            "{NAME}{}{NAME:#} · {} · thread {} with {}",
            session.id,
            session.source,
            text_format::one_line(&thread.name, 80),
            text_format::count(self.turns.len() as u64, "turn"),
        ))?;
        let span = match (session.first, session.last) {
            (Some(first), Some(last)) => {
                format!(" · {} to {}", text_format::minute(first), text_format::minute(last))
            }
            _ => String::new(),
        };
        out.line(format_args!(
            "{} · {} · {} · {} · {}{span}",
            text_format::count(session.messages, "message"),
            text_format::count(session.turns, "turn"),
            text_format::count(session.loops, "loop"),
            text_format::count(session.tool_calls, "tool call"),
            text_format::count(session.tokens.unwrap_or_default().0, "token"),
        ))?;
        if !session.labels.is_empty() {
            out.line(format_args!("labels: {}", session.labels.join(", ")))?;
        }
        if self.threads.len() > 1 {
            let names: Vec<_> =
                self.threads.iter().map(|other| format!("{} ({})", other.name, other.id.short())).collect();
            out.line(format_args!("{DIM}threads: {}{DIM:#}", text_format::one_line(&names.join(", "), 400)))?;
        }
        if self.strays > 0 {
            out.line(format_args!(
                "{NOTE}{} that no call asked for{NOTE:#}",
                text_format::count(self.strays as u64, "result")
            ))?;
        }
        Ok(())
    }

    fn turn(&self, number: usize, row: &TurnRow, width: usize, out: &mut CliOutput) -> anyhow::Result<()> {
        let turn = &row.turn;
        for id in &turn.asked {
            self.asked(id.seq, width, out)?;
        }
        if let Some(compaction) = &turn.compaction {
            out.line(format_args!("{number:5}  {NOTE}── compaction ──{NOTE:#} {DIM}{}{DIM:#}", when(row)))?;
            out.line(format_args!("       {}", clip(compaction.summary.text(), width)))?;
            return self.branches(row, out);
        }
        let mut facts = vec![when(row)];
        facts.extend(turn.model.as_ref().map(ToString::to_string));
        facts.extend(row.tokens.map(|tokens| text_format::count(tokens.0, "token")));
        if let Some(usage) = turn.usage {
            let input = usage.input();
            let cached = (usage.cache_read.0 * 100).checked_div(input.0).unwrap_or(0);
            let (input, output) = (text_format::tokens(input), text_format::tokens(usage.output));
            facts.push(format!("billed {input} in ({cached} % cached), {output} out"));
        }
        facts.retain(|fact| !fact.is_empty());
        out.line(format_args!("{number:5}  {DIM}{}{DIM:#}", facts.join(" · ")))?;
        for id in &turn.answered {
            self.answered(id.seq, width, out)?;
        }
        self.branches(row, out)
    }

    fn asked(&self, seq: Seq, width: usize, out: &mut CliOutput) -> anyhow::Result<()> {
        let Some(logged) = self.events.get(&seq) else { return Ok(()) };
        let said = logged.event.fact.text();
        let tokens = self.size(seq);
        match &logged.event.fact {
            Fact::UserSaid { parts } => {
                if is_user_speaking(&logged.event.fact) {
                    let media = logged.event.fact.media().count() as u64;
                    let media = if media == 0 {
                        String::new()
                    } else {
                        format!(" [{}]", text_format::count(media, "attachment"))
                    };
                    let words = clip(&user_words_of(parts), width);
                    out.line(format_args!("     {BOLD}›{BOLD:#} {words}{media}"))?;
                }
                client_texts(parts).try_for_each(|(kind, text)| {
                    out.line(format_args!("       {DIM}{}: {}{DIM:#}", kind.name(), clip(text, width)))
                })
            }
            Fact::Instructed { what, .. } => {
                let what = match what {
                    InstructionKind::Settings => return Ok(()),
                    InstructionKind::System => "system prompt",
                    InstructionKind::Tools => "tool definitions",
                    InstructionKind::Message => "system message",
                    InstructionKind::Project => "project instructions",
                };
                out.line(format_args!("       {DIM}{what}: {tokens}{DIM:#}"))
            }
            fact => out.line(format_args!(
                "       {DIM}{}: {}{DIM:#}",
                fact.kind().replace('_', " "),
                clip(&said, width)
            )),
        }
    }

    fn answered(&self, seq: Seq, width: usize, out: &mut CliOutput) -> anyhow::Result<()> {
        let Some(logged) = self.events.get(&seq) else { return Ok(()) };
        let mut nth = 0;
        for part in logged.event.fact.parts() {
            match part {
                ContentPart::Text { text } if text.trim().is_empty() => {}
                ContentPart::Text { text } => out.line(format_args!("       {}", clip(text, width)))?,
                ContentPart::Refusal { text } => {
                    out.line(format_args!("       {NOTE}refused:{NOTE:#} {}", clip(text, width)))?;
                }
                ContentPart::Reasoning { text, .. } if text.is_empty() => {
                    out.line(format_args!("       {DIM}(hidden reasoning){DIM:#}"))?;
                }
                ContentPart::Reasoning { text, .. } => {
                    out.line(format_args!("       {DIM}({}){DIM:#}", clip(text, width)))?;
                }
                ContentPart::ToolCall(call) => {
                    let outcome =
                        self.returned.get(&(seq, nth)).and_then(|(at, place)| self.result(*at, *place));
                    nth += 1;
                    let outcome = match outcome {
                        Some((at, result)) => self.outcome(at, result),
                        None => format!("{NOTE}no result{NOTE:#}"),
                    };
                    let arguments = clip(&call.arguments, width.saturating_sub(40 + call.name.0.len()));
                    out.line(format_args!(
                        "       {NAME}{}{NAME:#} {DIM}{arguments}{DIM:#} → {outcome}",
                        call.name
                    ))?;
                    for thread in self.started_by(seq, &call.id.0) {
                        out.line(format_args!(
                            "         ⤷ thread {NAME}{}{NAME:#} (show it: --thread {})",
                            thread.name,
                            thread.id.short()
                        ))?;
                    }
                }
                ContentPart::Media(media) => out.line(format_args!("       [{}]", media.mime))?,
                ContentPart::Opaque { name, json } => {
                    out.line(format_args!(
                        "       {DIM}[{name}] {}{DIM:#}",
                        clip(json, width.saturating_sub(20))
                    ))?;
                }
            }
        }
        Ok(())
    }

    fn result(&self, at: Seq, place: usize) -> Option<(Seq, &ToolResult)> {
        Some((at, self.events.get(&at)?.event.fact.results().get(place)?))
    }

    fn outcome(&self, at: Seq, result: &ToolResult) -> String {
        let mut lines = 0;
        let mut media = 0;
        for part in &result.parts {
            if matches!(part, ContentPart::Media(_)) {
                media += 1;
            }
            part.visit_text(&mut |text| lines += text.lines().count() as u64);
        }
        let mut facts = vec![text_format::count(lines, "line")];
        if media > 0 {
            facts.push(text_format::count(media, "image"));
        }
        // The count is of the whole message, so it is shown only if the message is this one result.
        if self.events.get(&at).is_some_and(|logged| logged.event.fact.results().len() == 1) {
            facts.push(self.size(at));
        }
        let error = if result.error { format!("{NOTE}error{NOTE:#}, ") } else { String::new() };
        format!("{error}{}", facts.join(", "))
    }

    fn size(&self, seq: Seq) -> String {
        text_format::count(self.counts.get(&seq).copied().unwrap_or_default().0, "token")
    }

    fn started_by(&self, seq: Seq, call: &str) -> impl Iterator<Item = &ThreadRow> {
        let id = self.events.get(&seq).map(|logged| logged.id);
        self.threads.iter().filter(move |thread| match &thread.start {
            ThreadStart::Spawned { by, call: started } => {
                id.is_some() && *by == id && started.as_ref().is_some_and(|started| started.0 == call)
            }
            ThreadStart::Root | ThreadStart::Fork { .. } => false,
        })
    }

    /// Lists forks of this session that leave at the end of the turn.
    fn branches(&self, row: &TurnRow, out: &mut CliOutput) -> anyhow::Result<()> {
        for thread in &self.threads {
            let ThreadStart::Fork { of, at } = thread.start else { continue };
            let inside = (row.turn.first..=row.turn.last).contains(&at);
            if inside && self.events.get(&at).is_some_and(|logged| logged.id.thread == of) {
                out.line(format_args!(
                    "       {NOTE}⑂ fork {}{NOTE:#} after event {at} (show it: --thread {})",
                    thread.name,
                    thread.id.short()
                ))?;
            }
        }
        Ok(())
    }

    /// Shows messages that are not answered yet.
    fn pending(&self, out: &mut CliOutput) -> anyhow::Result<()> {
        let answered = self.turns.last().map_or(Seq::START, |row| row.turn.last);
        for (seq, _) in self.events.range(answered.next()..) {
            self.asked(*seq, text_format::width(), out)?;
        }
        Ok(())
    }

    fn turn_json(&self, number: usize, row: &TurnRow) -> Value {
        let mut value = turn_json(number, row);
        let facts = |ids: &[EventId]| -> Vec<Value> {
            let event = |id: &EventId| {
                let logged = self.events.get(&id.seq)?;
                Some(json!({
                    "id": id,
                    "time": logged.event.time.and_then(text_format::rfc3339),
                    "tokens": self.counts.get(&id.seq),
                    "fact": logged.event.fact,
                }))
            };
            ids.iter().filter_map(event).collect()
        };
        value["asked"] = facts(&row.turn.asked).into();
        value["answered"] = facts(&row.turn.answered).into();
        value["returned"] = facts(&row.turn.returned).into();
        value
    }
}

fn when(row: &TurnRow) -> String {
    row.turn.time.map(text_format::clock).unwrap_or_default()
}

/// Texts that a client wrote in a user message.
fn client_texts(parts: &[ContentPart]) -> impl Iterator<Item = (ClientTextKind, &str)> {
    let of_clients = ContentPart::texts(parts).flat_map(|text| {
        spans(text).into_iter().filter_map(move |span| Some((span.kind?, text.get(span.range)?.trim())))
    });
    of_clients.filter(|(kind, _)| *kind != ClientTextKind::UserWordsFrame)
}

/// Cuts a text to one line that fits, or, for an unlimited width, indents the lines of the whole text.
fn clip(said: &str, width: usize) -> String {
    if width == usize::MAX {
        let safe = |letter: &char| *letter == '\n' || *letter == '\t' || !letter.is_control();
        return said.chars().filter(safe).collect::<String>().replace('\n', "\n       ");
    }
    text_format::one_line(said, width.saturating_sub(10).max(20))
}

fn thread_json(thread: &ThreadRow) -> Value {
    let start = match &thread.start {
        ThreadStart::Root => json!({ "type": "root" }),
        ThreadStart::Fork { of, at } => json!({ "type": "fork", "of": of, "at": at }),
        ThreadStart::Spawned { by, call } => json!({ "type": "spawned", "by": by, "call": call }),
    };
    json!({ "id": thread.id, "name": thread.name, "head": thread.head.seq, "start": start })
}
