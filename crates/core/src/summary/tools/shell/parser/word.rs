//! One word: its quotes, its variables, and what in it only a running shell would know.

use super::{
    super::syntax::{Piece, Place, Word},
    Parser,
};

impl Parser<'_> {
    pub(super) fn word(&mut self) -> Word {
        let mut word = Word::default();
        let (mut braces, mut lists) = (false, false);
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => break,
                b'\'' => {
                    self.at += 1;
                    let text = self.until(&['\'']);
                    self.at += 1;
                    word.push(text);
                }
                b'"' => self.quoted(&mut word),
                b'\\' => self.escaped(&mut word),
                b'$' => self.dollar(&mut word),
                b'`' => self.backticks(&mut word),
                b'*' | b'?' => {
                    self.at += 1;
                    word.pieces.push(Piece::Unknown);
                }
                b'[' if !matches!(word.text(), Some("" | "[")) => {
                    self.at += 1;
                    word.pieces.push(Piece::Unknown);
                }
                _ => {
                    braces |= byte == b'{';
                    lists |= braces && byte == b',';
                    let length = self.rest().chars().next().map_or(1, char::len_utf8);
                    word.push(&self.text[self.at..self.at + length]);
                    self.at += length;
                }
            }
        }
        if lists {
            word.pieces.push(Piece::Unknown);
        }
        self.at = self.at.min(self.text.len());
        word
    }

    fn quoted(&mut self, word: &mut Word) {
        self.at += 1;
        word.push("");
        loop {
            let text = self.until(&['"', '\\', '$', '`']);
            word.push(text);
            match self.peek() {
                None => return,
                Some(b'"') => {
                    self.at += 1;
                    return;
                }
                Some(b'\\') => {
                    let next = self.rest().as_bytes().get(1).copied();
                    if let Some(b'$' | b'`' | b'"' | b'\\' | b'\n') = next {
                        self.escaped(word);
                    } else {
                        word.push("\\");
                        self.at += 1;
                    }
                }
                Some(b'$') => self.dollar(word),
                Some(_) => self.backticks(word),
            }
        }
    }

    fn escaped(&mut self, word: &mut Word) {
        self.at += 1;
        if let Some(letter) = self.rest().chars().next() {
            self.at += letter.len_utf8();
            if letter != '\n' {
                word.push(letter.encode_utf8(&mut [0; 4]));
            }
        }
    }

    fn backticks(&mut self, word: &mut Word) {
        self.at += 1;
        self.until(&['`']);
        self.at = (self.at + 1).min(self.text.len());
        word.pieces.push(Piece::Unknown);
    }

    fn dollar(&mut self, word: &mut Word) {
        self.at += 1;
        if self.eat("((") {
            self.closing(2, ('(', ')'));
            word.pieces.push(Piece::Unknown);
        } else if self.eat("(") {
            self.nested(Place::Within);
            word.pieces.push(Piece::Unknown);
        } else if self.eat("{") {
            let start = self.at;
            self.closing(1, ('{', '}'));
            let name = self.text[start..self.at].trim_end_matches('}');
            let plain = !name.is_empty() && name.bytes().all(is_name);
            word.pieces.push(if plain { Piece::Variable(name.to_owned()) } else { Piece::Unknown });
        } else if self.eat("'") {
            let text = self.until(&['\'']);
            self.at = (self.at + 1).min(self.text.len());
            word.push(text);
        } else {
            let name = self.rest().bytes().take_while(|byte| is_name(*byte)).count();
            match self.peek() {
                Some(b'@' | b'*' | b'#' | b'?' | b'$' | b'!' | b'-' | b'0'..=b'9') => {
                    self.at += 1;
                    word.pieces.push(Piece::Unknown);
                }
                _ if name > 0 => {
                    word.pieces.push(Piece::Variable(self.rest()[..name].to_owned()));
                    self.at += name;
                }
                _ => word.push("$"),
            }
        }
    }

    /// Goes on until so many brackets are closed.
    fn closing(&mut self, mut open: usize, (opens, closes): (char, char)) {
        while open > 0 && self.at < self.text.len() {
            self.until(&[opens, closes]);
            match self.peek() {
                Some(byte) if char::from(byte) == opens => open += 1,
                Some(_) => open -= 1,
                None => return,
            }
            self.at += 1;
        }
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
