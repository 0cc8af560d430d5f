//! Tests of the readers of files of lines on files that no agent would write.
//!
//! Lines of the fixtures in any order, repeated, missing, cut: no file causes a panic, and reading more of it leaves
//! the earlier events as they were.

use proptest::prelude::*;

use super::{
    TranscriptLimits, claude_code, codex, epitome, gemini, pi,
    testing::{TestReader, is_prefix},
};

/// Some of the lines of a text, picked by number.
fn picked(text: &str, picks: &[prop::sample::Index]) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    picks.iter().map(|pick| format!("{}\n", lines[pick.index(lines.len())])).collect()
}

fn check(read: TestReader, text: &str, picks: &[prop::sample::Index], cut: prop::sample::Index) {
    let lines = picked(text, picks);
    let whole = lines.concat();
    let limits = TranscriptLimits::default();
    let Ok(all) = read("file", whole.as_bytes(), &limits) else { return };
    let mut end = 0;
    for line in &lines {
        end += line.len();
        if let Ok(early) = read("file", &whole.as_bytes()[..end], &limits) {
            is_prefix(&early, &all, end);
        }
    }
    // Damage in the middle costs only the damaged lines.
    let mut damaged = whole.into_bytes();
    let at = cut.index(damaged.len());
    damaged[at] ^= 1;
    let _ = read("file", &damaged, &limits);
}

fn picks() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn claude_code_lines_in_any_order(picks in picks(), cut in any::<prop::sample::Index>()) {
        check(claude_code::read, &claude_code::tests::lines(), &picks, cut);
    }

    #[test]
    fn codex_lines_in_any_order(picks in picks(), cut in any::<prop::sample::Index>()) {
        check(codex::read, &[codex::tests::ROLLOUT, codex::tests::SPAWNED].concat(), &picks, cut);
    }

    #[test]
    fn pi_lines_in_any_order(picks in picks(), cut in any::<prop::sample::Index>()) {
        check(pi::read, &[pi::tests::TREE, pi::tests::LINEAR].concat(), &picks, cut);
    }

    #[test]
    fn gemini_lines_in_any_order(picks in picks(), cut in any::<prop::sample::Index>()) {
        check(gemini::read, gemini::tests::LINES, &picks, cut);
    }

    #[test]
    fn exported_lines_in_any_order(picks in picks(), cut in any::<prop::sample::Index>()) {
        check(epitome::read, &epitome::tests::lines(), &picks, cut);
    }
}
