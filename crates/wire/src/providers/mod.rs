//! The providers: a directory for each, with everything that knows its JSON and its rules, behind one trait.
//!
//! Code outside these directories never asks which provider it has: it calls [`WireProvider`], or reads its
//! [`ProviderFacts`]. Methods with a default are what most providers have in common.

pub mod anthropic;
pub(crate) mod facts;
pub mod gemini;
pub mod openai_chat;
pub mod openai_responses;

use std::{borrow::Cow, fmt};

use epitome_core::{ContentPart, Event, Fact, Tokens, meter::Meter};

use self::facts::ProviderFacts;
use crate::{
    append_instruction::AppendedRequest,
    caller::RequestPurpose,
    decode_parts,
    endpoint::{AnswerForm, CallRoute, CallTarget, ErrorDetails},
    incoming::{MessageDigests, PriorHistory},
    json::{Json, quote},
    legality::{ProviderRules, ShapeFaults, ViolationList},
    message_builder::{ToolResultInput, UserContent},
    model_answer::FinishReason,
    plain_request::PlainRequest,
    prompt_blocks::pieces::{PromptMessage, PromptMessageKind, PromptPiece},
    recall_tool::{splice_state::AnswerSplice, unstreamed::AnswerCalls},
    render::breakpoints::{MarkEdit, MarkPlacer},
    response::ResponseEnvelope,
    stream::AnswerAssembly,
    synthetic_response::{SyntheticContent, SyntheticResponse},
    tools::ToolDefinition,
    write::{HistoryLayout, HistoryLine, WriteOptions, WrittenMessage, request_envelope::SystemPlacement},
};

/// A provider's wire format: its JSON, its rules and its addresses.
pub(crate) trait WireProvider: fmt::Debug + Sync {
    /// Constant facts of the provider.
    fn facts(&self) -> &'static ProviderFacts;

    // Addresses.

    /// The call at a path, which is in lower case and without empty segments; `None` if it is no call of this format.
    fn call_at(&self, path: &str, query: &str) -> Option<CallRoute>;

    /// Path of a call below the folder of the version.
    fn call_path(&self, model: &str, answer: AnswerForm) -> Cow<'static, str>;

    /// Adds to a request what its path says.
    fn with_target<'b>(&self, body: &'b str, _target: &CallTarget) -> Cow<'b, str> {
        Cow::Borrowed(body)
    }

    /// Removes from a request what stands in its path.
    fn without_target<'b>(&self, body: &'b str) -> Cow<'b, str> {
        Cow::Borrowed(body)
    }

    /// The call whose tokens are counted at a path, which is in lower case and without empty segments.
    fn counted_call_at(&self, _path: &str) -> Option<CallRoute> {
        None
    }

    /// The request in the body of a counting call.
    fn counted_request<'b>(&self, body: &'b str) -> Cow<'b, str> {
        Cow::Borrowed(body)
    }

    /// Writes the answer to a counting call.
    fn count_answer(&self, tokens: Tokens) -> String {
        format!(r#"{{"input_tokens":{tokens}}}"#)
    }

    /// Returns true if the provider owns a path that is no call.
    fn owns_path(&self, path: &str) -> bool;

    /// Returns true if a path, as a client writes it, leads to a model or counts its tokens.
    fn is_inference_path(&self, path: &str) -> bool;

    /// Returns true if a path, as a client writes it, lists models or describes one.
    fn is_model_path(&self, path: &str) -> bool {
        path == "/v1/models" || path.starts_with("/v1/models/")
    }

    /// The path and query of a call that continues a history with an answer in one piece, in place of those of another
    /// call; `None` if they are the same.
    fn whole_call(&self, _path_and_query: &str) -> Option<String> {
        None
    }

    /// Writes an error in the provider's form.
    fn error_body(&self, error: &ErrorDetails<'_>) -> String;

    // Reading.

    /// Reads one message or item of a history.
    fn read_item(&self, item: &Json<'_>) -> Event;

    /// Reads the parts of a system prompt that is a member of its own: a text, or blocks.
    fn system_parts(&self, system: &Json<'_>) -> Vec<ContentPart> {
        anthropic::system_parts(system)
    }

    /// Reads the definitions in an element of the tool list.
    fn tool_parts(&self, tool: &Json<'_>) -> Vec<ContentPart> {
        vec![decode_parts::tool_part(tool)]
    }

    /// Joins a body that is a list of pieces into one response; `None` if it is one already.
    fn joined_response(&self, _body: &Json<'_>) -> Option<String> {
        None
    }

    /// Reads a response that was not streamed.
    fn read_response(&self, envelope: &ResponseEnvelope, response: &Json<'_>) -> Vec<Event>;

    /// Reads the reason an answer ended from the raw form of one of its events.
    fn finish(&self, raw: &Json<'_>, fact: &Fact) -> Option<FinishReason>;

    /// Returns true if a body has the shape of a response.
    fn is_response(&self, response: &Json<'_>) -> bool;

    /// Starts an empty streamed answer.
    fn assembly(&self) -> Box<dyn AnswerAssembly>;

    // Recognising histories.

    /// Digests of an item by which it is recognised. `fact` is the fact it was read as.
    fn message_digests(&self, item: &Json<'_>, fact: &Fact) -> MessageDigests;

    /// Id of the item that an item only names.
    fn referenced_id<'j>(&self, _item: &'j Json<'_>) -> Option<&'j str> {
        None
    }

    /// Purpose of a request that an item shows by its kind.
    fn item_purpose(&self, _item: &Json<'_>) -> Option<RequestPurpose> {
        None
    }

    /// The text of an item that stands for a compacted history and that only its author reads.
    fn sealed_content<'j>(&self, _item: &'j Json<'_>) -> Option<&'j str> {
        None
    }

    /// Writes an answer that is such an item; `None` if the provider has none.
    fn compaction_answer(
        &self,
        _said: &SyntheticContent<'_>,
        _is_compacted: bool,
    ) -> Option<SyntheticResponse> {
        None
    }

    /// Returns true if an item is left out of composed requests, though the client sends it.
    fn is_unsendable(&self, _item: &Json<'_>) -> bool {
        false
    }

    /// Returns true if a message is a compaction that the provider signed: it stands first, and thinking after it stays
    /// valid.
    fn is_signed_compaction(&self, _message: &Json<'_>) -> bool {
        false
    }

    /// Returns true if a message begins with such a compaction.
    fn begins_with_compaction(&self, _message: &Json<'_>) -> bool {
        false
    }

    /// Output limit of a request, whose members `setting` looks up.
    fn answer_limit<'a>(&self, setting: &dyn Fn(&str) -> Option<Json<'a>>) -> Option<u64> {
        let names = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
        names.into_iter().find_map(|name| setting(name)?.raw.parse().ok())
    }

    /// Place of the history before the request, if only the provider has it.
    fn prior_history<'a>(&self, _setting: &dyn Fn(&str) -> Option<Json<'a>>) -> Option<PriorHistory> {
        None
    }

    // Writing.

    /// Returns true if the raw form of a compaction is a message, and not a record of an agent's.
    fn is_message(&self, own: &Json<'_>) -> bool {
        own.text_at("role").is_some()
    }

    /// Writes a history.
    fn write_history(
        &self,
        lines: &[HistoryLine<'_, '_>],
        manner: WriteOptions<'_>,
    ) -> (Vec<WrittenMessage>, HistoryLayout);

    /// Returns true if a written message may not be the last one, whatever the model.
    fn must_go_on(&self, _message: &str) -> bool {
        false
    }

    /// Writes a message in the user's name.
    fn user_words(&self, text: &str) -> String;

    /// Writes a model's name as a request's member.
    fn model_value(&self, model: &str) -> String {
        quote(model)
    }

    /// The model that a request's member names.
    fn model_name<'m>(&self, member: &'m str) -> &'m str {
        member
    }

    /// Writes a system prompt that came in this format; `None` if it has no member for one.
    fn own_system(&self, own: &Json<'_>, _manner: WriteOptions<'_>) -> Option<String> {
        Some(own.raw.to_owned())
    }

    /// Writes a system prompt of texts that came in another format.
    fn write_system(&self, texts: &[String]) -> SystemPlacement;

    /// Writes one tool definition.
    fn write_tool(&self, tool: &ToolDefinition<'_>) -> String;

    /// Writes a list of written definitions.
    fn tool_list(&self, tools: &[String]) -> String {
        format!("[{}]", tools.join(","))
    }

    /// Writes a definition of our own as an element of the tool list. `said` is its name and description as members.
    fn own_tool(&self, said: &str, schema: &str) -> String;

    // Plain messages.

    /// Writes a user's message of one text, given as a JSON literal.
    fn user_text(&self, literal: &str) -> String;

    /// Writes a user's message of several pieces.
    fn user_pieces(&self, pieces: &[UserContent<'_>]) -> String;

    /// Writes a system prompt as the member that holds it; if the format has none, as a message.
    fn system_literal(&self, text: &str) -> String {
        quote(text)
    }

    /// Writes the results of the calls of one answer: one message where the format wants them together.
    fn result_messages(&self, results: &[ToolResultInput<'_>]) -> Vec<String>;

    /// Writes a request with a system prompt and one message.
    fn plain_request(&self, ask: &PlainRequest<'_>) -> String;

    /// The setting that prevents a request from being asked for a text.
    fn appending_barrier(&self, request: &Json<'_>) -> Option<&'static str>;

    /// Adds an instruction at the end of a history that is a list.
    fn append_message(&self, body: &mut AppendedRequest<'_, '_>, history: &Json<'_>, instruction: &str);

    /// Changes the settings of a request to those of a plain question.
    fn append_settings(&self, body: &mut AppendedRequest<'_, '_>, limit: Tokens);

    /// Writes an answer that no model gave.
    fn synthetic_response(&self, said: &SyntheticContent<'_>) -> SyntheticResponse;

    // Rules.

    /// Finds everything that the provider would refuse about a request.
    fn check(
        &self,
        request: &Json<'_>,
        messages: &[Json<'_>],
        rules: &ProviderRules,
        found: &mut ViolationList,
    );

    /// Finds faults in the shape of a message by itself.
    fn check_shape(&self, message: &Json<'_>, found: &mut ShapeFaults);

    /// Finds everything that the provider would refuse because of a request that was sent before.
    fn check_against(
        &self,
        sent: &Json<'_>,
        now: &Json<'_>,
        rules: &ProviderRules,
        found: &mut ViolationList,
    );

    /// The member of an error event that holds the error, beside the event itself.
    fn error_holder<'j>(&self, _event: &'j Json<'_>) -> Option<&'j Json<'j>> {
        None
    }

    /// Returns true if an event of a stream says nothing about the answer yet.
    fn is_before_answer(&self, _event: &Json<'_>) -> bool {
        false
    }

    // Prompt caches.

    /// The edit that marks a piece; `None` if the provider takes no mark there.
    fn mark_piece(&self, placer: &MarkPlacer<'_>, piece: &PromptPiece<'_>) -> Option<MarkEdit>;

    /// Lifetime of a mark that names none.
    fn usual_lifetime(&self, request: &Json<'_>) -> u64;

    /// The blocks of a system prompt that is not a text.
    fn system_blocks<'j>(&self, system: &'j Json<'j>) -> Option<&'j [Json<'j>]> {
        system.as_array()
    }

    /// Kind of a message, as a cache sees it.
    fn prompt_kind(&self, message: &Json<'_>, role: &str) -> PromptMessageKind;

    /// Returns true if a block is a call or a result.
    fn is_tool_block(&self, _block: &Json<'_>) -> bool {
        false
    }

    /// Reads a block of the system prompt.
    fn system_block(&self, block: &Json<'_>) -> ContentPart {
        anthropic::block::user_part(block)
    }

    /// Counts a block of a message.
    fn block_cost(&self, block: &Json<'_>, role: &str, meter: &Meter) -> Tokens;

    /// Counts a message without its content and its wrapping; `None` if there is nothing to count.
    fn beside_cost(&self) -> Option<fn(&PromptMessage<'_>, &Meter) -> Tokens> {
        None
    }

    // The recall tool.

    /// Returns true if a second answer could not be appended to the first.
    fn cannot_continue(&self, _request: &Json<'_>) -> bool {
        false
    }

    /// Returns true if a request without tools would leave it to the model to call one.
    fn leaves_tool_choice(&self, request: &Json<'_>) -> bool {
        let Some(choice) = request.get("tool_choice").filter(|choice| !choice.is_null()) else { return true };
        choice.as_text().or_else(|| choice.text_at("type")) == Some("auto")
    }

    /// Place of a definition of ours in a tool list that has some, and its text there.
    fn tool_insertion(&self, tools: &[Json<'_>], tool: &str) -> Option<(usize, String)> {
        Some((tools.first()?.start, format!("{tool},")))
    }

    /// Starts to watch a stream for calls of the recall tool.
    fn splice(&self) -> Box<dyn AnswerSplice>;

    /// Returns true if a whole answer can be read for calls of the tool.
    fn is_whole_answer(&self, answer: &Json<'_>) -> bool;

    /// The calls of a whole answer.
    fn answer_calls(&self, answer: &Json<'_>) -> AnswerCalls;

    /// A whole answer without calls of the tool.
    fn without_recalls(&self, answer: &Json<'_>) -> String;

    /// Joins two whole answers: the second with the first one's content before its own, under the id that the client
    /// knows. The edits are of `last`.
    fn joined_answers<'j>(&self, first: &Json<'_>, last: &'j Json<'j>) -> Vec<(&'j Json<'j>, String)>;
}
