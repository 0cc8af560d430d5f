//! Plan of a request: a model's profile, its counter, the format and the rules.
//!
//! Missing settings are read from the session: the model that answered last, the format of most messages. A
//! model without a profile is no obstacle: its window, prices and error are not guessed, and its tokens are
//! counted with the o200k vocabulary.

use std::sync::Arc;

use epitome_core::{
    Event, Fact, LoggedEvent, Tokens,
    budget::Budget,
    compaction_strategy::{CompactionStrategy, InMemoryCompaction},
    context::{Context, EventNaming},
    event::InstructionKind,
    id::ModelName,
    meter::Meter,
    policy::Policy,
    profile::{Profile, Profiles, UnknownModelError, bare},
    projection::EventLine,
    summary::SummaryFocus,
};
use epitome_wire::{Format, WireError, render::RenderOptions, requested_model};

use crate::{
    call_settings::{TargetModel, format_spoken_by},
    compact::{self, CompactError, CompactedRequest, RequestCompaction},
    simulate::{self, MeteredThread, SimulationResult, SimulationSettings},
    token_margin::{CountAccuracy, TokenMargin},
};

/// Makes a provider's request fit, ready to send.
///
/// Long outputs are cut or replaced by their names, then old turns are summarised in a line each, then the middle is left
/// out: each only as far as it is needed.
///
/// It needs no session, no store and no configuration. Content that is cut, stubbed or left out is mentioned
/// in the request itself, by message number, and in the report. The provider will count no more than `limit`
/// tokens of input: for a known model whose vocabulary is not public, the margin of its profile is kept free.
///
/// Content that the provider would refuse is corrected where that needs no guessing. The rest is in the
/// report, each place with its rule (`report.illegal`): check it before you send the request.
///
/// ```
/// use epitome::{Format, Tokens, compact_request};
///
/// let output = "a line of output\n".repeat(2_000);
/// let request = format!(
///     r#"{{"model":"gpt-5.1","messages":[
///         {{"role":"user","content":"Run the tests."}},
///         {{"role":"assistant","content":null,"tool_calls":[
///             {{"id":"call_1","type":"function","function":{{"name":"run","arguments":"{{}}"}}}}]}},
///         {{"role":"tool","tool_call_id":"call_1","content":{output:?}}},
///         {{"role":"user","content":"And now?"}}]}}"#
/// );
/// let compacted = compact_request(Format::OpenaiChat, request.as_bytes(), Tokens(1_000))?;
/// assert!(compacted.report.after.tokens <= Tokens(1_000));
/// assert!(compacted.rendered.body.contains("And now?"));
/// # Ok::<(), epitome::RequestError>(())
/// ```
pub fn compact_request(
    format: Format,
    request: &[u8],
    limit: Tokens,
) -> Result<CompactedRequest, RequestError> {
    compact_bytes(format, request, limit, RequestPlan::compact)
}

/// The same by a strategy of your own: [`compact_request`] goes by [`InMemoryCompaction`].
pub fn compact_request_by(
    strategy: &dyn CompactionStrategy,
    format: Format,
    request: &[u8],
    limit: Tokens,
) -> Result<CompactedRequest, RequestError> {
    compact_bytes(format, request, limit, |plan, context, budget, margin| {
        plan.compact_by(strategy, context, budget, margin)
    })
}

fn compact_bytes(
    format: Format,
    request: &[u8],
    limit: Tokens,
    compact: impl Fn(&RequestPlan, Context, Budget, TokenMargin) -> Result<CompactedRequest, CompactError>,
) -> Result<CompactedRequest, RequestError> {
    let request = std::str::from_utf8(request).map_err(RequestError::Encoding)?;
    let line = compact::line(format.decode_request(request)?);
    let asked = RequestSettings { model: None, format: Some(format) };
    let plan = RequestPlan::new(line, None, &asked, &Profiles::builtin())?;
    let (budget, margin) = plan.trust.budget_within(limit);
    let mut compacted = compact(&plan, plan.context(compact::numbered(&plan.line)), budget, margin)?;
    compacted.report.record_violations(format, request, &plan.options.rules);
    Ok(compacted)
}

/// Reason why a request could not be made to fit.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The request is not UTF-8.
    #[error("reading a request: it is not UTF-8; send it as JSON")]
    Encoding(#[source] std::str::Utf8Error),
    /// The request cannot be read.
    #[error(transparent)]
    Read(#[from] WireError),
    /// The named model is not known.
    #[error(transparent)]
    Model(#[from] UnknownModelError),
    /// The request cannot be made to fit.
    #[error(transparent)]
    Compact(#[from] CompactError),
}

/// Settings of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSettings {
    /// Model, which must be known; by default the one that answered last.
    pub model: Option<String>,
    /// Format; by default that of most messages, or else the model's.
    pub format: Option<Format>,
}

/// Everything that a request is made with.
#[derive(Clone, Debug)]
pub struct RequestPlan {
    /// The events, counted by `meter`.
    pub line: EventLine,
    /// Name of the model, if given or found.
    pub model: Option<String>,
    /// Profile of the model.
    pub profile: Option<Profile>,
    /// Token counter.
    pub meter: Arc<Meter>,
    /// The format to render.
    pub format: Format,
    /// Rendering options that the model requires. If the format needs a limit for the answer and the settings
    /// have none, it is the usual room in a budget: 16 000 tokens, or the model's largest answer.
    pub options: RenderOptions,
    /// Accuracy of the counts.
    pub trust: CountAccuracy,
}

impl RequestPlan {
    /// Fills in missing settings from the events. `counted_by` is the counter of the line's counts, if it has
    /// any; counts by another counter than the model's are made anew.
    pub fn new(
        line: EventLine,
        counted_by: Option<&str>,
        asked: &RequestSettings,
        profiles: &Profiles,
    ) -> Result<Self, UnknownModelError> {
        let model = asked.model.clone().or_else(|| last_model(&line));
        let profile = match (&asked.model, &model) {
            (Some(model), _) => Some(profiles.find(model)?.clone()),
            (None, Some(model)) => profiles.find(model).ok().cloned(),
            (None, None) => None,
        };
        let format = asked
            .format
            .or_else(|| native_format_of(line.events().map(|logged| &logged.event)))
            .or_else(|| profile.as_ref().and_then(format_spoken_by))
            .unwrap_or(Format::OpenaiChat);
        let target = TargetModel::new(format, profile.as_ref());
        let meter = Arc::new(target.meter());
        let line = match counted_by {
            Some(counter) if counter != meter.name() => EventLine::new(line.events().cloned()),
            _ => line,
        };
        let line = line.count_missing(&meter);
        let trust = trust(&line, &meter, model.as_deref(), profile.as_ref(), profiles);
        let named =
            asked.model.clone().or_else(|| unsaid_model(&line, format, model.as_ref(), profile.as_ref()));
        let options = RenderOptions {
            model: named.map(ModelName),
            answer: Some(target.answer_limit()),
            ..target.options()
        };
        Ok(Self { line, model, profile, meter, format, options, trust })
    }

    /// The context with nothing left out.
    pub fn context(&self, names: EventNaming) -> Context {
        compact::context(&self.line, Meter::clone(&self.meter), names)
    }

    /// Makes the request of everything in `context`, or of as much as `budget` allows.
    pub fn compact(
        &self,
        context: Context,
        budget: Budget,
        margin: TokenMargin,
    ) -> Result<CompactedRequest, CompactError> {
        // The default reducers leave alone content that the model needs back.
        let strategy = InMemoryCompaction::default().for_rules(self.options.rules.as_set());
        self.compact_by(&strategy, context, budget, margin)
    }

    /// The same by another strategy.
    pub fn compact_by(
        &self,
        strategy: &dyn CompactionStrategy,
        context: Context,
        budget: Budget,
        margin: TokenMargin,
    ) -> Result<CompactedRequest, CompactError> {
        let options = self.options.clone();
        RequestCompaction { budget, margin, strategy, format: self.format, options }.run(context)
    }

    /// Makes the request that `policy` would send next if it had been in use from the session's first call
    /// on, with a report of its earlier calls; its summaries attend to `focus`. `limit` is a budget without
    /// thresholds of its own; the model's thresholds apply where the policy has none.
    pub fn simulate(
        &self,
        policy: &Policy,
        names: EventNaming,
        limit: &Budget,
        margin: TokenMargin,
        focus: Option<&SummaryFocus>,
    ) -> Result<SimulationResult, CompactError> {
        let target = TargetModel::new(self.format, self.profile.as_ref());
        let rehearsal = SimulationSettings::for_model(target, policy, self.options.clone(), limit.clone());
        let rehearsal = rehearsal.with_focus(focus);
        let meter = Arc::clone(&self.meter);
        simulate::next_request(&rehearsal, &MeteredThread::new(self.line.clone(), meter, names), margin)
    }

    /// Part of the request that is missing and that only its sender can supply.
    pub fn missing_part(&self) -> Option<&'static str> {
        let says = |logged: &Arc<LoggedEvent>| requested_model(&logged.event).is_some();
        let said = settings(&self.line, self.format).is_some_and(says);
        (self.options.model.is_none() && !said).then_some("model")
    }
}

/// The newest settings, if they are in this format.
fn settings(line: &EventLine, format: Format) -> Option<&Arc<LoggedEvent>> {
    let is_settings = |logged: &&Arc<LoggedEvent>| {
        matches!(logged.event.fact, Fact::Instructed { what: InstructionKind::Settings, .. })
    };
    line.events().rev().find(is_settings).filter(|logged| logged.event.raw.dialect == format.dialect())
}

/// The session's model if no settings name one, and only if this is its format.
fn unsaid_model(
    line: &EventLine,
    format: Format,
    model: Option<&String>,
    profile: Option<&Profile>,
) -> Option<String> {
    let spoken = profile.is_some_and(|profile| format_spoken_by(profile) == Some(format));
    let said = settings(line, format).is_some_and(|logged| requested_model(&logged.event).is_some());
    model.filter(|_| spoken && !said).cloned()
}

fn trust(
    line: &EventLine,
    meter: &Arc<Meter>,
    model: Option<&str>,
    profile: Option<&Profile>,
    profiles: &Profiles,
) -> CountAccuracy {
    match profile {
        Some(profile) if profile.tokenizer.is_exact() => CountAccuracy::exact(),
        Some(profile) => CountAccuracy::from_calls(line, meter, Some(profile.margin), |name| {
            profiles.find(&name.0).is_ok_and(|found| found.name == profile.name)
        }),
        None => CountAccuracy::from_calls(line, meter, None, |name| {
            model.is_none_or(|model| bare(model) == bare(&name.0))
        }),
    }
}

/// The model that answered last, or that was asked for.
fn last_model(line: &EventLine) -> Option<String> {
    last_model_of(line.events().map(|logged| &logged.event))
}

/// The model that answered last, or that was asked for, among events in order.
pub fn last_model_of<'e>(events: impl DoubleEndedIterator<Item = &'e Event>) -> Option<String> {
    let said = |event: &Event| match &event.fact {
        Fact::AssistantSaid { model: Some(model), .. } | Fact::ModelChanged { model } => {
            Some(model.0.clone())
        }
        _ => requested_model(event).map(|model| model.0),
    };
    events.rev().find_map(said)
}

/// The format of most messages among these events.
pub fn native_format_of<'e>(events: impl Iterator<Item = &'e Event>) -> Option<Format> {
    let mut counts = [0_usize; Format::ALL.len()];
    for event in events {
        let format = Format::of_dialect(&event.raw.dialect);
        if let Some(index) = Format::ALL.iter().position(|other| Some(*other) == format) {
            counts[index] += 1;
        }
    }
    let most = counts.iter().max().copied().filter(|most| *most > 0)?;
    counts.iter().position(|count| *count == most).map(|index| Format::ALL[index])
}

#[cfg(test)]
mod tests {
    use epitome_wire::{
        legality::{ProviderRule, ProviderRules, check},
        render::recount,
    };
    use serde_json::{Value, json};

    use super::*;

    /// A request in each format: rules, a question, `calls` calls with long results, a last question.
    fn request(format: Format, model: Option<&str>, calls: usize) -> Value {
        let output = "more output\n".repeat(300);
        let mut history = vec![json!({"role":"user","content":"Mend the uploader."})];
        for call in 0..calls {
            let id = format!("call_{call}");
            let said = format!("Trying step {call}.");
            match format {
                Format::OpenaiChat => history.extend([
                    json!({"role":"assistant","content":said,"tool_calls":[{"id":id,"type":"function",
                        "function":{"name":"run","arguments":"{}"}}]}),
                    json!({"role":"tool","tool_call_id":id,"content":output}),
                ]),
                Format::OpenaiResponses => history.extend([
                    json!({"type":"function_call","call_id":id,"name":"run","arguments":"{}"}),
                    json!({"type":"function_call_output","call_id":id,"output":output}),
                ]),
                Format::Anthropic => history.extend([
                    json!({"role":"assistant","content":[{"type":"text","text":said},
                        {"type":"tool_use","id":id,"name":"run","input":{}}]}),
                    json!({"role":"user","content":[{"type":"tool_result","tool_use_id":id,"content":output}]}),
                ]),
                Format::Gemini => unreachable!("it is tried in tests of its own"),
            }
        }
        match format {
            Format::Anthropic => history.push(json!({"role":"assistant","content":"Done."})),
            Format::OpenaiChat | Format::OpenaiResponses => {}
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
        history.push(json!({"role":"user","content":"What is left?"}));
        let mut request = match format {
            Format::OpenaiChat => json!({"messages":history}),
            Format::OpenaiResponses => json!({"instructions":"Be brief.","input":history}),
            Format::Anthropic => json!({"system":"Be brief.","max_tokens":100,"messages":history}),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        };
        if let Some(model) = model {
            request["model"] = model.into();
        }
        request
    }

    fn fits(format: Format, model: Option<&str>) {
        let body = request(format, model, 12).to_string();
        let limit = Tokens(3_000);
        let compacted = compact_request(format, body.as_bytes(), limit).unwrap();
        let small = &compacted.rendered.body;
        assert_eq!(check(format, small, &ProviderRules::of(format)), [], "{small}");
        let counted = recount(format, small, compacted.context.meter()).unwrap();
        assert!(counted + compacted.report.margin.tokens <= limit, "{counted}");
        assert!(compacted.report.before > limit && !compacted.report.evictions.is_empty());
        assert!(small.contains("Mend the uploader.") && small.contains("What is left?"), "{small}");
        assert!(small.contains("; messages 2-"), "what is gone is named by its message: {small}");
    }

    #[test]
    fn a_chat_request_is_made_to_fit() {
        fits(Format::OpenaiChat, Some("gpt-5.1"));
        fits(Format::OpenaiChat, None);
    }

    #[test]
    fn a_responses_request_is_made_to_fit() {
        fits(Format::OpenaiResponses, Some("gpt-5.1"));
        fits(Format::OpenaiResponses, Some("a model nobody knows"));
    }

    #[test]
    fn an_anthropic_request_is_made_to_fit() {
        fits(Format::Anthropic, Some("claude-opus-4-5"));
        fits(Format::Anthropic, None);
    }

    #[test]
    fn a_request_that_fits_leaves_with_its_own_bytes() {
        for format in [Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic] {
            let body = request(format, None, 2).to_string();
            let compacted = compact_request(format, body.as_bytes(), Tokens(100_000)).unwrap();
            assert_eq!(compacted.rendered.body, body);
        }
    }

    #[test]
    fn what_is_no_request_or_cannot_fit_is_an_error_that_says_so() {
        let said = |body: &[u8], limit: u64| {
            compact_request(Format::OpenaiChat, body, Tokens(limit)).map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(said(b"\xff", 10), "reading a request: it is not UTF-8; send it as JSON");
        assert!(said(b"[]", 10).contains("a Chat request"), "{}", said(b"[]", 10));
        assert!(said(br#"{"messages":[{"role":"user","content":"Go."}]}"#, 1).contains("at least"));
    }

    #[test]
    fn what_was_said_in_another_format_is_ready_to_send() {
        let body = request(Format::OpenaiChat, Some("gpt-5.1"), 1).to_string();
        let sent = |model: Option<&str>, format: Format| {
            let line = compact::line(Format::OpenaiChat.decode_request(&body).unwrap());
            let asked = RequestSettings { model: model.map(str::to_owned), format: Some(format) };
            let plan = RequestPlan::new(line, None, &asked, &Profiles::builtin()).unwrap();
            let (budget, margin) = plan.trust.budget_within(Tokens(50_000));
            let compacted = plan.compact(plan.context(EventNaming::Messages), budget, margin).unwrap();
            let request: Value = serde_json::from_str(&compacted.rendered.body).unwrap();
            (request["model"].clone(), request["max_tokens"].clone(), plan.missing_part())
        };
        let opus = "claude-opus-4-5";
        assert_eq!(sent(Some(opus), Format::Anthropic), (json!(opus), json!(16_000), None));
        assert_eq!(sent(None, Format::Anthropic), (Value::Null, json!(16_000), Some("model")));
        assert_eq!(sent(None, Format::OpenaiResponses), (json!("gpt-5.1"), Value::Null, None));
        assert_eq!(sent(None, Format::OpenaiChat), (json!("gpt-5.1"), Value::Null, None));
    }

    #[test]
    fn a_model_that_wants_its_reasoning_back_gets_it() {
        let long = |word: &str| format!("{word} ").repeat(400);
        let mut messages = vec![json!({"role":"user","content":"Go."})];
        for call in 0..6 {
            let id = format!("call_{call}");
            messages.extend([
                json!({"role":"assistant","content":null,"reasoning_content":long("hm"),"tool_calls":[
                    {"id":id,"type":"function","function":{"name":"run","arguments":"{}"}}]}),
                json!({"role":"tool","tool_call_id":id,"content":long("out")}),
                json!({"role":"assistant","content":"Done.","reasoning_content":long("so")}),
                json!({"role":"user","content":"And on."}),
            ]);
        }
        let body = json!({"model":"deepseek-v3.2","messages":messages}).to_string();
        for limit in [6_000, 4_000, 1_500] {
            let compacted = compact_request(Format::OpenaiChat, body.as_bytes(), Tokens(limit)).unwrap();
            let small = &compacted.rendered.body;
            let rules = ProviderRules::of(Format::OpenaiChat).with(ProviderRule::ReasoningReturned);
            assert_eq!(check(Format::OpenaiChat, small, &rules), []);
            let request: Value = serde_json::from_str(small).unwrap();
            let messages = request["messages"].as_array().unwrap();
            for said in messages.iter().filter(|said| said["tool_calls"].is_array()) {
                assert_eq!(said["reasoning_content"], long("hm"), "at {limit}");
            }
        }
    }

    #[test]
    fn what_a_provider_says_about_tools_is_charged_only_with_tools() {
        let counted = |tools: Value| {
            let body = json!({"model":"claude-opus-4-5","max_tokens":100,"tools":tools,
                "messages":[{"role":"user","content":"Go."}]});
            let compacted =
                compact_request(Format::Anthropic, body.to_string().as_bytes(), Tokens(10_000)).unwrap();
            let recounted =
                recount(Format::Anthropic, &compacted.rendered.body, compacted.context.meter()).unwrap();
            assert!(recounted <= compacted.report.after.tokens, "{recounted}");
            [recounted, compacted.report.after.tokens]
        };
        let tool = json!({"name":"t","input_schema":{"type":"object"}});
        let (none, one, two) = (counted(json!([])), counted(json!([tool])), counted(json!([tool, tool])));
        for (none, (one, two)) in none.into_iter().zip(one.into_iter().zip(two)) {
            assert!(none < Tokens(40), "{none}");
            assert!(one >= none + Tokens(346) && two < one + Tokens(40), "{none} {one} {two}");
        }
    }

    #[test]
    fn a_model_that_was_asked_for_must_be_known() {
        let asked = RequestSettings { model: Some("gpt-5.11".to_owned()), format: None };
        let error = RequestPlan::new(EventLine::default(), None, &asked, &Profiles::builtin()).unwrap_err();
        assert!(error.nearest.contains(&"gpt-5.1".to_owned()), "{error}");
    }
}
