//! Logs and contexts as people write them: the notation of `specs/*.md` and of the unit tests.
//!
//! A log is a line an event, with what belongs to an event indented below it; `specs/README.md` describes it. A context
//! is printed as a line a segment. A token is a word, and nothing is wrapped, so that every number can be checked by eye.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use epitome_core::{
    context::{Context, EventNaming, Segment, SegmentBody},
    event::{
        CallForm, Compaction, CompactionTrigger, ContentPart, Event, Fact, InstructionKind, LoggedEvent, Pin,
        ReasoningSeal, Summary, ToolCall, ToolResult, Usage,
    },
    hash_chain::{ChainLink, Digest},
    id::{CallId, EventId, Seq, ThreadId},
    media::{Media, MediaLocation},
    meter::{Meter, TokenOverhead},
    projection::{EventLine, project},
    tokens::{TokenCounter, Tokens},
};

/// Counts words.
pub(crate) struct Words;

impl TokenCounter for Words {
    fn name(&self) -> &'static str {
        "words"
    }

    fn count(&self, text: &str) -> Tokens {
        Tokens(text.split_whitespace().count() as u64)
    }
}

/// Counts words and wraps nothing; an image costs 50.
pub(crate) fn meter() -> Arc<Meter> {
    let none = Tokens(0);
    let overhead = TokenOverhead {
        request: none,
        message: none,
        summary: none,
        call: none,
        tool: none,
        image: Tokens(50),
        ..TokenOverhead::default()
    };
    Arc::new(Meter::new(Arc::new(Words), overhead))
}

/// The context that shows all of a log.
pub(crate) fn context(log: &str) -> Context {
    project(&EventLine::new(read(log)), meter(), EventNaming::Messages)
}

/// Reads a log.
pub(crate) fn read(log: &str) -> Vec<Arc<LoggedEvent>> {
    read_named(log).0
}

/// Reads a log and what its names stand for: an event, a call's event and the one with its result, a pin and what it
/// pins.
pub(crate) fn read_named(log: &str) -> (Vec<Arc<LoggedEvent>>, BTreeMap<String, Vec<Seq>>) {
    let mut reader = Reader::default();
    for line in log.lines().filter(|line| !line.trim().is_empty()) {
        match line.strip_prefix("  ") {
            Some(detail) => match detail.trim_start().strip_prefix('|') {
                Some(more) => reader.go_on(more.strip_prefix(' ').unwrap_or(more)),
                None => reader.detail(detail.trim()),
            },
            None => reader.event(line.trim()),
        }
    }
    reader.finish()
}

/// Puts an event into its place in a test's log.
pub(crate) fn logged(seq: u64, fact: Fact) -> Arc<LoggedEvent> {
    let id = EventId { thread: ThreadId::derived(&["test"]), seq: Seq(seq) };
    Arc::new(LoggedEvent { id, event: Event::native("test", "{}", fact), link: ChainLink::ROOT })
}

#[derive(Default)]
struct Reader {
    facts: Vec<Fact>,
    results: Vec<ToolResult>,
    beside: Vec<ContentPart>,
    calls: usize,
    /// Whether what came last was a call, to which the next result belongs.
    called: Option<CallId>,
    names: BTreeMap<String, Vec<Seq>>,
    last: Last,
}

/// What was written last, which a line that begins with `|` goes on with.
#[derive(Default)]
enum Last {
    #[default]
    Said,
    Result,
    Beside,
}

impl Reader {
    fn event(&mut self, line: &str) {
        self.flush();
        let (head, text) = line.split_once(':').unwrap_or((line, ""));
        let text = text.trim();
        let mut words = head.split_whitespace();
        let (kind, argument) = (words.next().unwrap_or_default(), words.next());
        let first = self.facts.len() as u64 + 1;
        let (kind, name) = kind.split_once('@').map_or((kind, None), |(kind, name)| (kind, Some(name)));
        let parts = if text.is_empty() { vec![] } else { vec![part(text)] };
        let number = |word: Option<&str>| match word.and_then(|word| word.strip_prefix('@')) {
            Some(name) => *self.names.get(name).and_then(|places| places.first()).expect("a name from above"),
            None => Seq(word.and_then(|word| word.parse().ok()).expect("a number")),
        };
        let instructed = |what, parts| Fact::Instructed { what, parts };
        let fact = match kind.split_once('#').map_or(kind, |(kind, _)| kind) {
            "settings" => instructed(InstructionKind::Settings, parts),
            "system" => instructed(InstructionKind::System, parts),
            "project" => instructed(InstructionKind::Project, parts),
            "instruct" => instructed(InstructionKind::Message, parts),
            "tools" => {
                let tool =
                    |name: &str| ContentPart::Opaque { name: name.to_owned(), json: format!("\"{name}\"") };
                instructed(InstructionKind::Tools, text.split(", ").map(tool).collect())
            }
            "user" => Fact::UserSaid { parts },
            "assistant" => {
                let answer = kind.split_once('#').map(|(_, id)| id.into());
                Fact::AssistantSaid { answer, model: None, parts }
            }
            "result" => {
                let call = argument.expect("a call's id").into();
                Fact::ToolReturned {
                    results: vec![ToolResult { call, name: None, parts, error: false }],
                    parts: vec![],
                }
            }
            "compacted" => {
                let words: Vec<&str> = head.split_whitespace().collect();
                let after = |name: &str| {
                    words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1).copied())
                };
                Fact::Compacted(Compaction {
                    summary: Summary::Text(expand(text)),
                    through: number(after("through")),
                    first_kept: after("keep").map(|word| number(Some(word))),
                    tokens_before: None,
                    tokens_after: None,
                    trigger: CompactionTrigger::Manual,
                })
            }
            "revert" => Fact::CompactionReverted { compaction: number(argument) },
            "restore" => Fact::CompactionRestored { compaction: number(argument) },
            "unpin" if argument.is_none() => Fact::Unpinned { pin: Pin::Text(expand(text)) },
            "unpin" => Fact::Unpinned { pin: Pin::Event(number(argument)) },
            "pin" if argument.is_none() => Fact::Pinned { pin: Pin::Text(expand(text)) },
            "pin" => Fact::Pinned { pin: Pin::Event(number(argument)) },
            "usage" => Fact::UsageReported { answer: None, model: None, usage: Usage::default() },
            "inject" => Fact::Injected { hook: argument.unwrap_or_default().to_owned(), beside: None, parts },
            "carried" => Fact::Carried { kind: text.to_owned() },
            other => panic!("no event is written `{other}`"),
        };
        match &fact {
            Fact::Pinned { pin: Pin::Event(pinned) } => self.name(name, &[first, pinned.0]),
            _ => self.name(name, &[first]),
        }
        self.facts.push(fact);
        self.last = Last::Said;
    }

    /// Notes which events a name stands for, as in `user@ask`.
    fn name(&mut self, name: Option<&str>, events: &[u64]) {
        if let Some(name) = name {
            let events = events.iter().copied().map(Seq).collect();
            assert!(self.names.insert(name.to_owned(), events).is_none(), "two things are named `{name}`");
        }
    }

    /// Adds a line to what was written last.
    fn go_on(&mut self, line: &str) {
        let part = match self.last {
            Last::Result => self.results.last_mut().and_then(|result| result.parts.last_mut()),
            Last::Beside => self.beside.last_mut(),
            Last::Said => self.saying().last_mut(),
        };
        match part.expect("a line goes on with something") {
            ContentPart::Text { text } | ContentPart::Reasoning { text, .. } => {
                text.push('\n');
                text.push_str(line);
            }
            ContentPart::ToolCall(call) => {
                call.arguments.push('\n');
                call.arguments.push_str(line);
            }
            ContentPart::Refusal { .. } | ContentPart::Media(_) | ContentPart::Opaque { .. } => {
                panic!("only text goes on")
            }
        }
    }

    fn detail(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "->" | "!>" => self.result(part(rest), word == "!>"),
            "beside:" => {
                self.beside.push(part(rest));
                self.last = Last::Beside;
            }
            "+" => self.say(part(rest)),
            "thinking:" => self.say(ContentPart::Reasoning { text: expand(rest), seal: None }),
            "sealed:" => {
                let seal =
                    Some(ReasoningSeal::Encrypted("x".repeat(rest.parse().expect("a number of bytes"))));
                self.say(ContentPart::Reasoning { text: String::new(), seal });
            }
            call if call.starts_with("call") => self.call(call, rest, CallForm::Function),
            call if call.starts_with("custom") => self.call(call, rest, CallForm::Custom),
            other => panic!("no detail is written `{other}`"),
        }
    }

    fn say(&mut self, part: ContentPart) {
        self.saying().push(part);
        self.last = Last::Said;
    }

    fn saying(&mut self) -> &mut Vec<ContentPart> {
        match self.facts.last_mut() {
            Some(
                Fact::UserSaid { parts }
                | Fact::AssistantSaid { parts, .. }
                | Fact::Instructed { parts, .. }
                | Fact::Injected { parts, .. },
            ) => parts,
            _ => panic!("nobody is speaking here"),
        }
    }

    fn call(&mut self, word: &str, rest: &str, form: CallForm) {
        self.calls += 1;
        let answer = self.facts.len() as u64;
        let (word, name) = word.split_once('@').map_or((word, None), |(word, name)| (word, Some(name)));
        self.name(name, &[answer, answer + 1]);
        let id = word.split_once('#').map_or_else(|| format!("call-{}", self.calls), |(_, id)| id.to_owned());
        let (name, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
        self.called = Some(CallId(id.clone()));
        let call = ToolCall { form, ..ToolCall::function(id, name, expand(arguments)) };
        self.say(ContentPart::ToolCall(call));
    }

    fn result(&mut self, part: ContentPart, error: bool) {
        self.last = Last::Result;
        match self.called.take() {
            Some(call) => self.results.push(ToolResult { call, name: None, parts: vec![part], error }),
            None => self.results.last_mut().expect("a result follows its call").parts.push(part),
        }
    }

    /// The results written below an answer are the message that follows it.
    fn flush(&mut self) {
        self.called = None;
        let (results, parts) = (std::mem::take(&mut self.results), std::mem::take(&mut self.beside));
        if !results.is_empty() || !parts.is_empty() {
            self.facts.push(Fact::ToolReturned { results, parts });
        }
    }

    fn finish(mut self) -> (Vec<Arc<LoggedEvent>>, BTreeMap<String, Vec<Seq>>) {
        self.flush();
        ((1..).zip(self.facts).map(|(seq, fact)| logged(seq, fact)).collect(), self.names)
    }
}

/// A text; `image 640x480` and `document 900 bytes` are media.
fn part(text: &str) -> ContentPart {
    let mut words = text.split_whitespace();
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some("image"), Some(size), None, None) => {
            let (width, height) = size.split_once('x').expect("WIDTHxHEIGHT");
            let pixels = |digits: &str| digits.parse().expect("a number of pixels");
            let dimensions = Some((pixels(width), pixels(height)));
            ContentPart::Media(Media { dimensions, ..Media::inline("image/png", b"pixels") })
        }
        (Some("document"), Some(bytes), Some("bytes"), None) => {
            let size = bytes.parse().expect("a number of bytes");
            let place = MediaLocation::Inline { hash: Digest::of(b"document"), size };
            ContentPart::Media(Media { mime: "application/pdf".into(), place, dimensions: None })
        }
        _ => ContentPart::text(expand(text)),
    }
}

/// `3 lines of "x"` is `x 1`, `x 2`, `x 3` in three lines; `3 words of "x"` is `x x x`.
fn expand(text: &str) -> String {
    let mut words = text.splitn(4, ' ');
    let (count, unit, of, what) = (words.next(), words.next(), words.next(), words.next());
    let (Some(count), Some(unit), Some("of"), Some(what)) = (count, unit, of, what) else {
        return text.to_owned();
    };
    let (Ok(count), Some(what)) =
        (count.parse::<usize>(), what.strip_prefix('"').and_then(|what| what.strip_suffix('"')))
    else {
        return text.to_owned();
    };
    match unit {
        "lines" => (1..=count).fold(String::new(), |mut all, number| {
            let _ = writeln!(all, "{what} {number}");
            all
        }),
        "words" => vec![what; count].join(" "),
        _ => text.to_owned(),
    }
}

/// Prints a context: a line a segment, then what is shown nowhere, then the total.
pub(crate) fn show(context: &Context) -> String {
    let mut out = String::new();
    for segment in context.segments() {
        let by = segment.last_author().map_or(String::new(), |by| format!(" by {by}"));
        let fidelity = format!("{:?}", segment.fidelity()).to_lowercase();
        let (kind, events, tokens) = (kind(segment), segment.stands_for().to_string(), segment.tokens());
        let _ =
            writeln!(out, "{kind:<11} {events:<7} {fidelity:<9} {tokens:>5}{by}  {}", words(segment).trim());
    }
    for elision in context.elided() {
        let _ = writeln!(
            out,
            "left out    {:<7} by {}, {} tokens",
            elision.events.to_string(),
            elision.by,
            elision.tokens
        );
    }
    let _ = writeln!(out, "total {}", context.tokens());
    out
}

fn kind(segment: &Segment) -> &'static str {
    match segment.body() {
        SegmentBody::Prefix(_) => "prefix",
        SegmentBody::Instruction(_) => "instruction",
        SegmentBody::User { .. } if segment.is_user() => "user",
        SegmentBody::User { .. } => "beside",
        SegmentBody::Answer { event, part } => match event.event.fact.parts().get(*part) {
            Some(ContentPart::Reasoning { .. }) => "thinking",
            _ => "answer",
        },
        SegmentBody::Exchange { .. } => "exchange",
        SegmentBody::Carried(_) => "carried",
        SegmentBody::Summary(_) => "summary",
        SegmentBody::Note(_) => "note",
    }
}

/// What a segment says, short enough for a line.
fn words(segment: &Segment) -> String {
    let shown = || segment.shown().map_or("(no result)".to_owned(), said);
    match segment.body() {
        SegmentBody::Prefix(event) | SegmentBody::Instruction(event) => said(event.event.fact.parts()),
        SegmentBody::User { .. } => shown(),
        SegmentBody::Answer { event, part } => said(&event.event.fact.parts()[*part..=*part]),
        SegmentBody::Exchange { .. } => {
            let call = segment.call().expect("an exchange has a call");
            format!("{} {} -> {}", call.name, short(&call.arguments), shown())
        }
        SegmentBody::Carried(event) => event.event.fact.kind().to_owned(),
        SegmentBody::Summary(event) => short(&event.event.fact.text()),
        SegmentBody::Note(note) => note.text.replace('\n', " / "),
    }
}

fn said(parts: &[ContentPart]) -> String {
    let one = |part: &ContentPart| match part {
        ContentPart::Text { text }
        | ContentPart::Refusal { text }
        | ContentPart::Reasoning { text, seal: None } => short(text),
        ContentPart::Reasoning { .. } => "(sealed)".to_owned(),
        ContentPart::ToolCall(call) => format!("{} {}", call.name, call.arguments),
        ContentPart::Media(media) => format!("<{}>", media.mime),
        ContentPart::Opaque { name, .. } => format!("<{name}>"),
    };
    parts.iter().map(one).collect::<Vec<_>>().join(" + ")
}

/// One line: breaks become ` / `, and of a long text only the ends are shown.
fn short(text: &str) -> String {
    let line = text.trim_end().replace('\n', " / ");
    let letters: Vec<char> = line.chars().collect();
    if letters.len() <= 160 {
        return line;
    }
    let head: String = letters[..100].iter().collect();
    let tail: String = letters[letters.len() - 40..].iter().collect();
    format!("{head} …… {tail}")
}
