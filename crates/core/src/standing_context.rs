//! Standing context: information about the project and its surroundings that a client gives the model in the
//! user's name.
//!
//! Project instructions (CLAUDE.md, AGENTS.md), rules, memory, lists of skills, the date and the working
//! folder hold for the whole session, but clients send them as tagged blocks inside user messages, often in
//! one text with a prompt. No compaction may lose them, so code recognises each block by the
//! [table of client texts](crate::client_text), carries it byte for byte, and takes its newest form where a
//! client sends it again. Reminders about a moment (a nag, a changed file, a finished task) hold for that
//! moment only. Tool results are never searched for it: otherwise the author of any file could give orders
//! that outlast every compaction.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::{
    client_text::{ClientSpan, StandingRule, client_spans, named_opening},
    context::EventNaming,
    event::{ContentPart, Fact, InstructionKind},
    id::Seq,
};

/// The most letters of standing context that outlast compactions. Claude Code warns of a CLAUDE.md beyond 40 000, Codex
/// reads 32 KiB of AGENTS.md: a session has room for three such files.
pub const MAX_STANDING_CHARS: usize = 120_000;

/// A block of standing context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandingPiece {
    /// The kind of it: a later block of the same kind takes its place.
    pub kind: String,
    /// The event it came with.
    pub at: Seq,
    /// The block, byte for byte.
    pub text: String,
}

/// The standing context that a summary or a note carries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandingContext {
    /// The blocks, in the order in which they were sent.
    pub pieces: Vec<StandingPiece>,
    /// Blocks for which there was no room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<OmittedPiece>,
}

/// A block of standing context for which there was no room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OmittedPiece {
    /// The kind of it.
    pub kind: String,
    /// The event it came with.
    pub at: Seq,
    /// Its length.
    pub letters: usize,
}

/// Position of a message in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePosition {
    /// Before the first answer: reminders there set the session up, whatever their text.
    Opening,
    /// After it: a reminder must be known as standing.
    Later,
}

impl StandingContext {
    /// Returns true if there is none, and none was left out.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.left_out.is_empty()
    }

    /// Adds later blocks: a newer block takes the place of an older one of its kind.
    pub(crate) fn add(&mut self, other: &Self) {
        for piece in &other.pieces {
            self.forget(&piece.kind, piece.at);
            if !self.pieces.iter().any(|known| known.kind == piece.kind) {
                self.pieces.push(piece.clone());
            }
        }
        for left in &other.left_out {
            self.forget(&left.kind, left.at);
            self.left_out.push(left.clone());
        }
        self.pieces.sort_by_key(|piece| piece.at);
    }

    /// Forgets the blocks older than one of this kind.
    fn forget(&mut self, kind: &str, at: Seq) {
        self.pieces.retain(|known| known.kind != kind || known.at > at);
        self.left_out.retain(|known| known.kind != kind);
    }

    /// The part that was sent before an event.
    pub(crate) fn before(&self, seq: Seq) -> Self {
        Self {
            pieces: self.pieces.iter().filter(|piece| piece.at < seq).cloned().collect(),
            left_out: self.left_out.iter().filter(|left| left.at < seq).cloned().collect(),
        }
    }

    /// The blocks as they were sent, each in lines of its own, and a line for each that was left out.
    pub(crate) fn write(&self, names: EventNaming, text: &mut String) {
        self.write_pieces(text);
        for left in &self.left_out {
            let OmittedPiece { kind, at, letters } = left;
            let _ = writeln!(text, "[no room for {kind}: {letters} letters{}]", names.recall_suffix(*at));
        }
    }

    /// The blocks alone, for use where there is room for nothing else.
    pub(crate) fn write_pieces(&self, text: &mut String) {
        for piece in &self.pieces {
            text.push_str(&piece.text);
            text.push_str(if piece.text.ends_with('\n') { "\n" } else { "\n\n" });
        }
    }
}

/// The standing blocks of an event.
pub(crate) fn pieces(fact: &Fact, at: Seq, position: MessagePosition) -> Vec<StandingPiece> {
    let mut found: Vec<StandingPiece> = Vec::new();
    let mut take = |kind: String, text: &str| {
        // Two blocks of one kind in one message are two blocks.
        let same = found.iter().filter(|known| known.kind == kind || is_numbered(&known.kind, &kind)).count();
        let kind = if same == 0 { kind } else { format!("{kind} {}", same + 1) };
        found.push(StandingPiece { kind, at, text: text.to_owned() });
    };
    match fact {
        Fact::UserSaid { parts } | Fact::ToolReturned { parts, .. } => {
            for text in ContentPart::texts(parts) {
                for block in blocks(text, position) {
                    take(block.kind, block.text);
                }
            }
        }
        Fact::Instructed { what: InstructionKind::Message | InstructionKind::Project, parts } => {
            for text in ContentPart::texts(parts) {
                let blocks = blocks(text, position);
                let rest = without(text, &blocks);
                let rest = rest.trim();
                for block in blocks {
                    take(block.kind, block.text);
                }
                // All other text of an instruction is standing too: its place within the conversation makes
                // no difference.
                if !rest.is_empty() && !is_of_the_moment(rest) {
                    take(format!("instruction: {}", headline(rest)), rest);
                }
            }
        }
        _ => {}
    }
    found
}

/// Returns true if one kind is another with a number.
fn is_numbered(one: &str, kind: &str) -> bool {
    let number = one.strip_prefix(kind).and_then(|rest| rest.strip_prefix(' '));
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}

/// A text without its standing blocks.
fn without(text: &str, blocks: &[StandingBlock<'_>]) -> String {
    let mut rest = String::new();
    let mut from = 0;
    for block in blocks {
        rest.push_str(text.get(from..block.start).unwrap_or_default());
        from = block.start + block.text.len();
    }
    rest.push_str(text.get(from..).unwrap_or_default());
    rest
}

/// A standing block within a text.
#[derive(Debug, PartialEq, Eq)]
struct StandingBlock<'t> {
    start: usize,
    kind: String,
    text: &'t str,
}

/// The sentence that opens a client's setup message, with its folder, the date and the system it runs on, if `text` is one.
///
/// ```
/// use epitome_core::standing_context::setup_opening;
///
/// let text = "This is the Qwen Code. We are setting up the context for our chat.\nMy operating system is: linux";
/// assert_eq!(setup_opening(text), Some("This is the Qwen Code. We are setting up the context"));
/// assert_eq!(setup_opening("This is the file. Please read it."), None);
/// ```
pub fn setup_opening(text: &str) -> Option<&str> {
    named_opening(text.trim_start())
}

/// Finds the standing blocks of a text, in order.
fn blocks(text: &str, position: MessagePosition) -> Vec<StandingBlock<'_>> {
    client_spans(text)
        .into_iter()
        .filter_map(|span| standing_block(text, &span, position))
        .take(MOST)
        .collect()
}

/// Most blocks that are read in one text: no client sends more while setting up a session.
const MOST: usize = 64;

/// A text of a client as a standing block, if it is one.
fn standing_block<'t>(
    text: &'t str,
    span: &ClientSpan<'t>,
    position: MessagePosition,
) -> Option<StandingBlock<'t>> {
    let kind = match span.row.standing {
        StandingRule::Never => return None,
        StandingRule::Always => span.name.to_owned(),
        StandingRule::ByContent => {
            let inside = text.get(span.inside.clone())?.trim();
            let is_standing = match position {
                MessagePosition::Opening => true,
                MessagePosition::Later => is_known(inside),
            };
            if inside.is_empty() || is_of_the_moment(inside) || !is_standing {
                return None;
            }
            format!("{}: {}", span.name, headline(inside))
        }
    };
    Some(StandingBlock { start: span.range.start, kind, text: text.get(span.range.clone())? })
}

/// Returns true if a reminder is about a moment. Its first line shows that; the rest may be anything.
fn is_of_the_moment(text: &str) -> bool {
    const SIGNS: [&str; 30] = [
        "todowrite",
        "todo list",
        "todo_write",
        "task tools haven't been used",
        "taskcreate",
        "was modified, either by",
        "file was modified",
        "has been modified",
        "have been modified",
        "opened the file",
        "selected the lines",
        "selected the following",
        "new diagnostic",
        "called the ",
        "result of calling the",
        "task-notification",
        "background task",
        "background bash",
        "background command",
        "has completed",
        "has finished",
        "was interrupted",
        "hook success",
        "the user sent the following message",
        "the user sent a new message",
        "token usage",
        "budget:",
        "considered malware",
        "the file exists but",
        "desire to invoke the agent",
    ];
    let line = first_line(text).to_ascii_lowercase();
    SIGNS.iter().any(|sign| line.contains(sign)) && !names_instructions(&line)
}

/// Returns true if a line is about a file of instructions.
fn names_instructions(line: &str) -> bool {
    ["claude.md", "claude.local.md", "agents.md", "gemini.md", "qwen.md", ".cursorrules", ".clinerules"]
        .iter()
        .any(|file| line.contains(file))
}

/// Returns true if a reminder after the opening is known to be standing, by its beginning.
fn is_known(text: &str) -> bool {
    const SIGNS: [&str; 26] = [
        "claudemd",
        "contents of /",
        "instructions",
        "rules",
        "today's date",
        "date has changed",
        "current date",
        "currentdate",
        "working directory",
        "working folder",
        "cwd",
        "environment",
        "memory",
        "memories",
        "skill",
        "mcp server",
        "agent types",
        "deferred tools",
        "tools are now available",
        "plan mode",
        "auto mode",
        "output style",
        "additional context",
        "use the following context",
        "platform:",
        "gitstatus",
    ];
    let begins = text.get(..text.floor_char_boundary(300)).unwrap_or_default().to_ascii_lowercase();
    SIGNS.iter().any(|sign| begins.contains(sign)) || names_instructions(&begins)
}

/// The first line of a text that says anything, no longer than names should be.
fn first_line(text: &str) -> &str {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.get(..line.floor_char_boundary(200)).unwrap_or_default()
}

/// The first line as the name of a kind: without numbers, so that another date or count is the same kind.
fn headline(text: &str) -> String {
    let line = first_line(text);
    let line = line.get(..line.floor_char_boundary(120)).unwrap_or_default();
    let mut name = String::new();
    for letter in line.chars() {
        if !letter.is_ascii_digit() {
            name.push(letter);
        } else if !name.ends_with('#') {
            name.push('#');
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks the kinds and the text of the blocks that are found, and the remaining text.
    fn check(text: &str, position: MessagePosition, expect: &[(&str, &str)], rest: &str) {
        let blocks = blocks(text, position);
        let found: Vec<(&str, &str)> = blocks.iter().map(|block| (block.kind.as_str(), block.text)).collect();
        assert_eq!(found, expect, "{text}");
        assert_eq!(without(text, &blocks), rest, "{text}");
    }

    const CONTEXT: &str = "<system-reminder>\nAs you answer the user's questions, you can use the following context:\n\
        # claudeMd\nUse tabs. Mention `<system-reminder>` never.\n# currentDate\nToday's date is 2026-11-16.\n\
        </system-reminder>";
    const KIND: &str =
        "system-reminder: As you answer the user's questions, you can use the following context:";

    #[test]
    fn standing_blocks_are_told_from_a_prompt_in_the_same_text() {
        let opening = MessagePosition::Opening;
        check(&format!("{CONTEXT}\nFix it."), opening, &[(KIND, CONTEXT)], "\nFix it.");
        check(&format!("{CONTEXT}\nFix it."), MessagePosition::Later, &[(KIND, CONTEXT)], "\nFix it.");
        let date = "<system-reminder>Today's date is 2026-11-16.</system-reminder>";
        check(
            &format!("Fix it.\n{CONTEXT}{date}\nNow."),
            opening,
            &[(KIND, CONTEXT), ("system-reminder: Today's date is #-#-#.", date)],
            "Fix it.\n\nNow.",
        );
        check(
            "What is <system-reminder>a</system-reminder> for?",
            opening,
            &[],
            "What is <system-reminder>a</system-reminder> for?",
        );
        check("<system-reminder>never closed", opening, &[], "<system-reminder>never closed");
        check("<b>bold</b> # no", opening, &[], "<b>bold</b> # no");
    }

    #[test]
    fn what_other_clients_send_is_recognised_too() {
        let check = |text: &str, kind: &str| check(text, MessagePosition::Later, &[(kind, text)], "");
        check("<environment_context>\n  <cwd>/src</cwd>\n</environment_context>", "environment_context");
        check("<user_instructions>\n\nBe kind.\n\n</user_instructions>", "user_instructions");
        check(
            "# AGENTS.md instructions for /src\n\n<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>",
            "# AGENTS.md instructions for /src",
        );
        check(
            "<permissions instructions>\nAsk first.\n</permissions instructions>",
            "permissions instructions",
        );
        check("<environment_details>\n# Visible files\na.rs\n</environment_details>", "environment_details");
        check("<session_context>\nToday is Monday.\n</session_context>", "session_context");
        check("<info-msg>\nIt is 10:31\n</info-msg>", "info-msg");
        let setup =
            "This is the Qwen Code. We are setting up the context for our chat.\nToday's date is Monday.";
        check(setup, "This is the Qwen Code. We are setting up the context");
    }

    #[test]
    fn reminders_about_a_moment_do_not_stand() {
        for text in [
            "The TodoWrite tool hasn't been used recently. If you are working on tasks, mind the instructions.",
            "Note: /src/a.rs was modified, either by the user or by a linter.",
            "Your todo list has changed. Here are the latest contents:",
            "Called the Read tool with the following input: {}",
            "The user opened the file /src/rules.rs in the IDE.",
        ] {
            let text = format!("<system-reminder>\n{text}\n</system-reminder>");
            for position in [MessagePosition::Opening, MessagePosition::Later] {
                check(&text, position, &[], &text);
            }
        }
        let odd = "<system-reminder>\nMind the gap.\n</system-reminder>";
        check(odd, MessagePosition::Opening, &[("system-reminder: Mind the gap.", odd)], "");
        check(odd, MessagePosition::Later, &[], odd);
        check(
            "<task-notification>\nDone.\n</task-notification>",
            MessagePosition::Opening,
            &[],
            "<task-notification>\nDone.\n</task-notification>",
        );
        let changed = "<system-reminder>\nNote: /src/CLAUDE.md was modified, either by the user or by a linter.\n</system-reminder>";
        assert_eq!(blocks(changed, MessagePosition::Later).len(), 1);
    }

    #[test]
    fn blocks_that_follow_each_other_are_all_found() {
        let skills = "<system-reminder>\nThe following skills are available for use with the Skill tool:\n\n- deploy\n</system-reminder>";
        let surroundings =
            "<system-reminder>\n# Environment\nPrimary working directory: /work\n</system-reminder>";
        let nag = "<system-reminder>\nThe TodoWrite tool hasn't been used recently.\n</system-reminder>";
        for between in ["", "\n", "\n\n"] {
            let text = [CONTEXT, skills, surroundings, nag, "Fix it."].join(between);
            for position in [MessagePosition::Opening, MessagePosition::Later] {
                let found: Vec<&str> = blocks(&text, position).iter().map(|block| block.text).collect();
                assert_eq!(found, [CONTEXT, skills, surroundings], "{between:?}");
            }
        }
    }

    #[test]
    fn a_block_ends_with_its_own_tag() {
        let nested = "<rules>\n<rules>\ninner\n</rules>\nouter\n</rules>";
        check(&format!("{nested}\nGo."), MessagePosition::Later, &[("rules", nested)], "\nGo.");
        let stray = "<rules>\n<rules>\nnever closed\n</rules>";
        check(&format!("{stray}\nGo."), MessagePosition::Later, &[("rules", stray)], "\nGo.");
    }

    #[test]
    fn newer_blocks_take_the_place_of_older_ones_and_two_of_a_message_are_two() {
        let fact = |texts: &[&str]| Fact::UserSaid {
            parts: texts.iter().map(|text| ContentPart::text(*text)).collect(),
        };
        let found = |texts: &[&str], at| pieces(&fact(texts), Seq(at), MessagePosition::Later);
        let two = found(&["<rules>a</rules>", "<rules>b</rules>"], 1);
        let kinds: Vec<&str> = two.iter().map(|piece| piece.kind.as_str()).collect();
        assert_eq!(kinds, ["rules", "rules 2"]);
        let mut standing = StandingContext { pieces: two, left_out: vec![] };
        standing.add(&StandingContext { pieces: found(&["<rules>c</rules>"], 5), left_out: vec![] });
        let texts: Vec<&str> = standing.pieces.iter().map(|piece| piece.text.as_str()).collect();
        assert_eq!(texts, ["<rules>b</rules>", "<rules>c</rules>"]);
        // The older form does not come back.
        standing.add(&StandingContext { pieces: found(&["<rules>old</rules>"], 3), left_out: vec![] });
        assert!(standing.pieces.iter().all(|piece| piece.text != "<rules>old</rules>"));
    }

    proptest! {
        #[test]
        fn blocks_lie_apart_in_the_text_whatever_it_is(
            text in "(</?(system-reminder|rules|env)>|# AGENTS.md instructions|</INSTRUCTIONS>|[a-zé< >#\n]{0,9}){0,12}",
        ) {
            for position in [MessagePosition::Opening, MessagePosition::Later] {
                let blocks = blocks(&text, position);
                let mut end = 0;
                for block in &blocks {
                    prop_assert!(block.start >= end && !block.text.is_empty());
                    prop_assert_eq!(&text[block.start..block.start + block.text.len()], block.text);
                    end = block.start + block.text.len();
                }
                let kept: usize = blocks.iter().map(|block| block.text.len()).sum();
                prop_assert_eq!(without(&text, &blocks).len() + kept, text.len());
            }
        }
    }
}
