//! The shape of a single message or item: its role, its content, the members of its calls.
//!
//! Each check needs one message alone, so that a caller with a growing history checks a message when it is new and
//! never again. Only faults that a provider certainly refuses are found: members, blocks and items of unknown kinds
//! are legal, and are carried as they came.

use super::ViolationKind;
use crate::{format::Format, json::Json, openai_responses::CLIENT_CALL_KINDS};

/// Finds everything about a message that its provider would refuse in any context, each fault with its place in the
/// message as a JSON pointer.
pub(crate) fn check(format: Format, message: &Json<'_>) -> Vec<(String, ViolationKind)> {
    let mut shape = ShapeFaults::default();
    if !message.is_object() {
        shape.add("", ViolationKind::NotAnObject(message.kind()));
        return shape.0;
    }
    match format {
        Format::OpenaiChat => shape.chat(message),
        Format::OpenaiResponses => shape.responses(message),
        Format::Anthropic => shape.anthropic(message),
    }
    shape.0
}

#[derive(Default)]
struct ShapeFaults(Vec<(String, ViolationKind)>);

impl ShapeFaults {
    fn add(&mut self, place: &str, breach: ViolationKind) {
        self.0.push((place.to_owned(), breach));
    }

    /// Finds a role that the provider does not know.
    fn role<'j>(&mut self, message: &'j Json<'_>, known: &[&str]) -> Option<&'j str> {
        match message.get("role").map(|role| (role, role.as_text())) {
            None => self.add("", ViolationKind::RoleMissing),
            Some((_, Some(role))) if known.contains(&role) => return Some(role),
            Some((_, Some(role))) => self.add("/role", ViolationKind::RoleUnknown(role.to_owned())),
            Some((role, None)) => self.add("/role", ViolationKind::RoleUnknown(role.raw.to_owned())),
        }
        None
    }

    fn chat(&mut self, message: &Json<'_>) {
        let known = ["system", "developer", "user", "assistant", "tool", "function"];
        let Some(role) = self.role(message, &known) else { return };
        let content = message.get("content").filter(|content| !content.is_null());
        match content {
            None if matches!(role, "assistant" | "function") => {}
            None => self.add("", ViolationKind::ContentNull),
            Some(content) => self.content("/content", content, &["text"]),
        }
        if role != "assistant" {
            return;
        }
        let calls = message.get("tool_calls").filter(|calls| !calls.is_null());
        match calls.map(|calls| (calls, calls.as_array())) {
            None => {}
            Some((calls, None)) => self.add("/tool_calls", ViolationKind::CallsType(calls.kind())),
            Some((_, Some(calls))) => {
                for (index, call) in calls.iter().enumerate() {
                    self.chat_call(&format!("/tool_calls/{index}"), call);
                }
            }
        }
    }

    fn chat_call(&mut self, place: &str, call: &Json<'_>) {
        if !call.is_object() {
            return self.add(place, ViolationKind::NotAnObject(call.kind()));
        }
        // A call of an unknown kind may have its name elsewhere.
        let (inner, given) = match call.text_at("type") {
            None | Some("function") => ("function", "arguments"),
            Some("custom") => ("custom", "input"),
            Some(_) => return,
        };
        if call.text_at("id").is_none_or(str::is_empty) {
            self.add(place, ViolationKind::CallWithoutId);
        }
        let called = call.get(inner);
        if called.and_then(|called| called.text_at("name")).is_none_or(str::is_empty) {
            self.add(place, ViolationKind::CallWithoutName);
        }
        if let Some(arguments) = called.and_then(|called| called.get(given))
            && arguments.as_text().is_none()
        {
            self.add(&format!("{place}/{inner}/{given}"), ViolationKind::ArgumentsType(arguments.kind()));
        }
    }

    fn responses(&mut self, item: &Json<'_>) {
        match item.get("type").map(Json::as_text) {
            Some(Some("message")) => self.responses_message(item),
            Some(Some(kind)) => self.responses_item(kind, item),
            None if item.get("role").is_some() => self.responses_message(item),
            Some(None) | None => self.add("", ViolationKind::ItemWithoutType),
        }
    }

    fn responses_message(&mut self, item: &Json<'_>) {
        // The last four are in the provider's own types, though no client is known to send them.
        let known =
            ["user", "assistant", "system", "developer", "tool", "critic", "discriminator", "unknown"];
        if self.role(item, &known).is_none() {
            return;
        }
        match item.get("content").filter(|content| !content.is_null()) {
            None => self.add("", ViolationKind::ContentMissing),
            Some(content) => self.content("/content", content, &["input_text", "output_text", "text"]),
        }
    }

    fn responses_item(&mut self, kind: &str, item: &Json<'_>) {
        let named = matches!(kind, "function_call" | "custom_tool_call");
        if named && item.text_at("name").is_none_or(str::is_empty) {
            self.add("", ViolationKind::CallWithoutName);
        }
        // The provider itself answers a search that has no id.
        let is_call = CLIENT_CALL_KINDS.iter().any(|(call, _)| *call == kind) && kind != "tool_search_call";
        if is_call && item.text_at("call_id").is_none_or(str::is_empty) {
            self.add("", ViolationKind::CallWithoutId);
        }
        let given = match kind {
            "function_call" => "arguments",
            "custom_tool_call" => "input",
            _ => "",
        };
        if let Some(arguments) = item.get(given)
            && arguments.as_text().is_none()
        {
            self.add(&format!("/{given}"), ViolationKind::ArgumentsType(arguments.kind()));
        }
        if matches!(kind, "function_call_output" | "custom_tool_call_output") {
            match item.get("output") {
                None => self.add("", ViolationKind::ContentMissing),
                Some(output) => self.content("/output", output, &["input_text", "output_text", "text"]),
            }
        }
    }

    fn anthropic(&mut self, message: &Json<'_>) {
        if self.role(message, &["user", "assistant", "system"]).is_none() {
            return;
        }
        // A message without content is empty, which is found with the rest of the history.
        let Some(content) = message.get("content").filter(|content| !content.is_null()) else { return };
        self.content("/content", content, &["text"]);
        for (index, block) in content.as_array().unwrap_or_default().iter().enumerate() {
            let place = format!("/content/{index}");
            match block.text_at("type") {
                Some("tool_use") => {
                    if block.text_at("id").is_none_or(str::is_empty) {
                        self.add(&place, ViolationKind::CallWithoutId);
                    }
                    if block.text_at("name").is_none_or(str::is_empty) {
                        self.add(&place, ViolationKind::CallWithoutName);
                    }
                    if let Some(input) = block.get("input").filter(|input| !input.is_object()) {
                        self.add(&format!("{place}/input"), ViolationKind::InputType(input.kind()));
                    }
                }
                Some("tool_result") => {
                    if let Some(inner) = block.get("content").filter(|inner| !inner.is_null()) {
                        self.content(&format!("{place}/content"), inner, &["text"]);
                    }
                }
                _ => {}
            }
        }
    }

    /// Checks content: a text, or parts that each have a type.
    fn content(&mut self, place: &str, content: &Json<'_>, texts: &[&str]) {
        if content.as_text().is_some() {
            return;
        }
        let Some(parts) = content.as_array() else {
            return self.add(place, ViolationKind::ContentType(content.kind()));
        };
        for (index, part) in parts.iter().enumerate() {
            let place = format!("{place}/{index}");
            if !part.is_object() {
                self.add(&place, ViolationKind::NotAnObject(part.kind()));
                continue;
            }
            match part.text_at("type") {
                None => self.add(&place, ViolationKind::PartWithoutType),
                Some(kind) if texts.contains(&kind) && part.text_at("text").is_none() => {
                    self.add(&format!("{place}/text"), ViolationKind::TextMissing);
                }
                Some(_) => {}
            }
        }
    }
}
