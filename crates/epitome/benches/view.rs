//! What a view costs: flat in the length of the log, and every byte counted once.
//!
//! Prints ratios of one run. Making the view and writing the request are measured apart: the first is what is flat by
//! design, the second costs what the request holds, whatever made it. `scripts/bench-view` sets both beside LangChain's
//! `trim_messages` on the same messages.
#![expect(clippy::cast_precision_loss, reason = "ratios are printed with two digits")]

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use epitome::{
    core::{
        ChainLink, ContentPart, Event, EventId, Fact, LoggedEvent, Seq, SessionId, ThreadId, TokenCounter,
        Tokens,
        budget::Budget,
        context::{Context, EventNaming},
        event::{ToolCall, ToolResult},
        fit::fit,
        meter::{Meter, TokenOverhead},
        pipeline::{Pipeline, ReducerState},
        projection::{EventLine, project},
        reducers::default_pipeline,
        tokens::O200kCounter,
    },
    store::{NewThread, StoreLocation, StoreOptions, ThreadStart, open_store},
    wire::{Format, render::RenderOptions},
};

const BUDGET: Tokens = Tokens(100_000);

/// How long the logs are that a steady state is measured at.
const SIZES: [u64; 3] = [1_000, 10_000, 100_000];

/// How often each steady state is measured.
const ROUNDS: usize = 151;

/// The same, where every turn also writes its request.
const WRITTEN_ROUNDS: usize = 15;

/// How often a whole history is made to fit.
const WHOLE_ROUNDS: usize = 5;

/// How many reductions one measurement goes through: what a turn costs is the mean of the turns between them.
const REDUCTIONS: usize = 2;

/// How many turns the warm side of a cold open is measured over.
const TURNS: u64 = 400;

/// Messages of one turn: a question or none, an answer with a call, its result.
const A_TURN: u64 = 2;

fn main() {
    O200kCounter.count("the vocabulary is loaded before anything is timed");
    if std::env::args().any(|argument| argument == "--langchain") {
        return for_the_script();
    }
    for (done, rounds) in
        [(Done::View, ROUNDS), (Done::Messages, WRITTEN_ROUNDS), (Done::Request, WRITTEN_ROUNDS)]
    {
        tell(done, &steady_states(done, rounds), rounds);
    }
    println!("bytes tokenised over bytes logged, 10K turns   {:.4}", tokenised_over_logged());
    let cold = cold_open();
    println!("cold open of 10K messages over one warm turn: to the view   {:.0}", cold.view / cold.warm_view);
    println!(
        "cold open of 10K messages over one warm turn: to the request written   {:.0}",
        cold.request / cold.warm_request
    );
}

/// How far a turn is taken.
#[derive(Clone, Copy)]
enum Done {
    /// The context has taken the turn, and fits.
    View,
    /// The messages to send are listed.
    Messages,
    /// The request is written, as JSON.
    Request,
}

impl Done {
    fn name(self) -> &'static str {
        match self {
            Self::View => "view: the turn is taken, and the context fits",
            Self::Messages => "messages: the same, and what to send is listed",
            Self::Request => "request: the same, and its JSON is written",
        }
    }

    /// Takes a context as far as this.
    fn finish(self, context: &Context) {
        match self {
            Self::View => {
                black_box(context.segments());
            }
            Self::Messages => {
                black_box(context.messages().collect::<Vec<_>>());
            }
            Self::Request => {
                let options = RenderOptions::of(Format::OpenaiChat);
                black_box(Format::OpenaiChat.render(context, &options).expect("facts can be written"));
            }
        }
    }
}

/// Microseconds at 10K messages, exact tokens, one number a line: a turn to what will be sent, to its messages, to its
/// request, a whole history to its messages with the counts the log keeps, and the same with every text counted anew.
fn for_the_script() {
    // The least of several, as it is for LangChain.
    let ten_thousand = |done| Spread::of(steady_states(done, WRITTEN_ROUNDS)[1].clone()).least;
    let seconds = [
        ten_thousand(Done::View),
        ten_thousand(Done::Messages),
        ten_thousand(Done::Request),
        whole_history(Counts::Kept),
        whole_history(Counts::Anew),
    ];
    for seconds in seconds {
        println!("{:.3}", seconds * 1e6);
    }
}

fn tell(done: Done, steady: &[Vec<f64>], rounds: usize) {
    println!("one turn at a steady state, budget {BUDGET} tokens, exact counts, {rounds} interleaved rounds");
    println!("{}", done.name());
    println!("  messages   ratio to 1K: median (quartiles)   least     one turn: median, least");
    for (messages, seconds) in SIZES.iter().zip(steady) {
        let ratios = seconds.iter().zip(&steady[0]).map(|(this, first)| this / first).collect();
        let (ratio, time, first) =
            (Spread::of(ratios), Spread::of(seconds.clone()), Spread::of(steady[0].clone()));
        println!(
            "  {messages:>8}   {:>20.2} ({:.2}-{:.2})   {:>5.2}   {:>10.1} µs, {:.1} µs",
            ratio.median,
            ratio.lower,
            ratio.upper,
            time.least / first.least,
            time.median * 1e6,
            time.least * 1e6,
        );
    }
}

/// How measurements are spread.
struct Spread {
    least: f64,
    lower: f64,
    median: f64,
    upper: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
        Self { least: at(0), lower: at(1), median: at(2), upper: at(3) }
    }
}

/// A turn as the log hands it over: events with the counts made when they were appended.
type Counted = Vec<(Arc<LoggedEvent>, Vec<Tokens>)>;

/// A context right after a reduction, and the turns that follow, through the last of the reductions to be measured.
struct Steady {
    context: Context,
    turns: Vec<Counted>,
}

/// Seconds to take one more turn as far as `done`, for each size, round by round. The sizes take turns and
/// the order changes, so that whatever else the machine does is in all of them; a ratio is of two measurements of one
/// round. Each round begins with a copy of the same context, so that a size stays what it is. Making up the events and
/// counting their texts happened when they were appended, and is not part of it.
fn steady_states(done: Done, rounds: usize) -> Vec<Vec<f64>> {
    let pipeline = default_pipeline();
    let states = SIZES.map(|messages| steady(messages, &pipeline));
    let mut seconds = vec![Vec::with_capacity(rounds); SIZES.len()];
    for round in 0..rounds {
        for place in 0..SIZES.len() {
            let size = (round + place) % SIZES.len();
            seconds[size].push(one_round(&states[size], &pipeline, done));
        }
    }
    seconds
}

fn one_round(state: &Steady, pipeline: &Pipeline, done: Done) -> f64 {
    let mut context = state.context.clone();
    let start = Instant::now();
    for turn in &state.turns {
        context = take_turn(context, turn, pipeline);
        done.finish(&context);
    }
    let elapsed = start.elapsed().as_secs_f64();
    drop(context);
    elapsed / state.turns.len() as f64
}

fn steady(messages: u64, pipeline: &Pipeline) -> Steady {
    let mut log = Log::default();
    let mut next = |context: Context| {
        let turn = log.turn(&O200kCounter);
        let before = context.tokens();
        let context = take_turn(context, &turn, pipeline);
        let reduced = context.tokens() < before;
        (context, turn, reduced, log.next)
    };
    let mut context = empty(Arc::new(O200kCounter));
    loop {
        let (grown, _, reduced, logged) = next(context);
        context = grown;
        if reduced && logged >= messages {
            break;
        }
    }
    let (mut turns, mut reductions) = (Vec::new(), 0);
    let mut ahead = context.clone();
    while reductions < REDUCTIONS {
        let (grown, turn, reduced, _) = next(ahead);
        ahead = grown;
        turns.push(turn);
        reductions += usize::from(reduced);
    }
    Steady { context, turns }
}

fn take_turn(mut context: Context, turn: &Counted, pipeline: &Pipeline) -> Context {
    for (event, pieces) in turn {
        let _ = context.extend(event, Some(pieces));
    }
    if context.tokens() <= BUDGET {
        return context;
    }
    fit(context, &budget(), pipeline, ReducerState::default())
        .expect("a turn is far smaller than the budget")
        .context
}

/// A reduction, once one is due, goes down to 60 %: the next turns need none.
fn budget() -> Budget {
    Budget::new(BUDGET).with_target(Tokens(BUDGET.0 * 3 / 5))
}

fn empty(counter: Arc<dyn TokenCounter>) -> Context {
    Context::new(Arc::new(Meter::new(counter, TokenOverhead::default())), EventNaming::Thread(thread()))
}

fn thread() -> ThreadId {
    ThreadId::derived(&["bench"])
}

/// Events as an agent makes them, without an end.
#[derive(Default)]
struct Log {
    next: u64,
}

impl Log {
    fn turn(&mut self, counter: &dyn TokenCounter) -> Counted {
        let facts = self.facts();
        let with_counts = |fact: Fact| {
            let mut pieces = Vec::new();
            fact.visit_text(&mut |text| pieces.push(counter.count(text)));
            (self.logged(fact), pieces)
        };
        facts.into_iter().map(with_counts).collect()
    }

    fn facts(&self) -> Vec<Fact> {
        let number = self.next;
        let mut facts = Vec::new();
        if number.is_multiple_of(40) {
            let text =
                format!("Please look at part {number} of the service and make its tests pass. {}", prose(40));
            facts.push(Fact::UserSaid { parts: vec![ContentPart::text(text)] });
        }
        let call = ToolCall::function(
            format!("call_{number}"),
            "read_file",
            format!(r#"{{"path":"src/part_{}.rs","offset":{number}}}"#, number % 977),
        );
        let parts = vec![
            ContentPart::text(format!("Reading the next part. {}", prose(20))),
            ContentPart::ToolCall(call),
        ];
        facts.push(Fact::AssistantSaid { answer: None, model: None, parts });
        let result = ToolResult {
            call: format!("call_{number}").into(),
            name: None,
            parts: vec![ContentPart::text(code(number))],
            error: false,
        };
        facts.push(Fact::ToolReturned { results: vec![result], parts: vec![] });
        facts
    }

    fn logged(&mut self, fact: Fact) -> Arc<LoggedEvent> {
        self.next += 1;
        let id = EventId { thread: thread(), seq: Seq(self.next) };
        Arc::new(LoggedEvent { id, event: Event::from_fact(fact, None), link: ChainLink::ROOT })
    }
}

fn prose(words: usize) -> String {
    let some = [
        "the", "reader", "keeps", "each", "span", "until", "its", "owner", "asks", "again", "and", "then",
        "drops", "it",
    ];
    some.iter().cycle().take(words).copied().collect::<Vec<_>>().join(" ")
}

fn code(number: u64) -> String {
    let line = |line: u64| {
        format!("{line:>5}  let part_{number}_{line} = reader.take({})?; // {}", line * 7, prose(6))
    };
    (0..24).map(line).collect::<Vec<_>>().join("\n")
}

/// A counter that knows how many bytes it was shown.
struct Watched(AtomicU64);

impl TokenCounter for Watched {
    fn name(&self) -> &'static str {
        O200kCounter.name()
    }

    fn count(&self, text: &str) -> Tokens {
        self.0.fetch_add(text.len() as u64, Ordering::Relaxed);
        O200kCounter.count(text)
    }
}

fn tokenised_over_logged() -> f64 {
    let watched = Arc::new(Watched(AtomicU64::new(0)));
    let counter: Arc<dyn TokenCounter> = Arc::clone(&watched) as _;
    let pipeline = default_pipeline();
    let mut context = empty(Arc::clone(&counter));
    let mut log = Log::default();
    let mut logged = 0;
    while log.next < 10_000 * A_TURN {
        let turn = log.turn(counter.as_ref());
        for (event, _) in &turn {
            event.event.fact.visit_text(&mut |text| logged += text.len() as u64);
        }
        context = take_turn(context, &turn, &pipeline);
    }
    watched.0.load(Ordering::Relaxed) as f64 / logged as f64
}

/// Where the counts of a history come from.
#[derive(Clone, Copy)]
enum Counts {
    /// They were made when its events were appended.
    Kept,
    /// They are made now.
    Anew,
}

/// Seconds from 10K messages, held in memory, to those to send: nothing is known of them from before but their counts, if
/// these are kept.
fn whole_history(counts: Counts) -> f64 {
    let mut log = Log::default();
    let mut line = EventLine::default();
    while log.next < 10_000 {
        for (event, pieces) in log.turn(&O200kCounter) {
            match counts {
                Counts::Kept => line.push(event, pieces),
                Counts::Anew => line.push_uncounted(event),
            }
        }
    }
    let pipeline = default_pipeline();
    let round = || {
        let meter = Arc::new(Meter::new(Arc::new(O200kCounter), TokenOverhead::default()));
        let start = Instant::now();
        let context = project(&line, meter, EventNaming::Thread(thread()));
        let fitted = fit(context, &budget(), &pipeline, ReducerState::default()).expect("it fits");
        Done::Messages.finish(&fitted.context);
        start.elapsed().as_secs_f64()
    };
    Spread::of((0..WHOLE_ROUNDS).map(|_| round()).collect()).median
}

/// Seconds from opening a store of 10K messages to its first view and request, and for one turn after that.
struct ColdOpen {
    view: f64,
    request: f64,
    warm_view: f64,
    warm_request: f64,
}

fn cold_open() -> ColdOpen {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log.db");
    let options = || StoreOptions { counter: Some(Arc::new(O200kCounter)), ..StoreOptions::default() };
    let store = open_store(&StoreLocation::named(&path).expect("a path"), options()).expect("a new store");
    let session = SessionId::derived(&["bench"]);
    store
        .open(&NewThread { id: thread(), session, name: "main".into(), key: None, start: ThreadStart::Root })
        .expect("a new thread");
    let mut log = Log::default();
    while log.next < 10_000 {
        let after = Seq(log.next);
        let events = log.turn(&O200kCounter).into_iter().map(|(logged, _)| logged.event.clone()).collect();
        store.append(thread(), after, events).expect("appended");
    }
    drop(store);

    let pipeline = default_pipeline();
    let meter = Arc::new(Meter::new(Arc::new(O200kCounter), TokenOverhead::default()));
    let start = Instant::now();
    let store = open_store(&StoreLocation::named(&path).expect("a path"), options()).expect("the store");
    let events = store.read(thread(), Seq(1), usize::MAX).expect("read");
    let pieces = store.text_counts(thread(), Seq(1), usize::MAX).expect("read");
    let mut line = EventLine::default();
    for (event, (_, pieces)) in events.into_iter().zip(pieces) {
        line.push(Arc::new(event), pieces);
    }
    let context = project(&line, meter, EventNaming::Thread(thread()));
    let context = fit(context, &budget(), &pipeline, ReducerState::default()).expect("it fits").context;
    Done::View.finish(&context);
    let view = start.elapsed().as_secs_f64();
    Done::Request.finish(&context);
    let request = start.elapsed().as_secs_f64();

    let turns: Vec<Counted> = (0..TURNS).map(|_| log.turn(&O200kCounter)).collect();
    let state = Steady { context, turns };
    let warm = |done| one_round(&state, &pipeline, done);
    ColdOpen { view, request, warm_view: warm(Done::View), warm_request: warm(Done::Request) }
}
