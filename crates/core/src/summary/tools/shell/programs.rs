//! What well-known programs do to the files they are given.

use super::options::{Known, Words};
use crate::summary::tools::Change;

/// What a program does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// It reads a file: these lines of it, or all.
    Read(String, Option<(u64, u64)>),
    /// It changes a file: so, and in these lines.
    Changed(String, Change, Vec<(u64, u64)>),
    /// It looks for something.
    Searched(String),
}

/// What a program does with its words. `filter` are the words of the program that reads its output.
pub(super) fn acts(name: &str, words: &[Known], filter: &[&str]) -> Vec<Act> {
    match name {
        "cat" | "nl" | "bat" | "less" | "more" | "tac" => reads(&Words::of(words, &[]), filtered(filter)),
        "head" | "tail" => {
            let lines = head(name, words);
            reads(&Words::of(words, &["-n", "-c", "--lines", "--bytes"]), lines)
        }
        "sed" | "gsed" => sed(words, filter),
        "perl" => perl(words),
        "grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack" => searched(words),
        "find" | "fd" | "fdfind" => found(name, words),
        "rm" | "unlink" | "trash" => {
            Words::of(words, &[]).known().map(|path| changed(path, Change::Deleted)).collect()
        }
        "mv" => moved(words),
        "cp" | "install" | "ln" => copied(words),
        "touch" => {
            Words::of(words, &["-d", "-r", "-t"]).known().map(|path| changed(path, Change::Written)).collect()
        }
        "tee" | "sponge" => {
            let words = Words::of(words, &[]);
            let how = if words.has(&["-a", "--append"]) { Change::Edited } else { Change::Written };
            words.known().filter(|path| !path.starts_with("/dev/")).map(|path| changed(path, how)).collect()
        }
        "truncate" => {
            Words::of(words, &["-s", "-r"]).known().map(|path| changed(path, Change::Edited)).collect()
        }
        "dd" => {
            let to = words.iter().flatten().filter_map(|word| word.strip_prefix("of="));
            to.filter(|path| !path.starts_with("/dev/")).map(|path| changed(path, Change::Written)).collect()
        }
        "curl" | "wget" | "sort" => {
            let option = if name == "wget" { "-O" } else { "-o" };
            let words = Words::of(words, &[option, "--output", "-H", "-d", "-X", "-A", "-k", "-t"]);
            let to =
                words.value(&[option, "--output"]).filter(|path| *path != "-" && !path.starts_with("/dev/"));
            to.map(|path| changed(path, Change::Written)).into_iter().collect()
        }
        "git" => git(words),
        _ => formatted(name, words),
    }
}

fn changed(path: &str, how: Change) -> Act {
    Act::Changed(path.to_owned(), how, Vec::new())
}

fn reads(words: &Words, lines: Option<(u64, u64)>) -> Vec<Act> {
    let files = words.known().filter(|path| *path != "-" && !path.starts_with("/dev/"));
    files.map(|path| Act::Read(path.to_owned(), lines)).collect()
}

/// The lines that are left of a file when a program shows a part of what it reads.
fn filtered(filter: &[&str]) -> Option<(u64, u64)> {
    let words: Vec<Known> = filter.iter().skip(1).map(|word| Some((*word).to_owned())).collect();
    match filter.first() {
        Some(&"sed") => words.iter().flatten().find_map(|word| printed(word)),
        Some(&"head") => head("head", &words),
        _ => None,
    }
}

/// The lines that `head` shows. What `tail` shows depends on the file's length, save from a line on.
fn head(name: &str, words: &[Known]) -> Option<(u64, u64)> {
    let sorted = Words::of(words, &["-n", "-c", "--lines", "--bytes"]);
    if name == "tail" || sorted.has(&["-c", "--bytes"]) {
        return None;
    }
    let short =
        sorted.options.iter().find_map(|(option, _)| option[1..].trim_start_matches('n').parse().ok());
    let count = sorted.value(&["-n", "--lines"]).and_then(|count| count.parse().ok()).or(short);
    Some((1, count.unwrap_or(10)))
}

/// The lines that a script of `sed -n` prints: `10,20p`, `10p`.
fn printed(script: &str) -> Option<(u64, u64)> {
    let range = script.strip_suffix('p')?;
    let (from, to) = range.split_once(',').unwrap_or((range, range));
    let from: u64 = from.parse().ok()?;
    let to = match to.strip_prefix('+') {
        Some(more) => from.checked_add(more.parse().ok()?)?,
        None => to.parse().ok()?,
    };
    Some((from, to))
}

/// The lines that a script of `sed -i` touches, if it names them.
fn touched(script: &str) -> Vec<(u64, u64)> {
    let address: String =
        script.chars().take_while(|letter| letter.is_ascii_digit() || *letter == ',').collect();
    let (from, to) = address.split_once(',').unwrap_or((&address, &address));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) if from <= to => vec![(from, to)],
        _ => Vec::new(),
    }
}

fn sed(words: &[Known], filter: &[&str]) -> Vec<Act> {
    let mut sorted = Words::of(words, &["-e", "-f", "--expression", "--file"]);
    let places = sorted.has(&["-i", "--in-place"]);
    // BSD's `-i` has a word of its own for the suffix, empty as a rule.
    if places && sorted.operands.first().is_some_and(|word| word.as_deref() == Some("")) {
        sorted.operands.remove(0);
    }
    let given = sorted.value(&["-e", "--expression", "-f", "--file"]).map(str::to_owned);
    let script = match given {
        Some(script) => script,
        None if sorted.operands.is_empty() => return Vec::new(),
        None => sorted.operands.remove(0).unwrap_or_default(),
    };
    if places {
        let lines = touched(&script);
        return sorted
            .known()
            .map(|path| Act::Changed(path.to_owned(), Change::Edited, lines.clone()))
            .collect();
    }
    reads(&sorted, printed(&script).or_else(|| filtered(filter)))
}

fn perl(words: &[Known]) -> Vec<Act> {
    let mut sorted = Words::of(words, &["-e", "-pe", "-ne", "-pie", "-M"]);
    // Letters are joined at will: `-pi -e`, `-0pi -e`, `-i.bak -pe`.
    let places = sorted.options.iter().any(|(option, _)| {
        let letters = option.split('.').next().unwrap_or(option);
        !option.starts_with("--") && !option.starts_with("-M") && letters.contains('i')
    });
    let inline = sorted.options.iter().any(|(option, value)| value.is_some() && option.ends_with('e'));
    if !inline && !sorted.operands.is_empty() {
        sorted.operands.remove(0);
    }
    if !places {
        return Vec::new();
    }
    sorted.known().map(|path| changed(path, Change::Edited)).collect()
}

fn searched(words: &[Known]) -> Vec<Act> {
    const VALUED: &[&str] = &[
        "-A",
        "-B",
        "-C",
        "-m",
        "-g",
        "-t",
        "-T",
        "-e",
        "-f",
        "-d",
        "-M",
        "--glob",
        "--type",
        "--include",
        "--exclude",
        "--max-count",
        "--context",
        "--regexp",
        "-r",
        "--sort",
    ];
    // `-r` takes a value in ripgrep only, where nobody searches with it.
    let valued: Vec<&str> = VALUED.iter().copied().filter(|option| *option != "-r").collect();
    let words = Words::of(words, &valued);
    if words.has(&["--files", "--version"]) {
        return Vec::new();
    }
    let what = words.value(&["-e", "--regexp"]).or_else(|| words.operands.first()?.as_deref());
    what.filter(|what| !what.is_empty()).map(|what| Act::Searched(what.to_owned())).into_iter().collect()
}

fn found(name: &str, words: &[Known]) -> Vec<Act> {
    let named = |word: &str| {
        ["-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex"].contains(&word)
    };
    let what = if name == "find" {
        let mut pairs = words.windows(2);
        pairs.find(|pair| pair[0].as_deref().is_some_and(named)).and_then(|pair| pair[1].clone())
    } else {
        Words::of(words, &["-e", "-t", "-d", "-x"]).known().next().map(str::to_owned)
    };
    what.filter(|what| !what.is_empty()).map(Act::Searched).into_iter().collect()
}

/// Sources and where each goes: into a folder if there are several or if the last word is one by its look.
fn transfers(words: &[Known], valued: &[&str]) -> Vec<(String, String)> {
    let sorted = Words::of(words, valued);
    let mut operands = sorted.operands.clone();
    let folder = sorted.value(&["-t", "--target-directory"]).map(str::to_owned);
    let target = match &folder {
        Some(folder) => folder.clone(),
        None => match operands.pop() {
            Some(Some(target)) if !operands.is_empty() => target,
            _ => return Vec::new(),
        },
    };
    let last = target.rsplit('/').next().unwrap_or_default();
    let into = folder.is_some() || operands.len() > 1 || matches!(last, "" | "." | ".." | "~");
    let each = operands.into_iter().flatten().map(|source| {
        let own = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let to = if into { format!("{}/{own}", target.trim_end_matches('/')) } else { target.clone() };
        (source, to)
    });
    each.collect()
}

fn moved(words: &[Known]) -> Vec<Act> {
    let each = transfers(words, &["-t", "--target-directory", "-S"]).into_iter();
    each.flat_map(|(from, to)| [changed(&from, Change::Deleted), changed(&to, Change::Moved)]).collect()
}

fn copied(words: &[Known]) -> Vec<Act> {
    let each = transfers(words, &["-t", "--target-directory", "-m", "-o", "-g", "-S"]).into_iter();
    each.map(|(_, to)| changed(&to, Change::Written)).collect()
}

fn git(words: &[Known]) -> Vec<Act> {
    // What stands before the verb: `-C folder`, `-c name=value`.
    let mut at = 0;
    let mut folder = None;
    while let Some(Some(word)) = words.get(at)
        && word.starts_with('-')
    {
        let valued = matches!(word.as_str(), "-C" | "-c");
        if word == "-C" {
            folder = words.get(at + 1).cloned().flatten();
        }
        at += if valued { 2 } else { 1 };
    }
    let Some(Some(verb)) = words.get(at) else { return Vec::new() };
    let rest = &words[at + 1..];
    let acts = match verb.as_str() {
        "mv" => moved(rest),
        "rm" if !Words::of(rest, &[]).has(&["--cached", "-n", "--dry-run"]) => {
            Words::of(rest, &[]).known().map(|path| changed(path, Change::Deleted)).collect()
        }
        "restore" => {
            let words = Words::of(rest, &["-s", "--source"]);
            let staged = words.has(&["--staged", "-S"]) && !words.has(&["--worktree", "-W"]);
            let paths = words.known().filter(|path| !staged && *path != ".");
            paths.map(|path| changed(path, Change::Edited)).collect()
        }
        "checkout" => {
            let paths = rest.iter().skip_while(|word| word.as_deref() != Some("--")).skip(1).flatten();
            paths.filter(|path| *path != ".").map(|path| changed(path, Change::Edited)).collect()
        }
        "grep" => searched(rest),
        _ => Vec::new(),
    };
    acts.into_iter().map(|act| seen_from(folder.as_deref(), act)).collect()
}

/// An act of a program that was told to work in another folder.
fn seen_from(folder: Option<&str>, act: Act) -> Act {
    match act {
        Act::Changed(path, how, lines) => Act::Changed(super::place::join(folder, &path), how, lines),
        Act::Read(path, lines) => Act::Read(super::place::join(folder, &path), lines),
        act @ Act::Searched(_) => act,
    }
}

/// Programs that rewrite the files they are given, and the words that make them (or, after `!`, keep them from it).
const FORMATTERS: &[(&str, &[&str])] = &[
    ("gofmt", &["-w"]),
    ("goimports", &["-w"]),
    ("gofumpt", &["-w"]),
    ("shfmt", &["-w"]),
    ("clang-format", &["-i"]),
    ("yapf", &["-i", "--in-place"]),
    ("autopep8", &["-i", "--in-place"]),
    ("prettier", &["--write", "-w"]),
    ("eslint", &["--fix"]),
    ("oxlint", &["--fix"]),
    ("biome", &["--write", "--apply", "--fix"]),
    ("ruff", &["--fix", "format"]),
    ("ultracite", &["fix"]),
    ("rustfmt", &["!--check"]),
    ("black", &["!--check", "!--diff"]),
    ("isort", &["!--check", "!--check-only", "!--diff"]),
    ("dos2unix", &["!-n"]),
    ("oxfmt", &["!--check"]),
];

fn formatted(name: &str, words: &[Known]) -> Vec<Act> {
    let Some((_, told)) = FORMATTERS.iter().find(|(formatter, _)| *formatter == name) else {
        return Vec::new();
    };
    let words = Words::of(words, &["-c", "--config", "--style", "-i4", "--edition"]);
    let says = |word: &str| words.has(&[word]) || words.known().any(|operand| operand == word);
    let rewrites = match told.first().and_then(|word| word.strip_prefix('!')) {
        Some(_) => !told.iter().any(|word| says(word.trim_start_matches('!'))),
        None => told.iter().any(|word| says(word)),
    };
    // A folder is no file, and what in it was rewritten is not told.
    let is_file =
        |path: &&str| path.rsplit('/').next().is_some_and(|name| name.trim_matches('.').contains('.'));
    let files = words.known().filter(|_| rewrites).filter(is_file);
    files.map(|path| changed(path, Change::Edited)).collect()
}
