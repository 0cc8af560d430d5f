//! Rules of Gemini: every call of an answer is answered in the next content, by results and nothing else, a call never
//! follows another content of the model, and where the model demands it the first call of an answer is signed.

use super::{call_id, is_result};
use crate::{
    json::Json,
    legality::{ProviderRule, ProviderRules, ShapeFaults, ViolationKind, ViolationList, ends},
};

pub(super) fn check(contents: &[Json<'_>], rules: &ProviderRules, found: &mut ViolationList) {
    let mut open: Vec<(usize, String)> = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let parts = content.array_at("parts");
        if !parts.iter().any(says_something) {
            found.add(index, None, ViolationKind::EmptyMessage);
        }
        let role = role(content);
        for (place, part) in parts.iter().enumerate().filter(|(_, part)| is_result(part)) {
            let id = part.get("functionResponse").and_then(call_id).unwrap_or_default();
            let at = open.iter().position(|(_, open)| open == id).filter(|_| role == "user");
            match at {
                Some(at) => drop(open.remove(at)),
                None => found.add(index, place, ViolationKind::AnswersNothing(id.to_owned())),
            }
        }
        close(&mut open, found);
        if role != "assistant" {
            continue;
        }
        let calls = parts.iter().filter_map(|part| part.get("functionCall"));
        open.extend(calls.map(|call| (index, call_id(call).unwrap_or_default().to_owned())));
        let repeats = index.checked_sub(1).is_some_and(|before| self::role(&contents[before]) == "assistant");
        if repeats && !open.is_empty() {
            found.add(index, None, ViolationKind::RoleRepeats);
        }
    }
    close(&mut open, found);
    if rules.has(ProviderRule::CallsSigned) {
        signatures(contents, found);
    }
    ends(contents.iter().map(role).enumerate(), rules, found);
}

/// Role of a content, by the names that all formats share.
fn role<'j>(content: &'j Json<'_>) -> &'j str {
    match content.text_at("role") {
        Some("model") => "assistant",
        Some("user" | "function" | "tool") | None => "user",
        Some(other) => other,
    }
}

fn close(open: &mut Vec<(usize, String)>, found: &mut ViolationList) {
    for (index, id) in open.drain(..) {
        found.add(index, None, ViolationKind::CallUnanswered(id));
    }
}

/// Returns true if a part has content: a text of white space alone has none, unless a signature seals it.
fn says_something(part: &Json<'_>) -> bool {
    part.text_at("text").is_none_or(|text| !text.trim().is_empty() || part.get("thoughtSignature").is_some())
}

/// Checks that since the user last spoke, the first call of each answer has its signature.
fn signatures(contents: &[Json<'_>], found: &mut ViolationList) {
    let asks = |content: &Json<'_>| {
        role(content) == "user" && content.array_at("parts").iter().any(|part| !is_result(part))
    };
    let begin = contents.iter().rposition(asks).map_or(0, |asked| asked + 1);
    for (index, content) in contents.iter().enumerate().skip(begin) {
        if role(content) != "assistant" {
            continue;
        }
        let mut parts = content.array_at("parts").iter().enumerate();
        let Some((place, part)) = parts.find(|(_, part)| part.get("functionCall").is_some()) else {
            continue;
        };
        if part.text_at("thoughtSignature").is_none_or(str::is_empty) {
            let id = part.get("functionCall").and_then(call_id).unwrap_or_default();
            found.add(index, place, ViolationKind::CallUnsigned(id.to_owned()));
        }
    }
}

/// Finds faults in the shape of a content.
pub(super) fn shape(content: &Json<'_>, found: &mut ShapeFaults) {
    match content.get("role").filter(|role| !role.is_null()).map(|role| (role, role.as_text())) {
        None | Some((_, Some("user" | "model" | "function" | "tool"))) => {}
        Some((role, text)) => {
            found.add("/role", ViolationKind::RoleUnknown(text.unwrap_or(role.raw).to_owned()));
        }
    }
    // A content without parts is empty, which is found with the rest of the history.
    let Some(parts) = content.get("parts").filter(|parts| !parts.is_null()) else { return };
    let Some(parts) = parts.as_array() else {
        return found.add("/parts", ViolationKind::ContentType(parts.kind()));
    };
    for (index, part) in parts.iter().enumerate() {
        part_shape(&format!("/parts/{index}"), part, found);
    }
}

fn part_shape(place: &str, part: &Json<'_>, found: &mut ShapeFaults) {
    if !part.is_object() {
        return found.add(place, ViolationKind::NotAnObject(part.kind()));
    }
    if part.members().is_empty() {
        found.add(place, ViolationKind::PartWithoutType);
    }
    if part.get("text").is_some_and(|text| text.as_text().is_none()) {
        found.add(&format!("{place}/text"), ViolationKind::TextMissing);
    }
    let Some(call) = part.get("functionCall") else { return };
    if call.text_at("name").is_none_or(str::is_empty) {
        found.add(place, ViolationKind::CallWithoutName);
    }
    if let Some(args) = call.get("args").filter(|args| !args.is_null() && !args.is_object()) {
        found.add(&format!("{place}/functionCall/args"), ViolationKind::InputType(args.kind()));
    }
}

/// Finds signatures in `now` that differ from those of the same calls in `sent`, in the turn that is still open.
pub(super) fn check_against(sent: &[Json<'_>], now: &[Json<'_>], found: &mut ViolationList) {
    let known = signed_parts(sent);
    let asks = |content: &Json<'_>| {
        role(content) == "user" && content.array_at("parts").iter().any(|part| !is_result(part))
    };
    let begin = now.iter().rposition(asks).map_or(0, |asked| asked + 1);
    for (index, place, content, signature) in signed_parts(now) {
        let mut same = known.iter().filter(|(_, _, other, _)| *other == content).peekable();
        if index >= begin && same.peek().is_some() && same.all(|(.., other)| *other != signature) {
            found.add(index, place, ViolationKind::ThinkingAltered);
        }
    }
}

/// Calls with signatures: content and part, the call's bytes, and the signature.
fn signed_parts<'j>(contents: &'j [Json<'_>]) -> Vec<(usize, usize, &'j str, &'j str)> {
    let parts = contents.iter().enumerate().flat_map(|(index, content)| {
        let parts = content.array_at("parts").iter().enumerate();
        parts.map(move |(place, part)| (index, place, part))
    });
    let signed = parts.filter_map(|(index, place, part)| {
        let call = part.get("functionCall")?;
        Some((index, place, call.raw, part.text_at("thoughtSignature")?))
    });
    signed.collect()
}
