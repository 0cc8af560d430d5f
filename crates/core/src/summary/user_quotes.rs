//! The user's words where they come by another way: through a tool.
//!
//! Agents hand on what a user says to a question or a refused call as the result of that call. Only a result that begins
//! with the agent's own formula, or that answers a question tool, is taken for the user's words: anything else a tool
//! returns is data.

use crate::event::{ContentPart, ToolCall, ToolResult};

/// What a user answered to a question that was asked by a tool.
pub(super) fn answer(call: &ToolCall, result: &ToolResult) -> Option<String> {
    const ASKING: [&str; 5] = ["askuser", "askquestion", "askfollowup", "askhuman", "userinput"];
    let name: String = call.name.0.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    if result.error || name != "question" && !ASKING.iter().any(|part| name.contains(part)) {
        return None;
    }
    let text = text(result);
    // What Claude Code puts around an answer.
    let said = match text.split_once(" answered") {
        Some((_, said)) if text.starts_with("User has") || text.starts_with("Your questions") => said,
        _ => &text,
    };
    let said = said.trim_start_matches(" your questions").trim_start_matches(':');
    let said = said.split(" You can now continue").next().unwrap_or(said).trim();
    (!said.is_empty()).then(|| said.to_owned())
}

/// Why a user refused a call, in their words; empty if they gave none.
pub(super) fn refusal(result: &ToolResult) -> Option<String> {
    let text = text(result);
    let formulas =
        ["The user doesn't want to", "The user rejected", "User rejected", "The user has rejected"];
    formulas.iter().find(|formula| text.starts_with(*formula))?;
    let said = ["the user said:", "reason:", "feedback:"].iter().find_map(|mark| text.split_once(mark));
    Some(said.map_or_else(String::new, |(_, said)| said.trim().to_owned()))
}

/// The beginning of a result, which is all that a person writes.
fn text(result: &ToolResult) -> String {
    const MOST: usize = 4_000;
    let text = ContentPart::texts(&result.parts).map(|text| &text[..text.floor_char_boundary(MOST)]).take(2);
    text.collect::<String>().trim().to_owned()
}
