//! Spans and summarisers for the tests of this module.

use std::sync::{Arc, Mutex};

use epitome_core::{
    Event, EventId, Fact, Link, Logged, Part, Seq, ThreadId, Tokens,
    event::{ToolCall, ToolResult, Usage},
    meter::{Meter, Overhead},
    tokens::Estimate,
};

use super::{Draft, Finish, Summarize, SummarizeError, Summarizing, SummaryRequest};

pub(super) fn meter() -> Meter {
    Meter::new(Arc::new(Estimate), Overhead::default())
}

/// Events in a row, numbered from 1.
pub(super) fn span(facts: impl IntoIterator<Item = Fact>) -> Vec<Arc<Logged>> {
    let thread = ThreadId::derived(&["summarise"]);
    let logged = |(fact, seq): (Fact, u64)| {
        let id = EventId { thread, seq: Seq(seq) };
        Arc::new(Logged { id, event: Event::own(fact, None), link: Link::ROOT })
    };
    facts.into_iter().zip(1..).map(logged).collect()
}

pub(super) fn user(text: &str) -> Fact {
    Fact::UserSaid { parts: vec![Part::text(text)] }
}

pub(super) fn assistant(parts: Vec<Part>) -> Fact {
    Fact::AssistantSaid { answer: None, model: None, parts }
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall::function(id, name, arguments))
}

pub(super) fn result(id: &str, text: &str, error: bool) -> Fact {
    let result = ToolResult { call: id.into(), name: None, parts: vec![Part::text(text)], error };
    Fact::ToolReturned { results: vec![result], parts: Vec::new() }
}

/// A summariser that rejects questions beyond its window and remembers its questions.
#[derive(Debug)]
pub(super) struct Fake {
    /// Window that it reports.
    pub(super) stated: Tokens,
    /// Window that it enforces.
    pub(super) real: Tokens,
    /// Its answers in order; the last one is repeated.
    pub(super) answers: Vec<(&'static str, Finish)>,
    pub(super) asked: Mutex<Vec<SummaryRequest>>,
}

impl Fake {
    pub(super) fn new(window: u64) -> Self {
        let answers = vec![("## Current Task\n- notes", Finish::Complete)];
        Self { stated: Tokens(window), real: Tokens(window), answers, asked: Mutex::default() }
    }

    pub(super) fn asked(&self) -> Vec<SummaryRequest> {
        self.asked.lock().unwrap().clone()
    }
}

impl Summarize for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn window(&self) -> Tokens {
        self.stated
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> Summarizing<'a> {
        Box::pin(async move {
            let number = {
                let mut asked = self.asked.lock().unwrap();
                asked.push(request.clone());
                asked.len() - 1
            };
            let texts = [Some(&request.system), Some(&request.user), request.warm.as_ref()];
            let input: Tokens = texts.into_iter().flatten().map(|text| meter().text(text)).sum();
            if input + request.limit > self.real {
                return Err(SummarizeError::Overflow { host: "fake".into(), said: "too long".into() });
            }
            let (text, finish) = self.answers[number.min(self.answers.len() - 1)];
            let usage = Some(Usage { uncached: input, output: Tokens(10), ..Usage::default() });
            Ok(Draft { text: text.to_owned(), finish, usage, model: Some("fake-1".to_owned()) })
        })
    }
}
