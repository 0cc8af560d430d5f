//! Thinking compared with a request that was sent before, for the rules that bind it to its place.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    rc::Rc,
};

use super::legality::is_thinking;
use crate::{
    cache_marks,
    json::Json,
    legality::{
        ProviderRule, ProviderRules, SealedCompaction, ViolationKind, ViolationList, compare_compactions,
    },
};

/// Finds everything that the provider would refuse about `now` because of `sent`.
pub(crate) fn check(sent: &Json<'_>, now: &Json<'_>, rules: &ProviderRules, found: &mut ViolationList) {
    bound(sent, now, rules, found);
    compare_compactions(&sealed_compactions(sent), &sealed_compactions(now), found);
}

/// The compactions of a request that only their provider can read.
fn sealed_compactions<'j>(request: &'j Json<'_>) -> Vec<SealedCompaction<'j>> {
    let messages = request.array_at("messages").iter().enumerate();
    let blocks = messages.flat_map(|(message, said)| {
        let blocks = said.array_at("content").iter().enumerate();
        blocks.map(move |(block, json)| (message, block, json))
    });
    blocks.filter_map(|(message, block, json)| SealedCompaction::read(message, Some(block), json)).collect()
}

/// A request as a list of blocks, in the order a provider reads them.
struct RequestBlocks<'j> {
    /// System prompt and tools.
    head: [Vec<Cow<'j, str>>; 2],
    blocks: Vec<RequestBlock<'j>>,
}

/// A content block; a string is one.
struct RequestBlock<'j> {
    message: usize,
    place: usize,
    role: &'j str,
    json: &'j Json<'j>,
    /// Number of blocks before it that are not thinking.
    ahead: usize,
}

impl<'j> RequestBlocks<'j> {
    fn of(request: &'j Json<'j>) -> Self {
        let list = |key: &str| match request.get(key) {
            Some(value) => {
                value.as_array().unwrap_or(std::slice::from_ref(value)).iter().map(unmarked).collect()
            }
            None => Vec::new(),
        };
        let mut blocks = Vec::new();
        let mut ahead = 0;
        for (message, said) in request.array_at("messages").iter().enumerate() {
            let Some(content) = said.get("content") else { continue };
            let role = said.text_at("role").unwrap_or_default();
            let all = content.as_array().unwrap_or(std::slice::from_ref(content));
            for (place, json) in all.iter().enumerate() {
                blocks.push(RequestBlock { message, place, role, json, ahead });
                ahead += usize::from(!is_thinking(json));
            }
        }
        Self { head: [list("system"), list("tools")], blocks }
    }

    fn thinking(&self) -> impl Iterator<Item = &RequestBlock<'j>> {
        self.blocks.iter().filter(|block| is_thinking(block.json))
    }

    fn rest(&self) -> impl Iterator<Item = (&'j str, Cow<'j, str>)> {
        self.blocks
            .iter()
            .filter(|block| !is_thinking(block.json))
            .map(|block| (block.role, unmarked(block.json)))
    }
}

/// A block without its cache mark; a string as the block it stands for.
fn unmarked<'j>(json: &Json<'j>) -> Cow<'j, str> {
    match json.as_text() {
        Some(_) => format!(r#"{{"type":"text","text":{}}}"#, json.raw).into(),
        None => cache_marks::without(json),
    }
}

fn bound<'j>(sent: &'j Json<'j>, now: &'j Json<'j>, rules: &ProviderRules, found: &mut ViolationList) {
    let (sent, now) = (RequestBlocks::of(sent), RequestBlocks::of(now));
    let is_same_head = sent.head == now.head;
    let same = sent.rest().zip(now.rest()).take_while(|(one, other)| one == other).count();
    let same = if is_same_head { same } else { 0 };
    // Blocks after the end of everything that was sent are new, and so is thinking bound to them.
    let length = sent.rest().count();
    let is_new = |block: &RequestBlock<'_>| is_same_head && same == length && block.ahead >= length;
    let mut known = SentThinking::of(&sent);
    for block in now.thinking() {
        let place = known.next(block);
        if place == ThinkingMatch::Unknown && !is_new(block) {
            found.add(block.message, block.place, ViolationKind::ThinkingAltered);
        } else if rules.has(ProviderRule::PreservedThinking)
            && !is_new(block)
            && !(is_same_head && block.ahead <= same && place == ThinkingMatch::Next)
        {
            found.add(block.message, block.place, ViolationKind::ThinkingAfterChange);
        }
    }
    if rules.has(ProviderRule::ThinkingStaysInOpenLoop) {
        dropped(&sent, &now, found);
    }
}

/// The thinking that was sent, in order.
struct SentThinking<'j> {
    /// Bytes of each, and the number of blocks before it.
    sent: Vec<(&'j str, usize)>,
    /// Index of each one's first occurrence.
    first: HashMap<(&'j str, usize), usize>,
    bytes: HashSet<&'j str>,
    /// Index of the last one that was met again.
    last: Option<usize>,
}

/// Position of thinking among the thinking that was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ThinkingMatch {
    /// Not among it.
    Unknown,
    /// After the one met before it, or anywhere if none was met: thinking may be dropped from the beginning and from
    /// the end.
    Next,
    /// At another position, or after other blocks.
    Elsewhere,
}

impl<'j> SentThinking<'j> {
    fn of(sent: &RequestBlocks<'j>) -> Self {
        let sent: Vec<_> = sent.thinking().map(|block| (block.json.raw, block.ahead)).collect();
        let first = sent.iter().enumerate().rev().map(|(place, block)| (*block, place)).collect();
        let bytes = sent.iter().map(|(bytes, _)| *bytes).collect();
        Self { sent, first, bytes, last: None }
    }

    fn next(&mut self, block: &RequestBlock<'_>) -> ThinkingMatch {
        if !self.bytes.contains(block.json.raw) {
            return ThinkingMatch::Unknown;
        }
        let wanted = (block.json.raw, block.ahead);
        let place = match self.last {
            Some(last) => self.sent.get(last + 1).filter(|next| **next == wanted).map(|_| last + 1),
            None => self.first.get(&wanted).copied(),
        };
        self.last = place.or(self.last);
        if place.is_some() { ThinkingMatch::Next } else { ThinkingMatch::Elsewhere }
    }
}

/// Finds thinking that `sent` has in the loop that is open in `now`, and that `now` lacks. A loop is open as long as
/// the user only returns results of calls.
fn dropped(sent: &RequestBlocks<'_>, now: &RequestBlocks<'_>, found: &mut ViolationList) {
    let is = |block: &RequestBlock<'_>, kind: &str| block.json.text_at("type") == Some(kind);
    let Some(last) = now.blocks.last().filter(|block| block.role == "user").map(|block| block.message) else {
        return;
    };
    // Anything but results begins a new loop, and providers no longer look at thinking from before it.
    if now.blocks.iter().any(|block| block.message == last && !is(block, "tool_result")) {
        return;
    }
    let asks =
        |block: &&RequestBlock<'_>| block.role == "user" && block.message < last && !is(block, "tool_result");
    let begin = now.blocks.iter().rev().find(asks).map_or(0, |block| block.message);
    let (before, after) = (thinking_by_call(sent), thinking_by_call(now));
    for call in now.blocks.iter().filter(|block| block.message >= begin && is(block, "tool_use")) {
        let id = call.json.text_at("id").unwrap_or_default();
        if before.get(id).is_some_and(|thought| after.get(id) != Some(thought)) {
            found.add(call.message, call.place, ViolationKind::ThinkingDropped);
        }
    }
}

/// The thinking in the message of each call. If an id repeats, its first call counts.
fn thinking_by_call<'r>(read: &'r RequestBlocks<'_>) -> HashMap<&'r str, Rc<[&'r str]>> {
    let mut by_call = HashMap::new();
    for message in read.blocks.chunk_by(|one, next| one.message == next.message) {
        let thinking: Rc<[&str]> =
            message.iter().filter(|block| is_thinking(block.json)).map(|block| block.json.raw).collect();
        let calls = message.iter().filter(|block| block.json.text_at("type") == Some("tool_use"));
        for id in calls.filter_map(|call| call.json.text_at("id")) {
            by_call.entry(id).or_insert_with(|| Rc::clone(&thinking));
        }
    }
    by_call
}
