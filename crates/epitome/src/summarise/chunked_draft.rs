//! Drafting of a span that is longer than the summariser's window, part by part.
//!
//! Parts end between turns, and only a turn that is longer than a part is split between its events. Each
//! question carries the notes so far, and its answer replaces them, so the last answer covers the whole span
//! and stays within one limit. If the window turns out to be smaller than stated, the parts are made smaller
//! and drafted again.

use std::sync::Arc;

use epitome_core::{
    LoggedEvent, Tokens,
    draft_gate::{NumberedSentences, offered_sentences, with_sentence_texts},
    event::Usage,
    meter::Meter,
    summary::StructuredSummary,
};

use super::{
    DraftFinish, ModelDraft, Summarize, SummarizeError, SummaryInstructions, SummaryRequest,
    prompt::{self, QUESTION_OVERHEAD, SYSTEM_PROMPT, SpanPart},
    shorten::{FavouredEnd, cut},
    span_entries::{EntryLimits, SpanEntry, entries},
};

/// A span to be summarised, with everything that the question needs.
#[derive(Clone, Debug)]
pub struct DraftTask<'a> {
    /// The events.
    pub span: &'a [Arc<LoggedEvent>],
    /// Summary of everything before the span.
    pub previous: Option<&'a StructuredSummary>,
    /// Instructions from the user and from plugins.
    pub instructions: &'a SummaryInstructions,
    /// Length of the draft.
    pub limit: Tokens,
    /// Meter for the question.
    pub meter: &'a Meter,
    /// The session's own request with the instruction appended, to be asked in place of the span.
    pub warm: Option<String>,
}

/// Result of drafting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftingResult {
    /// The last answer.
    pub text: String,
    /// Ending of the last answer.
    pub finish: DraftFinish,
    /// Usage of all questions together, as far as it was reported.
    pub usage: Option<Usage>,
    /// Number of questions.
    pub asks: u64,
    /// Model that wrote the draft, as its server names it.
    pub model: Option<String>,
}

/// Most parts, as long as the span can be shortened.
const PARTS: usize = 12;

/// Most times that the shares of a span are halved to keep to that.
const HALVINGS: u32 = 6;

/// Most times that a smaller window is tried when the stated one is too large.
const WINDOWS: u32 = 3;

/// Smallest room for a part that is worth a question.
const MIN_PART_TOKENS: Tokens = Tokens(256);

/// Drafts a summary, with as many questions as the summariser's window needs.
///
/// An unusable answer (cut off, a refusal, a tool call, an empty one) ends the drafting at once: the gate
/// says why.
pub async fn draft(
    summariser: &dyn Summarize,
    task: &DraftTask<'_>,
) -> Result<DraftingResult, SummarizeError> {
    let mut tally = DraftUsage::default();
    if let Some(warm) = &task.warm {
        let request = SummaryRequest {
            system: String::new(),
            user: String::new(),
            limit: task.limit,
            warm: Some(warm.clone()),
        };
        match tally.ask(summariser, &request).await {
            // With the instruction the request no longer fits; the span by itself does.
            Err(SummarizeError::Overflow { .. }) => {}
            answer => return answer.map(|draft| tally.close(draft)),
        }
    }
    let mut window = summariser.window();
    let mut left = WINDOWS;
    loop {
        let plan = DraftPlan::make(summariser.name(), window, task)?;
        match plan.run(summariser, task, &mut tally).await {
            Err(SummarizeError::Overflow { .. }) if left > 0 => {
                left -= 1;
                window = Tokens(window.0 / 3 * 2);
                tracing::debug!(name = summariser.name(), %window, "the summariser's window is smaller than stated");
            }
            ended => return ended.map(|draft| tally.close(draft)),
        }
    }
}

/// Questions for a span.
#[derive(Debug)]
struct DraftPlan {
    runtime: String,
    output: Tokens,
    /// Sentences that the numbers in the notes stand for.
    sentences: NumberedSentences,
    parts: Vec<Vec<SpanEntry>>,
}

impl DraftPlan {
    fn make(name: &str, window: Tokens, task: &DraftTask<'_>) -> Result<Self, SummarizeError> {
        let DraftTask { span, limit, meter, .. } = *task;
        let runtime = prompt::runtime_prompt(task.previous, task.instructions, limit);
        // Twice the draft leaves room for a model that reasons, if the window has that room.
        let output = Tokens((window.0 / 4).min(limit.0.saturating_mul(2))).max(limit);
        let prompt =
            meter.text(SYSTEM_PROMPT) + meter.text(&runtime) + meter.overhead().request + QUESTION_OVERHEAD;
        // The model's vocabulary may differ from the one that is counted with here.
        let margin = Tokens(window.0 / 12);
        let alone = window.less(output).less(prompt).less(margin);
        let carrying = alone.less(limit);
        let too_small = || SummarizeError::Window { name: name.to_owned(), window, limit };
        if alone < MIN_PART_TOKENS {
            return Err(too_small());
        }
        let sentences = offered_sentences(span);
        let told = |halved, of: Tokens| {
            entries(span, &sentences, EntryLimits { entry: Tokens(of.0 / 3), halved }, meter)
        };
        let whole = told(0, alone);
        if whole.iter().map(|entry| entry.tokens).sum::<Tokens>() <= alone {
            return Ok(Self { runtime, output, sentences, parts: vec![whole] });
        }
        if carrying < MIN_PART_TOKENS {
            return Err(too_small());
        }
        let mut parts = packed(told(0, carrying), carrying);
        for halved in 1..=HALVINGS {
            if parts.len() <= PARTS {
                break;
            }
            parts = packed(told(halved, carrying), carrying);
        }
        Ok(Self { runtime, output, sentences, parts })
    }

    async fn run(
        self,
        summariser: &dyn Summarize,
        task: &DraftTask<'_>,
        tally: &mut DraftUsage,
    ) -> Result<ModelDraft, SummarizeError> {
        let mut so_far: Option<ModelDraft> = None;
        let of = self.parts.len();
        for (index, part) in self.parts.iter().enumerate() {
            // The numbers of earlier parts mean nothing to a model that only sees the next part.
            let notes = so_far.as_ref().map(|draft| with_sentence_texts(&draft.text, &self.sentences));
            let notes = notes.as_ref().map(|notes| cut(notes, task.limit, FavouredEnd::Head, task.meter));
            let part_of = SpanPart { number: index + 1, of, so_far: notes.as_deref() };
            let request = SummaryRequest {
                system: SYSTEM_PROMPT.to_owned(),
                user: prompt::question(part, part_of, &self.runtime),
                limit: self.output,
                warm: None,
            };
            let draft = tally.ask(summariser, &request).await?;
            let usable = matches!(draft.finish, DraftFinish::Complete | DraftFinish::Unknown);
            if !usable || draft.text.trim().is_empty() {
                return Ok(draft);
            }
            so_far = Some(draft);
        }
        // A plan has at least one part, and every part that succeeds leaves a draft.
        Ok(so_far.expect("the last part left a draft"))
    }
}

/// Packs entries into parts of at most `room`, split between turns if possible.
fn packed(entries: Vec<SpanEntry>, room: Tokens) -> Vec<Vec<SpanEntry>> {
    let mut parts: Vec<Vec<SpanEntry>> = vec![Vec::new()];
    let mut used = Tokens(0);
    let mut entries = entries.into_iter().peekable();
    while let Some(first) = entries.next() {
        let turn = first.turn;
        let mut group = vec![first];
        while let Some(next) = entries.next_if(|entry| entry.turn == turn) {
            group.push(next);
        }
        let tokens: Tokens = group.iter().map(|entry| entry.tokens).sum();
        if tokens <= room && used + tokens > room {
            parts.push(Vec::new());
            used = Tokens(0);
        }
        for entry in group {
            if used + entry.tokens > room && used > Tokens(0) {
                parts.push(Vec::new());
                used = Tokens(0);
            }
            used += entry.tokens;
            parts.last_mut().expect("there is one from the start").push(entry);
        }
    }
    parts
}

/// Questions and usage so far.
#[derive(Debug, Default)]
struct DraftUsage {
    asks: u64,
    usage: Option<Usage>,
}

impl DraftUsage {
    async fn ask(
        &mut self,
        summariser: &dyn Summarize,
        request: &SummaryRequest,
    ) -> Result<ModelDraft, SummarizeError> {
        self.asks += 1;
        let draft = summariser.summarize(request).await?;
        if let Some(usage) = draft.usage {
            let sum = self.usage.get_or_insert_default();
            sum.uncached += usage.uncached;
            sum.cache_read += usage.cache_read;
            sum.cache_write += usage.cache_write;
            sum.cache_write_hour += usage.cache_write_hour;
            sum.output += usage.output;
        }
        Ok(draft)
    }

    fn close(self, draft: ModelDraft) -> DraftingResult {
        let ModelDraft { text, finish, model, usage: _ } = draft;
        DraftingResult { text, finish, usage: self.usage, asks: self.asks, model }
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::{
        Seq,
        seq_set::SeqSet,
        summary::{SummaryItem, SummarySection},
    };

    use super::*;
    use crate::summarise::test_support::{FakeSummariser, assistant, call, meter, result, span, user};

    const LIMIT: Tokens = Tokens(600);

    /// Turns of a call and its result each, with unique words.
    fn work(turns: usize, words: usize) -> Vec<Arc<LoggedEvent>> {
        let facts = (0..turns).flat_map(|turn| {
            let id = format!("c{turn}");
            let output = format!("marker-{turn} {}", "several words of output ".repeat(words));
            [
                user(&format!("ask-{turn}")),
                assistant(vec![call(&id, "read", "{}")]),
                result(&id, &output, false),
            ]
        });
        span(facts)
    }

    async fn drafted(
        fake: &FakeSummariser,
        span: &[Arc<LoggedEvent>],
        warm: Option<&str>,
    ) -> Result<DraftingResult, SummarizeError> {
        let (instructions, meter) = (SummaryInstructions::default(), meter());
        let task = DraftTask {
            span,
            previous: None,
            instructions: &instructions,
            limit: LIMIT,
            meter: &meter,
            warm: warm.map(str::to_owned),
        };
        draft(fake, &task).await
    }

    #[tokio::test]
    async fn a_span_that_fits_is_one_question() {
        let fake = FakeSummariser::new(100_000);
        let drafted = drafted(&fake, &work(5, 20), None).await.unwrap();
        assert_eq!((drafted.asks, drafted.finish), (1, DraftFinish::Complete));
        assert_eq!(drafted.model.as_deref(), Some("fake-1"));
        let asked = &fake.asked()[0];
        assert!((0..5).all(|turn| asked.user.contains(&format!("marker-{turn} "))));
        assert!(!asked.user.contains("(part ") && !asked.user.contains("notes begin"));
        assert_eq!(asked.system, SYSTEM_PROMPT);
    }

    #[tokio::test]
    async fn a_longer_span_is_asked_about_in_parts_that_fit_and_carry_the_notes() {
        let fake = FakeSummariser::new(8_000);
        let drafted = drafted(&fake, &work(60, 60), None).await.unwrap();
        let asked = fake.asked();
        assert!((3..=PARTS).contains(&asked.len()), "{}", asked.len());
        assert_eq!(drafted.asks, asked.len() as u64);
        let used: Tokens = asked.iter().map(|ask| meter().text(&ask.system) + meter().text(&ask.user)).sum();
        assert_eq!(drafted.usage.unwrap().uncached, used, "the usage of all questions is added up");
        for (index, ask) in asked.iter().enumerate() {
            assert!(ask.user.contains(&format!("(part {} of {})", index + 1, asked.len())));
            assert_eq!(ask.user.contains("## Current Task\n- notes\n==="), index > 0);
        }
        for turn in 0..60 {
            let marker = format!("marker-{turn} ");
            let ask = format!("ask-{turn}\n");
            let told: Vec<_> = asked.iter().filter(|asked| asked.user.contains(&marker)).collect();
            assert_eq!(told.len(), 1, "turn {turn} is told once");
            assert!(told[0].user.contains(&ask), "a turn is not split");
        }
    }

    #[tokio::test]
    async fn notes_so_far_hold_the_words_that_their_numbers_stand_for() {
        let answers = vec![("## Key Decisions\n- 2.1\n- 9999.1", DraftFinish::Complete)];
        let fake = FakeSummariser { answers, ..FakeSummariser::new(8_000) };
        let output = "a line of output that says little\n".repeat(60);
        let facts = (0..60).flat_map(|turn| {
            let (id, told) = (format!("call-{turn}"), format!("Module number {turn} is built. Let me look."));
            let said = assistant(vec![epitome_core::ContentPart::text(told), call(&id, "read", "{}")]);
            [user(&format!("ask-{turn}")), said, result(&id, &output, false)]
        });
        drafted(&fake, &span(facts), None).await.unwrap();
        let asked = fake.asked();
        assert!(asked.len() > 1);
        let notes = "notes begin ===\n## Key Decisions\n- 2.1 Module number 0 is built.\n===";
        assert!(asked[1..].iter().all(|ask| ask.user.contains(notes)), "{}", asked[1].user);
        let listing = |turn: u64| {
            let line = format!("\n{}.1 Module number {turn} is built.\n", 3 * turn + 2);
            asked.iter().filter(|ask| ask.user.contains(&line)).count()
        };
        assert!((0..60).all(|turn| listing(turn) == 1), "a part lists its own sentences");
    }

    #[tokio::test]
    async fn one_event_larger_than_the_window_is_cut() {
        let fake = FakeSummariser::new(4_000);
        let huge = format!("first words {} last words", "filler and more ".repeat(200_000));
        let events = span([user(&huge), assistant(vec![call("c", "run", &huge)]), result("c", &huge, true)]);
        let drafted = drafted(&fake, &events, None).await.unwrap();
        assert!(drafted.asks <= 3, "{}", drafted.asks);
        let all: String = fake.asked().iter().map(|asked| asked.user.as_str()).collect();
        assert!(
            all.contains("first words") && all.contains("last words") && all.contains("characters left out")
        );
    }

    #[tokio::test]
    async fn a_span_of_very_many_parts_is_told_in_fewer_words() {
        let fake = FakeSummariser::new(6_000);
        let drafted = drafted(&fake, &work(300, 200), None).await.unwrap();
        let all: String = fake.asked().iter().map(|asked| asked.user.as_str()).collect();
        assert!((0..300).all(|turn| all.contains(&format!("ask-{turn}\n"))), "every turn is told of");
        assert!(drafted.asks <= 24, "{}", drafted.asks);
    }

    #[tokio::test]
    async fn a_window_smaller_than_stated_is_found_out() {
        let fake = FakeSummariser { real: Tokens(7_000), ..FakeSummariser::new(12_000) };
        let drafted = drafted(&fake, &work(30, 60), None).await.unwrap();
        assert_eq!(drafted.finish, DraftFinish::Complete);
        let liar = FakeSummariser { real: Tokens(10), ..FakeSummariser::new(200_000) };
        let error = self::drafted(&liar, &work(30, 60), None).await.unwrap_err();
        assert!(matches!(error, SummarizeError::Overflow { .. }));
        assert_eq!(liar.asked().len(), 4, "it is not believed for ever");
    }

    #[tokio::test]
    async fn a_window_without_room_for_a_question_asks_nobody() {
        let fake = FakeSummariser::new(1_500);
        let error = drafted(&fake, &work(3, 3), None).await.unwrap_err();
        assert!(matches!(error, SummarizeError::Window { .. }), "{error}");
        assert!(fake.asked().is_empty());
    }

    #[tokio::test]
    async fn an_answer_that_is_no_notes_ends_it() {
        for (text, finish) in
            [("half", DraftFinish::CutOff), ("", DraftFinish::Complete), ("", DraftFinish::CalledTool)]
        {
            let fake = FakeSummariser {
                answers: vec![("## A\n- b", DraftFinish::Complete), (text, finish)],
                ..FakeSummariser::new(8_000)
            };
            let drafted = drafted(&fake, &work(60, 60), None).await.unwrap();
            assert_eq!((drafted.text.as_str(), drafted.finish, drafted.asks), (text, finish, 2));
        }
    }

    #[tokio::test]
    async fn notes_that_are_too_long_are_carried_within_the_limit() {
        let long: &'static str = Box::leak("- an item of the notes\n".repeat(2_000).into_boxed_str());
        let fake =
            FakeSummariser { answers: vec![(long, DraftFinish::Complete)], ..FakeSummariser::new(8_000) };
        assert!(drafted(&fake, &work(60, 60), None).await.is_ok(), "no question goes over the window");
    }

    #[tokio::test]
    async fn a_warm_request_is_asked_first_and_the_span_if_it_does_not_fit() {
        let fake = FakeSummariser::new(8_000);
        let drafted = drafted(&fake, &work(60, 60), Some("{}")).await.unwrap();
        assert_eq!((drafted.asks, fake.asked()[0].warm.as_deref()), (1, Some("{}")));
        let fake = FakeSummariser::new(8_000);
        let warm = "too long a request ".repeat(10_000);
        let drafted = self::drafted(&fake, &work(2, 2), Some(&warm)).await.unwrap();
        assert_eq!((drafted.asks, fake.asked()[1].warm.as_deref()), (2, None));
    }

    #[tokio::test]
    async fn the_same_span_is_asked_about_in_the_same_bytes() {
        let ask = async || {
            let fake = FakeSummariser::new(8_000);
            drafted(&fake, &work(20, 40), None).await.unwrap();
            fake.asked()
        };
        assert_eq!(ask().await, ask().await);
    }

    #[tokio::test]
    async fn what_stood_before_is_listed_in_every_part() {
        let item = SummaryItem {
            section: SummarySection::KeyDecisions,
            text: "Use SQLite, because it is embedded.".into(),
            key: None,
            sources: SeqSet::run(Seq(1), Seq(1)),
            detail: None,
        };
        let previous =
            StructuredSummary { items: vec![item], folded: Vec::new(), ..StructuredSummary::default() };
        let (fake, meter, instructions) =
            (FakeSummariser::new(8_000), meter(), SummaryInstructions::default());
        let span = work(60, 60);
        let task = DraftTask {
            span: &span,
            previous: Some(&previous),
            instructions: &instructions,
            limit: LIMIT,
            meter: &meter,
            warm: None,
        };
        draft(&fake, &task).await.unwrap();
        assert!(fake.asked().iter().all(|asked| asked.user.contains("Use SQLite, because it is embedded.")));
    }
}
