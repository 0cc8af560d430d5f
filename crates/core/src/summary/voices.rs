//! The user's words where they come by another way: through a tool.
//!
//! Agents hand on what a user says to a question or a refused call as the result of that call. Only a result that begins
//! with the agent's own formula, or that answers a question tool, is taken for the user's words: anything else a tool
//! returns is data.

use crate::event::{Part, ToolCall, ToolResult};

/// How much of a result is read for the user's words.
const MOST: usize = 4_000;

/// What a user answered to a question that was asked by a tool.
pub(super) fn answer(call: &ToolCall, result: &ToolResult) -> Option<String> {
    const ASKING: [&str; 9] = [
        "askuserquestion",
        "askuser",
        "question",
        "requestuserinput",
        "askfollowupquestion",
        "askhuman",
        "userinput",
        "askquestion",
        "getuserinput",
    ];
    let name: String =
        call.name.0.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    if result.error || !ASKING.contains(&name.as_str()) {
        return None;
    }
    let text = text(result);
    let formulas = ["User has answered your questions:", "Your questions have been answered:"];
    let said = formulas.iter().find_map(|formula| text.strip_prefix(formula)).unwrap_or(&text);
    let said = said.split(" You can now continue").next().unwrap_or(said).trim();
    (!said.is_empty()).then(|| said.to_owned())
}

/// Why a user refused a call, in their words; empty if they gave none.
pub(super) fn refusal(result: &ToolResult) -> Option<String> {
    const FORMULAS: [&str; 5] = [
        "The user doesn't want to proceed with this tool use",
        "The user doesn't want to take this action right now",
        "The user rejected this",
        "User rejected",
        "The user has rejected",
    ];
    let text = text(result);
    if !FORMULAS.iter().any(|formula| text.starts_with(formula)) {
        return None;
    }
    let said = ["the user said:", "reason:", "feedback:"].iter().find_map(|mark| text.split_once(mark));
    Some(said.map_or_else(String::new, |(_, said)| said.trim().to_owned()))
}

fn text(result: &ToolResult) -> String {
    let mut text = String::new();
    for part in &result.parts {
        if let Part::Text { text: said } = part
            && text.len() < MOST
        {
            text.push_str(&said[..said.floor_char_boundary(MOST)]);
        }
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(text: &str, error: bool) -> ToolResult {
        ToolResult { call: "c".into(), name: None, parts: vec![Part::text(text)], error }
    }

    #[test]
    fn an_answer_to_a_question_is_the_users_and_other_results_are_not() {
        let said =
            "User has answered your questions: \"Which?\"=\"The second\". You can now continue with it.";
        let call = |name: &str| ToolCall::function("c", name, "{}");
        assert_eq!(
            answer(&call("AskUserQuestion"), &result(said, false)).unwrap(),
            "\"Which?\"=\"The second\"."
        );
        assert_eq!(answer(&call("ask_user"), &result("the red one", false)).unwrap(), "the red one");
        assert_eq!(answer(&call("bash"), &result(said, false)), None);
    }

    #[test]
    fn a_refusal_begins_with_its_formula() {
        let refused = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\nno";
        assert_eq!(refusal(&result(refused, true)).unwrap(), "no");
        assert_eq!(refusal(&result("User rejected.", true)).unwrap(), "");
        assert_eq!(refusal(&result(&format!("cat: {refused}"), true)), None);
    }
}
