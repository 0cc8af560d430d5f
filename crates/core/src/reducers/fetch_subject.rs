//! Subject of a fetching call: a file, a search, a command, a page. Content that was fetched once can be
//! fetched again.
//!
//! Tools have no common names, but their names are made of few words: `read_file`, `ReadFile`,
//! `mcp__fs__read_text_file` all contain "read". The words decide the kind of call, and well-known argument
//! names give its subject.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    event::{CallForm, ToolCall},
    reducers::read_only_commands::is_read_only,
    summary::tools::name_words,
};

/// Subject of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchSubject {
    /// Kind of call.
    pub(crate) kind: FetchKind,
    /// The path, pattern, command or address.
    pub(crate) target: String,
    /// Extent of the fetched content.
    pub(crate) extent: FileExtent,
    /// Safety of fetching it again.
    pub(crate) again: RefetchSafety,
}

/// Safety of making a call again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefetchSafety {
    /// It only looked.
    Harmless,
    /// It changed something, or its effects are unknown.
    Unknown,
}

/// Kind of a call that fetches something, or changes what other calls fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchKind {
    /// Read a file or a directory.
    Read,
    /// Searched.
    Search,
    /// Ran a command.
    Command,
    /// Got a page.
    Page,
    /// Wrote or changed a file.
    Change,
}

/// Part of a file that was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileExtent {
    /// All of it: the call has no sign of the contrary.
    Whole,
    /// Some of it, or an unknown part.
    Part,
}

type RawArguments<'a> = BTreeMap<String, &'a RawValue>;

/// Values longer than this are not looked into: no path or command is.
const LONGEST: usize = 64 * 1024;

impl FetchSubject {
    /// Content that a call fetched or changed, if its name and arguments show it.
    pub(crate) fn of(call: &ToolCall) -> Option<Self> {
        if call.form == CallForm::Custom {
            let kind = kind(&call.name.0)?;
            let target = call.arguments.trim();
            let runs = kind == FetchKind::Command && !target.is_empty();
            return runs.then(|| Self {
                kind,
                target: target.to_owned(),
                extent: FileExtent::Whole,
                again: of_command(target),
            });
        }
        let kind = kind(&call.name.0)?;
        // A change may carry a whole file: the values are looked into only where they matter.
        let arguments: RawArguments<'_> = serde_json::from_str(&call.arguments).ok()?;
        // Some tools view and edit alike, and say which in an argument.
        let kind = match (kind, verb(&arguments).as_deref()) {
            (FetchKind::Change, Some("view")) => FetchKind::Read,
            (kind, _) => kind,
        };
        let (named, target) = names(kind).iter().find_map(|name| Some((*name, text(&arguments, name)?)))?;
        let extent = match kind {
            FetchKind::Change if !writes_anew(&call.name.0, &arguments) => FileExtent::Part,
            FetchKind::Change => extent(&arguments, |name| name == named || CONTENT.contains(&name)),
            _ => extent(&arguments, |name| name == named),
        };
        let again = match kind {
            FetchKind::Read | FetchKind::Search => RefetchSafety::Harmless,
            // A program is no command, though it may read like one.
            FetchKind::Command if !matches!(named, "command" | "cmd" | "commands") => RefetchSafety::Unknown,
            FetchKind::Command => of_command(&target),
            FetchKind::Page => of_page(&arguments),
            FetchKind::Change => RefetchSafety::Unknown,
        };
        Some(Self { kind, target, extent, again })
    }
}

fn of_command(command: &str) -> RefetchSafety {
    if is_read_only(command) { RefetchSafety::Harmless } else { RefetchSafety::Unknown }
}

/// A page may be got again if getting it was all that was asked for.
fn of_page(arguments: &RawArguments<'_>) -> RefetchSafety {
    const GETTING: &[&str] = &["url", "uri", "address", "query", "prompt", "format", "max_length", "raw"];
    let gets = |(name, value): (&String, &&RawValue)| {
        let method =
            || name == "method" && matches!(value.get(), "\"GET\"" | "\"HEAD\"" | "\"get\"" | "\"head\"");
        value.get() == "null"
            || GETTING.contains(&name.as_str())
            || HARMLESS.contains(&name.as_str())
            || method()
    };
    if arguments.iter().all(gets) { RefetchSafety::Harmless } else { RefetchSafety::Unknown }
}

/// Arguments that do not affect which content is read or written.
const HARMLESS: &[&str] =
    &["description", "explanation", "reason", "thought", "encoding", "timeout", "security_risk"];

/// Arguments that hold the whole text of a file.
const CONTENT: &[&str] = &["content", "contents", "file_text", "file_content", "text"];

/// All of it, if every argument is known: there is no telling which name another tool gives to a page or a range.
fn extent(arguments: &RawArguments<'_>, is_known: impl Fn(&str) -> bool) -> FileExtent {
    let verb =
        |name: &str| name == "command" && matches!(verb(arguments).as_deref(), Some("view" | "create"));
    let unknown = |(name, value): (&String, &&RawValue)| {
        value.get() != "null" && !is_known(name) && !HARMLESS.contains(&name.as_str()) && !verb(name)
    };
    if arguments.iter().any(unknown) { FileExtent::Part } else { FileExtent::Whole }
}

/// Returns true if a change replaces all of the earlier text.
fn writes_anew(tool: &str, arguments: &RawArguments<'_>) -> bool {
    const IN_PART: &[&str] =
        &["edit", "patch", "replace", "insert", "delete", "multiedit", "apply", "append"];
    let says = |words: &[&str]| name_words(tool).iter().any(|word| words.contains(&word.as_str()));
    let anew = match verb(arguments) {
        Some(verb) => verb == "create",
        None => says(&["write", "create"]) && !says(IN_PART),
    };
    anew && CONTENT.iter().any(|name| arguments.contains_key(*name))
}

/// Command that an editor is given.
fn verb(arguments: &RawArguments<'_>) -> Option<String> {
    text(arguments, "command")
}

/// The words of tools' names, by kind of call. A change is looked for first: `edit_file` may also `view`.
const WORDS: &[(FetchKind, &[&str])] = &[
    (
        FetchKind::Change,
        &["edit", "write", "patch", "replace", "create", "insert", "delete", "multiedit", "apply"],
    ),
    (FetchKind::Page, &["fetch", "webfetch", "browse", "url", "http"]),
    (FetchKind::Search, &["grep", "rg", "glob", "find", "search", "websearch", "ripgrep"]),
    (
        FetchKind::Command,
        &["bash", "shell", "exec", "execute", "command", "terminal", "cmd", "powershell", "run"],
    ),
    (FetchKind::Read, &["read", "view", "cat", "open", "ls", "list", "tree", "show"]),
];

fn kind(tool: &str) -> Option<FetchKind> {
    let words = name_words(tool);
    let said = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    WORDS.iter().find(|(_, known)| said(known)).map(|(kind, _)| *kind)
}

fn names(kind: FetchKind) -> &'static [&'static str] {
    const PATH: &[&str] = &[
        "path",
        "file_path",
        "filePath",
        "file",
        "filename",
        "target_file",
        "absolute_path",
        "notebook_path",
        "uri",
        "dir",
        "directory",
        "dir_path",
    ];
    match kind {
        FetchKind::Read | FetchKind::Change => PATH,
        FetchKind::Search => &["pattern", "query", "regex", "q", "glob", "search", "search_query"],
        FetchKind::Command => &["command", "cmd", "script", "code", "commands"],
        FetchKind::Page => &["url", "uri", "address", "query"],
    }
}

/// A named argument that says something: a text, or a list of texts as commands are.
fn text(arguments: &RawArguments<'_>, name: &str) -> Option<String> {
    let json = arguments.get(name)?.get();
    if json.len() > LONGEST {
        return None;
    }
    let text = match serde_json::from_str(json).ok()? {
        TextOrWords::Text(text) => text,
        TextOrWords::Words(words) => words.join(" "),
    };
    let text = text.trim();
    let text = text.strip_prefix("./").unwrap_or(text);
    (!text.is_empty()).then(|| text.to_owned())
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrWords {
    Text(String),
    Words(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tool: &str, arguments: &str, expect: Option<(FetchKind, &str, FileExtent)>) {
        let found = FetchSubject::of(&ToolCall::function("c", tool, arguments));
        let found = found.as_ref().map(|found| (found.kind, found.target.as_str(), found.extent));
        assert_eq!(found, expect, "{tool} {arguments}");
    }

    #[test]
    fn names_of_many_agents_are_understood() {
        use FileExtent::{Part, Whole};
        check("Read", r#"{"file_path":"/a/b.rs"}"#, Some((FetchKind::Read, "/a/b.rs", Whole)));
        check("read_file", r#"{"path":"./b.rs","offset":3}"#, Some((FetchKind::Read, "b.rs", Part)));
        check("mcp__fs__read_text_file", r#"{"path":"b"}"#, Some((FetchKind::Read, "b", Whole)));
        check("str_replace_editor", r#"{"command":"view","path":"b"}"#, Some((FetchKind::Read, "b", Whole)));
        check(
            "shell",
            r#"{"command":["bash","-lc","ls"]}"#,
            Some((FetchKind::Command, "bash -lc ls", Whole)),
        );
        check("exec_command", r#"{"cmd":"view"}"#, Some((FetchKind::Command, "view", Whole)));
        check("Grep", r#"{"pattern":"fn main"}"#, Some((FetchKind::Search, "fn main", Whole)));
        check("webFetch", r#"{"url":"https://x.y"}"#, Some((FetchKind::Page, "https://x.y", Whole)));
    }

    #[test]
    fn a_read_is_whole_only_if_every_argument_is_known() {
        let read = |more: &str, extent| {
            check("Read", &format!(r#"{{"file_path":"b"{more}}}"#), Some((FetchKind::Read, "b", extent)));
        };
        for more in ["", r#","limit":null"#, r#","description":"why""#] {
            read(more, FileExtent::Whole);
        }
        for more in
            ["pages\":\"1-5", "startLine\":1,\"endLine\":\"50", "page\":\"2", "max_lines\":\"9", "x\":\""]
        {
            read(&format!(",\"{more}\""), FileExtent::Part);
        }
        check(
            "edit",
            r#"{"command":"view","path":"b","view_range":[1,9]}"#,
            Some((FetchKind::Read, "b", FileExtent::Part)),
        );
    }

    #[test]
    fn a_change_is_whole_only_if_it_writes_the_file_anew() {
        use FileExtent::{Part, Whole};
        let change = |tool: &str, arguments: &str, extent| {
            check(tool, arguments, Some((FetchKind::Change, "b", extent)));
        };
        change("Write", r#"{"file_path":"b","content":"x"}"#, Whole);
        change("create_file", r#"{"path":"b","file_text":"x"}"#, Whole);
        change("str_replace_editor", r#"{"command":"create","path":"b","file_text":"x"}"#, Whole);
        change("str_replace_editor", r#"{"command":"str_replace","path":"b","old_str":"x"}"#, Part);
        change("MultiEdit", r#"{"file_path":"b","content":"x"}"#, Part);
        change("write_file", r#"{"path":"b","content":"x","mode":"append"}"#, Part);
        change("create_directory", r#"{"path":"b"}"#, Part);
        change("delete_file", r#"{"path":"b"}"#, Part);
    }

    #[test]
    fn only_what_looked_may_be_done_again() {
        let again = |tool: &str, arguments: &str| {
            FetchSubject::of(&ToolCall::function("c", tool, arguments)).map(|fetched| fetched.again)
        };
        let (harmless, unknown) = (Some(RefetchSafety::Harmless), Some(RefetchSafety::Unknown));
        assert_eq!(again("read_file", r#"{"path":"b","pages":"1"}"#), harmless);
        assert_eq!(again("bash", r#"{"command":"git status"}"#), harmless);
        assert_eq!(again("bash", r#"{"command":"git push"}"#), unknown);
        assert_eq!(again("run_python", r#"{"code":"ls = 1"}"#), unknown);
        assert_eq!(again("WebFetch", r#"{"url":"u","prompt":"what"}"#), harmless);
        assert_eq!(again("http", r#"{"url":"u","method":"GET"}"#), harmless);
        assert_eq!(again("http", r#"{"url":"u","method":"POST"}"#), unknown);
        assert_eq!(again("http", r#"{"url":"u","body":"x"}"#), unknown);
    }

    #[test]
    fn what_is_not_understood_is_nothing() {
        check("get_order", r#"{"path":"b"}"#, None);
        check("read_file", "{not json", None);
        check("read_file", r#"{"path":7}"#, None);
        check("read_file", r#"{"path":""}"#, None);
        check("bash", &format!(r#"{{"command":"{}"}}"#, "x".repeat(LONGEST)), None);
    }
}
