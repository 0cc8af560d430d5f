//! Edits of goose's configuration: a block below a name at the top of the file, line by line, so that every other line stays.

use anyhow::bail;

/// Adds `block`, a member with its own members, below `section`. The block is indented as the section's members are.
pub(super) fn add_block(text: &str, section: &str, name: &str, block: &[String]) -> anyhow::Result<String> {
    if block_range(text, section, name).is_some() {
        bail!("`{section}` has `{name}` already, which was not written by epitome");
    }
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let found = lines.iter().position(|line| is_key(line, section));
    let Some(at) = found else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
        return Ok(format!("{text}{gap}{section}:{newline}{}", indented(block, "  ", newline)));
    };
    let behind = lines[at].trim_end().split_once(':').map_or("", |(_, rest)| rest).trim();
    let behind = behind.split('#').next().unwrap_or_default().trim();
    if behind == "{}" {
        let opened = lines[at].replacen("{}", "", 1);
        let opened = format!("{}{newline}", opened.trim_end());
        let before: String = lines[..at].concat();
        let after: String = lines[at + 1..].concat();
        return Ok(format!("{before}{opened}{}{after}", indented(block, "  ", newline)));
    }
    if !behind.is_empty() {
        bail!(
            "`{section}` is written in one line, which is not edited: write its members below it, or add `{name}` yourself"
        );
    }
    let first =
        lines[at + 1..].iter().find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let indent = first.map_or("", |line| &line[..line.len() - line.trim_start().len()]);
    let indent = if indent.is_empty() { "  " } else { indent };
    let mut edited: String = lines[..=at].concat();
    if !edited.ends_with('\n') {
        edited.push_str(newline);
    }
    edited.push_str(&indented(block, indent, newline));
    edited.push_str(&lines[at + 1..].concat());
    Ok(edited)
}

/// Removes the block `name` below `section`, if it is there.
pub(super) fn remove_block(text: &str, section: &str, name: &str) -> String {
    let Some((from, until)) = block_range(text, section, name) else { return text.to_owned() };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    format!("{}{}", lines[..from].concat(), lines[until..].concat())
}

/// Sets a name at the top of the file that is not there yet.
pub(super) fn add_scalar(text: &str, name: &str, value: &str) -> anyhow::Result<String> {
    if let Some(line) = text.lines().find(|line| is_key(line, name)) {
        if line.split_once(':').is_some_and(|(_, known)| known.trim().trim_matches(['"', '\'']) == value) {
            return Ok(text.to_owned());
        }
        bail!("`{name}` is set to something else already: change it yourself, or remove it first");
    }
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
    Ok(format!("{text}{gap}{name}: {value}{newline}"))
}

/// Removes a name at the top of the file if it has this value.
pub(super) fn remove_scalar(text: &str, name: &str, value: &str) -> String {
    let is_ours = |line: &&str| {
        is_key(line, name) && line.split_once(':').is_some_and(|(_, known)| known.trim() == value)
    };
    text.split_inclusive('\n').filter(|line| !is_ours(line)).collect()
}

fn is_key(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(':'))
}

fn indented(block: &[String], indent: &str, newline: &str) -> String {
    let lines: Vec<String> = block.iter().map(|line| format!("{indent}{line}{newline}")).collect();
    lines.concat()
}

/// Lines of the block `name` below `section`.
fn block_range(text: &str, section: &str, name: &str) -> Option<(usize, usize)> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let at = lines.iter().position(|line| is_key(line, section))?;
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut found = None;
    for (index, line) in lines.iter().enumerate().skip(at + 1) {
        let is_blank = line.trim().is_empty();
        match found {
            Some((from, own)) if !is_blank && depth(line) <= own => return Some((from, index)),
            None if !is_blank && depth(line) == 0 => return None,
            None if is_key(line.trim_start(), name) => found = Some((index, depth(line))),
            Some(_) | None => {}
        }
    }
    found.map(|(from, _)| (from, lines.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_added_where_it_belongs_and_taken_away_again() {
        let block = ["epitome:".to_owned(), "  type: stdio".to_owned()];
        let check = |text: &str, expect: &str| {
            let added = add_block(text, "extensions", "epitome", &block).expect(text);
            assert_eq!(added, expect);
            let removed = remove_block(&added, "extensions", "epitome");
            assert!(text.is_empty() || text.contains("{}") || removed.starts_with(text), "{removed}");
        };
        check(
            "A: b\nextensions:\n    developer:\n        enabled: true\nZ: 1\n",
            "A: b\nextensions:\n    epitome:\n      type: stdio\n    developer:\n        enabled: true\nZ: 1\n",
        );
        check("A: b", "A: b\nextensions:\n  epitome:\n    type: stdio\n");
        check("", "extensions:\n  epitome:\n    type: stdio\n");
        check("extensions: {}\n", "extensions:\n  epitome:\n    type: stdio\n");
        check("extensions:\n", "extensions:\n  epitome:\n    type: stdio\n");
        assert!(add_block("extensions: {a: {}}\n", "extensions", "epitome", &block).is_err());
    }

    #[test]
    fn a_value_of_the_users_is_not_replaced() {
        let set = add_scalar("A: b\n", "OPENAI_HOST", "http://127.0.0.1:8787").expect("new");
        assert_eq!(set, "A: b\nOPENAI_HOST: http://127.0.0.1:8787\n");
        assert_eq!(remove_scalar(&set, "OPENAI_HOST", "http://127.0.0.1:8787"), "A: b\n");
        assert!(add_scalar("OPENAI_HOST: http://other\n", "OPENAI_HOST", "http://127.0.0.1:8787").is_err());
    }
}
