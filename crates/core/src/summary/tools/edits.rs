//! Tools that read and change files by name: editors of every agent, and what older ones do by typed actions.

use super::{
    Change, Deed, LONGEST_COMMAND,
    arguments::Arguments,
    cut, errors, lines,
    name::Kind,
    outcome::{End, Outcome},
    patch, shell,
};

/// What agents call the argument that names a file.
const PATHS: &[&str] = &[
    "filepath",
    "path",
    "absolutepath",
    "notebookpath",
    "targetfile",
    "filename",
    "file",
    "relativepath",
    "relativeworkspacepath",
    "targetpath",
    "uri",
];

/// What agents call a list of files.
const LISTS: &[&str] = &["paths", "files", "filepaths", "include", "edits", "changes"];

const OLD: &[&str] = &["source", "sourcepath", "src", "from", "oldpath", "oldname", "path"];
const NEW: &[&str] = &["destination", "destinationpath", "dest", "dst", "to", "newpath", "newname", "target"];
const TEXT: &[&str] = &[
    "newstring",
    "newstr",
    "newtext",
    "replacementtext",
    "replace",
    "text",
    "content",
    "filetext",
    "newcontent",
    "replacement",
];

/// Files that were read, each with its lines.
pub(super) fn read(arguments: &Arguments<'_>, outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    if let Some(path) = arguments.short(PATHS) {
        let lines = extent(arguments, outcome);
        return file(&path).map(|path| Deed::Read { path, lines }).into_iter().collect();
    }
    // A list may hold patterns; the result then names what was read.
    let named = arguments.list(LISTS, PATHS);
    let shown = outcome
        .into_iter()
        .flat_map(Outcome::lines)
        .filter_map(|line| Some(line.strip_prefix("--- ")?.strip_suffix(" ---")?.to_owned()));
    let patterns = named.iter().any(|path| path.contains(['*', '?']));
    let paths: Vec<String> = if patterns { shown.take(256).collect() } else { named };
    paths.iter().filter_map(|path| file(path)).map(|path| Deed::Read { path, lines: None }).collect()
}

/// Files that were changed.
pub(super) fn changed(kind: Kind, arguments: &Arguments<'_>, outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    if arguments.says("dryrun") {
        return Vec::new();
    }
    let told = |path: Option<String>, how| {
        let path = path.as_deref().and_then(file)?;
        Some(Deed::Changed { path, how, lines: Vec::new() })
    };
    match kind {
        Kind::Move => {
            let moved =
                [told(arguments.short(OLD), Change::Deleted), told(arguments.short(NEW), Change::Moved)];
            if moved.iter().all(Option::is_some) { moved.into_iter().flatten().collect() } else { Vec::new() }
        }
        Kind::Copy => told(arguments.short(NEW), Change::Written).into_iter().collect(),
        kind => {
            let how = match kind {
                Kind::Delete => Change::Deleted,
                Kind::Write => Change::Written,
                _ => Change::Edited,
            };
            one_or_many(how, arguments, outcome)
        }
    }
}

fn one_or_many(how: Change, arguments: &Arguments<'_>, outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    // An editor that works on its open file names it in what it shows.
    let open = || outcome.and_then(shown).map(|(path, _)| path.to_owned());
    let edits = arguments.raw("newstring").is_some() || TEXT.iter().any(|name| arguments.raw(name).is_some());
    let one = arguments.short(PATHS).or_else(|| if edits { open() } else { None });
    if let Some(path) = one.as_deref().and_then(file) {
        let lines = if how == Change::Edited { places(arguments, outcome) } else { Vec::new() };
        return vec![Deed::Changed { path, how, lines }];
    }
    let paths = arguments.list(LISTS, PATHS);
    let paths = paths.iter().filter_map(|path| file(path));
    paths.map(|path| Deed::Changed { path, how, lines: Vec::new() }).collect()
}

/// Files that a patch changed.
pub(super) fn patched(arguments: &Arguments<'_>, outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    let given = arguments.free().map(str::to_owned);
    let text =
        given.or_else(|| arguments.long(&["input", "patch", "patchtext", "diff", "content", "command"]));
    let failed = outcome.is_some_and(|outcome| outcome.failed() || errors::tells_of(outcome));
    // Of a patch that failed only what it lists was applied.
    let listed = outcome.filter(|_| failed).map(|outcome| patch::applied(&outcome.body).unwrap_or_default());
    let changes = listed.unwrap_or_else(|| patch::changes(text.as_deref().unwrap_or_default()));
    let told: Vec<Deed> = changes
        .into_iter()
        .filter_map(|change| {
            Some(Deed::Changed { path: file(&change.path)?, how: change.how, lines: change.lines })
        })
        .collect();
    match (told.is_empty(), failed) {
        // A patch of one file may leave the naming to an argument.
        (true, false) => one_or_many(Change::Edited, arguments, outcome),
        _ => told,
    }
}

/// Code that calls an editor's functions: what they did stands in the result.
pub(super) fn in_a_cell(arguments: &Arguments<'_>, outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    if outcome.is_some_and(|outcome| outcome.end == End::Refused) {
        return Vec::new();
    }
    let Some(code) = arguments.long(&["code", "command", "script"]) else { return Vec::new() };
    let exit = outcome.and_then(|outcome| outcome.exit);
    let mut deeds = vec![Deed::Ran { command: cut(code.trim(), LONGEST_COMMAND), exit }];
    let Some((path, after)) = outcome.and_then(shown) else { return deeds };
    let Some(path) = file(path) else { return deeds };
    let call = code.trim_start();
    if after.contains("after edit") || call.starts_with("create_file") {
        let how = if call.starts_with("create_file") { Change::Written } else { Change::Edited };
        deeds.push(Deed::Changed { path, how, lines: Vec::new() });
    } else if call.starts_with("open_file") || call.starts_with("goto_line") || call.starts_with("scroll_") {
        deeds.push(Deed::Read { path, lines: outcome.and_then(|outcome| lines::run(&outcome.body)) });
    }
    deeds
}

/// What SWE-agent's typed actions did: `edit 1:3`, `open a.py 10`. They come as commands of its shell, and are told
/// from a shell's own by what they show.
pub(super) fn by_an_action(command: &str, outcome: Option<&Outcome<'_>>) -> Option<Vec<Deed>> {
    let outcome = outcome?;
    let (first, rest) = command.trim().split_once('\n').unwrap_or((command.trim(), ""));
    let mut words = first.split_whitespace();
    let action = words.next()?;
    let body = &outcome.body;
    let own = shown(outcome).is_some() || body.contains("(Open file: ");
    if !own {
        return None;
    }
    let path = || shown(outcome).and_then(|(path, _)| file(path));
    let failed = errors::tells_of(outcome);
    let deed = match action {
        "create" => path().map(|path| Deed::Changed { path, how: Change::Written, lines: Vec::new() }),
        "edit" | "insert" if failed => None,
        "edit" | "insert" => {
            let from = words.next().and_then(|range| range.split(':').next()?.parse::<u64>().ok());
            let count = rest.lines().take_while(|line| *line != "end_of_edit").count() as u64;
            let lines = from.filter(|_| count > 0).map(|from| (from, from.saturating_add(count - 1)));
            path().map(|path| Deed::Changed { path, how: Change::Edited, lines: lines.into_iter().collect() })
        }
        "open" | "goto" | "scroll_down" | "scroll_up" => {
            path().map(|path| Deed::Read { path, lines: lines::run(body) })
        }
        "find_file" | "search_dir" | "search_file" => {
            words.next().map(|what| Deed::Searched { what: what.trim_matches(['"', '\'']).to_owned() })
        }
        _ => return None,
    };
    Some(deed.into_iter().collect())
}

/// The file that a result shows, `[File: path (80 lines total)]`, and what it says of it.
fn shown<'o>(outcome: &'o Outcome<'_>) -> Option<(&'o str, &'o str)> {
    let line = outcome.body.lines().take(8).find_map(|line| line.trim_end().strip_prefix("[File: "))?;
    let (path, about) = line.split_once(" (").unwrap_or((line.trim_end_matches(']'), ""));
    Some((path, about))
}

/// A path as it is told: without what leads nowhere. What is not on this machine's disk is no file.
fn file(path: &str) -> Option<String> {
    let path = path.trim();
    let path = path.strip_prefix("file://").unwrap_or(path);
    (!path.is_empty() && !path.contains("://")).then(|| shell::join(None, path))
}

/// Which lines were read, if not all.
fn extent(arguments: &Arguments<'_>, outcome: Option<&Outcome<'_>>) -> Option<(u64, u64)> {
    let start = arguments.number(&["offset", "startline", "linestart", "start", "linenumber", "line"]);
    let end = arguments.number(&["endline", "lineend", "end"]);
    let count = arguments.number(&["limit", "head", "maxlines"]);
    let range = arguments.pair(&["viewrange", "range", "lines", "linerange"]);
    if start.is_none() && end.is_none() && count.is_none() && range.is_none() {
        return None;
    }
    // A result that numbers its lines knows best.
    if let Some(run) = outcome.and_then(|outcome| lines::run(&outcome.body)) {
        return Some(run);
    }
    let (start, end) = range.map_or((start, end), |(from, to)| (Some(from), Some(to)));
    let from = u64::try_from(start.unwrap_or(1)).unwrap_or(1).max(1);
    let end = end.and_then(|end| u64::try_from(end).ok());
    let last = count.and_then(|count| from.checked_add(u64::try_from(count).ok()?)?.checked_sub(1));
    let lines = outcome.map(|outcome| outcome.body.lines().count() as u64).filter(|lines| *lines > 0);
    let shown = lines.and_then(|lines| from.checked_add(lines)?.checked_sub(1));
    let to = [end.or(last), shown].into_iter().flatten().min()?;
    (from <= to).then_some((from, to))
}

/// Which lines an edit touched, where the arguments or the result say so.
fn places(arguments: &Arguments<'_>, outcome: Option<&Outcome<'_>>) -> Vec<(u64, u64)> {
    let text = arguments.long(TEXT);
    let count = text.as_deref().map_or(0, |text| text.lines().count() as u64);
    let at = |names: &[&str]| arguments.number(names).and_then(|line| u64::try_from(line).ok());
    if let Some(line) = at(&["insertline"]).filter(|_| count > 0) {
        return line.checked_add(count).map(|to| (line + 1, to)).into_iter().collect();
    }
    if let Some(from) = at(&["startline", "linestart"]).filter(|from| *from > 0 && count > 0) {
        return from.checked_add(count - 1).map(|to| (from, to)).into_iter().collect();
    }
    if let Some(diff) = arguments.long(&["diff", "patch"]) {
        return patch::changes(&diff).into_iter().flat_map(|file| file.lines).collect();
    }
    let Some(outcome) = outcome else { return Vec::new() };
    if let Some(run) = lines::run(&outcome.body) {
        // The snippet that is shown has lines around the change.
        return vec![text.and_then(|text| lines::place(&outcome.body, &text)).unwrap_or(run)];
    }
    patch::changes(&outcome.body).into_iter().flat_map(|file| file.lines).collect()
}
