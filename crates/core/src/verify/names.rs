//! Names in a text: paths, ids and numbers, which a model must not make up.
//!
//! Draft and span are taken apart by the same rules, so that what is written the same is found the same: a path into its
//! components, a number into its digits without marks between thousands. What only looks like a path, as `and/or` does,
//! is none. Everything here is linear.

use std::ops::Range;

/// A component of a path, or a word by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece<'t> {
    /// The component, without marks around it.
    pub(super) text: &'t str,
    /// Where it is.
    pub(super) range: Range<usize>,
    /// Whether it follows the piece before, parted by nothing but slashes.
    pub(super) joined: bool,
    /// Whether a slash stands before it.
    pub(super) rooted: bool,
    /// Whether a slash stands behind it.
    pub(super) open: bool,
}

/// Takes a text apart.
pub(super) fn pieces<'t>(text: &'t str, see: &mut impl FnMut(Piece<'t>)) {
    let mut start: Option<usize> = None;
    // Whether only slashes stood since the last piece, and whether any did.
    let (mut joined, mut rooted) = (false, false);
    for (at, letter) in text.char_indices().chain([(text.len(), ' ')]) {
        if is_of_component(letter) {
            start.get_or_insert(at);
            continue;
        }
        let slash = matches!(letter, '/' | '\\');
        if let Some(begin) = start.take() {
            let range = trimmed(text, begin..at);
            // A `.`, `..` or `~` says where a path begins, not what it is called.
            if range.is_empty() {
                rooted = slash;
                joined &= slash;
                continue;
            }
            let piece =
                Piece { text: &text[range.clone()], range: range.clone(), joined, rooted, open: slash };
            see(piece);
            // What is cut off its end parts it from what follows.
            joined = slash && range.end == at;
            rooted = slash;
            continue;
        }
        if slash {
            rooted = true;
        } else {
            (joined, rooted) = (false, false);
        }
    }
}

/// Letters of a script that is written without spaces end a component: `改了src/a.rs吗` names `src/a.rs`.
fn is_of_component(letter: char) -> bool {
    (letter.is_alphanumeric() && !is_ideograph(letter))
        || matches!(letter, '_' | '-' | '.' | '@' | '+' | '~' | '$' | '%')
}

pub(super) fn is_ideograph(letter: char) -> bool {
    matches!(u32::from(letter), 0x2E80..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let piece = &text[range.clone()];
    let kept = piece.trim_start_matches(['-', '+', '~', '$', '@', '%']);
    let start = range.end - kept.len();
    let kept = kept.trim_end_matches(['.', '-', '+', '~', '@', '%', '$']);
    start..start + kept.len()
}

/// Something that a text names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// A path, or the name of a file, by components.
    Path(Vec<String>),
    /// Digits of a hash: a longer one that begins so is the same.
    Hex(String),
    /// An identifier with digits, the number of a ticket, a UUID; in lower case.
    Id(String),
    /// A number of three or more digits, in all the ways it can be read: as one, or as several.
    Number(Vec<Vec<String>>),
}

impl Name {
    /// As a reader would know it again.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Path(components) => components.join("/"),
            Self::Hex(id) | Self::Id(id) => id.clone(),
            Self::Number(ways) => ways.first().map(|digits| digits.join(",")).unwrap_or_default(),
        }
    }
}

/// Everything that a text names.
pub(super) fn names(text: &str) -> Vec<Name> {
    let mut all: Vec<Piece<'_>> = Vec::new();
    pieces(text, &mut |piece| all.push(piece));
    let mut names = Vec::new();
    let mut ids: Vec<Range<usize>> = Vec::new();
    for chunk in all.chunk_by(|_, next| next.joined) {
        if is_path(text, chunk) {
            names.push(Name::Path(chunk.iter().map(|piece| piece.text.to_owned()).collect()));
        }
        for piece in chunk {
            id_of(piece, &mut names, &mut ids);
        }
    }
    numbers(text, &mut |range, ways| {
        let of_an_id = ids.iter().any(|id| id.start <= range.start && range.end <= id.end);
        if !of_an_id && ways.iter().flatten().any(|digits| digits.len() >= 3) {
            let ways = ways.iter().map(|digits| digits.iter().map(ToString::to_string).collect()).collect();
            names.push(Name::Number(ways));
        }
    });
    names
}

/// Whether components are a path or the name of a file, and not words with a slash between them.
fn is_path(text: &str, chunk: &[Piece<'_>]) -> bool {
    let (Some(first), Some(last)) = (chunk.first(), chunk.last()) else { return false };
    if let [only] = chunk
        && !only.rooted
        && !only.open
    {
        return is_file_name(only.text);
    }
    // `w/ a cache`
    if let [only] = chunk
        && !only.rooted
        && only.text.len() == 1
    {
        return false;
    }
    // `1/2`, `24/7`
    if chunk.iter().all(|piece| piece.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')) {
        return false;
    }
    let marked = |piece: &Piece<'_>| piece.text.contains(|letter: char| !letter.is_alphabetic());
    let quoted = text[..first.range.start].trim_end_matches(['/', '.', '~', '\\']).ends_with('`');
    let folder = || chunk.iter().any(|piece| FOLDERS.contains(&piece.text));
    // `GET/POST/PUT` is a list.
    let long = chunk.len() > 2 && !chunk.iter().all(|piece| !piece.text.contains(char::is_lowercase));
    // `/` before a word is a root, a route or a command of a client; behind a word, a folder.
    let rooted = first.rooted && !text[..first.range.start].ends_with("</");
    rooted || last.open || long || quoted || chunk.iter().any(marked) || folder()
}

/// Folders that are named without any other mark of a path.
const FOLDERS: [&str; 32] = [
    "app",
    "assets",
    "bin",
    "build",
    "cmd",
    "components",
    "config",
    "core",
    "crates",
    "dist",
    "docs",
    "etc",
    "examples",
    "home",
    "include",
    "internal",
    "lib",
    "libs",
    "node_modules",
    "packages",
    "pkg",
    "public",
    "scripts",
    "spec",
    "src",
    "static",
    "target",
    "test",
    "tests",
    "tmp",
    "usr",
    "var",
];

/// Whether a word is the name of a file: it ends like one.
fn is_file_name(word: &str) -> bool {
    const PRODUCTS: [&str; 12] = [
        "node.js",
        "vue.js",
        "next.js",
        "nuxt.js",
        "react.js",
        "express.js",
        "three.js",
        "d3.js",
        "alpine.js",
        "ember.js",
        "p.m",
        "a.m",
    ];
    let Some((stem, ending)) = word.rsplit_once('.') else { return false };
    let known = ENDINGS.binary_search(&ending.to_ascii_lowercase().as_str()).is_ok();
    let lettered = stem.is_empty() || stem.contains(|letter: char| letter.is_alphanumeric() || letter == '_');
    known && lettered && !PRODUCTS.contains(&word.to_ascii_lowercase().as_str())
}

/// Endings of files, sorted.
const ENDINGS: &[&str] = &[
    "adoc", "astro", "bak", "bash", "bat", "bin", "c", "cc", "cfg", "cjs", "clj", "cmake", "conf", "cpp",
    "crt", "cs", "css", "csv", "cxx", "dart", "dat", "db", "diff", "dll", "doc", "docx", "dylib", "elm",
    "env", "erl", "ex", "exe", "exs", "fish", "gif", "go", "gradle", "graphql", "gz", "h", "hpp", "hs",
    "htm", "html", "ico", "ini", "ipynb", "jar", "java", "jl", "jpeg", "jpg", "js", "json", "jsonl", "jsx",
    "kt", "kts", "less", "lock", "log", "lua", "m", "md", "mdx", "mjs", "mk", "ml", "mli", "mp3", "mp4",
    "nim", "o", "parquet", "patch", "pdf", "pem", "php", "pl", "plist", "png", "proto", "ps1", "py", "pyc",
    "pyi", "r", "rb", "rs", "rst", "sass", "scala", "scss", "service", "sh", "snap", "so", "sql", "sqlite",
    "svelte", "svg", "swift", "tar", "tex", "tf", "tgz", "toml", "ts", "tsv", "tsx", "txt", "vue", "wasm",
    "wav", "webp", "whl", "xls", "xlsx", "xml", "yaml", "yml", "zig", "zip", "zsh",
];

/// Notes the id that a component is, or holds, and where it stands.
fn id_of(piece: &Piece<'_>, names: &mut Vec<Name>, ids: &mut Vec<Range<usize>>) {
    // Names of standards have the form of a ticket's.
    const STANDARDS: [&str; 12] = [
        "utf-8", "utf-16", "utf-32", "sha-1", "sha-256", "sha-384", "sha-512", "aes-128", "aes-256",
        "iso-8859", "base-64", "http-2",
    ];
    let whole = piece.text.to_lowercase();
    if STANDARDS.iter().any(|known| whole.starts_with(known)) {
        ids.push(piece.range.clone());
        return;
    }
    if is_uuid(&whole) || is_ticket(piece.text) {
        names.push(Name::Id(whole));
        ids.push(piece.range.clone());
        return;
    }
    identifiers(piece.text, &mut |at, word| {
        let lower = word.to_lowercase();
        let range = piece.range.start + at..piece.range.start + at + word.len();
        if is_hex(&lower) {
            names.push(Name::Hex(lower.strip_prefix("0x").unwrap_or(&lower).to_owned()));
            ids.push(range);
        } else if is_identifier_with_digits(word) {
            names.push(Name::Id(lower));
            ids.push(range);
        }
    });
}

/// The identifiers in a component: runs of letters, digits and `_`, with where they begin.
pub(super) fn identifiers<'t>(piece: &'t str, see: &mut impl FnMut(usize, &'t str)) {
    let mut start = None;
    for (at, letter) in piece.char_indices().chain([(piece.len(), ' ')]) {
        match (letter.is_alphanumeric() || letter == '_', start) {
            (true, None) => start = Some(at),
            (false, Some(begin)) => {
                see(begin, &piece[begin..at]);
                start = None;
            }
            _ => {}
        }
    }
}

pub(super) fn is_uuid(text: &str) -> bool {
    let groups = [8, 4, 4, 4, 12];
    text.len() == 36
        && text.split('-').count() == groups.len()
        && text.split('-').zip(groups).all(|(group, length)| group.len() == length && all_hex(group))
}

fn all_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Seven hexadecimal digits or more, letters and digits among them; or any after `0x`.
pub(super) fn is_hex(lower: &str) -> bool {
    let digits = lower.strip_prefix("0x");
    let (text, least) = digits.map_or((lower, 7), |digits| (digits, 3));
    text.len() >= least
        && all_hex(text)
        && (digits.is_some()
            || (text.contains(|letter: char| letter.is_ascii_digit())
                && text.contains(|letter: char| letter.is_ascii_alphabetic())))
}

/// `ABC-123`
pub(super) fn is_ticket(text: &str) -> bool {
    text.split_once('-').is_some_and(|(project, number)| {
        (2..=10).contains(&project.len())
            && project.bytes().all(|byte| byte.is_ascii_uppercase())
            && (1..=7).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// `test_case_2`, `parseV2`
fn is_identifier_with_digits(word: &str) -> bool {
    let has_digit = word.contains(|letter: char| letter.is_ascii_digit());
    let has_letter = word.contains(char::is_alphabetic);
    let snake = word.trim_matches('_').contains('_');
    let mut letters = word.chars().peekable();
    let mut camel = false;
    while let Some(letter) = letters.next() {
        camel |= letter.is_lowercase() && letters.peek().is_some_and(|next| next.is_uppercase());
    }
    has_digit && has_letter && (snake || camel)
}

/// Shows every number with where it stands and the ways to read it: `1,234` is one number, or the two of a list.
pub(super) fn numbers<'t>(
    text: &'t str,
    see: &mut impl FnMut(Range<usize>, &[Vec<std::borrow::Cow<'t, str>>]),
) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let start = at;
        let mut runs: Vec<Range<usize>> = Vec::new();
        loop {
            let begin = at;
            while at < bytes.len() && bytes[at].is_ascii_digit() {
                at += 1;
            }
            runs.push(begin..at);
            let grouped = runs.len() == 1 && at - begin <= 3 || runs.len() > 1 && at - begin == 3;
            let more = at + 1 < bytes.len()
                && matches!(bytes[at], b',' | b'_' | b'\'')
                && bytes[at + 1].is_ascii_digit()
                && grouped;
            if !more {
                break;
            }
            at += 1;
        }
        let apart: Vec<std::borrow::Cow<'t, str>> = runs.iter().map(|run| text[run.clone()].into()).collect();
        let one = runs.len() > 1 && runs[1..].iter().all(|run| run.len() == 3);
        let ways = if one { vec![vec![apart.concat().into()], apart] } else { vec![apart] };
        see(start..at, &ways);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let found: Vec<String> = names(text).iter().map(Name::shown).collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn endings_are_sorted() {
        assert!(ENDINGS.is_sorted());
    }

    #[test]
    fn paths_are_found_in_prose() {
        check("Edited src/a.rs, then `./b/c.py`.", &["src/a.rs", "b/c.py"]);
        check("(see /etc/hosts:12)", &["etc/hosts"]);
        check("C:\\repo\\src\\a.rs broke", &["repo/src/a.rs"]);
        check("in Cargo.toml and .gitignore", &["Cargo.toml"]);
        check("[a](docs/x.md) ../y/z.ts", &["docs/x.md", "y/z.ts"]);
        check("see https://example.org/a?b=c", &["example.org/a"]);
        check("改了src/a.rs吗", &["src/a.rs"]);
        check("under src/ and tests/unit", &["src", "tests/unit"]);
    }

    #[test]
    fn prose_with_slashes_and_dots_is_none() {
        check("and/or read/write, e.g. i.e. 24/7, 1/2, Node.js, v1.2, p.m. foo.bar()", &[]);
        check("TCP/IP and CI/CD; 12.5 ms, 50%", &[]);
    }

    #[test]
    fn ids_are_found_and_words_are_not() {
        check("commit 3f2a9c1 and deadbeef and defaced", &["3f2a9c1"]);
        check("ABC-123, UTF-8, SHA-256", &["abc-123"]);
        check("test_case_2 parseV2 x2 utf8 snake_case camelCase", &["test_case_2", "parsev2"]);
        check("550e8400-e29b-41d4-a716-446655440000", &["550e8400-e29b-41d4-a716-446655440000"]);
        check("0x1f4", &["1f4"]);
    }

    #[test]
    fn numbers_of_three_digits_are_found_however_they_are_grouped() {
        check("1,234 1_234 1234 12 1.5", &["1234", "1234", "1234"]);
        check("E0308, 500ms", &["0308", "500"]);
        check("12.5 and 99", &[]);
        let mut ways = Vec::new();
        numbers("1,234 5,67", &mut |_, found| ways.push(format!("{found:?}")));
        assert_eq!(ways, [r#"[["1234"], ["1", "234"]]"#, r#"[["5", "67"]]"#]);
    }

    #[test]
    fn a_million_slashes_are_taken_apart_in_one_go() {
        let text = "/a".repeat(500_000);
        let mut count = 0;
        pieces(&text, &mut |piece| count += usize::from(piece.joined));
        assert_eq!(count, 499_999);
    }
}
