//! Search for many strings at once, in one pass over a text.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

/// Text that may surround a string where it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum MatchEdge {
    /// No letter, digit or underscore on either side.
    Word,
    /// No letter, digit, underscore or hyphen on either side.
    Flag,
    /// No part of a word before it: a hash is named by its beginning.
    Hash,
    /// Beginning of a path, or a folder before it.
    Path,
    /// No folder before it: it must be the whole path.
    WholePath,
    /// Any text.
    Any,
}

/// Strings to be found.
#[derive(Clone, Debug)]
pub(super) struct SearchPatterns {
    automaton: Option<AhoCorasick>,
    edges: Vec<MatchEdge>,
}

impl SearchPatterns {
    /// Prepares a search for these strings; their numbers are their positions here.
    pub(super) fn new(strings: &[(String, MatchEdge)]) -> Self {
        // If there are too many strings for one automaton, none is found, so nothing counts as needed.
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(strings.iter().map(|(string, _)| string))
            .ok();
        Self { automaton, edges: strings.iter().map(|(_, edge)| *edge).collect() }
    }

    /// Adds the numbers of the strings found in a text, in no order, and some of them twice.
    pub(super) fn find(&self, text: &str, found: &mut Vec<u32>) {
        let Some(automaton) = &self.automaton else { return };
        for hit in automaton.find_overlapping_iter(text) {
            let edge = self.edges[hit.pattern().as_usize()];
            if edge.holds(text.as_bytes(), hit.start(), hit.end()) {
                found.push(hit.pattern().as_u32());
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.edges.len()
    }
}

impl MatchEdge {
    fn holds(self, text: &[u8], start: usize, end: usize) -> bool {
        let before = start.checked_sub(1).map(|at| text[at]).filter(|_| !follows_escape(text, start));
        let after = text.get(end).copied();
        let free =
            |byte: Option<u8>, not: &[u8]| byte.is_none_or(|byte| !is_word(byte) && !not.contains(&byte));
        // A dot either ends a sentence, or begins the extension of another file.
        let ends = || {
            free(after, b"-")
                && !(after == Some(b'.') && text.get(end + 1).is_some_and(u8::is_ascii_alphanumeric))
        };
        match self {
            Self::Word => free(before, b"") && free(after, b""),
            Self::Flag => free(before, b"-") && free(after, b"-"),
            Self::Hash => free(before, b""),
            Self::Path => free(before, b"-.") && ends(),
            Self::WholePath => {
                let here = start >= 2
                    && &text[start - 2..start] == b"./"
                    && (start < 3 || free(Some(text[start - 3]), b"./-"));
                (here || free(before, b"-./")) && ends()
            }
            Self::Any => true,
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns true if this position follows `\n`, `\t` or `\r` written with two letters, as in JSON within a
/// text.
fn follows_escape(text: &[u8], start: usize) -> bool {
    start >= 2 && text[start - 2] == b'\\' && matches!(text[start - 1], b'n' | b't' | b'r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(string: &str, edge: MatchEdge, text: &str, expect: bool) {
        let mut found = Vec::new();
        SearchPatterns::new(&[(string.to_owned(), edge)]).find(text, &mut found);
        assert_eq!(!found.is_empty(), expect, "{string:?} as {edge:?} in {text:?}");
    }

    #[test]
    fn a_string_counts_only_where_it_is_meant() {
        check("fooBar", MatchEdge::Word, "call fooBar(1)", true);
        check("fooBar", MatchEdge::Word, "call fooBarBaz(1)", false);
        check("fooBar", MatchEdge::Word, "a.fooBar", true);
        check("fooBar", MatchEdge::Word, "{\"out\":\"\\nfooBar\"}", true);
        check("fooBar", MatchEdge::Word, "xnfooBar", false);
        check("a1b2c3d", MatchEdge::Hash, "a1b2c3d4e5", true);
        check("a1b2c3d", MatchEdge::Hash, "0a1b2c3d4e5", false);
        check("--no-edit", MatchEdge::Flag, "git --no-edit-all", false);
        check("src/a.rs", MatchEdge::Path, "/home/me/src/a.rs:12: no.", true);
        check("src/a.rs", MatchEdge::Path, "in src/a.rs.", true);
        check("src/a.rs", MatchEdge::Path, "in src/a.rs.bak", false);
        check("src/a.rs", MatchEdge::Path, "xsrc/a.rs", false);
        check("a.rs", MatchEdge::WholePath, "src/a.rs", false);
        check("a.rs", MatchEdge::WholePath, "see ./a.rs", true);
        check("a.rs", MatchEdge::WholePath, "see ../a.rs", false);
        check("a.rs", MatchEdge::WholePath, "`a.rs`", true);
    }
}
