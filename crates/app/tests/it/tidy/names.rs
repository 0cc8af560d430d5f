//! Names and documentation, counted: the limits hold what the house style asks for. `scripts/measure-names --list` shows where a
//! figure comes from.

use std::{collections::BTreeMap, fs};

use super::source::{SourceFile, source_files};
use crate::harness::workspace;

/// Largest share of type names that are one word, in percent: the terms of the domain, and private helpers.
const MAX_ONE_WORD_PERCENT: usize = 30;

/// Largest share of doc comments that open with a question word, in percent: they ask where they should say.
const MAX_QUESTION_PERCENT: usize = 5;

/// Most entries of the glossary: names that need none are better.
const MAX_GLOSSARY_ENTRIES: usize = 25;

const QUESTION_WORDS: [&str; 14] = [
    "what", "who", "whose", "whom", "which", "where", "when", "whether", "how", "why", "whatever", "whoever",
    "wherever", "nobody",
];

/// A type as it is defined.
struct TypeDefinition {
    name: String,
    is_public: bool,
    place: String,
}

#[test]
fn no_two_public_types_share_a_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for definition in definitions().into_iter().filter(|definition| definition.is_public) {
        places.entry(definition.name).or_default().push(definition.place);
    }
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "one name for one thing in the workspace: {places:#?}");
}

#[test]
fn few_type_names_are_one_word() {
    let all = definitions();
    let is_one_word = |name: &str| name.chars().filter(char::is_ascii_uppercase).count() == 1;
    let one_word: Vec<_> =
        all.iter().map(|definition| &definition.name).filter(|name| is_one_word(name)).collect();
    assert!(all.len() > 1_000, "types are counted: {}", all.len());
    assert!(
        one_word.len() * 100 <= all.len() * MAX_ONE_WORD_PERCENT,
        "{} of {} type names are one word, at most {MAX_ONE_WORD_PERCENT} % may be: {one_word:?}",
        one_word.len(),
        all.len()
    );
}

#[test]
fn documentation_opens_with_a_noun_or_a_verb() {
    let (mut comments, mut questions) = (0, Vec::new());
    for file in source_files() {
        for (place, word) in doc_openings(&file) {
            comments += 1;
            if QUESTION_WORDS.contains(&word.to_lowercase().as_str()) {
                questions.push(place);
            }
        }
    }
    assert!(comments > 1_000, "doc comments are counted: {comments}");
    assert!(
        questions.len() * 100 <= comments * MAX_QUESTION_PERCENT,
        "{} of {comments} doc comments open with a question word, at most {MAX_QUESTION_PERCENT} % may: {questions:#?}",
        questions.len()
    );
}

#[test]
fn the_glossary_stays_short() {
    let page = fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, glossary) = page.split_once("\n## Glossary\n").expect("a glossary");
    let glossary = glossary.split("\n## ").next().unwrap_or_default();
    let entries = glossary.lines().filter(|line| line.starts_with("- **")).count();
    assert!(entries > 0 && entries <= MAX_GLOSSARY_ENTRIES, "the glossary has {entries} entries");
}

fn definitions() -> Vec<TypeDefinition> {
    let mut all = Vec::new();
    for file in source_files() {
        for (number, line) in file.lines.iter().enumerate() {
            if let Some((name, is_public)) = definition(line) {
                let place = format!("{}:{}", file.path.display(), number + 1);
                all.push(TypeDefinition { name: name.to_owned(), is_public, place });
            }
        }
    }
    all
}

/// The type that a line defines, and whether everybody sees it. An associated type is none.
fn definition(line: &str) -> Option<(&str, bool)> {
    let (visibility, rest) = match line.trim_start().split_once("pub") {
        Some(("", rest)) if rest.starts_with('(') => ("pub(…)", rest.split_once(')')?.1),
        Some(("", rest)) => ("pub", rest),
        _ => ("", line),
    };
    let rest = rest.trim_start();
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (keyword, rest) = rest.split_once(' ')?;
    let is_indented = line.starts_with(' ');
    if !matches!(keyword, "struct" | "enum" | "trait" | "union" | "type") || keyword == "type" && is_indented
    {
        return None;
    }
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    let name = &rest[..end];
    name.starts_with(|first: char| first.is_ascii_uppercase()).then_some((name, visibility == "pub"))
}

/// The first word of each doc comment, with its place.
fn doc_openings(file: &SourceFile) -> Vec<(String, String)> {
    let (mut openings, mut is_inside) = (Vec::new(), false);
    for (number, line) in file.lines.iter().enumerate() {
        let text = line.trim();
        let doc = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"));
        let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '\'';
        let word = doc.and_then(|doc| doc.split(|letter| !is_letter(letter)).find(|word| !word.is_empty()));
        if let Some(word) = word.filter(|_| !is_inside) {
            openings.push((format!("{}:{}", file.path.display(), number + 1), word.to_owned()));
        }
        is_inside = doc.is_some();
    }
    openings
}
