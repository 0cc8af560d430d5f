//! Chat Completions as a provider.

use std::{borrow::Cow, collections::HashSet};

use epitome_core::{
    ContentPart, Event, Fact, Tokens, context::UNANSWERED_TEXT, event::RawDialect, meter::Meter,
};

use super::{ChatPartIndices, answer_parts, legality, recall, stream, synthetic, write};
use crate::{
    append_instruction::{AppendedRequest, has_elements, shapes_answer},
    cache_marks, decode_parts,
    endpoint::{AnswerForm, CallRoute, Endpoint, ErrorDetails, KeyHeader},
    incoming::{AnswerRun, DigestCollector, MessageDigests, MessageShape},
    json::{self, Json, object, quote},
    legality::{ProviderRule, ProviderRules, ShapeFaults, ViolationList},
    media,
    message_builder::{ToolResultInput, UserContent},
    model_answer::FinishReason,
    normal_digest::ChatMessageSource,
    plain_request::{OutputLimitName, PlainRequest},
    prompt_blocks::pieces::{PieceForm, PromptAuthor, PromptMessage, PromptMessageKind, PromptPiece},
    providers::{
        WireProvider,
        facts::{AnswerFacts, CacheFacts, ProviderFacts},
    },
    recall_tool::{splice_state::AnswerSplice, unstreamed::AnswerCalls},
    render::{
        self,
        breakpoints::{MarkEdit, MarkPlacer, added, listed, says_something},
    },
    request::{BodyLabels, RequestKeys},
    response::ResponseEnvelope,
    stream::AnswerAssembly,
    synthetic_response::{SyntheticContent, SyntheticResponse},
    tools::{ToolDefinition, ToolParameters},
    write::{HistoryLayout, HistoryLine, WriteOptions, WrittenMessage, request_envelope::SystemPlacement},
};

/// OpenAI Chat Completions.
#[derive(Debug)]
pub(crate) struct ChatCompletions;

/// The mark of a place for OpenAI's cache.
pub(crate) const BREAKPOINT_MEMBER: &str = r#""prompt_cache_breakpoint":{"mode":"explicit"}"#;

static FACTS: ProviderFacts = ProviderFacts {
    name: "openai-chat",
    dialect: RawDialect::OpenaiChat,
    title: "OpenAI's Chat Completions",
    vendor: "openai",
    usual_model: "gpt-5.4",
    labels: BodyLabels { request: "a Chat request", response: "a Chat response" },

    endpoint: Endpoint {
        version: "v1",
        is_version_added: false,
        key: KeyHeader::Bearer,
        headers: &[],
        upstream: "openai",
        route: "/v1/chat/completions",
        base: "https://api.openai.com",
    },
    versions: &["v1"],
    client_headers: &[],
    has_target: false,

    keys: RequestKeys { history: "messages", content: "content", system: None, tools: "tools" },
    block_member: "tool_calls",
    takes_bare_history: false,
    leads_into_system: false,
    required_limit: None,
    remote_history: None,
    rules: &[],

    answer: AnswerFacts { id_key: "id", model_key: "model", is_items: false, finish_tells_calls: true },
    cache: CacheFacts {
        mark_key: Some(cache_marks::BREAKPOINT),
        only_at_marks: false,
        messages_grow: false,
        digest_letter: b'c',
    },
};

impl WireProvider for ChatCompletions {
    fn facts(&self) -> &'static ProviderFacts {
        &FACTS
    }

    fn call_at(&self, path: &str, _query: &str) -> Option<CallRoute> {
        (path == "/v1/chat/completions").then(CallRoute::default)
    }

    fn call_path(&self, _model: &str, _answer: AnswerForm) -> Cow<'static, str> {
        Cow::Borrowed("chat/completions")
    }

    fn owns_path(&self, path: &str) -> bool {
        path == "/v1/chat" || path.starts_with("/v1/chat/")
    }

    fn is_inference_path(&self, path: &str) -> bool {
        matches!(path, "/v1/chat/completions" | "/v1/completions" | "/v1/embeddings")
    }

    fn error_body(&self, error: &ErrorDetails<'_>) -> String {
        error_body(error)
    }

    fn read_item(&self, item: &Json<'_>) -> Event {
        super::read_message(item, ChatMessageSource::InRequest)
    }

    fn tool_parts(&self, tool: &Json<'_>) -> Vec<ContentPart> {
        vec![super::tool_part(tool)]
    }

    /// The first choice is the answer; others were never sent back, and are only kept.
    fn read_response(&self, envelope: &ResponseEnvelope, response: &Json<'_>) -> Vec<Event> {
        let choices = response.array_at("choices");
        let message = |choice: &Json<'_>| {
            choice.get("message").map(|message| super::read_message(message, ChatMessageSource::InResponse))
        };
        let mut events: Vec<Event> = Vec::new();
        for choice in choices {
            match message(choice) {
                Some(message) if events.is_empty() => events.push(envelope.signed(message)),
                _ => events.push(envelope.beside("choice", choice.raw)),
            }
        }
        let first = choices.first().and_then(|choice| choice.get("message"));
        let shown = match (response.get("choices"), first) {
            (Some(all), Some(first)) => vec![(
                all,
                match choices {
                    [only] => format!("[{}]", json::replace_members(only, &[(first, "null")])),
                    _ => "null".to_owned(),
                },
            )],
            _ => Vec::new(),
        };
        let shown: Vec<_> = shown.iter().map(|(value, text)| (*value, text.as_str())).collect();
        let usage = response.get("usage").filter(|usage| usage.is_object()).map(super::read_usage);
        events.push(envelope.closing(usage, &json::replace_members(response, &shown)));
        events
    }

    fn finish(&self, raw: &Json<'_>, _fact: &Fact) -> Option<FinishReason> {
        raw.array_at("choices").first()?.text_at("finish_reason").map(finish_reason)
    }

    fn is_response(&self, response: &Json<'_>) -> bool {
        response.array_at("choices").first().is_some_and(|choice| choice.get("message").is_some())
    }

    fn assembly(&self) -> Box<dyn AnswerAssembly> {
        Box::<stream::ChatAssembly>::default()
    }

    fn message_digests(&self, item: &Json<'_>, fact: &Fact) -> MessageDigests {
        DigestCollector::digests_of(
            FACTS.dialect.name(),
            item,
            &MessageShape {
                is_message: item.text_at("role").is_some(),
                role: None,
                asked: DigestCollector::block_question,
                run: AnswerRun::Message,
                answer: DigestCollector::chat_answer,
                unsaid: &[],
                may_join: matches!(fact, Fact::UserSaid { .. } | Fact::AssistantSaid { .. }),
            },
        )
    }

    fn write_history(
        &self,
        lines: &[HistoryLine<'_, '_>],
        manner: WriteOptions<'_>,
    ) -> (Vec<WrittenMessage>, HistoryLayout) {
        (write::write(lines, manner), HistoryLayout::List)
    }

    fn user_words(&self, text: &str) -> String {
        write::words(text)
    }

    fn own_system(&self, _own: &Json<'_>, _manner: WriteOptions<'_>) -> Option<String> {
        None
    }

    fn write_system(&self, texts: &[String]) -> SystemPlacement {
        SystemPlacement::Message(write::texts("system", texts))
    }

    fn write_tool(&self, tool: &ToolDefinition<'_>) -> String {
        match tool.takes {
            ToolParameters::Object(schema) => self.own_tool(&tool.head(), schema),
            ToolParameters::Text => format!(r#"{{"type":"custom","custom":{{{}}}}}"#, tool.head()),
        }
    }

    fn own_tool(&self, said: &str, schema: &str) -> String {
        format!(r#"{{"type":"function","function":{{{said},"parameters":{schema}}}}}"#)
    }

    fn user_text(&self, literal: &str) -> String {
        format!(r#"{{"role":"user","content":{literal}}}"#)
    }

    fn user_pieces(&self, pieces: &[UserContent<'_>]) -> String {
        let linked = |url: &str| format!(r#"{{"type":"image_url","image_url":{{"url":{}}}}}"#, quote(url));
        let piece = |piece: &UserContent<'_>| match piece {
            UserContent::Text(text) => format!(r#"{{"type":"text","text":{}}}"#, quote(text)),
            UserContent::Image { mime, bytes } => linked(&media::data_url(mime, bytes)),
            UserContent::ImageUrl(url) => linked(url),
        };
        self.user_text(&json::list(pieces.iter().map(piece)))
    }

    fn system_literal(&self, text: &str) -> String {
        format!(r#"{{"role":"system","content":{}}}"#, quote(text))
    }

    fn result_messages(&self, results: &[ToolResultInput<'_>]) -> Vec<String> {
        let message = |result: &ToolResultInput<'_>| {
            let (id, text) = (quote(&result.call.id.0), quote(result.text));
            format!(r#"{{"role":"tool","tool_call_id":{id},"content":{text}}}"#)
        };
        results.iter().map(message).collect()
    }

    fn plain_request(&self, ask: &PlainRequest<'_>) -> String {
        let message =
            |role: &str, text: &str| object([("role", quote(role)), ("content", quote(text))].into_iter());
        let limit = match ask.limit_name {
            OutputLimitName::MaxTokens => "max_tokens",
            OutputLimitName::MaxCompletionTokens => "max_completion_tokens",
        };
        let messages = format!("[{},{}]", message("system", ask.system), message("user", ask.user));
        let members = [
            ("model", quote(ask.model)),
            (limit, ask.limit.0.to_string()),
            ("stream", "false".to_owned()),
            ("messages", messages),
        ];
        object(members.into_iter())
    }

    fn appending_barrier(&self, request: &Json<'_>) -> Option<&'static str> {
        shapes_answer(request.get("response_format")).then_some("response_format")
    }

    fn append_message(&self, body: &mut AppendedRequest<'_, '_>, history: &Json<'_>, instruction: &str) {
        let messages = history.as_array().unwrap_or_default();
        body.append(history, open_calls(messages).into_iter().chain([self.user_text(&quote(instruction))]));
    }

    fn append_settings(&self, body: &mut AppendedRequest<'_, '_>, limit: Tokens) {
        body.replace("n", "1");
        body.replace("max_completion_tokens", &limit.to_string());
        body.replace("max_tokens", &limit.to_string());
        if has_elements(body.request, "tools") {
            body.set("tool_choice", quote("none"));
        }
        if has_elements(body.request, "functions") {
            body.set("function_call", quote("none"));
        }
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
        if rules.has(ProviderRule::ReasoningReturned) {
            legality::unreturned(sent.array_at("messages"), now.array_at("messages"), found);
        }
    }

    fn mark_piece(&self, _placer: &MarkPlacer<'_>, piece: &PromptPiece<'_>) -> Option<MarkEdit> {
        let role = piece.message.map_or("", |message| message.role);
        if piece.by == PromptAuthor::Model || piece.message.is_none() || role == "function" {
            return None;
        }
        match piece.form {
            PieceForm::Text(kind) => listed(kind, piece.json, BREAKPOINT_MEMBER),
            PieceForm::Block => {
                let takes = match piece.json.text_at("type")? {
                    "text" | "input_text" => says_something(piece.json.text_at("text")?),
                    "image_url" | "input_audio" | "file" => true,
                    _ => false,
                };
                takes.then(|| added(piece.json, BREAKPOINT_MEMBER)).flatten()
            }
            PieceForm::Tool | PieceForm::Whole => None,
        }
    }

    fn usual_lifetime(&self, request: &Json<'_>) -> u64 {
        request.get("prompt_cache_options").and_then(cache_marks::lifetime).unwrap_or(30 * 60)
    }

    fn prompt_kind(&self, message: &Json<'_>, role: &str) -> PromptMessageKind {
        let by = if role == "assistant" { PromptAuthor::Model } else { PromptAuthor::Client };
        let calls =
            || ["tool_calls", "function_call"].iter().any(|key| decode_parts::count(message.get(key)) > 0);
        let (is_tool, is_known) = match role {
            "tool" => (true, message.text_at("tool_call_id").is_some()),
            "function" => (true, message.text_at("name").is_some()),
            "assistant" => (calls(), true),
            "user" | "system" | "developer" => (false, true),
            _ => (false, false),
        };
        PromptMessageKind { by, is_tool, text: is_known.then_some("text") }
    }

    fn block_cost(&self, block: &Json<'_>, _role: &str, meter: &Meter) -> Tokens {
        render::part_cost(&super::part(block), meter)
    }

    fn beside_cost(&self) -> Option<fn(&PromptMessage<'_>, &Meter) -> Tokens> {
        Some(beside)
    }

    fn cannot_continue(&self, request: &Json<'_>) -> bool {
        let said = |key: &str| request.get(key).filter(|value| !value.is_null());
        let several = said("n").and_then(Json::as_count).is_some_and(|choices| choices > 1);
        // The old way to offer tools cannot be combined with the new one.
        several || said("functions").is_some()
    }

    fn splice(&self) -> Box<dyn AnswerSplice> {
        Box::<recall::ChatSplice>::default()
    }

    fn is_whole_answer(&self, answer: &Json<'_>) -> bool {
        recall::first_choice(answer).is_some_and(|choice| choice.get("message").is_some())
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

/// Writes an error as OpenAI does.
pub(crate) fn error_body(error: &ErrorDetails<'_>) -> String {
    let kind = if (400..500).contains(&error.status) { "invalid_request_error" } else { "server_error" };
    let code = error.code.map_or_else(|| "null".to_owned(), quote);
    let message = quote(error.message);
    format!(r#"{{"error":{{"message":{message},"type":"{kind}","param":null,"code":{code}}}}}"#)
}

/// Maps the words of OpenAI, and of servers that speak its formats.
pub(crate) fn finish_reason(reason: &str) -> FinishReason {
    match reason {
        "stop" | "eos" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::Calls,
        "length" | "max_tokens" | "max_output_tokens" => FinishReason::Length,
        "model_length" | "model_context_window_exceeded" => FinishReason::Window,
        "content_filter" | "refusal" => FinishReason::Refused,
        other => FinishReason::Other(other.to_owned()),
    }
}

/// Counts a message without its content: reasoning and calls, or the wrapping of a result.
fn beside(message: &PromptMessage<'_>, meter: &Meter) -> Tokens {
    match message.role {
        "tool" | "function" => meter.overhead().call,
        "assistant" => {
            let content = ChatPartIndices::of(message.json).content;
            let parts = answer_parts(message.json).into_iter().enumerate();
            let rest = parts.filter(|(place, _)| !content.contains(place));
            rest.map(|(_, part)| render::part_cost(&part, meter)).sum()
        }
        _ => Tokens(0),
    }
}

/// Stand-ins for the calls of the last answer that have no results.
fn open_calls(messages: &[Json<'_>]) -> Vec<String> {
    let role = |message: &Json<'_>, role: &str| message.text_at("role") == Some(role);
    let results =
        messages.iter().rev().take_while(|message| role(message, "tool") || role(message, "function"));
    let results: Vec<&Json<'_>> = results.collect();
    let asked = messages.len().checked_sub(results.len() + 1).and_then(|index| messages.get(index));
    let Some(asked) = asked.filter(|asked| role(asked, "assistant")) else { return Vec::new() };
    let said = quote(UNANSWERED_TEXT);
    let returned: HashSet<&str> =
        results.iter().filter_map(|result| result.text_at("tool_call_id")).collect();
    let calls = asked.array_at("tool_calls").iter().filter_map(|call| call.text_at("id"));
    let calls = calls.filter(|id| !returned.contains(id));
    let answer = |id: &str| format!(r#"{{"role":"tool","tool_call_id":{},"content":{said}}}"#, quote(id));
    let mut answers: Vec<String> = calls.map(answer).collect();
    let named = asked.get("function_call").and_then(|called| called.text_at("name"));
    let named = named.filter(|name| !results.iter().any(|result| result.text_at("name") == Some(*name)));
    answers.extend(
        named.map(|name| format!(r#"{{"role":"function","name":{},"content":{said}}}"#, quote(name))),
    );
    answers
}
