//! A command line as simple commands: their words, where their output goes, what is fed to them.
//!
//! This reads only as much of the shell's language as tells which files a command names: quotes, here-documents,
//! lists, pipes, groups, substitutions and redirections. A crate that splits words (such as shlex) knows none of the
//! rest, and a whole shell parser is a large dependency for what stays a reading without running. What only a running
//! shell can know (a pattern, another command's output) is marked as unknown rather than guessed.
//!
//! Every byte is looked at once, and nesting has a bound.

mod word;

use super::syntax::{Command, Join, Mode, Piece, Place, Redirect, Script, Stream, Word};

impl<'a> Script<'a> {
    /// The commands of a script.
    pub(super) fn of(text: &'a str) -> Self {
        let script = Script { commands: Vec::new(), groups: vec![0] };
        let mut parser = Parser { text, script, ..Parser::default() };
        parser.list(Until::TheEnd);
        parser.script
    }
}

/// How deep groups and substitutions are followed.
const DEEPEST: usize = 16;

/// How many commands of a script, and words of a command, are kept.
const MOST_COMMANDS: usize = 512;
const MOST_WORDS: usize = 1024;

/// How far the end of a test is looked for.
const LONGEST_TEST: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    TheEnd,
    Bracket,
}

#[derive(Default)]
struct Parser<'a> {
    text: &'a str,
    at: usize,
    script: Script<'a>,
    command: Command<'a>,
    /// Here-documents whose text begins after this line.
    awaited: Vec<Awaited>,
    depth: usize,
    /// How many commands were begun.
    begun: usize,
}

/// A here-document that was announced.
struct Awaited {
    /// The line that ends it.
    end: String,
    tabs: Tabs,
    /// The command that reads it.
    reader: usize,
}

/// Whether the tabs before a here-document's lines are part of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tabs {
    Kept,
    Dropped,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn eat(&mut self, what: &str) -> bool {
        let found = self.rest().starts_with(what);
        self.at += if found { what.len() } else { 0 };
        found
    }

    /// Takes what stands before the first of the letters, or all there is.
    fn until(&mut self, letters: &[char]) -> &'a str {
        let rest = self.rest();
        let end = rest.find(letters).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn list(&mut self, until: Until) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\n' => {
                    self.at += 1;
                    self.here_documents();
                    self.finish(Join::Then);
                }
                b'#' => {
                    self.until(&['\n']);
                }
                b')' => {
                    self.at += 1;
                    self.finish(Join::Then);
                    if until == Until::Bracket {
                        return;
                    }
                }
                b';' | b'|' | b'&' => self.operator(),
                b'(' => self.bracket(),
                b'<' | b'>' => self.redirect(Stream::Output),
                _ => self.plain(),
            }
        }
        self.here_documents();
        self.finish(Join::Then);
    }

    fn operator(&mut self) {
        let join = if self.eat("&&") {
            Join::And
        } else if self.eat("||") {
            Join::Or
        } else if self.rest().starts_with("&>") {
            return self.redirect(Stream::Output);
        } else if self.eat("|&") || self.eat("|") {
            Join::Pipe
        } else {
            self.at += 1;
            Join::Then
        };
        self.finish(join);
    }

    /// A subshell, an arithmetic command, or the brackets of a function.
    fn bracket(&mut self) {
        self.at += 1;
        if self.eat(")") {
            // The name of a function that is defined here is no command.
            self.command.words.clear();
            return;
        }
        if self.peek() == Some(b'(') {
            self.until(&['\n', ';']);
            return;
        }
        self.finish(Join::Then);
        let outer = self.command.group;
        self.script.groups.push(outer);
        self.command.group = self.script.groups.len() - 1;
        self.nested(Place::Outside);
        self.command.group = outer;
    }

    /// Commands up to the closing bracket.
    fn nested(&mut self, place: Place) {
        if self.depth >= DEEPEST {
            return;
        }
        self.depth += 1;
        let awaited = std::mem::take(&mut self.awaited);
        let within = if self.command.place == Place::Within { Place::Within } else { place };
        let inner = self.begin(Join::Then, self.command.group, within);
        let outer = std::mem::replace(&mut self.command, inner);
        self.list(Until::Bracket);
        self.command = outer;
        self.awaited = awaited;
        self.depth -= 1;
    }

    fn begin(&mut self, join: Join, group: usize, place: Place) -> Command<'a> {
        self.begun += 1;
        Command { join, group, place, serial: self.begun, ..Command::default() }
    }

    /// Ends the command at hand. An end without a command leaves the way in which the next one is joined.
    fn finish(&mut self, join: Join) {
        let (group, place) = (self.command.group, self.command.place);
        let empty = self.command.words.is_empty() && self.command.redirects.is_empty();
        if empty && join == Join::Then {
            return;
        }
        let next = self.begin(join, group, place);
        let done = std::mem::replace(&mut self.command, next);
        if !empty && self.script.commands.len() < MOST_COMMANDS {
            self.script.commands.push(done);
        }
    }

    fn plain(&mut self) {
        let start = self.at;
        let word = self.word();
        if matches!(self.peek(), Some(b'<' | b'>'))
            && self.text[start..self.at].bytes().all(|byte| byte.is_ascii_digit())
        {
            // The number of what is redirected.
            let from = if &self.text[start..self.at] == "1" { Stream::Output } else { Stream::Beside };
            return self.redirect(from);
        }
        if self.command.words.is_empty() {
            match self.text.get(start..self.at) {
                Some(
                    "if" | "then" | "else" | "elif" | "fi" | "while" | "until" | "do" | "done" | "!" | "{"
                    | "}" | "time" | "esac",
                ) => return,
                Some("[[") => {
                    // Inside a test the signs of redirection compare.
                    let near = self.rest().as_bytes().windows(2).take(LONGEST_TEST);
                    self.at += near
                        .take_while(|pair| !matches!(pair[0], b'\n' | b';'))
                        .position(|pair| pair == b"]]")
                        .map_or(0, |end| end + 2);
                }
                _ => {}
            }
        }
        if self.command.words.len() < MOST_WORDS {
            self.command.words.push(word);
        }
    }

    fn redirect(&mut self, from: Stream) {
        if self.eat("<<<") {
            self.blanks();
            self.word();
        } else if self.eat("<<") {
            let tabs = if self.eat("-") { Tabs::Dropped } else { Tabs::Kept };
            self.blanks();
            let start = self.at;
            self.word();
            let end: String = self.text[start..self.at]
                .chars()
                .filter(|letter| !['\'', '"', '\\'].contains(letter))
                .collect();
            self.awaited.push(Awaited { end, tabs, reader: self.command.serial });
        } else if self.eat("<(") || self.eat(">(") {
            self.nested(Place::Within);
            self.command.words.push(Word { pieces: vec![Piece::Unknown] });
        } else if self.eat("<&") || self.eat("<>") || self.eat("<") {
            self.blanks();
            self.word();
        } else {
            self.output(from);
        }
    }

    /// `>`, `>>`, `>|`, `&>`, `&>>`, and `>&` which may name another output rather than a file.
    fn output(&mut self, from: Stream) {
        self.eat("&");
        let how = if self.eat(">>") { Mode::Append } else { Mode::Replace };
        if how == Mode::Replace {
            self.eat(">");
            self.eat("|");
        }
        let duplicate = self.eat("&");
        self.blanks();
        let start = self.at;
        let to = self.word();
        let number = self.text[start..self.at].bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        if !(to.pieces.is_empty() || duplicate && number) {
            self.command.redirects.push(Redirect { to, how, from });
        }
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    /// The texts of the here-documents that were announced on the line before.
    fn here_documents(&mut self) {
        for Awaited { end, tabs, reader } in std::mem::take(&mut self.awaited) {
            let start = self.at;
            let mut body = self.rest();
            for line in self.rest().split_inclusive('\n') {
                let bare = line.trim_end_matches(['\n', '\r']);
                let bare = if tabs == Tabs::Dropped { bare.trim_start_matches('\t') } else { bare };
                let before = self.at;
                self.at += line.len();
                if bare == end {
                    body = &self.text[start..before];
                    break;
                }
            }
            // A pipe on the announcing line may already have begun another command.
            let done = self.script.commands.iter_mut().rev();
            let mut commands = std::iter::once(&mut self.command).chain(done);
            if let Some(reader) = commands.find(|command| command.serial == reader) {
                reader.input = Some(body);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command a line: how it is joined, its words, what it writes to, what it reads.
    fn told(text: &str) -> String {
        let word = |word: &Word| {
            let pieces = word.pieces.iter().map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Variable(name) => format!("${{{name}}}"),
                Piece::Unknown => "¿".to_owned(),
            });
            pieces.collect::<String>()
        };
        let command = |command: &Command<'_>| {
            let words: Vec<String> = command.words.iter().map(word).collect();
            let files: Vec<String> =
                command.redirects.iter().map(|file| format!(" {:?}>{}", file.how, word(&file.to))).collect();
            let input = command.input.map(|text| format!(" <<{text:?}")).unwrap_or_default();
            format!("{:?}{} {}{}{input}\n", command.join, command.group, words.join("·"), files.concat())
        };
        Script::of(text).commands.iter().map(command).collect()
    }

    #[test]
    fn lists_pipes_and_quotes_are_told_apart() {
        insta::assert_snapshot!(told("cd a && echo 'x; y' | tee -a \"b c\"; rm d\\ e || true & ls"), @r"
        Then0 cd·a
        And0 echo·x; y
        Pipe0 tee·-a·b c
        Then0 rm·d e
        Or0 true
        Then0 ls
        ");
        insta::assert_snapshot!(told("a |\n  b # c > d\ne=\"$(f > g)\" h${i}j $k* {l,m} n{}"), @r"
        Then0 a
        Pipe0 b
        Then0 f Replace>g
        Then0 e=¿·h${i}j·${k}¿·{l,m}¿·n{}
        ");
    }

    #[test]
    fn output_goes_where_it_is_sent() {
        insta::assert_snapshot!(told("a > b 2>&1; c >>d 2>/dev/null; e &> f; g 2> h; i >| j; [[ k > l ]] && m"), @r"
        Then0 a Replace>b
        Then0 c Append>d Replace>/dev/null
        Then0 e Replace>f
        Then0 g Replace>h
        Then0 i Replace>j
        Then0 [[
        And0 m
        ");
    }

    #[test]
    fn here_documents_belong_to_their_readers() {
        insta::assert_snapshot!(told("cat > a <<'E O'\nx > y\nE O\ncat <<-B | c\n\tz\n\tB\nd | e <<F\nF"), @r#"
        Then0 cat Replace>a <<"x > y\n"
        Then0 cat <<"\tz\n"
        Pipe0 c
        Then0 d
        Pipe0 e <<""
        "#);
        insta::assert_snapshot!(told("git commit -m \"$(cat <<'EOF'\nit's (odd\nEOF\n)\" && b"), @r#"
        Then0 cat <<"it's (odd\n"
        Then0 git·commit·-m·¿
        And0 b
        "#);
    }

    #[test]
    fn groups_and_loops_are_seen_through() {
        insta::assert_snapshot!(told("(cd a; b); for f in x y; do c \"$f\"; done; if d; then e; fi; f() { g; }"), @r"
        Then1 cd·a
        Then1 b
        Then0 for·f·in·x·y
        Then0 c·${f}
        Then0 d
        Then0 e
        Then0 g
        ");
    }

    #[test]
    fn broken_and_hostile_scripts_end() {
        for text in [
            "'",
            "\"",
            "\\",
            "$",
            "${",
            "$(",
            "`",
            "<<",
            "<<E",
            "a <<'",
            ")",
            "((",
            "[[ a",
            "&>",
            ">",
            "2>",
            "a\u{e9}>\u{e9}",
        ] {
            Script::of(text);
        }
        for piece in [
            "$(", "(", "\"$(", "{,", "<<A ", "${", "[[ ", "[[;", "((", "a;", "`", "'\"", "a<<E\n", ">(",
            "$((", "é*",
        ] {
            let script = Script::of(&piece.repeat(20_000)).commands.len();
            assert!(script <= MOST_COMMANDS, "{piece}");
        }
    }
}
