//! Codex's scripts: JavaScript that calls the other tools, as `tools.exec_command({cmd: "ls"})`.
//!
//! Only literal arguments are read, and constants that hold one. What the script computes is out of reach.

use std::collections::BTreeMap;

/// A call that a script makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    /// The tool.
    pub(super) name: String,
    /// What it is given.
    pub(super) given: Given,
}

/// What a call inside a script is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// One text.
    Text(String),
    /// Texts by name; other values are left out.
    Named(BTreeMap<String, String>),
    /// Nothing that can be told.
    Nothing,
}

/// The most calls of one script.
const MOST: usize = 64;

/// The calls that a script makes, in the order they stand.
pub(super) fn calls(script: &str) -> Vec<Made> {
    let mut reader = Reader { text: script, at: 0, constants: BTreeMap::new() };
    let mut calls = Vec::new();
    while calls.len() < MOST {
        match reader.token() {
            Some(Token::Name("const" | "let" | "var")) => reader.constant(),
            Some(Token::Name("tools")) => calls.extend(reader.call()),
            Some(_) => {}
            None => break,
        }
    }
    calls
}

#[derive(Clone, Debug, PartialEq)]
enum Token<'a> {
    Name(&'a str),
    Text(Option<String>),
    Sign(u8),
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    constants: BTreeMap<&'a str, String>,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next name, text or sign.
    fn token(&mut self) -> Option<Token<'a>> {
        while self.peek()?.is_ascii_whitespace() {
            self.at += 1;
        }
        let start = self.at;
        let rest = &self.text[start..];
        if rest.starts_with("//") {
            self.at += rest.find('\n').unwrap_or(rest.len());
            return self.token_after_comment();
        }
        let byte = self.peek()?;
        if matches!(byte, b'"' | b'\'' | b'`') {
            return Some(Token::Text(self.quoted(byte)));
        }
        let name = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
        let length = rest.find(|letter| !name(letter)).unwrap_or(rest.len());
        if length > 0 {
            self.at += length;
            return Some(Token::Name(&rest[..length]));
        }
        self.at += rest.chars().next().map_or(1, char::len_utf8);
        Some(Token::Sign(byte))
    }

    /// Comments follow one another in a loop, not in the stack.
    fn token_after_comment(&mut self) -> Option<Token<'a>> {
        loop {
            while self.peek()?.is_ascii_whitespace() {
                self.at += 1;
            }
            let rest = &self.text[self.at..];
            if !rest.starts_with("//") {
                return self.token();
            }
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    /// A literal text; unknown if something is computed in it.
    fn quoted(&mut self, quote: u8) -> Option<String> {
        let raw = self.text[..self.at].ends_with("String.raw");
        self.at += 1;
        let (mut text, mut known) = (String::new(), true);
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(['\\', '$', char::from(quote)]).unwrap_or(rest.len());
            text.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'\\') if raw => {
                    text.push('\\');
                    self.at += 1;
                }
                Some(b'\\') => self.escape(&mut text),
                Some(b'$') => {
                    known &= !(quote == b'`' && rest[plain..].starts_with("${"));
                    text.push('$');
                    self.at += 1;
                }
                Some(_) => {
                    self.at += 1;
                    break;
                }
                None => break,
            }
        }
        known.then_some(text)
    }

    fn escape(&mut self, text: &mut String) {
        self.at += 1;
        let rest = &self.text[self.at..];
        let Some(letter) = rest.chars().next() else { return };
        self.at += letter.len_utf8();
        match letter {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'u' => {
                let code = rest.get(1..5).and_then(|code| u32::from_str_radix(code, 16).ok());
                if let Some(letter) = code.and_then(char::from_u32) {
                    self.at += 4;
                    text.push(letter);
                }
            }
            '\n' => {}
            letter => text.push(letter),
        }
    }

    /// `name = "text"` after `const`.
    fn constant(&mut self) {
        if let Some(Token::Name(name)) = self.token()
            && self.ahead(b'=')
        {
            let back = self.at;
            match self.value() {
                Some(text) => {
                    self.constants.insert(name, text);
                }
                // What else it is may hold a call.
                None => self.at = back,
            }
        }
    }

    /// Whether a sign comes next; it is taken if so.
    fn ahead(&mut self, sign: u8) -> bool {
        let back = self.at;
        let found = self.token() == Some(Token::Sign(sign));
        if !found {
            self.at = back;
        }
        found
    }

    /// A literal or a constant.
    fn value(&mut self) -> Option<String> {
        match self.token()? {
            Token::Text(text) => text,
            Token::Name("String") if self.ahead(b'.') && self.token() == Some(Token::Name("raw")) => {
                self.value()
            }
            Token::Name(name) => self.constants.get(name).cloned(),
            Token::Sign(_) => None,
        }
    }

    /// `.name(argument` after `tools`.
    fn call(&mut self) -> Option<Made> {
        if !self.ahead(b'.') {
            return None;
        }
        let Token::Name(name) = self.token()? else { return None };
        if !self.ahead(b'(') {
            return None;
        }
        let given = if self.ahead(b'{') {
            Given::Named(self.named())
        } else {
            let back = self.at;
            let text = self.value();
            self.at = if text.is_some() { self.at } else { back };
            text.map_or(Given::Nothing, Given::Text)
        };
        Some(Made { name: name.to_owned(), given })
    }

    /// The texts of an object, by name.
    fn named(&mut self) -> BTreeMap<String, String> {
        let mut named = BTreeMap::new();
        let mut depth = 1_u32;
        while depth > 0 {
            let Some(token) = self.token() else { break };
            let key = match token {
                Token::Sign(b'{' | b'[' | b'(') => {
                    depth += 1;
                    continue;
                }
                Token::Sign(b'}' | b']' | b')') => {
                    depth -= 1;
                    continue;
                }
                Token::Name(name) => name.to_owned(),
                Token::Text(Some(text)) => text,
                Token::Text(None) | Token::Sign(_) => continue,
            };
            if depth == 1 && self.ahead(b':') {
                let back = self.at;
                match self.value() {
                    Some(text) => {
                        named.insert(key, text);
                    }
                    None => self.at = back,
                }
            }
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(script: &str) -> Vec<String> {
        calls(script).iter().map(|call| format!("{} {:?}", call.name, call.given)).collect()
    }

    #[test]
    fn literal_arguments_are_read() {
        assert_eq!(
            told(
                "const r = await tools.exec_command({cmd:\"a \\\"b\\\"\",\"workdir\":'/w', n: [1, {cmd: 2}]}); text(r.output)"
            ),
            [r#"exec_command Named({"cmd": "a \"b\"", "workdir": "/w"})"#]
        );
        assert_eq!(
            told("// tools.no()\nconst patch = \"x\\ny\";\ntext(await tools.apply_patch(patch));"),
            [r#"apply_patch Text("x\ny")"#]
        );
        assert_eq!(
            told("await Promise.all([tools.a({x: `l${1}`, y: `m`}), tools.b(String.raw`c\\d`), tools.c(z)])"),
            [r#"a Named({"y": "m"})"#, r#"b Text("c\\d")"#, "c Nothing"]
        );
        assert_eq!(told("const s = 'tools.a(1)'; toolsx.b()"), Vec::<String>::new());
    }

    #[test]
    fn broken_and_hostile_scripts_end() {
        for script in
            ["", "tools", "tools.", "tools.a(", "tools.a({", "tools.a({b:", "\"", "`${", "'\\", "const", "é"]
        {
            calls(script);
        }
        for piece in ["tools.a({", "//\n", "'", "\\", "const a=", "String.raw`", "`${`"] {
            calls(&piece.repeat(20_000));
        }
    }
}
