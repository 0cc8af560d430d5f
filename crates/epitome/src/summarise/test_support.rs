//! Spans and summarisers for the tests of this module.

use std::sync::{Arc, Mutex};

use epitome_core::{
    ChainLink, ContentPart, Event, EventId, Fact, LoggedEvent, Seq, ThreadId, Tokens,
    event::{ToolCall, ToolResult, Usage},
    meter::{Meter, TokenOverhead},
    tokens::EstimateCounter,
};

use super::{DraftFinish, ModelDraft, Summarize, SummarizeError, SummaryFuture, SummaryRequest};

pub(super) fn meter() -> Meter {
    Meter::new(Arc::new(EstimateCounter), TokenOverhead::default())
}

/// Events in a row, numbered from 1.
pub(super) fn span(facts: impl IntoIterator<Item = Fact>) -> Vec<Arc<LoggedEvent>> {
    let thread = ThreadId::derived(&["summarise"]);
    let logged = |(fact, seq): (Fact, u64)| {
        let id = EventId { thread, seq: Seq(seq) };
        Arc::new(LoggedEvent { id, event: Event::from_fact(fact, None), link: ChainLink::ROOT })
    };
    facts.into_iter().zip(1..).map(logged).collect()
}

pub(super) fn user(text: &str) -> Fact {
    Fact::UserSaid { parts: vec![ContentPart::text(text)] }
}

pub(super) fn assistant(parts: Vec<ContentPart>) -> Fact {
    Fact::AssistantSaid { answer: None, model: None, parts }
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> ContentPart {
    ContentPart::ToolCall(ToolCall::function(id, name, arguments))
}

pub(super) fn result(id: &str, text: &str, error: bool) -> Fact {
    let result = ToolResult { call: id.into(), name: None, parts: vec![ContentPart::text(text)], error };
    Fact::ToolReturned { results: vec![result], parts: Vec::new() }
}

/// A summariser that rejects questions beyond its window and remembers its questions.
#[derive(Debug)]
pub(super) struct FakeSummariser {
    /// Window that it reports.
    pub(super) stated: Tokens,
    /// Window that it enforces.
    pub(super) real: Tokens,
    /// Its answers in order; the last one is repeated.
    pub(super) answers: Vec<(&'static str, DraftFinish)>,
    pub(super) asked: Mutex<Vec<SummaryRequest>>,
}

impl FakeSummariser {
    pub(super) fn new(window: u64) -> Self {
        let answers = vec![("## Current Task\n- notes", DraftFinish::Complete)];
        Self { stated: Tokens(window), real: Tokens(window), answers, asked: Mutex::default() }
    }

    pub(super) fn asked(&self) -> Vec<SummaryRequest> {
        self.asked.lock().unwrap().clone()
    }
}

impl Summarize for FakeSummariser {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn window(&self) -> Tokens {
        self.stated
    }

    fn summarize<'a>(&'a self, request: &'a SummaryRequest) -> SummaryFuture<'a> {
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
            Ok(ModelDraft { text: text.to_owned(), finish, usage, model: Some("fake-1".to_owned()) })
        })
    }
}
