//! A request as a prompt cache sees it.
//!
//! A [`Prompt`] holds what a cache compares: tools, system prompt and history, block by block, byte for byte, without
//! cache marks. A string counts as the one text block it stands for, since clients write a block when they mark it
//! and a string when they do not. Anthropic's blocks are compared with their role, because its messages may grow at
//! their end; in other formats a message never grows, and each part is compared with all other members of its
//! message.
//!
//! A block's cost is the size that [`recount`](crate::render::recount) finds in it, the wrapping of a message with
//! its first block, so that the blocks add up to the recount of the request. A [`PromptMemo`] remembers every block
//! it has counted, so that each text is counted once and a session whose requests grow at their end only costs
//! reading and hashing.

pub(crate) mod pieces;

use std::{collections::HashMap, sync::Arc};

use epitome_core::{
    ContentPart, Digest, Tokens,
    cost::{CacheLayer, Prompt, PromptBlock},
    meter::Meter,
};

use self::pieces::{PieceForm, PromptMessage, PromptPiece};
use crate::{
    cache_marks::{self, CacheMark},
    decode_parts,
    error::WireError,
    format::Format,
    json::Json,
    render,
};

/// The counts of blocks met before.
///
/// ```
/// use std::sync::Arc;
///
/// use epitome_core::{cost::{RequestExtension, extends}, meter::{Meter, TokenOverhead}, tokens::EstimateCounter};
/// use epitome_wire::{Format, PromptMemo};
///
/// let mut memo = PromptMemo::new(Arc::new(Meter::new(Arc::new(EstimateCounter), TokenOverhead::default())));
/// let mark = r#""cache_control":{"type":"ephemeral"}"#;
/// let first = format!(r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"hi",{mark}}}]}}]}}"#);
/// let first = Format::Anthropic.prompt(&first, &mut memo)?;
/// assert_eq!(first.blocks[0].breakpoint, Some(300));
/// let next = r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Hello."}]}"#;
/// assert_eq!(extends(&first, &Format::Anthropic.prompt(next, &mut memo)?), RequestExtension::Extends);
/// # Ok::<(), epitome_wire::WireError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PromptMemo {
    meter: Arc<Meter>,
    counts: HashMap<Digest, Tokens>,
}

/// Number of counts kept: some megabytes, and more blocks than any request has.
const MAX_KEPT_COUNTS: usize = 1 << 16;

impl PromptMemo {
    /// Makes an empty memo; `meter` counts the blocks.
    pub fn new(meter: Arc<Meter>) -> Self {
        Self { meter, counts: HashMap::new() }
    }

    /// The meter that counts.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    fn count(&mut self, digest: Digest, cost: impl FnOnce(&Meter) -> Tokens) -> Tokens {
        if let Some(tokens) = self.counts.get(&digest) {
            return *tokens;
        }
        if self.counts.len() >= MAX_KEPT_COUNTS {
            self.counts.clear();
        }
        let tokens = cost(&self.meter);
        self.counts.insert(digest, tokens);
        tokens
    }
}

pub(crate) fn prompt(format: Format, body: &str, memo: &mut PromptMemo) -> Result<Prompt, WireError> {
    const WHAT: &str = "a request, to see it as a cache does";
    let request = Json::parse(body, WHAT)?.require_object(WHAT)?;
    let usual = format.provider().usual_lifetime(&request);
    let mut hand = PieceHasher { format, memo, buffer: Vec::new(), shell: None };
    let mut blocks: Vec<PromptBlock> = Vec::new();
    for piece in pieces::pieces(format, &request) {
        let digest = hand.digest(&piece);
        let mut tokens = hand.tokens(&piece, digest);
        if blocks.is_empty() {
            tokens += render::request_overhead(&hand.memo.meter);
            if piece.layer == CacheLayer::Tools {
                tokens += hand.memo.meter.overhead().tools;
            }
        }
        let breakpoint = breakpoint(&piece, usual);
        blocks.push(PromptBlock { layer: piece.layer, digest, tokens, tool: piece.is_tool, breakpoint });
    }
    // A mark on the whole request is one on the last block.
    if format.facts().cache.only_at_marks
        && let (Some(last), Some(mark)) = (blocks.last_mut(), CacheMark::of_object(&request))
    {
        last.breakpoint = last.breakpoint.or(Some(mark.lifetime(usual)));
    }
    Ok(Prompt { blocks })
}

/// Lifetime asked for everything up to a piece.
fn breakpoint(piece: &PromptPiece<'_>, usual: u64) -> Option<u64> {
    let mut asked = None;
    cache_marks::each(piece.json, &mut |mark| {
        asked = mark.requests_caching().then(|| mark.lifetime(usual)).or(asked);
    });
    // A mark on a message is one on its last part.
    let message = piece.message.filter(|message| piece.form != PieceForm::Whole && message.ends.1);
    let own = message.and_then(|message| CacheMark::of_object(message.json));
    own.map(|mark| mark.lifetime(usual)).or(asked)
}

/// Hashes and counts pieces.
struct PieceHasher<'m> {
    format: Format,
    memo: &'m mut PromptMemo,
    buffer: Vec<u8>,
    /// Start of the newest message, and the digest of its members other than the content.
    shell: Option<(usize, Digest)>,
}

impl PieceHasher<'_> {
    fn digest(&mut self, piece: &PromptPiece<'_>) -> Digest {
        let provider = self.format.provider();
        let shell =
            piece.message.filter(|_| !provider.facts().cache.messages_grow && piece.form != PieceForm::Whole);
        let shell = shell.map(|message| self.shell(&message));
        let out = &mut self.buffer;
        out.clear();
        out.push(provider.facts().cache.digest_letter);
        let role = match (piece.layer, &piece.message) {
            (_, Some(message)) => message.role,
            (CacheLayer::Tools, None) => "\u{0}tools",
            (CacheLayer::System | CacheLayer::Messages, None) => "\u{0}system",
        };
        out.extend((role.len() as u64).to_le_bytes());
        out.extend(role.as_bytes());
        out.extend(shell.iter().flat_map(|shell| shell.0));
        let output = piece.json.get("output").filter(|output| output.as_text().is_some());
        match (piece.form, output) {
            (PieceForm::Text(kind), _) => text(kind, piece.json.raw, out),
            // An output that is a string is the one part it stands for.
            (PieceForm::Whole, Some(output)) => {
                let mut list = vec![b'['];
                text("input_text", output.raw, &mut list);
                list.push(b']');
                with_member(piece.json, output, &list, out);
            }
            _ => cache_marks::write_without(piece.json, out),
        }
        Digest::of(out)
    }

    /// Hashes a message's members other than its content.
    fn shell(&mut self, message: &PromptMessage<'_>) -> Digest {
        if let Some((start, digest)) = self.shell
            && start == message.json.start
        {
            return digest;
        }
        self.buffer.clear();
        match message.json.get(self.format.facts().keys.content) {
            Some(content) => with_member(message.json, content, b"", &mut self.buffer),
            // An input that is only a string.
            None => self.buffer.extend(BARE_MESSAGE_MEMBERS.as_bytes()),
        }
        let digest = Digest::of(&self.buffer);
        self.shell = Some((message.json.start, digest));
        digest
    }

    fn tokens(&mut self, piece: &PromptPiece<'_>, digest: Digest) -> Tokens {
        let format = self.format;
        let mut tokens = self.memo.count(digest, |meter| cost(format, piece, meter));
        let Some(message) = piece.message.filter(|_| piece.form != PieceForm::Whole) else { return tokens };
        if message.ends.0 {
            tokens += self.memo.meter.overhead().message;
        }
        if let Some(beside) = format.provider().beside_cost().filter(|_| message.ends.1) {
            let shell = self.shell(&message);
            tokens += self.memo.count(shell, |meter| beside(&message, meter));
        }
        tokens
    }
}

/// Members that a bare input has once it stands in a list as a message.
const BARE_MESSAGE_MEMBERS: &str = r#"{"role":"user","content":}"#;

/// Adds the bytes of an object without its marks, with another value for one member.
fn with_member(object: &Json<'_>, member: &Json<'_>, value: &[u8], out: &mut Vec<u8>) {
    let place = member.start..cache_marks::end(member);
    let mut cuts = cache_marks::mark_ranges(object);
    cuts.retain(|cut| !cut.is_empty() && (cut.end <= place.start || place.end <= cut.start));
    cuts.push(place.clone());
    cuts.sort_by_key(|cut| cut.start);
    let mut from = object.start;
    for cut in cuts {
        out.extend_from_slice(object.slice(from..cut.start).as_bytes());
        if cut == place {
            out.extend_from_slice(value);
        }
        from = cut.end;
    }
    out.extend_from_slice(object.slice(from..cache_marks::end(object)).as_bytes());
}

/// Writes the text block that a string stands for.
fn text(kind: &str, literal: &str, out: &mut Vec<u8>) {
    for piece in [r#"{"type":""#, kind, r#"","text":"#, literal, "}"] {
        out.extend(piece.as_bytes());
    }
}

/// Counts a piece without the wrapping of its message.
fn cost(format: Format, piece: &PromptPiece<'_>, meter: &Meter) -> Tokens {
    let json = piece.json;
    let provider = format.provider();
    let part = |part: &ContentPart| render::part_cost(part, meter);
    match (piece.form, &piece.message) {
        (PieceForm::Tool, _) => {
            provider.tool_parts(json).iter().map(|tool| render::tool_cost(tool, meter)).sum()
        }
        (PieceForm::Text(_), _) => meter.text(json.as_text().unwrap_or_default()),
        (PieceForm::Whole, Some(_)) => render::message_cost(format, json, meter),
        (PieceForm::Whole, None) => part(&decode_parts::opaque_part(json, "content")),
        (PieceForm::Block, None) => part(&provider.system_block(json)),
        (PieceForm::Block, Some(message)) => provider.block_cost(json, message.role, meter),
    }
}
