//! Notes that a client inserts into a history with every call, each time in another place: goose's `<info-msg>`,
//! which tells the time, the folder and how full the context is.

const OPENS: &str = "<info-msg>";
const CLOSES: &str = "</info-msg>";

/// A user's text without notes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoteFreeText {
    /// The remaining text, or `None` if there was no note.
    pub(super) rest: Option<String>,
    /// True if a note stood at an end of the text, where the client puts it: a note in the middle is a quotation.
    pub(super) at_an_end: bool,
}

/// Takes the notes out of a text. A note that is never closed does not count.
pub(super) fn without_notes(text: &str) -> NoteFreeText {
    let mut rest = String::new();
    let mut from = 0;
    let mut found = false;
    while let Some(open) = find(text, OPENS, from)
        && let Some(close) = find(text, CLOSES, open)
    {
        found = true;
        rest.push_str(text.get(from..open).unwrap_or_default());
        from = close + CLOSES.len();
    }
    if !found {
        return NoteFreeText { rest: None, at_an_end: false };
    }
    rest.push_str(text.get(from..).unwrap_or_default());
    let text = text.trim();
    NoteFreeText { rest: Some(rest), at_an_end: text.starts_with(OPENS) || text.ends_with(CLOSES) }
}

fn find(text: &str, what: &str, from: usize) -> Option<usize> {
    let found = memchr::memmem::find(text.as_bytes().get(from..)?, what.as_bytes())?;
    Some(from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_taken_out_wherever_they_stand() {
        let check = |text: &str, rest: Option<&str>, at_an_end: bool| {
            let expect = NoteFreeText { rest: rest.map(str::to_owned), at_an_end };
            assert_eq!(without_notes(text), expect, "{text}");
        };
        check("<info-msg>10:31</info-msg>\nDo it", Some("\nDo it"), true);
        check("Do it\n<info-msg>10:31</info-msg>\n", Some("Do it\n\n"), true);
        check("<info-msg>a</info-msg><info-msg>b</info-msg>", Some(""), true);
        check("what is <info-msg>a</info-msg> for?", Some("what is  for?"), false);
        check("<info-msg>never closed", None, false);
        check("</info-msg><info-msg>", None, false);
        check("Do it", None, false);
    }
}
