//! A request, split into the pieces that a cache compares.

use epitome_core::cost::CacheLayer;

use crate::{format::Format, json::Json};

/// A piece of a request.
pub(crate) struct PromptPiece<'j> {
    pub(crate) layer: CacheLayer,
    pub(crate) by: PromptAuthor,
    /// The message or item it belongs to, if any.
    pub(crate) message: Option<PromptMessage<'j>>,
    pub(crate) json: &'j Json<'j>,
    pub(crate) form: PieceForm,
    /// True if it is a call or a result.
    pub(crate) is_tool: bool,
}

/// A message, and the part of it that a piece covers.
#[derive(Clone, Copy)]
pub(crate) struct PromptMessage<'j> {
    /// The message; for an input that is only a string, that string.
    pub(crate) json: &'j Json<'j>,
    pub(crate) role: &'j str,
    /// True if the piece is the first of its message, and true if it is the last.
    pub(crate) ends: (bool, bool),
}

/// Author of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromptAuthor {
    Client,
    Model,
}

/// Form of a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceForm {
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
pub(crate) fn pieces<'j>(format: Format, request: &'j Json<'j>) -> Vec<PromptPiece<'j>> {
    let provider = format.provider();
    let keys = provider.facts().keys;
    let said = |key: &str| request.get(key).filter(|value| !value.is_null());
    let mut pieces = Vec::new();
    if let Some(tools) = said(keys.tools) {
        let tools = tools.as_array().unwrap_or(std::slice::from_ref(tools));
        pieces.extend(tools.iter().map(|tool| standing(CacheLayer::Tools, tool, PieceForm::Tool)));
    }
    if let Some(system) = keys.system.and_then(said) {
        let block = |block| standing(CacheLayer::System, block, PieceForm::Block);
        match (system.as_text(), provider.system_blocks(system)) {
            (Some(_), _) => pieces.push(standing(CacheLayer::System, system, PieceForm::Text("text"))),
            (_, Some(blocks)) => pieces.extend(blocks.iter().map(block)),
            _ => pieces.push(standing(CacheLayer::System, system, PieceForm::Whole)),
        }
    }
    match said(keys.history) {
        Some(only) if provider.facts().takes_bare_history && only.as_text().is_some() => {
            let message = PromptMessage { json: only, role: "user", ends: (true, true) };
            pieces.push(PromptPiece {
                message: Some(message),
                ..standing(CacheLayer::Messages, only, PieceForm::Text(INPUT_TEXT))
            });
        }
        Some(history) => each_message(format, history.as_array().unwrap_or_default(), &mut pieces),
        None => {}
    }
    pieces
}

/// Responses' name for text that the model did not write.
pub(crate) const INPUT_TEXT: &str = "input_text";

fn standing<'j>(layer: CacheLayer, json: &'j Json<'j>, form: PieceForm) -> PromptPiece<'j> {
    PromptPiece { layer, by: PromptAuthor::Client, message: None, json, form, is_tool: false }
}

fn each_message<'j>(format: Format, messages: &'j [Json<'j>], pieces: &mut Vec<PromptPiece<'j>>) {
    let provider = format.provider();
    let content = provider.facts().keys.content;
    let mut layer =
        if provider.facts().cache.messages_grow { CacheLayer::Messages } else { CacheLayer::System };
    for json in messages {
        let role = json.text_at("role").unwrap_or_default();
        // A system prompt that is not a member of its own is the beginning of the history.
        if !matches!(role, "system" | "developer") {
            layer = CacheLayer::Messages;
        }
        let kind = provider.prompt_kind(json, role);
        let piece = |part: &'j Json<'j>, form, ends| PromptPiece {
            layer,
            by: kind.by,
            message: Some(PromptMessage { json, role, ends }),
            json: part,
            form,
            is_tool: kind.is_tool || provider.is_tool_block(part),
        };
        let content = kind.text.and_then(|text| Some((text, json.get(content)?)));
        match content.map(|(text, content)| (text, content, content.as_array())) {
            Some((_, _, Some(blocks @ [_, ..]))) => {
                let ends = |index: usize| (index == 0, index + 1 == blocks.len());
                let block = |(index, block)| piece(block, PieceForm::Block, ends(index));
                pieces.extend(blocks.iter().enumerate().map(block));
            }
            Some((text, content, _)) if content.as_text().is_some() => {
                pieces.push(piece(content, PieceForm::Text(text), (true, true)));
            }
            _ => pieces.push(piece(json, PieceForm::Whole, (true, true))),
        }
    }
}

/// Kind of a message.
pub(crate) struct PromptMessageKind {
    pub(crate) by: PromptAuthor,
    pub(crate) is_tool: bool,
    /// Type of a text in its content, if its content is compared part by part.
    pub(crate) text: Option<&'static str>,
}
