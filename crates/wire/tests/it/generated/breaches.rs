//! One way, or several, to break each rule in a legal request, and the place where that must be found.

use epitome_wire::{
    Format,
    legality::{ProviderRule, ProviderRules},
};
use serde_json::{Value, json};

use super::requests::{
    Draw, blocks, called, history, key, reasoning, thinking, with_compaction, with_open_loop, with_reasoning,
    with_signatures,
};

/// A request that breaks one rule.
pub(super) struct Broken {
    pub(super) body: String,
    /// Where it does, as a JSON pointer.
    pub(super) place: String,
    /// What its model demands.
    pub(super) rules: ProviderRules,
    /// The request that was sent before, for rules that bind one to another.
    pub(super) sent: Option<Value>,
}

/// A legal request, and what is to be broken in it.
struct Case<'d, 'c> {
    format: Format,
    request: Value,
    draw: &'d mut Draw<'c>,
    rules: ProviderRules,
    sent: Option<Value>,
}

/// Breaks a rule; `None` if nobody knows how.
pub(super) fn broken(rule: &str, format: Format, request: Value, draw: &mut Draw<'_>) -> Option<Broken> {
    let mut case = Case { format, request, draw, rules: ProviderRules::of(format), sent: None };
    if rule == "readable" {
        let body = case.unreadable();
        return Some(Broken { body, place: String::new(), rules: case.rules, sent: None });
    }
    let place = case.break_rule(rule)?;
    Some(Broken { body: case.request.to_string(), place, rules: case.rules, sent: case.sent })
}

impl Case<'_, '_> {
    fn break_rule(&mut self, rule: &str) -> Option<String> {
        let place = match rule {
            "has-messages" => self.no_messages(),
            "history-is-list" => self.odd_history(),
            "first-is-user" => self.answer_first(),
            "last-is-user" => self.answer_last(),
            "roles-alternate" => self.repeat_role(),
            "message-says-something" => self.empty_message(),
            "text-not-empty" => self.empty_text(),
            "message-is-object" => self.no_object(),
            "role-present" => self.no_role(),
            "role-known" => self.unknown_role(),
            "content-not-null" => self.null_content(),
            "content-present" => self.no_content(),
            "content-type" => self.odd_content(),
            "part-has-type" => self.part_without_type(),
            "text-is-string" => self.part_without_text(),
            "item-has-type" => self.item_without_type(),
            "call-has-id" => self.call_without_id(),
            "call-has-name" => self.call_without_name(),
            "calls-are-list" => self.odd_calls(),
            "arguments-are-text" | "input-is-object" => self.odd_arguments(),
            "call-id-unique" => self.repeat_call_id(),
            "call-answered" => self.unanswered_call(),
            "result-answers-call" => self.stray_result(),
            "result-kind" => self.wrong_kind(),
            "results-first" => self.result_after_text(),
            "thinking-sealed" => self.unsealed_thinking(),
            "thinking-not-last" => self.thinking_last(),
            "prefill-not-space" => self.prefill_with_space(),
            "reasoning-followed" => self.lonely_reasoning(),
            "compaction-first" => self.late_compaction(),
            "compaction-unchanged" => self.altered_compaction(),
            "thinking-unchanged" => self.altered_thinking(),
            "thinking-kept" => self.dropped_thinking(),
            "reasoning-kept" => self.parted_reasoning(),
            "breakpoints" => self.many_marks(),
            "call-signed" => self.unsigned_call(),
            _ => return None,
        };
        Some(place)
    }

    fn history(&mut self) -> &mut Vec<Value> {
        history(self.format, &mut self.request)
    }

    /// A message that `is` holds for, drawn.
    fn message(&mut self, is: impl Fn(usize, &Value) -> bool) -> usize {
        let found: Vec<usize> = self
            .history()
            .iter()
            .enumerate()
            .filter(|(at, message)| is(*at, message))
            .map(|(at, _)| at)
            .collect();
        self.draw.pick(&found)
    }

    fn at(&self, message: usize) -> String {
        format!("/{}/{message}", key(self.format))
    }

    /// A message of words alone. Not the first: who speaks first is another rule.
    fn plain(&mut self, role: &str) -> usize {
        self.message(|at, message| at > 1 && message["role"] == role && is_plain(message))
    }

    /// Content of which a part was drawn: where it stands, and the part. Calls, results and thoughts are no such parts.
    fn part(&mut self, is: impl Fn(&Value) -> bool) -> String {
        let key = key(self.format);
        let mut found = Vec::new();
        for (at, message) in self.history().iter().enumerate() {
            for holder in ["content", "output"] {
                for (place, part) in message[holder].as_array().into_iter().flatten().enumerate() {
                    let place = format!("/{key}/{at}/{holder}/{place}");
                    for (inner, part) in part["content"].as_array().into_iter().flatten().enumerate() {
                        found.extend(is(part).then(|| format!("{place}/content/{inner}")));
                    }
                    found.extend(is(part).then_some(place));
                }
            }
        }
        if found.is_empty() {
            // Nobody spoke in parts: somebody does now.
            let at = self.plain("user");
            blocks(&mut self.history()[at])[0]["type"] = json!(text_kind(self.format));
            return format!("/{key}/{at}/content/0");
        }
        self.draw.pick(&found)
    }

    fn value(&mut self, place: &str) -> &mut Value {
        self.request.pointer_mut(place).unwrap()
    }

    fn remove(&mut self, place: &str) {
        let (parent, key) = place.rsplit_once('/').unwrap();
        self.value(parent).as_object_mut().unwrap().remove(key);
    }

    /// A value goes, or is put in place of it.
    fn spoil(&mut self, place: &str, otherwise: Value) {
        if self.draw.chance() { self.remove(place) } else { *self.value(place) = otherwise }
    }

    fn unreadable(&mut self) -> String {
        let body = self.request.to_string();
        match self.draw.below(4) {
            0 => {
                let length = 1 + self.draw.below(body.len() / 3);
                body.chars().take(length).filter(char::is_ascii).collect()
            }
            1 => format!("[{body}]"),
            2 => format!("{body}{body}"),
            _ => self.draw.no_object().to_string(),
        }
    }

    fn no_messages(&mut self) -> String {
        self.history().clear();
        String::new()
    }

    fn odd_history(&mut self) -> String {
        let mut odd = self.draw.odd();
        if self.format != Format::OpenaiResponses && self.draw.chance() {
            odd = json!(self.draw.text());
        }
        self.request[key(self.format)] = odd;
        format!("/{}", key(self.format))
    }

    fn answer_first(&mut self) -> String {
        self.rules = self.rules.clone().with(ProviderRule::FirstIsUser);
        let first = self.history().iter().position(|message| message["role"] == "user").unwrap();
        self.history().insert(first, json!({ "role": "assistant", "content": "a" }));
        self.at(first)
    }

    fn answer_last(&mut self) -> String {
        self.rules = self.rules.clone().with(ProviderRule::PrefillRefused);
        self.history().push(json!({ "role": "assistant", "content": "a" }));
        let last = self.history().len() - 1;
        self.at(last)
    }

    fn repeat_role(&mut self) -> String {
        let at = self.message(|_, message| !has_calls(message));
        let role = self.history()[at]["role"].clone();
        self.history().insert(at + 1, json!({ "role": role, "content": "again" }));
        self.at(at + 1)
    }

    fn empty_message(&mut self) -> String {
        let role = self.draw.pick(&["user", "assistant"]);
        let at = self.plain(role);
        let empty = match (self.format, role) {
            (Format::OpenaiChat, "user") => json!([]),
            (Format::OpenaiChat, _) => self.draw.pick(&[json!([]), json!(null), json!("")]),
            _ => self.draw.pick(&[json!([]), json!(""), json!(" \n"), json!(null)]),
        };
        self.history()[at]["content"] = empty;
        self.at(at)
    }

    fn empty_text(&mut self) -> String {
        let blank = self.draw.pick(&["", " ", "\n\t"]);
        if self.request["system"].is_array() && self.draw.chance() {
            self.request["system"][1]["text"] = json!(blank);
            return "/system/1".to_owned();
        }
        let place = self.part(|part| part["type"] == "text");
        *self.value(&format!("{place}/text")) = json!(blank);
        // What stands in a result is told by the result.
        place.split('/').take(5).collect::<Vec<_>>().join("/")
    }

    fn no_object(&mut self) -> String {
        let odd = self.draw.no_object();
        if self.format == Format::OpenaiChat && self.draw.below(3) == 0 {
            let (at, call) = self.call();
            self.forget_result(at, call);
            self.history()[at]["tool_calls"][call] = odd;
            return format!("{}/tool_calls/{call}", self.at(at));
        }
        let place = if self.draw.chance() {
            let at = self.plain("user");
            self.at(at)
        } else {
            self.part(is_said)
        };
        *self.value(&place) = odd;
        place
    }

    fn no_role(&mut self) -> String {
        let at = self.plain("user");
        if self.format == Format::OpenaiResponses {
            self.history()[at]["type"] = json!("message");
        }
        let place = self.at(at);
        self.remove(&format!("{place}/role"));
        place
    }

    fn unknown_role(&mut self) -> String {
        let at = self.plain("user");
        let role = if self.draw.chance() {
            self.draw.no_text()
        } else {
            json!(self.draw.pick(&["narrator", "", "User"]))
        };
        self.history()[at]["role"] = role;
        format!("{}/role", self.at(at))
    }

    fn null_content(&mut self) -> String {
        let at = self.message(|_, message| message["role"] != "assistant");
        let place = self.at(at);
        self.spoil(&format!("{place}/content"), json!(null));
        place
    }

    fn no_content(&mut self) -> String {
        let at =
            self.message(|_, message| message.get("content").is_some() || message.get("output").is_some());
        let place = self.at(at);
        if self.history()[at].get("output").is_some() {
            self.remove(&format!("{place}/output"));
        } else {
            self.spoil(&format!("{place}/content"), json!(null));
        }
        place
    }

    fn odd_content(&mut self) -> String {
        let is_whole = |message: &Value| {
            is_plain(message) || message["role"] == "tool" || message.get("output").is_some()
        };
        let at = self.message(|_, message| is_whole(message));
        let holder = if self.history()[at].get("output").is_some() { "output" } else { "content" };
        let mut place = format!("{}/{holder}", self.at(at));
        if self.format == Format::Anthropic && self.draw.chance() {
            let at = self.message(|_, message| has_results(message));
            place = format!("{}/content/0/content", self.at(at));
        }
        *self.value(&place) = self.draw.odd();
        place
    }

    fn part_without_type(&mut self) -> String {
        let place = self.part(is_said);
        let odd = self.draw.no_text();
        self.spoil(&format!("{place}/type"), odd);
        place
    }

    fn part_without_text(&mut self) -> String {
        let place = format!("{}/text", self.part(|part| part["text"].is_string()));
        let odd = self.draw.no_text();
        self.spoil(&place, odd);
        place
    }

    fn item_without_type(&mut self) -> String {
        let at = self.plain("user");
        let place = self.at(at);
        if self.draw.chance() {
            self.history()[at]["type"] = self.draw.no_text();
        } else {
            self.remove(&format!("{place}/type"));
            self.remove(&format!("{place}/role"));
        }
        place
    }

    /// A call, drawn: its message, and its place in it; 0 where it is an item.
    fn call(&mut self) -> (usize, usize) {
        let at = self.message(|_, message| has_calls(message));
        let message = self.history()[at].clone();
        let places: Vec<usize> = match self.format {
            Format::OpenaiChat => (0..message["tool_calls"].as_array().unwrap().len()).collect(),
            Format::OpenaiResponses => vec![0],
            Format::Anthropic => {
                let blocks = message["content"].as_array().unwrap().iter().enumerate();
                blocks.filter(|(_, block)| block["type"] == "tool_use").map(|(place, _)| place).collect()
            }
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        };
        (at, self.draw.pick(&places))
    }

    /// Where a call stands, and the name of its id.
    fn call_place(&self, at: usize, call: usize) -> (String, &'static str) {
        match self.format {
            Format::OpenaiChat => (format!("{}/tool_calls/{call}", self.at(at)), "id"),
            Format::OpenaiResponses => (self.at(at), "call_id"),
            Format::Anthropic => (format!("{}/content/{call}", self.at(at)), "id"),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
    }

    fn id(&mut self, at: usize, call: usize) -> String {
        let (place, id) = self.call_place(at, call);
        self.value(&place)[id].as_str().unwrap().to_owned()
    }

    /// Takes the result of a call away; a message that has no other says a word instead.
    fn forget_result(&mut self, at: usize, call: usize) {
        let id = self.id(at, call);
        if self.format != Format::Anthropic {
            let answers = |message: &Value| {
                is_output(message) && [&message["call_id"], &message["tool_call_id"]].contains(&&json!(id))
            };
            self.history().retain(|message| !answers(message));
            return;
        }
        let results = blocks(&mut self.history()[at + 1]);
        results.retain(|block| block["tool_use_id"] != json!(id));
        if results.is_empty() {
            results.push(json!({ "type": "text", "text": "x" }));
        }
    }

    fn rename_result(&mut self, id: &str, new: &str) {
        for message in self.history().iter_mut() {
            for name in ["call_id", "tool_call_id"] {
                if is_output(message) && message[name] == json!(id) {
                    message[name] = json!(new);
                }
            }
            for block in message["content"].as_array_mut().into_iter().flatten() {
                if block["tool_use_id"] == json!(id) {
                    block["tool_use_id"] = json!(new);
                }
            }
        }
    }

    fn call_without_id(&mut self) -> String {
        let (at, call) = self.call();
        let (place, name) = self.call_place(at, call);
        if self.draw.chance() {
            self.forget_result(at, call);
            self.remove(&format!("{place}/{name}"));
        } else {
            let id = self.id(at, call);
            self.value(&place)[name] = json!("");
            self.rename_result(&id, "");
        }
        place
    }

    fn call_without_name(&mut self) -> String {
        let (at, call) = self.call();
        let (place, _) = self.call_place(at, call);
        let inner = ["function", "custom"].into_iter().find(|inner| self.value(&place).get(inner).is_some());
        let name = inner.map_or_else(|| format!("{place}/name"), |inner| format!("{place}/{inner}/name"));
        let odd = self.draw.pick(&[json!(""), json!(7), json!(null)]);
        self.spoil(&name, odd);
        place
    }

    fn odd_calls(&mut self) -> String {
        let (at, _) = self.call();
        let calls = self.history()[at]["tool_calls"].as_array().unwrap().len();
        (0..calls).for_each(|call| self.forget_result(at, call));
        let odd = if self.draw.chance() { json!("t") } else { self.draw.odd() };
        self.history()[at]["tool_calls"] = odd;
        format!("{}/tool_calls", self.at(at))
    }

    fn odd_arguments(&mut self) -> String {
        let (at, call) = self.call();
        let (place, _) = self.call_place(at, call);
        let names = ["function/arguments", "custom/input", "arguments", "input"];
        let place = names
            .iter()
            .map(|name| format!("{place}/{name}"))
            .find(|name| self.request.pointer(name).is_some());
        let place = place.unwrap();
        let odd = if self.format == Format::Anthropic { self.draw.no_object() } else { self.draw.no_text() };
        *self.value(&place) = odd;
        place
    }

    fn repeat_call_id(&mut self) -> String {
        let calling: Vec<usize> = self
            .history()
            .iter()
            .enumerate()
            .filter(|(_, message)| has_calls(message))
            .map(|(at, _)| at)
            .collect();
        if self.format == Format::OpenaiChat {
            // The first answer that calls has at least two.
            let (at, call) = (calling[0], 1);
            let first = self.id(at, 0);
            self.forget_result(at, call);
            self.history()[at]["tool_calls"][call]["id"] = json!(first);
            return format!("{}/tool_calls/{call}", self.at(at));
        }
        let at = calling[1 + self.draw.below(calling.len() - 1)];
        let place_of = |case: &mut Self, at: usize| match case.format {
            Format::Anthropic => case.history()[at]["content"]
                .as_array()
                .unwrap()
                .iter()
                .position(|block| block["type"] == "tool_use")
                .unwrap(),
            Format::OpenaiChat | Format::OpenaiResponses => 0,
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        };
        let (first, call) = (place_of(self, calling[0]), place_of(self, at));
        let (first, id) = (self.id(calling[0], first), self.id(at, call));
        let (place, name) = self.call_place(at, call);
        if self.format == Format::Anthropic {
            self.value(&place)[name] = json!(first);
            // Each message has its own results: only those of the second call go by the other name.
            for block in blocks(&mut self.history()[at + 1]) {
                if block["tool_use_id"] == json!(id) {
                    block["tool_use_id"] = json!(first);
                }
            }
        } else {
            self.forget_result(at, call);
            self.value(&place)[name] = json!(first);
        }
        place
    }

    fn unanswered_call(&mut self) -> String {
        let (at, call) = self.call();
        self.forget_result(at, call);
        self.at(at)
    }

    fn stray_result(&mut self) -> String {
        let id = self.draw.pick(&["elsewhere", ""]);
        if self.format == Format::Anthropic {
            let at = self.message(|_, message| message["role"] == "user");
            let result = json!({ "type": "tool_result", "tool_use_id": id, "content": "r" });
            blocks(&mut self.history()[at]).insert(0, result);
            return format!("{}/content/0", self.at(at));
        }
        // Not between reasoning and what it led to: that is another rule.
        let before = self.message(|_, message| message["type"] != "reasoning");
        let result = match self.format {
            Format::OpenaiChat => json!({ "role": "tool", "tool_call_id": id, "content": "r" }),
            _ => json!({ "type": "function_call_output", "call_id": id, "output": "r" }),
        };
        self.history().insert(before + 1, result);
        self.at(before + 1)
    }

    fn wrong_kind(&mut self) -> String {
        let at = self.message(|_, message| is_output(message));
        let is_custom = self.history()[at]["type"] == "custom_tool_call_output";
        let kind = if is_custom { "function_call_output" } else { "custom_tool_call_output" };
        self.history()[at]["type"] = json!(kind);
        self.at(at)
    }

    fn result_after_text(&mut self) -> String {
        let at = self.message(|_, message| has_results(message));
        let results = blocks(&mut self.history()[at]);
        let last = results.iter().rposition(|block| block["type"] == "tool_result").unwrap();
        results.insert(last, json!({ "type": "text", "text": "x" }));
        format!("{}/content/{}", self.at(at), last + 1)
    }

    fn thought(&mut self) -> String {
        let key = key(self.format);
        let mut found = Vec::new();
        for (at, message) in self.history().iter().enumerate() {
            let blocks = message["content"].as_array().into_iter().flatten().enumerate();
            let thoughts = blocks.filter(|(_, block)| is_thought(block));
            found.extend(thoughts.map(|(place, _)| format!("/{key}/{at}/content/{place}")));
        }
        self.draw.pick(&found)
    }

    fn unsealed_thinking(&mut self) -> String {
        let place = self.thought();
        let seal = if self.value(&place)["type"] == "thinking" { "signature" } else { "data" };
        let odd = self.draw.no_text();
        self.spoil(&format!("{place}/{seal}"), odd);
        place
    }

    fn thinking_last(&mut self) -> String {
        let at = self.message(|_, message| message["role"] == "assistant");
        let thought = thinking(self.draw);
        let blocks = blocks(&mut self.history()[at]);
        blocks.push(thought);
        let last = blocks.len() - 1;
        format!("{}/content/{last}", self.at(at))
    }

    fn prefill_with_space(&mut self) -> String {
        let text = self.draw.pick(&["It is ", "It is\n", "It is\t \u{a0}"]);
        let content = self.draw.pick(&[json!(text), json!([{ "type": "text", "text": text }])]);
        self.history().push(json!({ "role": "assistant", "content": content }));
        let last = self.history().len() - 1;
        self.at(last)
    }

    fn lonely_reasoning(&mut self) -> String {
        let before = self.message(|_, message| message["role"] == "user" || is_output(message));
        let at = if self.draw.chance() { self.history().len() } else { before };
        let reasoning = reasoning(self.draw);
        self.history().insert(at, reasoning);
        self.at(at)
    }

    fn late_compaction(&mut self) -> String {
        let at = self.message(|at, message| at > 0 && !has_results(message));
        let end = blocks(&mut self.history()[at]).len();
        let place = if self.draw.chance() { 0 } else { end };
        let compaction = json!({ "type": "compaction", "content": "s", "signature": "x" });
        blocks(&mut self.history()[at]).insert(place, compaction);
        format!("{}/content/{place}", self.at(at))
    }

    fn altered_compaction(&mut self) -> String {
        with_compaction(self.format, &mut self.request, self.draw);
        self.sent = Some(self.request.clone());
        let (place, member) = match self.format {
            Format::Anthropic => (format!("{}/content/0", self.at(0)), "content"),
            _ => (self.at(0), "note"),
        };
        let odd = self.draw.pick(&[json!("changed"), json!(7), json!(null)]);
        self.spoil(&format!("{place}/{member}"), odd);
        place
    }

    fn altered_thinking(&mut self) -> String {
        // In an open loop it would also be missing.
        self.rules = self.rules.clone().without(ProviderRule::ThinkingStaysInOpenLoop);
        self.sent = Some(self.request.clone());
        if self.draw.chance() {
            let place = self.thought();
            *self.value(&place) = json!({ "type": "thinking", "thinking": "another", "signature": "s" });
            return place;
        }
        // All but the last goes, which is legal; then something before it changes, which is not.
        self.rules = self.rules.clone().with(ProviderRule::PreservedThinking);
        let last = self.history().iter().rposition(|message| thoughts(message) > 0).unwrap();
        for message in &mut self.history()[..last] {
            let is_list = message["content"].is_array();
            if is_list {
                blocks(message).retain(|block| !is_thought(block));
            }
        }
        let before = self.message(|at, message| at < last && message["role"] == "user" && is_plain(message));
        self.history()[before]["content"] = json!("something else");
        format!("{}/content/0", self.at(last))
    }

    fn dropped_thinking(&mut self) -> String {
        with_open_loop(self.format, &mut self.request, self.draw);
        self.sent = Some(self.request.clone());
        let at = self.history().len() - 2;
        let blocks = blocks(&mut self.history()[at]);
        blocks.retain(|block| !is_thought(block));
        let call = blocks.iter().position(|block| block["type"] == "tool_use").unwrap();
        format!("{}/content/{call}", self.at(at))
    }

    fn parted_reasoning(&mut self) -> String {
        if self.format == Format::OpenaiChat {
            self.rules = self.rules.clone().with(ProviderRule::ReasoningReturned);
            with_reasoning(&mut self.request);
            if self.draw.chance() {
                self.sent = Some(self.request.clone());
            }
            let at = self.message(|_, message| has_calls(message));
            let place = self.at(at);
            self.remove(&format!("{place}/reasoning_content"));
            return place;
        }
        self.sent = Some(self.request.clone());
        let at = self.message(|_, message| message["type"] == "reasoning");
        self.history()[at + 1]["changed"] = json!(true);
        self.at(at)
    }

    fn many_marks(&mut self) -> String {
        let marked =
            |text: &str| json!({ "type": "text", "text": text, "cache_control": { "type": "ephemeral" } });
        let count = 4 + self.draw.below(3);
        self.request["system"] = (0..count).map(|at| marked(&format!("rule {at}"))).collect();
        let at = self.plain("user");
        blocks(&mut self.history()[at]).push(marked("here"));
        String::new()
    }

    fn unsigned_call(&mut self) -> String {
        self.rules = self.rules.clone().with(ProviderRule::CallsSigned);
        for _ in 0..=self.draw.below(2) {
            let messages = called(self.format, 1, self.draw);
            self.history().extend(messages);
        }
        with_signatures(&mut self.request);
        let asked = self.history().iter().rposition(|message| message["role"] == "user").unwrap();
        let at = self.message(|at, message| at > asked && has_calls(message));
        let call = format!("{}/tool_calls/0", self.at(at));
        self.remove(&format!("{call}/extra_content"));
        call
    }
}

fn text_kind(format: Format) -> &'static str {
    if format == Format::OpenaiResponses { "input_text" } else { "text" }
}

/// Whether a part only says something: no call, result or thought.
fn is_said(part: &Value) -> bool {
    part["text"].is_string() || part["type"] == "vendor_part"
}

fn is_thought(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

fn thoughts(message: &Value) -> usize {
    message["content"].as_array().into_iter().flatten().filter(|block| is_thought(block)).count()
}

fn has_blocks(message: &Value, kind: &str) -> bool {
    message["content"].as_array().into_iter().flatten().any(|block| block["type"] == kind)
}

fn has_results(message: &Value) -> bool {
    has_blocks(message, "tool_result")
}

fn is_output(message: &Value) -> bool {
    message["role"] == "tool" || message["type"].as_str().is_some_and(|kind| kind.ends_with("_output"))
}

fn has_calls(message: &Value) -> bool {
    let is_item = matches!(message["type"].as_str(), Some("function_call" | "custom_tool_call"));
    is_item || message["tool_calls"].is_array() || has_blocks(message, "tool_use")
}

/// Whether a message says something in words alone.
fn is_plain(message: &Value) -> bool {
    let is_said = matches!(message["role"].as_str(), Some("user" | "assistant"));
    is_said && !has_calls(message) && !has_results(message)
}
