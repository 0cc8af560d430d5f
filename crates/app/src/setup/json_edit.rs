//! Edits of a user's JSON that keep every other byte: comments, order, indentation and line ends.
//!
//! Agents write their settings with comments and trailing commas, so the text is scanned and not parsed and written again.

use std::ops::Range;

use anyhow::{anyhow, bail};
use serde_json::Value;

/// Deepest nesting that is followed.
const MAX_DEPTH: usize = 128;

/// A value in a text.
struct JsonNode {
    span: Range<usize>,
    kind: JsonKind,
}

enum JsonKind {
    Object(Vec<(Range<usize>, JsonNode)>),
    Array(Vec<JsonNode>),
    Scalar,
}

/// The text of a member, if there is one.
pub(super) fn member<'t>(text: &'t str, path: &[&str]) -> anyhow::Result<Option<&'t str>> {
    let root = parse(text)?;
    let mut node = &root;
    for name in path {
        let JsonKind::Object(members) = &node.kind else { return Ok(None) };
        match find(text, members, name) {
            Some(found) => node = found,
            None => return Ok(None),
        }
    }
    Ok(Some(&text[node.span.clone()]))
}

/// Sets a member, with the objects around it.
pub(super) fn set_member(text: &str, path: &[&str], value: &Value) -> anyhow::Result<String> {
    let root = parse(text)?;
    let mut node = &root;
    for (depth, name) in path.iter().enumerate() {
        let JsonKind::Object(members) = &node.kind else {
            bail!("`{}` is no object", path[..depth].join("."));
        };
        let Some(found) = find(text, members, name) else {
            let mut value = value.clone();
            for name in path[depth + 1..].iter().rev() {
                value = Value::Object(std::iter::once(((*name).to_owned(), value)).collect());
            }
            let key = format!("{}: ", Value::from(*name));
            return Ok(inserted(text, node, members.last().map(|(_, last)| last), &key, &value));
        };
        node = found;
    }
    let mut edited = text.to_owned();
    edited.replace_range(node.span.clone(), &written(text, value, &line_indent(text, node.span.start)));
    Ok(edited)
}

/// Adds an element at the end of a list, which is made if it is missing.
pub(super) fn push_element(text: &str, path: &[&str], value: &Value) -> anyhow::Result<String> {
    let root = parse(text)?;
    let mut node = &root;
    for name in path {
        let found = match &node.kind {
            JsonKind::Object(members) => find(text, members, name),
            _ => None,
        };
        match found {
            Some(found) => node = found,
            None => return set_member(text, path, &Value::Array(vec![value.clone()])),
        }
    }
    match &node.kind {
        JsonKind::Array(elements) => Ok(inserted(text, node, elements.last(), "", value)),
        _ => bail!("`{}` is no list", path.join(".")),
    }
}

/// Removes a member, and the objects around it that hold nothing else.
pub(super) fn remove_member(text: &str, path: &[&str]) -> anyhow::Result<String> {
    let root = parse(text)?;
    let mut nodes = vec![&root];
    for name in path {
        let JsonKind::Object(members) = &nodes[nodes.len() - 1].kind else { return Ok(text.to_owned()) };
        match find(text, members, name) {
            Some(found) => nodes.push(found),
            None => return Ok(text.to_owned()),
        }
    }
    // The outermost object that holds nothing but what is removed goes with it, but never the whole value.
    let mut depth = path.len();
    while depth > 1 && is_single(nodes[depth - 1]) {
        depth -= 1;
    }
    let JsonKind::Object(members) = &nodes[depth - 1].kind else { return Ok(text.to_owned()) };
    let index = members.iter().position(|(_, node)| node.span == nodes[depth].span).unwrap_or(0);
    let spans: Vec<Range<usize>> = members.iter().map(|(key, node)| key.start..node.span.end).collect();
    Ok(without(text, nodes[depth - 1], &spans, index))
}

/// Removes the elements of a list whose text `is_ours`; a list that then holds nothing goes too.
pub(super) fn remove_elements(
    text: &str,
    path: &[&str],
    is_ours: impl Fn(&str) -> bool,
) -> anyhow::Result<String> {
    let mut text = text.to_owned();
    loop {
        let root = parse(&text)?;
        let mut node = &root;
        for name in path {
            let JsonKind::Object(members) = &node.kind else { return Ok(text) };
            match find(&text, members, name) {
                Some(found) => node = found,
                None => return Ok(text),
            }
        }
        let JsonKind::Array(elements) = &node.kind else { return Ok(text) };
        let Some(index) = elements.iter().position(|element| is_ours(&text[element.span.clone()])) else {
            return Ok(text);
        };
        if elements.len() == 1 {
            return remove_member(&text, path);
        }
        let spans: Vec<Range<usize>> = elements.iter().map(|element| element.span.clone()).collect();
        text = without(&text, node, &spans, index);
    }
}

fn find<'n>(text: &str, members: &'n [(Range<usize>, JsonNode)], name: &str) -> Option<&'n JsonNode> {
    let is_named =
        |key: &Range<usize>| serde_json::from_str::<String>(&text[key.clone()]).is_ok_and(|key| key == name);
    members.iter().rfind(|(key, _)| is_named(key)).map(|(_, node)| node)
}

fn is_single(node: &JsonNode) -> bool {
    match &node.kind {
        JsonKind::Object(members) => members.len() == 1,
        JsonKind::Array(elements) => elements.len() == 1,
        JsonKind::Scalar => false,
    }
}

/// The text with a value behind the last one of an object or a list.
fn inserted(text: &str, node: &JsonNode, last: Option<&JsonNode>, key: &str, value: &Value) -> String {
    let newline = newline(text);
    let base = line_indent(text, node.span.start);
    let (at, addition) = match last {
        Some(last) if text[node.span.start..last.span.end].contains('\n') => {
            let indent = line_indent(text, last.span.start);
            (last.span.end, format!(",{newline}{indent}{key}{}", written(text, value, &indent)))
        }
        Some(last) => (last.span.end, format!(", {key}{value}")),
        None => {
            let indent = format!("{base}{}", unit(text));
            let value = written(text, value, &indent);
            let empty = node.span.start + 1..node.span.end - 1;
            let mut edited = text.to_owned();
            let rest =
                if text[empty.clone()].trim().is_empty() { "" } else { text[empty.clone()].trim_end() };
            edited.replace_range(empty, &format!("{rest}{newline}{indent}{key}{value}{newline}{base}"));
            return edited;
        }
    };
    let mut edited = text.to_owned();
    edited.insert_str(at, &addition);
    edited
}

/// The text without one of several values and the comma that goes with it.
fn without(text: &str, container: &JsonNode, spans: &[Range<usize>], index: usize) -> String {
    let range = if index > 0 {
        spans[index - 1].end..spans[index].end
    } else if let Some(next) = spans.get(1) {
        spans[0].start..next.start
    } else {
        container.span.start + 1..container.span.end - 1
    };
    let mut edited = text.to_owned();
    edited.replace_range(range, "");
    edited
}

/// A value as it is written in a text, from a line that is indented so.
fn written(text: &str, value: &Value, indent: &str) -> String {
    let mut bytes = Vec::new();
    let step = unit(text);
    let formatter = serde_json::ser::PrettyFormatter::with_indent(step.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    if serde::Serialize::serialize(value, &mut serializer).is_err() {
        return value.to_string();
    }
    let pretty = String::from_utf8(bytes).unwrap_or_else(|_| value.to_string());
    pretty.replace('\n', &format!("{}{indent}", newline(text)))
}

fn newline(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// One step of indentation, as the text has it.
fn unit(text: &str) -> String {
    let indented = text.lines().find(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty());
    indented.map_or_else(|| "  ".to_owned(), |line| line[..line.len() - line.trim_start().len()].to_owned())
}

/// Indentation of the line of a place.
fn line_indent(text: &str, at: usize) -> String {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..];
    line[..line.len() - line.trim_start_matches([' ', '\t']).len()].to_owned()
}

fn parse(text: &str) -> anyhow::Result<JsonNode> {
    let mut scanner = JsonScanner { text, at: if text.starts_with('\u{feff}') { 3 } else { 0 } };
    let root = scanner.value(0)?;
    scanner.skip()?;
    if scanner.at < text.len() {
        return Err(scanner.error("something behind the end"));
    }
    Ok(root)
}

struct JsonScanner<'t> {
    text: &'t str,
    at: usize,
}

impl JsonScanner<'_> {
    fn error(&self, what: &str) -> anyhow::Error {
        let before = &self.text.as_bytes()[..self.at.min(self.text.len())];
        let line = before.split(|byte| *byte == b'\n').count();
        anyhow!("it is no JSON: line {line} has {what}")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes over white space and comments.
    fn skip(&mut self) -> anyhow::Result<()> {
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            if rest.first().is_some_and(u8::is_ascii_whitespace) {
                self.at += 1;
            } else if rest.starts_with(b"//") {
                self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            } else if rest.starts_with(b"/*") {
                let end =
                    self.text[self.at..].find("*/").ok_or_else(|| self.error("a comment without an end"))?;
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: usize) -> anyhow::Result<JsonNode> {
        if depth > MAX_DEPTH {
            return Err(self.error("too deep a nesting"));
        }
        self.skip()?;
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => JsonKind::Object(self.members(depth)?),
            Some(b'[') => JsonKind::Array(self.elements(depth)?),
            Some(b'"') => {
                self.string()?;
                JsonKind::Scalar
            }
            Some(byte) if byte.is_ascii_alphanumeric() || byte == b'-' => {
                let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let rest = &self.text.as_bytes()[start..];
                self.at += rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
                JsonKind::Scalar
            }
            Some(_) => return Err(self.error("no value where one should be")),
            None => return Err(self.error("an end where a value should be")),
        };
        Ok(JsonNode { span: start..self.at, kind })
    }

    fn string(&mut self) -> anyhow::Result<Range<usize>> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(start..self.at);
                }
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(self.error("a text without an end")),
            }
        }
    }

    fn members(&mut self, depth: usize) -> anyhow::Result<Vec<(Range<usize>, JsonNode)>> {
        let mut members = Vec::new();
        self.at += 1;
        loop {
            self.skip()?;
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(members);
                }
                Some(b'"') => {}
                _ => return Err(self.error("no name where one should be")),
            }
            let key = self.string()?;
            self.skip()?;
            if self.peek() != Some(b':') {
                return Err(self.error("no colon behind a name"));
            }
            self.at += 1;
            members.push((key, self.value(depth + 1)?));
            self.comma(b'}')?;
        }
    }

    fn elements(&mut self, depth: usize) -> anyhow::Result<Vec<JsonNode>> {
        let mut elements = Vec::new();
        self.at += 1;
        loop {
            self.skip()?;
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(elements);
            }
            elements.push(self.value(depth + 1)?);
            self.comma(b']')?;
        }
    }

    /// Passes over a comma, which may stand before the end too.
    fn comma(&mut self, end: u8) -> anyhow::Result<()> {
        self.skip()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(())
            }
            Some(byte) if byte == end => Ok(()),
            _ => Err(self.error("no comma between two values")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_is_added_and_taken_away_and_every_other_byte_stays() {
        let check = |text: &str, expect: &str| {
            let set = set_member(text, &["mcp", "epitome"], &json!({"on": true})).expect(text);
            assert_eq!(set, expect);
            assert_eq!(remove_member(&set, &["mcp", "epitome"]).expect(text), text);
        };
        check(
            "{\n  \"a\": 1\n}\n",
            "{\n  \"a\": 1,\n  \"mcp\": {\n    \"epitome\": {\n      \"on\": true\n    }\n  }\n}\n",
        );
        check("{\"a\": 1}", "{\"a\": 1, \"mcp\": {\"epitome\":{\"on\":true}}}");
        check(
            "{ // mine\r\n\t\"mcp\": {\r\n\t\t\"x\": [1, 2,], /* } */\r\n\t},\r\n}",
            "{ // mine\r\n\t\"mcp\": {\r\n\t\t\"x\": [1, 2,],\r\n\t\t\"epitome\": {\r\n\t\t\t\"on\": true\r\n\t\t}, /* } */\r\n\t},\r\n}",
        );
    }

    #[test]
    fn an_empty_object_is_opened() {
        let set = set_member("{}\n", &["a", "b"], &json!("x")).expect("an object");
        assert_eq!(set, "{\n  \"a\": {\n    \"b\": \"x\"\n  }\n}\n");
        assert_eq!(remove_member(&set, &["a", "b"]).expect("an object"), "{}\n");
    }

    #[test]
    fn an_element_is_added_to_a_list_of_others_and_only_ours_are_taken_away() {
        let text = "{\n  \"hooks\": {\n    \"Stop\": [\n      {\"run\": \"mine\"}\n    ]\n  }\n}\n";
        let added = push_element(text, &["hooks", "Stop"], &json!({"run": "epitome"})).expect("a list");
        assert!(added.contains("mine") && added.contains("epitome"), "{added}");
        let more = push_element(&added, &["hooks", "Start"], &json!({"run": "epitome"})).expect("a list");
        let is_ours = |element: &str| element.contains("epitome");
        let less = remove_elements(&more, &["hooks", "Start"], is_ours).expect("a list");
        assert_eq!(remove_elements(&less, &["hooks", "Stop"], is_ours).expect("a list"), text);
    }

    #[test]
    fn what_is_no_json_or_no_object_is_an_error_that_says_where() {
        let said = |text: &str| set_member(text, &["a", "b"], &json!(1)).expect_err(text).to_string();
        assert_eq!(said("{\n\"a\" 1}"), "it is no JSON: line 2 has no colon behind a name");
        assert_eq!(said(""), "it is no JSON: line 1 has an end where a value should be");
        assert_eq!(said("{\"a\": \"x"), "it is no JSON: line 1 has a text without an end");
        assert_eq!(said("{\"a\": 1}"), "`a` is no object");
        assert_eq!(said("{} x"), "it is no JSON: line 1 has something behind the end");
        assert!(said(&"[".repeat(9_999)).contains("too deep"));
    }
}
