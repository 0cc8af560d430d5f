//! Gemini as a provider.

use std::borrow::Cow;

use epitome_core::{
    ContentPart, Event, Fact, Tokens, context::UNANSWERED_TEXT, event::RawDialect, meter::Meter,
};

use super::{legality, recall, stream, synthetic, target, write};
use crate::{
    append_instruction::AppendedRequest,
    endpoint::{AnswerForm, CallRoute, CallTarget, Endpoint, ErrorDetails, KeyHeader},
    incoming::{AnswerRun, DigestCollector, MessageDigests, MessageShape, PriorHistory},
    json::{self, Json, quote},
    legality::{ProviderRule, ProviderRules, ShapeFaults, ViolationList},
    media,
    message_builder::{ToolResultInput, ToolResultStatus, UserContent},
    model_answer::FinishReason,
    plain_request::PlainRequest,
    prompt_blocks::pieces::{PromptAuthor, PromptMessageKind, PromptPiece},
    providers::{
        WireProvider,
        facts::{AnswerFacts, CacheFacts, ProviderFacts},
    },
    recall_tool::{splice_state::AnswerSplice, unstreamed::AnswerCalls},
    render::{
        self,
        breakpoints::{MarkEdit, MarkPlacer},
    },
    request::{BodyLabels, RequestKeys},
    response::ResponseEnvelope,
    stream::AnswerAssembly,
    synthetic_response::{SyntheticContent, SyntheticResponse},
    tools::{FREE_TEXT, ToolDefinition, ToolParameters},
    write::{HistoryLayout, HistoryLine, WriteOptions, WrittenMessage, request_envelope::SystemPlacement},
};

/// Gemini's `generateContent`.
#[derive(Debug)]
pub(crate) struct GeminiContent;

/// Member that holds the settings of an answer.
const SETTINGS: &str = "generationConfig";

/// The limit among them.
const LIMIT: &str = "maxOutputTokens";

/// Actions below a model that call it, or count its tokens.
const INFERENCE: [&str; 5] =
    [":generateContent", ":streamGenerateContent", ":countTokens", ":embedContent", ":batchEmbedContents"];

static FACTS: ProviderFacts = ProviderFacts {
    name: "gemini",
    dialect: RawDialect::Gemini,
    title: "Gemini's generateContent",
    vendor: "gcp.gemini",
    usual_model: "gemini-2.5-pro",
    labels: BodyLabels { request: "a Gemini request", response: "a Gemini response" },

    endpoint: Endpoint {
        version: "v1beta",
        is_version_added: true,
        key: KeyHeader::Named("x-goog-api-key"),
        headers: &[],
        upstream: "gemini",
        route: target::ROUTE,
        base: "https://generativelanguage.googleapis.com",
    },
    versions: &["v1", "v1beta", "v1alpha", "v1beta1"],
    client_headers: &["x-goog-api-key", "x-goog-api-client"],
    has_target: true,

    keys: RequestKeys {
        history: "contents",
        content: "parts",
        system: Some("systemInstruction"),
        tools: "tools",
    },
    block_member: "parts",
    takes_bare_history: false,
    leads_into_system: true,
    required_limit: None,
    remote_history: Some("cachedContent"),
    rules: &[ProviderRule::FirstIsUser],

    answer: AnswerFacts {
        id_key: "responseId",
        model_key: "modelVersion",
        is_items: false,
        finish_tells_calls: false,
    },
    cache: CacheFacts { mark_key: None, only_at_marks: false, messages_grow: true, digest_letter: b'g' },
};

impl WireProvider for GeminiContent {
    fn facts(&self) -> &'static ProviderFacts {
        &FACTS
    }

    fn call_at(&self, path: &str, query: &str) -> Option<CallRoute> {
        target::call_at(path, query)
    }

    fn counted_call_at(&self, path: &str) -> Option<CallRoute> {
        target::counted_call_at(path)
    }

    /// A whole request may stand in a member of its own.
    fn counted_request<'b>(&self, body: &'b str) -> Cow<'b, str> {
        let Ok(count) = Json::parse(body, "a counting request") else { return Cow::Borrowed(body) };
        let whole = count.get("generateContentRequest").or_else(|| count.get("generate_content_request"));
        whole.map_or(Cow::Borrowed(body), |whole| Cow::Owned(whole.raw.to_owned()))
    }

    fn count_answer(&self, tokens: Tokens) -> String {
        format!(r#"{{"totalTokens":{tokens}}}"#)
    }

    fn call_path(&self, model: &str, answer: AnswerForm) -> Cow<'static, str> {
        Cow::Owned(target::call_path(model, answer))
    }

    fn with_target<'b>(&self, body: &'b str, target: &CallTarget) -> Cow<'b, str> {
        target::with_target(body, target)
    }

    fn without_target<'b>(&self, body: &'b str) -> Cow<'b, str> {
        target::without_target(body)
    }

    fn owns_path(&self, path: &str) -> bool {
        target::owns(path)
    }

    fn is_inference_path(&self, path: &str) -> bool {
        target::owns(path)
            && path.contains("/models/")
            && INFERENCE.iter().any(|action| path.ends_with(action))
    }

    fn is_model_path(&self, path: &str) -> bool {
        let rest = path.strip_prefix("/v1beta/models").or_else(|| path.strip_prefix("/v1/models"));
        rest.is_some_and(|rest| (rest.is_empty() || rest.starts_with('/')) && !rest.contains(':'))
    }

    fn whole_call(&self, path_and_query: &str) -> Option<String> {
        target::whole_call(path_and_query)
    }

    fn error_body(&self, error: &ErrorDetails<'_>) -> String {
        let status = match error.status {
            400 | 413 => "INVALID_ARGUMENT",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            408 | 504 => "DEADLINE_EXCEEDED",
            429 => "RESOURCE_EXHAUSTED",
            503 => "UNAVAILABLE",
            402..500 => "FAILED_PRECONDITION",
            _ => "INTERNAL",
        };
        let message = quote(error.message);
        format!(r#"{{"error":{{"code":{},"message":{message},"status":"{status}"}}}}"#, error.status)
    }

    fn read_item(&self, item: &Json<'_>) -> Event {
        super::read_content(item)
    }

    fn system_parts(&self, system: &Json<'_>) -> Vec<ContentPart> {
        super::system_parts(system)
    }

    fn tool_parts(&self, tool: &Json<'_>) -> Vec<ContentPart> {
        super::tool_parts(tool)
    }

    fn joined_response(&self, body: &Json<'_>) -> Option<String> {
        stream::joined(body)
    }

    /// The first candidate is the answer; others were never sent back, and are only kept.
    fn read_response(&self, envelope: &ResponseEnvelope, response: &Json<'_>) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        let candidates = response.array_at("candidates");
        let first = candidates.first().and_then(|candidate| candidate.get("content"));
        let first = first.filter(|content| content.is_object());
        events.extend(first.map(|content| envelope.signed(answer(content))));
        events.extend(candidates.iter().skip(1).map(|other| envelope.beside("candidate", other.raw)));
        let shown: Vec<_> = first.map(|content| (content, "null")).into_iter().collect();
        let usage = response.get("usageMetadata").filter(|usage| usage.is_object()).map(super::read_usage);
        events.push(envelope.closing(usage, &json::replace_members(response, &shown)));
        events
    }

    fn finish(&self, raw: &Json<'_>, fact: &Fact) -> Option<FinishReason> {
        if matches!(fact, Fact::AssistantSaid { .. }) {
            return None;
        }
        if raw.get("promptFeedback").is_some_and(|said| said.text_at("blockReason").is_some()) {
            return Some(FinishReason::Refused);
        }
        let reason = raw.array_at("candidates").first()?.text_at("finishReason")?;
        Some(match reason {
            "STOP" => FinishReason::Stop,
            "MAX_TOKENS" => FinishReason::Length,
            "SAFETY"
            | "RECITATION"
            | "LANGUAGE"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => FinishReason::Refused,
            other => FinishReason::Other(other.to_owned()),
        })
    }

    fn is_response(&self, response: &Json<'_>) -> bool {
        response.get("candidates").is_some() || response.get("promptFeedback").is_some()
    }

    fn assembly(&self) -> Box<dyn AnswerAssembly> {
        Box::<stream::GeminiAssembly>::default()
    }

    fn message_digests(&self, item: &Json<'_>, fact: &Fact) -> MessageDigests {
        let is_answer = matches!(fact, Fact::AssistantSaid { .. });
        DigestCollector::digests_of(
            FACTS.dialect.name(),
            item,
            &MessageShape {
                is_message: item.is_object(),
                role: Some(if is_answer { "assistant" } else { "user" }),
                answer: collect_answer,
                asked: collect_question,
                unsaid: &["parts"],
                may_join: is_answer || matches!(fact, Fact::UserSaid { .. } | Fact::ToolReturned { .. }),
                // Clients keep a streamed answer as they please: whole, or each piece as a content of its own.
                run: if is_answer { AnswerRun::Contents } else { AnswerRun::Message },
            },
        )
    }

    fn answer_limit<'a>(&self, setting: &dyn Fn(&str) -> Option<Json<'a>>) -> Option<u64> {
        setting(SETTINGS)?.get(LIMIT)?.as_count()
    }

    fn prior_history<'a>(&self, setting: &dyn Fn(&str) -> Option<Json<'a>>) -> Option<PriorHistory> {
        let cached = setting("cachedContent")?;
        let name = cached.as_text().filter(|name| !name.is_empty())?;
        Some(PriorHistory::Conversation(name.to_owned()))
    }

    fn write_history(
        &self,
        lines: &[HistoryLine<'_, '_>],
        manner: WriteOptions<'_>,
    ) -> (Vec<WrittenMessage>, HistoryLayout) {
        (write::write(lines, manner), HistoryLayout::List)
    }

    fn is_message(&self, own: &Json<'_>) -> bool {
        own.get("parts").is_some()
    }

    fn user_words(&self, text: &str) -> String {
        write::words(text)
    }

    fn model_value(&self, model: &str) -> String {
        quote(&format!("models/{}", target::model_name(model)))
    }

    fn model_name<'m>(&self, member: &'m str) -> &'m str {
        target::model_name(member)
    }

    fn write_system(&self, texts: &[String]) -> SystemPlacement {
        let parts = json::list(texts.iter().map(|text| write::text_part(&quote(text))));
        SystemPlacement::Prompt(format!(r#"{{"parts":{parts}}}"#))
    }

    /// A definition by itself; the list puts them into one element.
    fn write_tool(&self, tool: &ToolDefinition<'_>) -> String {
        let schema = match tool.takes {
            ToolParameters::Object(schema) => schema,
            ToolParameters::Text => FREE_TEXT,
        };
        declaration(&tool.head(), schema)
    }

    fn tool_list(&self, tools: &[String]) -> String {
        if tools.is_empty() { "[]".to_owned() } else { format!("[{}]", element(&tools.join(","))) }
    }

    fn own_tool(&self, said: &str, schema: &str) -> String {
        element(&declaration(said, schema))
    }

    fn user_text(&self, literal: &str) -> String {
        write::content("user", &format!("[{}]", write::text_part(literal)))
    }

    fn user_pieces(&self, pieces: &[UserContent<'_>]) -> String {
        let piece = |piece: &UserContent<'_>| match piece {
            UserContent::Text(text) => write::text_part(&quote(text)),
            UserContent::Image { mime, bytes } => format!(
                r#"{{"inlineData":{{"mimeType":{},"data":"{}"}}}}"#,
                quote(mime),
                media::base64(bytes)
            ),
            UserContent::ImageUrl(url) => format!(r#"{{"fileData":{{"fileUri":{}}}}}"#, quote(url)),
        };
        write::content("user", &json::list(pieces.iter().map(piece)))
    }

    fn system_literal(&self, text: &str) -> String {
        format!(r#"{{"parts":[{}]}}"#, write::text_part(&quote(text)))
    }

    fn result_messages(&self, results: &[ToolResultInput<'_>]) -> Vec<String> {
        let part = |result: &ToolResultInput<'_>| {
            let member = if result.ended == ToolResultStatus::Badly { "error" } else { "output" };
            write::result_part(&result.call.id.0, &result.call.name.0, member, result.text)
        };
        vec![write::content("user", &json::list(results.iter().map(part)))]
    }

    fn plain_request(&self, ask: &PlainRequest<'_>) -> String {
        let members = [
            ("model", quote(ask.model)),
            ("systemInstruction", self.system_literal(ask.system)),
            ("contents", format!("[{}]", self.user_text(&quote(ask.user)))),
            (SETTINGS, format!(r#"{{"{LIMIT}":{}}}"#, ask.limit.0)),
        ];
        json::object(members.into_iter())
    }

    fn appending_barrier(&self, request: &Json<'_>) -> Option<&'static str> {
        let settings = request.get(SETTINGS);
        let kind = settings.and_then(|settings| settings.text_at("responseMimeType"));
        let mode = function_mode(request);
        let found = [
            ("generationConfig.responseMimeType", kind.is_some_and(|kind| kind != "text/plain")),
            ("cachedContent", request.text_at("cachedContent").is_some_and(|name| !name.is_empty())),
            // Another mode would not be the prefix that is in the cache.
            ("toolConfig", mode.is_some_and(|mode| mode.eq_ignore_ascii_case("ANY"))),
        ];
        found.into_iter().find(|(_, binds)| *binds).map(|(setting, _)| setting)
    }

    fn append_message(&self, body: &mut AppendedRequest<'_, '_>, history: &Json<'_>, instruction: &str) {
        let contents = history.as_array().unwrap_or_default();
        let open = open_results(contents).into_iter();
        body.append(history, open.chain([self.user_text(&quote(instruction))]));
    }

    fn append_settings(&self, body: &mut AppendedRequest<'_, '_>, limit: Tokens) {
        let settings = body.request.get(SETTINGS).filter(|settings| settings.is_object());
        // Thinking counts against the limit.
        let thinking = settings.and_then(|settings| settings.get("thinkingConfig"));
        let budget = thinking.map_or(0, |thinking| thinking.count_at("thinkingBudget"));
        let limit = (limit + Tokens(budget)).to_string();
        let members = settings.map(Json::members).unwrap_or_default().iter();
        let kept = members.filter(|(key, _)| !matches!(&**key, LIMIT | "candidateCount"));
        let kept = kept.map(|(key, value)| (&**key, value.raw.to_owned()));
        let all = json::object(kept.chain([(LIMIT, limit)]));
        body.set(SETTINGS, all);
    }

    fn synthetic_response(&self, said: &SyntheticContent<'_>) -> SyntheticResponse {
        synthetic::response(said)
    }

    fn check(
        &self,
        _request: &Json<'_>,
        messages: &[Json<'_>],
        rules: &ProviderRules,
        found: &mut ViolationList,
    ) {
        legality::check(messages, rules, found);
    }

    fn check_shape(&self, message: &Json<'_>, found: &mut ShapeFaults) {
        legality::shape(message, found);
    }

    fn check_against(
        &self,
        sent: &Json<'_>,
        now: &Json<'_>,
        rules: &ProviderRules,
        found: &mut ViolationList,
    ) {
        if rules.has(ProviderRule::CallsSigned) {
            legality::check_against(sent.array_at("contents"), now.array_at("contents"), found);
        }
    }

    fn mark_piece(&self, _placer: &MarkPlacer<'_>, _piece: &PromptPiece<'_>) -> Option<MarkEdit> {
        None
    }

    /// The provider promises no lifetime; entries of its automatic cache are known to last some minutes.
    fn usual_lifetime(&self, _request: &Json<'_>) -> u64 {
        5 * 60
    }

    fn system_blocks<'j>(&self, system: &'j Json<'j>) -> Option<&'j [Json<'j>]> {
        system.get("parts").and_then(Json::as_array)
    }

    fn prompt_kind(&self, _message: &Json<'_>, role: &str) -> PromptMessageKind {
        let by = if role == "model" { PromptAuthor::Model } else { PromptAuthor::Client };
        let is_known = matches!(role, "model" | "user" | "function" | "tool" | "");
        PromptMessageKind { by, is_tool: false, text: is_known.then_some("text") }
    }

    fn is_tool_block(&self, block: &Json<'_>) -> bool {
        matches!(super::kind(block), "functionCall" | "functionResponse")
    }

    fn system_block(&self, block: &Json<'_>) -> ContentPart {
        super::part(block)
    }

    fn block_cost(&self, block: &Json<'_>, role: &str, meter: &Meter) -> Tokens {
        let part = |part: &ContentPart| render::part_cost(part, meter);
        match super::result(block).filter(|_| role != "model") {
            Some(result) => result.parts.iter().map(part).sum::<Tokens>() + meter.overhead().call,
            None => part(&super::part(block)),
        }
    }

    fn cannot_continue(&self, request: &Json<'_>) -> bool {
        let settings = request.get(SETTINGS);
        let several = settings.is_some_and(|settings| settings.count_at("candidateCount") > 1);
        let cached = request.text_at("cachedContent").is_some_and(|name| !name.is_empty());
        // An answer that is sent as a list of pieces is not read on its way.
        several || cached || request.text_at(target::STREAM) == Some(target::LIST)
    }

    fn leaves_tool_choice(&self, request: &Json<'_>) -> bool {
        function_mode(request).is_none_or(|mode| mode.eq_ignore_ascii_case("AUTO"))
    }

    /// Functions stand in one element of the list.
    fn tool_insertion(&self, tools: &[Json<'_>], tool: &str) -> Option<(usize, String)> {
        let functions = tools.iter().find_map(|tool| tool.get("functionDeclarations")?.as_array());
        match functions.and_then(<[Json<'_>]>::first) {
            Some(first) => {
                let tool = Json::parse(tool, "a tool of ours").ok()?;
                let own = tool.array_at("functionDeclarations").first()?;
                Some((first.start, format!("{},", own.raw)))
            }
            // Tools that the provider runs itself cannot be combined with functions.
            None => None,
        }
    }

    fn splice(&self) -> Box<dyn AnswerSplice> {
        Box::<recall::GeminiSplice>::default()
    }

    fn is_whole_answer(&self, answer: &Json<'_>) -> bool {
        recall::is_answer(answer)
    }

    fn answer_calls(&self, answer: &Json<'_>) -> AnswerCalls {
        recall::calls(answer)
    }

    fn without_recalls(&self, answer: &Json<'_>) -> String {
        recall::without_recalls(answer)
    }

    fn joined_answers<'j>(&self, first: &Json<'_>, last: &'j Json<'j>) -> Vec<(&'j Json<'j>, String)> {
        recall::joined_answers(first, last)
    }
}

/// Reads the content of an answer. One that names no role is the model's all the same.
fn answer(content: &Json<'_>) -> Event {
    if content.text_at("role") == Some("model") {
        return super::read_content(content);
    }
    let members = content.members().iter().filter(|(key, _)| key != "role");
    let members = members.map(|(key, value)| (&**key, value.raw.to_owned()));
    let json = json::object([("role", quote("model"))].into_iter().chain(members));
    let content = Json::parse(&json, "an answer").expect("it is written from values that were read");
    super::read_content(&content)
}

/// Collects the parts of an answer by which it is recognised.
fn collect_answer(found: &mut DigestCollector, content: &Json<'_>) {
    for part in content.array_at("parts") {
        if super::is_thought(part) {
            continue;
        }
        match (part.text_at("text"), part.get("functionCall")) {
            (Some(text), _) => found.running_text(text),
            (None, Some(call)) => {
                found.named_call(call.text_at("name").unwrap_or_default(), call.get("args"));
            }
            (None, None) => found.part(part, &["thoughtSignature"]),
        }
    }
}

/// Collects the parts of a client's content by which it is recognised.
fn collect_question(found: &mut DigestCollector, content: &Json<'_>) {
    for part in content.array_at("parts") {
        match (part.text_at("text"), part.get("functionResponse")) {
            (Some(text), _) => found.user_text(text),
            (None, Some(result)) => {
                found.named_result(result.text_at("name").unwrap_or_default(), result.get("response"));
            }
            (None, None) => found.part(part, &[]),
        }
    }
}

/// Mode in which functions may be called, if the request says one.
fn function_mode<'j>(request: &'j Json<'_>) -> Option<&'j str> {
    let config = request.get("toolConfig").or_else(|| request.get("tool_config"))?;
    config.get("functionCallingConfig")?.text_at("mode")
}

/// Writes a function's definition. Its parameters are a JSON Schema, of which the older member knows only a part.
fn declaration(said: &str, schema: &str) -> String {
    format!(r#"{{{said},"parametersJsonSchema":{schema}}}"#)
}

/// Writes an element of the tool list around definitions.
fn element(declarations: &str) -> String {
    format!(r#"{{"functionDeclarations":[{declarations}]}}"#)
}

/// Stand-ins for the calls of the last answer that have no results, as a content.
fn open_results(contents: &[Json<'_>]) -> Option<String> {
    let last = contents.last().filter(|last| last.text_at("role") == Some("model"))?;
    let calls = last.array_at("parts").iter().filter_map(|part| part.get("functionCall"));
    let results = calls.filter_map(|call| {
        let (id, name) = (super::call_id(call)?, call.text_at("name")?);
        Some(write::result_part(id, name, "error", UNANSWERED_TEXT))
    });
    let results: Vec<String> = results.collect();
    (!results.is_empty()).then(|| write::content("user", &json::list(results.into_iter())))
}
