//! A request, split into the pieces that a cache compares.

use epitome_core::cost::Layer;

use crate::{decoded, format::Format, json::Json, request::Keys};

/// A piece of a request.
pub(crate) struct Piece<'j> {
    pub(crate) layer: Layer,
    pub(crate) by: By,
    /// The message or item it belongs to, if any.
    pub(crate) message: Option<Message<'j>>,
    pub(crate) json: &'j Json<'j>,
    pub(crate) form: Form,
    /// True if it is a call or a result.
    pub(crate) is_tool: bool,
}

/// A message, and the part of it that a piece covers.
#[derive(Clone, Copy)]
pub(crate) struct Message<'j> {
    /// The message; for an input that is only a string, that string.
    pub(crate) json: &'j Json<'j>,
    pub(crate) role: &'j str,
    /// True if the piece is the first of its message, and true if it is the last.
    pub(crate) ends: (bool, bool),
}

/// Author of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Client,
    Model,
}

/// Form of a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A tool definition.
    Tool,
    /// A content block or part.
    Block,
    /// A string that stands for one text block of this type.
    Text(&'static str),
    /// A message or item, or a system prompt of unknown form, compared as a whole.
    Whole,
}

/// The pieces of a request: tools, system prompt, messages.
pub(crate) fn pieces<'j>(format: Format, request: &'j Json<'j>) -> Vec<Piece<'j>> {
    let keys = Keys::of(format);
    let said = |key: &str| request.get(key).filter(|value| !value.is_null());
    let mut pieces = Vec::new();
    if let Some(tools) = said(keys.tools) {
        let tools = tools.as_array().unwrap_or(std::slice::from_ref(tools));
        pieces.extend(tools.iter().map(|tool| standing(Layer::Tools, tool, Form::Tool)));
    }
    if let Some(system) = keys.system.and_then(said) {
        let block = |block| standing(Layer::System, block, Form::Block);
        match (system.as_text(), system.as_array()) {
            (Some(_), _) => pieces.push(standing(Layer::System, system, Form::Text("text"))),
            (_, Some(blocks)) => pieces.extend(blocks.iter().map(block)),
            _ => pieces.push(standing(Layer::System, system, Form::Whole)),
        }
    }
    match said(keys.history) {
        Some(only) if format == Format::OpenaiResponses && only.as_text().is_some() => {
            let message = Message { json: only, role: "user", ends: (true, true) };
            pieces
                .push(Piece { message: Some(message), ..standing(Layer::Messages, only, Form::Text(INPUT)) });
        }
        Some(history) => each_message(format, history.as_array().unwrap_or_default(), &mut pieces),
        None => {}
    }
    pieces
}

/// Responses' name for text that the model did not write.
const INPUT: &str = "input_text";

fn standing<'j>(layer: Layer, json: &'j Json<'j>, form: Form) -> Piece<'j> {
    Piece { layer, by: By::Client, message: None, json, form, is_tool: false }
}

fn each_message<'j>(format: Format, messages: &'j [Json<'j>], pieces: &mut Vec<Piece<'j>>) {
    let mut layer = if format == Format::Anthropic { Layer::Messages } else { Layer::System };
    for json in messages {
        let role = json.text_at("role").unwrap_or_default();
        // A system prompt that is not a member of its own is the beginning of the history.
        if !matches!(role, "system" | "developer") {
            layer = Layer::Messages;
        }
        let kind = match format {
            Format::OpenaiChat => chat(json, role),
            Format::OpenaiResponses => responses(json, role),
            Format::Anthropic => anthropic(role),
        };
        let piece = |part: &'j Json<'j>, form, ends| Piece {
            layer,
            by: kind.by,
            message: Some(Message { json, role, ends }),
            json: part,
            form,
            is_tool: kind.is_tool || (format == Format::Anthropic && is_tool_block(part)),
        };
        let content = kind.text.and_then(|text| Some((text, json.get("content")?)));
        match content.map(|(text, content)| (text, content, content.as_array())) {
            Some((_, _, Some(blocks @ [_, ..]))) => {
                let ends = |index: usize| (index == 0, index + 1 == blocks.len());
                let block = |(index, block)| piece(block, Form::Block, ends(index));
                pieces.extend(blocks.iter().enumerate().map(block));
            }
            Some((text, content, _)) if content.as_text().is_some() => {
                pieces.push(piece(content, Form::Text(text), (true, true)));
            }
            _ => pieces.push(piece(json, Form::Whole, (true, true))),
        }
    }
}

/// Kind of a message.
struct Kind {
    by: By,
    is_tool: bool,
    /// Type of a text in its content, if its content is compared part by part.
    text: Option<&'static str>,
}

fn anthropic(role: &str) -> Kind {
    let by = if role == "assistant" { By::Model } else { By::Client };
    let text = matches!(role, "user" | "assistant" | "system").then_some("text");
    Kind { by, is_tool: false, text }
}

fn is_tool_block(block: &Json<'_>) -> bool {
    let kind = block.text_at("type").unwrap_or_default();
    kind.ends_with("tool_use") || kind.ends_with("tool_result")
}

fn chat(message: &Json<'_>, role: &str) -> Kind {
    let by = if role == "assistant" { By::Model } else { By::Client };
    let calls = || ["tool_calls", "function_call"].iter().any(|key| decoded::count(message.get(key)) > 0);
    let (is_tool, is_known) = match role {
        "tool" => (true, message.text_at("tool_call_id").is_some()),
        "function" => (true, message.text_at("name").is_some()),
        "assistant" => (calls(), true),
        "user" | "system" | "developer" => (false, true),
        _ => (false, false),
    };
    Kind { by, is_tool, text: is_known.then_some("text") }
}

fn responses(item: &Json<'_>, role: &str) -> Kind {
    match item.text_at("type") {
        None | Some("message") => {
            let (by, text) = match role {
                "assistant" => (By::Model, Some("output_text")),
                "user" | "system" | "developer" => (By::Client, Some(INPUT)),
                _ => (By::Client, None),
            };
            Kind { by, is_tool: false, text }
        }
        Some(kind) => {
            let is_call = kind.ends_with("_call");
            let by = if is_call || kind == "reasoning" { By::Model } else { By::Client };
            Kind { by, is_tool: is_call || kind.ends_with("_output"), text: None }
        }
    }
}
