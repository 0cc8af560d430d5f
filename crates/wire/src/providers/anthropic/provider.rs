//! Anthropic Messages as a provider.

use std::borrow::Cow;

use epitome_core::{
    ContentPart, Event, Fact, Tokens,
    event::{RawDialect, ToolCall},
    meter::Meter,
};

use super::{append, block, legality, recall, sent, stream, synthetic, write};
use crate::{
    append_instruction::AppendedRequest,
    cache_marks,
    endpoint::{AnswerForm, CallRoute, Endpoint, ErrorDetails, KeyHeader},
    incoming::{AnswerRun, DigestCollector, MessageDigests, MessageShape},
    json::{self, Json, quote},
    legality::{ProviderRule, ProviderRules, ShapeFaults, ViolationList},
    media,
    message_builder::{ToolResultInput, ToolResultStatus, UserContent},
    model_answer::FinishReason,
    plain_request::PlainRequest,
    prompt_blocks::pieces::{PieceForm, PromptAuthor, PromptMessageKind, PromptPiece},
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
    tools::{FREE_TEXT, ToolDefinition, ToolParameters},
    write::{HistoryLayout, HistoryLine, WriteOptions, WrittenMessage, request_envelope::SystemPlacement},
};

/// Anthropic Messages.
#[derive(Debug)]
pub(crate) struct AnthropicMessages;

/// The setting that a request must have.
const MAX_TOKENS: &str = "max_tokens";

static FACTS: ProviderFacts = ProviderFacts {
    name: "anthropic",
    dialect: RawDialect::Anthropic,
    title: "Anthropic's Messages",
    vendor: "anthropic",
    usual_model: "claude-sonnet-4-5",
    labels: BodyLabels { request: "an Anthropic request", response: "an Anthropic response" },

    endpoint: Endpoint {
        version: "v1",
        is_version_added: true,
        key: KeyHeader::Named("x-api-key"),
        headers: &[("anthropic-version", "2023-06-01")],
        upstream: "anthropic",
        route: "/v1/messages",
        base: "https://api.anthropic.com",
    },
    versions: &["v1"],
    client_headers: &["anthropic-version", "x-api-key"],
    has_target: false,

    keys: RequestKeys { history: "messages", content: "content", system: Some("system"), tools: "tools" },
    block_member: "content",
    takes_bare_history: false,
    leads_into_system: true,
    required_limit: Some(MAX_TOKENS),
    remote_history: None,
    rules: &[ProviderRule::RolesAlternate, ProviderRule::FirstIsUser, ProviderRule::ThinkingStaysInOpenLoop],

    answer: AnswerFacts { id_key: "id", model_key: "model", is_items: false, finish_tells_calls: true },
    cache: CacheFacts {
        mark_key: Some(cache_marks::CACHE_CONTROL),
        only_at_marks: true,
        messages_grow: true,
        digest_letter: b'a',
    },
};

impl WireProvider for AnthropicMessages {
    fn facts(&self) -> &'static ProviderFacts {
        &FACTS
    }

    fn call_at(&self, path: &str, _query: &str) -> Option<CallRoute> {
        (path == "/v1/messages").then(CallRoute::default)
    }

    fn counted_call_at(&self, path: &str) -> Option<CallRoute> {
        (path == "/v1/messages/count_tokens").then(CallRoute::default)
    }

    fn call_path(&self, _model: &str, _answer: AnswerForm) -> Cow<'static, str> {
        Cow::Borrowed("messages")
    }

    fn owns_path(&self, path: &str) -> bool {
        path == "/v1/messages" || path.starts_with("/v1/messages/")
    }

    fn is_inference_path(&self, path: &str) -> bool {
        matches!(path, "/v1/messages" | "/v1/messages/count_tokens")
    }

    fn error_body(&self, error: &ErrorDetails<'_>) -> String {
        let kind = match error.status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            503 => "overloaded_error",
            504 => "timeout_error",
            400..500 => "invalid_request_error",
            _ => "api_error",
        };
        let message = quote(error.message);
        format!(r#"{{"type":"error","error":{{"type":"{kind}","message":{message}}}}}"#)
    }

    fn read_item(&self, item: &Json<'_>) -> Event {
        super::read_message(item)
    }

    fn read_response(&self, envelope: &ResponseEnvelope, response: &Json<'_>) -> Vec<Event> {
        let message = super::read_message(response);
        if !matches!(message.fact, Fact::AssistantSaid { .. }) {
            return vec![envelope.beside("response", response.raw)];
        }
        let usage = response.get("usage").filter(|usage| usage.is_object());
        let report = usage.map(|usage| envelope.used(super::read_usage(usage), usage.raw));
        std::iter::once(message).chain(report).collect()
    }

    fn finish(&self, raw: &Json<'_>, _fact: &Fact) -> Option<FinishReason> {
        raw.text_at("stop_reason").map(|reason| match reason {
            "end_turn" | "stop_sequence" => FinishReason::Stop,
            "tool_use" => FinishReason::Calls,
            "max_tokens" => FinishReason::Length,
            "model_context_window_exceeded" => FinishReason::Window,
            "refusal" => FinishReason::Refused,
            other => FinishReason::Other(other.to_owned()),
        })
    }

    fn is_response(&self, response: &Json<'_>) -> bool {
        response.text_at("role") == Some("assistant")
    }

    fn assembly(&self) -> Box<dyn AnswerAssembly> {
        Box::<stream::AnthropicAssembly>::default()
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
                answer: DigestCollector::block_answer,
                unsaid: &[],
                may_join: matches!(
                    fact,
                    Fact::UserSaid { .. } | Fact::AssistantSaid { .. } | Fact::ToolReturned { .. }
                ),
            },
        )
    }

    fn is_signed_compaction(&self, message: &Json<'_>) -> bool {
        message.array_at("content").iter().any(|block| block.text_at("type") == Some("compaction"))
    }

    fn begins_with_compaction(&self, message: &Json<'_>) -> bool {
        let first = message.array_at("content").first();
        first.is_some_and(|block| block.text_at("type") == Some("compaction"))
    }

    fn write_history(
        &self,
        lines: &[HistoryLine<'_, '_>],
        manner: WriteOptions<'_>,
    ) -> (Vec<WrittenMessage>, HistoryLayout) {
        (write::write(lines, manner), HistoryLayout::List)
    }

    fn must_go_on(&self, message: &str) -> bool {
        write::is_answer_ended(message)
    }

    fn user_words(&self, text: &str) -> String {
        write::words(text)
    }

    fn own_system(&self, own: &Json<'_>, manner: WriteOptions<'_>) -> Option<String> {
        let cleaned = if manner.is_legal() { write::without_blanks(own) } else { None };
        Some(cleaned.unwrap_or_else(|| own.raw.to_owned()))
    }

    fn write_system(&self, texts: &[String]) -> SystemPlacement {
        SystemPlacement::Prompt(write::system(texts))
    }

    fn write_tool(&self, tool: &ToolDefinition<'_>) -> String {
        let schema = match tool.takes {
            ToolParameters::Object(schema) => schema,
            ToolParameters::Text => FREE_TEXT,
        };
        self.own_tool(&tool.head(), schema)
    }

    fn own_tool(&self, said: &str, schema: &str) -> String {
        format!(r#"{{{said},"input_schema":{schema}}}"#)
    }

    fn user_text(&self, literal: &str) -> String {
        user_message(literal)
    }

    fn user_pieces(&self, pieces: &[UserContent<'_>]) -> String {
        user_message(&json::list(pieces.iter().map(piece)))
    }

    fn result_messages(&self, results: &[ToolResultInput<'_>]) -> Vec<String> {
        vec![user_message(&json::list(results.iter().map(result_block)))]
    }

    fn plain_request(&self, ask: &PlainRequest<'_>) -> String {
        let members = [
            ("model", quote(ask.model)),
            (MAX_TOKENS, ask.limit.0.to_string()),
            ("system", quote(ask.system)),
            ("messages", format!("[{}]", user_message(&quote(ask.user)))),
        ];
        json::object(members.into_iter())
    }

    fn appending_barrier(&self, request: &Json<'_>) -> Option<&'static str> {
        append::barrier(request)
    }

    fn append_message(&self, body: &mut AppendedRequest<'_, '_>, history: &Json<'_>, instruction: &str) {
        append::message(body, history, instruction);
    }

    fn append_settings(&self, body: &mut AppendedRequest<'_, '_>, limit: Tokens) {
        // This asks for a compaction in place of an answer.
        body.replace("compaction", "null");
        // Thinking counts against the limit, and a budget above the limit would be refused.
        let thinking = body.request.get("thinking").map_or(0, |thinking| thinking.count_at("budget_tokens"));
        body.set(MAX_TOKENS, (limit + Tokens(thinking)).to_string());
    }

    fn synthetic_response(&self, said: &SyntheticContent<'_>) -> SyntheticResponse {
        synthetic::response(said)
    }

    fn check(
        &self,
        request: &Json<'_>,
        messages: &[Json<'_>],
        rules: &ProviderRules,
        found: &mut ViolationList,
    ) {
        legality::check(request, messages, rules, found);
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
        sent::check(sent, now, rules, found);
    }

    fn is_before_answer(&self, event: &Json<'_>) -> bool {
        event.text_at("type") == Some("ping")
    }

    fn mark_piece(&self, placer: &MarkPlacer<'_>, piece: &PromptPiece<'_>) -> Option<MarkEdit> {
        let member = if placer.lifetime > 300 {
            r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#
        } else {
            r#""cache_control":{"type":"ephemeral"}"#
        };
        let role = piece.message.map_or("", |message| message.role);
        match piece.form {
            // A tool that is not shown until it is found cannot end a prefix.
            PieceForm::Tool if piece.json.get("defer_loading").is_some_and(|defer| defer.raw == "true") => {
                None
            }
            PieceForm::Tool => added(piece.json, member),
            PieceForm::Text(kind) => listed(kind, piece.json, member),
            PieceForm::Block if matches!(role, "" | "user" | "assistant") => {
                let takes = match piece.json.text_at("type")? {
                    "text" => says_something(piece.json.text_at("text")?),
                    "image" | "document" | "search_result" | "tool_use" | "tool_result" => true,
                    _ => false,
                };
                takes.then(|| added(piece.json, member)).flatten()
            }
            PieceForm::Block | PieceForm::Whole => None,
        }
    }

    fn usual_lifetime(&self, _request: &Json<'_>) -> u64 {
        5 * 60
    }

    fn prompt_kind(&self, _message: &Json<'_>, role: &str) -> PromptMessageKind {
        let by = if role == "assistant" { PromptAuthor::Model } else { PromptAuthor::Client };
        let text = matches!(role, "user" | "assistant" | "system").then_some("text");
        PromptMessageKind { by, is_tool: false, text }
    }

    fn is_tool_block(&self, block: &Json<'_>) -> bool {
        let kind = block.text_at("type").unwrap_or_default();
        kind.ends_with("tool_use") || kind.ends_with("tool_result")
    }

    fn block_cost(&self, block: &Json<'_>, role: &str, meter: &Meter) -> Tokens {
        let part = |part: &ContentPart| render::part_cost(part, meter);
        if role == "assistant" {
            return part(&block::answer_part(block));
        }
        match block::result(block).filter(|_| role == "user") {
            Some(result) => result.parts.iter().map(part).sum::<Tokens>() + meter.overhead().call,
            None => part(&block::user_part(block)),
        }
    }

    fn splice(&self) -> Box<dyn AnswerSplice> {
        Box::<recall::AnthropicSplice>::default()
    }

    fn is_whole_answer(&self, answer: &Json<'_>) -> bool {
        answer.get("content").is_some_and(|content| content.as_array().is_some())
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

/// A user message around content that is JSON already.
fn user_message(content: &str) -> String {
    format!(r#"{{"role":"user","content":{content}}}"#)
}

fn piece(piece: &UserContent<'_>) -> String {
    match piece {
        UserContent::Text(text) => format!(r#"{{"type":"text","text":{}}}"#, quote(text)),
        UserContent::Image { mime, bytes } => format!(
            r#"{{"type":"image","source":{{"type":"base64","media_type":{},"data":"{}"}}}}"#,
            quote(mime),
            media::base64(bytes)
        ),
        UserContent::ImageUrl(url) => {
            format!(r#"{{"type":"image","source":{{"type":"url","url":{}}}}}"#, quote(url))
        }
    }
}

/// Writes a result for a message that holds several.
fn result_block(result: &ToolResultInput<'_>) -> String {
    let ToolCall { id, .. } = result.call;
    let error = match result.ended {
        ToolResultStatus::Well => "",
        ToolResultStatus::Badly => r#","is_error":true"#,
    };
    let (id, text) = (quote(&id.0), quote(result.text));
    format!(r#"{{"type":"tool_result","tool_use_id":{id},"content":{text}{error}}}"#)
}
