//! Responses as a provider.

use std::{borrow::Cow, collections::HashMap};

use epitome_core::{
    Event, Fact, Tokens,
    event::{CallForm, RawDialect},
    meter::Meter,
};

use super::{CLIENT_CALL_KINDS, legality, recall, stream, synthetic, write};
use crate::{
    append_instruction::{AppendedRequest, has_elements, shapes_answer},
    cache_marks,
    caller::RequestPurpose,
    endpoint::{AnswerForm, CallRoute, Endpoint, ErrorDetails, KeyHeader},
    incoming::{AnswerRun, DigestCollector, MessageDigests, MessageShape},
    json::{self, Json, JsonValue, object, quote},
    legality::{ProviderRules, ShapeFaults, ViolationList},
    media,
    message_builder::{ToolResultInput, UserContent},
    model_answer::FinishReason,
    openai_chat::provider::{BREAKPOINT_MEMBER, error_body, finish_reason},
    plain_request::PlainRequest,
    prompt_blocks::pieces::{INPUT_TEXT, PieceForm, PromptAuthor, PromptMessageKind, PromptPiece},
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

/// OpenAI Responses.
#[derive(Debug)]
pub(crate) struct OpenaiResponses;

/// Path at which OpenAI compacts a history.
const COMPACT: &str = "/v1/responses/compact";

static FACTS: ProviderFacts = ProviderFacts {
    name: "openai-responses",
    dialect: RawDialect::OpenaiResponses,
    title: "OpenAI's Responses",
    vendor: "openai",
    usual_model: "gpt-5.4",
    labels: BodyLabels { request: "a Responses request", response: "a Responses response" },

    endpoint: Endpoint {
        version: "v1",
        is_version_added: false,
        key: KeyHeader::Bearer,
        headers: &[],
        upstream: "openai",
        route: "/v1/responses",
        base: "https://api.openai.com",
    },
    versions: &["v1"],
    client_headers: &[],
    has_target: false,

    keys: RequestKeys { history: "input", content: "content", system: Some("instructions"), tools: "tools" },
    block_member: "content",
    takes_bare_history: true,
    leads_into_system: false,
    required_limit: None,
    remote_history: None,
    rules: &[],

    answer: AnswerFacts { id_key: "id", model_key: "model", is_items: true, finish_tells_calls: false },
    cache: CacheFacts {
        mark_key: Some(cache_marks::BREAKPOINT),
        only_at_marks: false,
        messages_grow: false,
        digest_letter: b'r',
    },
};

impl WireProvider for OpenaiResponses {
    fn facts(&self) -> &'static ProviderFacts {
        &FACTS
    }

    fn call_at(&self, path: &str, _query: &str) -> Option<CallRoute> {
        let purpose = (path == COMPACT).then_some(RequestPurpose::Compaction);
        (path == "/v1/responses" || purpose.is_some()).then_some(CallRoute { purpose, target: None })
    }

    fn counted_call_at(&self, path: &str) -> Option<CallRoute> {
        (path == "/v1/responses/input_tokens").then(CallRoute::default)
    }

    fn count_answer(&self, tokens: Tokens) -> String {
        format!(r#"{{"object":"response.input_tokens","input_tokens":{tokens}}}"#)
    }

    fn call_path(&self, _model: &str, _answer: AnswerForm) -> Cow<'static, str> {
        Cow::Borrowed("responses")
    }

    fn owns_path(&self, path: &str) -> bool {
        path == "/v1/responses" || path.starts_with("/v1/responses/")
    }

    /// Histories are compacted at a path below the one that continues them.
    fn whole_call(&self, path_and_query: &str) -> Option<String> {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let path = path.strip_suffix("/responses/compact")?;
        let mark = if query.is_empty() { "" } else { "?" };
        Some(format!("{path}/responses{mark}{query}"))
    }

    fn is_inference_path(&self, path: &str) -> bool {
        matches!(path, "/v1/responses" | "/v1/responses/compact" | "/v1/responses/input_tokens")
    }

    fn error_body(&self, error: &ErrorDetails<'_>) -> String {
        error_body(error)
    }

    fn read_item(&self, item: &Json<'_>) -> Event {
        super::read_item(item)
    }

    fn read_response(&self, envelope: &ResponseEnvelope, response: &Json<'_>) -> Vec<Event> {
        let items = response.array_at("output").iter().map(super::read_item);
        let mut events: Vec<Event> = items.map(|item| envelope.signed(item)).collect();
        // A response repeats parts of its request: they are known from there, and large.
        let blank = ["output", "instructions", "tools"].into_iter().filter_map(|key| response.get(key));
        let blank: Vec<_> = blank.map(|value| (value, "null")).collect();
        let usage = response.get("usage").filter(|usage| usage.is_object()).map(super::read_usage);
        events.push(envelope.closing(usage, &json::replace_members(response, &blank)));
        events
    }

    fn finish(&self, raw: &Json<'_>, fact: &Fact) -> Option<FinishReason> {
        if matches!(fact, Fact::AssistantSaid { .. }) {
            return None;
        }
        match raw.text_at("status")? {
            "completed" => Some(FinishReason::Stop),
            status => {
                let details = raw.get("incomplete_details");
                let reason = details.and_then(|details| details.text_at("reason"));
                Some(finish_reason(reason.unwrap_or(status)))
            }
        }
    }

    fn is_response(&self, response: &Json<'_>) -> bool {
        response.get("output").is_some_and(|output| output.as_array().is_some())
    }

    fn assembly(&self) -> Box<dyn AnswerAssembly> {
        Box::<stream::ResponsesAssembly>::default()
    }

    fn message_digests(&self, item: &Json<'_>, fact: &Fact) -> MessageDigests {
        let is_message = item.text_at("type").is_none_or(|kind| kind == "message");
        DigestCollector::digests_of(
            FACTS.dialect.name(),
            item,
            &MessageShape {
                is_message: item.text_at("role").is_some() && is_message,
                role: None,
                asked: DigestCollector::block_question,
                run: AnswerRun::Message,
                answer: DigestCollector::block_answer,
                unsaid: &["type", "id", "status", "internal_chat_message_metadata_passthrough"],
                may_join: matches!(fact, Fact::UserSaid { .. }),
            },
        )
    }

    fn referenced_id<'j>(&self, item: &'j Json<'_>) -> Option<&'j str> {
        (item.text_at("type") == Some("item_reference")).then(|| item.text_at("id")).flatten()
    }

    fn item_purpose(&self, item: &Json<'_>) -> Option<RequestPurpose> {
        (item.text_at("type") == Some("compaction_trigger")).then_some(RequestPurpose::Compaction)
    }

    fn sealed_content<'j>(&self, item: &'j Json<'_>) -> Option<&'j str> {
        let is_compaction = matches!(item.text_at("type"), Some("compaction" | "compaction_summary"));
        is_compaction.then(|| item.text_at("encrypted_content")).flatten()
    }

    fn compaction_answer(
        &self,
        said: &SyntheticContent<'_>,
        is_compacted: bool,
    ) -> Option<SyntheticResponse> {
        Some(synthetic::compaction(said, is_compacted))
    }

    fn is_unsendable(&self, item: &Json<'_>) -> bool {
        super::is_empty_reasoning(item)
    }

    fn is_message(&self, own: &Json<'_>) -> bool {
        own.is_object()
    }

    fn write_history(
        &self,
        lines: &[HistoryLine<'_, '_>],
        manner: WriteOptions<'_>,
    ) -> (Vec<WrittenMessage>, HistoryLayout) {
        write::write(lines, manner)
    }

    fn user_words(&self, text: &str) -> String {
        write::words(text)
    }

    fn write_system(&self, texts: &[String]) -> SystemPlacement {
        // The prompt is one text in this format. The breaks between its parts cost tokens that are not counted, so
        // only a few parts are joined: as many as the wrapping of a message, which it does not need, pays for.
        if texts.len() <= 4 {
            SystemPlacement::Prompt(quote(&texts.join("\n")))
        } else {
            SystemPlacement::Message(write::developer(texts))
        }
    }

    fn write_tool(&self, tool: &ToolDefinition<'_>) -> String {
        let head = tool.head();
        match tool.takes {
            ToolParameters::Object(schema) => {
                format!(r#"{{"type":"function",{head},"parameters":{schema}}}"#)
            }
            ToolParameters::Text => format!(r#"{{"type":"custom",{head}}}"#),
        }
    }

    /// Strict functions, the default in this format, may not have optional arguments.
    fn own_tool(&self, said: &str, schema: &str) -> String {
        format!(r#"{{"type":"function",{said},"parameters":{schema},"strict":false}}"#)
    }

    fn user_text(&self, literal: &str) -> String {
        format!(r#"{{"type":"message","role":"user","content":{literal}}}"#)
    }

    fn user_pieces(&self, pieces: &[UserContent<'_>]) -> String {
        let linked = |url: &str| format!(r#"{{"type":"input_image","image_url":{}}}"#, quote(url));
        let piece = |piece: &UserContent<'_>| match piece {
            UserContent::Text(text) => format!(r#"{{"type":"input_text","text":{}}}"#, quote(text)),
            UserContent::Image { mime, bytes } => linked(&media::data_url(mime, bytes)),
            UserContent::ImageUrl(url) => linked(url),
        };
        self.user_text(&json::list(pieces.iter().map(piece)))
    }

    fn result_messages(&self, results: &[ToolResultInput<'_>]) -> Vec<String> {
        let item = |result: &ToolResultInput<'_>| {
            let (id, text) = (quote(&result.call.id.0), quote(result.text));
            let kind = match result.call.form {
                CallForm::Function => "function_call_output",
                CallForm::Custom => "custom_tool_call_output",
            };
            format!(r#"{{"type":"{kind}","call_id":{id},"output":{text}}}"#)
        };
        results.iter().map(item).collect()
    }

    fn plain_request(&self, ask: &PlainRequest<'_>) -> String {
        let message = object([("role", quote("user")), ("content", quote(ask.user))].into_iter());
        let members = [
            ("model", quote(ask.model)),
            ("max_output_tokens", ask.limit.0.to_string()),
            ("store", "false".to_owned()),
            ("instructions", quote(ask.system)),
            ("input", format!("[{message}]")),
        ];
        object(members.into_iter())
    }

    fn appending_barrier(&self, request: &Json<'_>) -> Option<&'static str> {
        let says = |key: &str| request.get(key).is_some_and(|value| !value.is_null());
        let format = request.get("text").and_then(|text| text.get("format"));
        let found = [
            ("text.format", shapes_answer(format)),
            ("previous_response_id", says("previous_response_id")),
            ("conversation", says("conversation")),
        ];
        found.into_iter().find(|(_, binds)| *binds).map(|(setting, _)| setting)
    }

    fn append_message(&self, body: &mut AppendedRequest<'_, '_>, history: &Json<'_>, instruction: &str) {
        let items = history.as_array().unwrap_or_default();
        body.append(history, open_calls(items).into_iter().chain([self.user_text(&quote(instruction))]));
    }

    fn append_settings(&self, body: &mut AppendedRequest<'_, '_>, limit: Tokens) {
        body.replace("background", "false");
        body.set("max_output_tokens", limit.to_string());
        if has_elements(body.request, "tools") {
            body.set("tool_choice", quote("none"));
        }
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
        _rules: &ProviderRules,
        found: &mut ViolationList,
    ) {
        legality::parted(sent.array_at("input"), now.array_at("input"), found);
        let items = |request| legality::sealed_compactions(request);
        crate::legality::compare_compactions(&items(sent), &items(now), found);
    }

    fn error_holder<'j>(&self, event: &'j Json<'_>) -> Option<&'j Json<'j>> {
        event.get("response")
    }

    fn is_before_answer(&self, event: &Json<'_>) -> bool {
        matches!(
            event.text_at("type"),
            Some("response.created" | "response.queued" | "response.in_progress" | "keepalive")
        )
    }

    fn mark_piece(&self, _placer: &MarkPlacer<'_>, piece: &PromptPiece<'_>) -> Option<MarkEdit> {
        if piece.by == PromptAuthor::Model || piece.message.is_none() {
            return None;
        }
        let part = |part: &Json<'_>| {
            let takes = match part.text_at("type")? {
                "text" | "input_text" => says_something(part.text_at("text")?),
                "input_image" | "input_file" => true,
                _ => false,
            };
            takes.then(|| added(part, BREAKPOINT_MEMBER)).flatten()
        };
        match (piece.form, piece.json.get("output")) {
            (PieceForm::Text(kind), _) if piece.message.is_some_and(|message| message.json.is_object()) => {
                listed(kind, piece.json, BREAKPOINT_MEMBER)
            }
            (PieceForm::Block, _) => part(piece.json),
            (PieceForm::Whole, Some(output))
                if matches!(
                    piece.json.text_at("type"),
                    Some("function_call_output" | "custom_tool_call_output")
                ) =>
            {
                match output.as_array() {
                    Some(parts) => part(parts.last()?),
                    None => listed(INPUT_TEXT, output, BREAKPOINT_MEMBER),
                }
            }
            _ => None,
        }
    }

    fn usual_lifetime(&self, request: &Json<'_>) -> u64 {
        request.get("prompt_cache_options").and_then(cache_marks::lifetime).unwrap_or(30 * 60)
    }

    fn prompt_kind(&self, item: &Json<'_>, role: &str) -> PromptMessageKind {
        match item.text_at("type") {
            None | Some("message") => {
                let (by, text) = match role {
                    "assistant" => (PromptAuthor::Model, Some("output_text")),
                    "user" | "system" | "developer" => (PromptAuthor::Client, Some(INPUT_TEXT)),
                    _ => (PromptAuthor::Client, None),
                };
                PromptMessageKind { by, is_tool: false, text }
            }
            Some(kind) => {
                let is_call = kind.ends_with("_call");
                let by =
                    if is_call || kind == "reasoning" { PromptAuthor::Model } else { PromptAuthor::Client };
                PromptMessageKind { by, is_tool: is_call || kind.ends_with("_output"), text: None }
            }
        }
    }

    fn block_cost(&self, block: &Json<'_>, _role: &str, meter: &Meter) -> Tokens {
        render::part_cost(&super::part(block), meter)
    }

    fn cannot_continue(&self, request: &Json<'_>) -> bool {
        let said = |key: &str| request.get(key).filter(|value| !value.is_null());
        let background = said("background").is_some_and(|value| matches!(value.value, JsonValue::Bool(true)));
        background || said("conversation").is_some()
    }

    fn splice(&self) -> Box<dyn AnswerSplice> {
        Box::<recall::ResponsesSplice>::default()
    }

    fn is_whole_answer(&self, answer: &Json<'_>) -> bool {
        self.is_response(answer)
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

/// Stand-ins for the calls among items that have no results.
fn open_calls(items: &[Json<'_>]) -> Vec<String> {
    let is_compaction =
        |item: &Json<'_>| matches!(item.text_at("type"), Some("compaction" | "compaction_summary"));
    let begin = items.iter().rposition(is_compaction).map_or(0, |newest| newest + 1);
    let mut open: HashMap<&str, (usize, &'static str)> = HashMap::new();
    for (index, item) in items.iter().enumerate().skip(begin) {
        let kind = item.text_at("type").unwrap_or("message");
        if let Some((call, _)) = CLIENT_CALL_KINDS.iter().find(|(call, _)| *call == kind) {
            open.extend(item.text_at("call_id").map(|id| (id, (index, *call))));
        } else if CLIENT_CALL_KINDS.iter().any(|(_, output)| *output == kind) {
            // One kind of output names its call by `id`.
            let id = item.text_at("call_id").or_else(|| item.text_at("id"));
            id.map(|id| open.remove(id));
        }
    }
    let mut open: Vec<(usize, &str, &str)> =
        open.into_iter().map(|(id, (index, call))| (index, call, id)).collect();
    open.sort_unstable();
    open.into_iter().map(|(_, call, id)| write::stand_in(call, id)).collect()
}
