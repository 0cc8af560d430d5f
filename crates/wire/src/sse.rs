//! Server-sent events: from bytes, cut anywhere, to the payloads of `data` lines.
//!
//! The three providers put everything that matters into `data`, so event names, ids, retry times and comments are
//! passed over. Bytes are pushed into it and it never waits, which the async crates for this do not offer without a
//! body type and a runtime; all of it is a line splitter.

/// Splits a stream of bytes into payloads.
#[derive(Debug, Default)]
pub(crate) struct SsePayloads {
    /// The line that has begun.
    line: Vec<u8>,
    /// The data lines of the event that has begun.
    data: Option<Vec<u8>>,
    /// True if the last byte was a carriage return, so that a line feed now belongs to it.
    returned: bool,
}

impl SsePayloads {
    /// Takes the next bytes and passes every completed payload to `see`.
    pub(crate) fn push(&mut self, mut bytes: &[u8], see: &mut dyn FnMut(&str)) {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.returned) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.line.extend_from_slice(bytes);
                return;
            };
            self.line.extend_from_slice(&bytes[..end]);
            self.returned = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line(see);
        }
    }

    /// Passes on a payload that was begun and never closed: some servers leave out the last empty line.
    pub(crate) fn finish(&mut self, see: &mut dyn FnMut(&str)) {
        self.end_line(see);
        self.dispatch(see);
    }

    /// Number of bytes held.
    pub(crate) fn held(&self) -> usize {
        self.line.len() + self.data.as_ref().map_or(0, Vec::len)
    }

    fn end_line(&mut self, see: &mut dyn FnMut(&str)) {
        let mut line = std::mem::take(&mut self.line);
        match field(&line) {
            None => self.dispatch(see),
            Some(("data", value)) => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            Some(_) => {}
        }
        // The allocation is reused for the next line.
        line.clear();
        self.line = line;
    }

    fn dispatch(&mut self, see: &mut dyn FnMut(&str)) {
        if let Some(data) = self.data.take() {
            see(&String::from_utf8_lossy(&data));
        }
    }
}

/// A line's field name and value; `None` for the empty line that ends an event. A comment's name is empty.
pub(crate) fn field(line: &[u8]) -> Option<(&str, &[u8])> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.is_empty() {
        return None;
    }
    let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
    let value = line.get(colon + 1..).unwrap_or_default();
    Some((str::from_utf8(&line[..colon]).unwrap_or_default(), value.strip_prefix(b" ").unwrap_or(value)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn payloads<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let (mut splitter, mut seen) = (SsePayloads::default(), Vec::new());
        let mut see = |payload: &str| seen.push(payload.to_owned());
        for chunk in chunks {
            splitter.push(chunk, &mut see);
        }
        splitter.finish(&mut see);
        seen
    }

    #[test]
    fn payloads_are_found_whatever_stands_around_them() {
        let check = |stream: &str, expect: &[&str]| {
            assert_eq!(payloads([stream.as_bytes()]), expect, "{stream:?}");
        };
        check("data: a\n\ndata: b\n\n", &["a", "b"]);
        check("\u{feff}event: x\r\ndata:a\r\n\r\n: comment\r\n\r\ndata: b", &["a", "b"]);
        check("data: a\rdata: b\r\rid: 1\rretry: 5\r\r", &["a\nb"]);
        check("data\n\n\n\ndata:  two spaces\n\n", &["", " two spaces"]);
        check("nothing: here\n\n", &[]);
        check("", &[]);
    }

    proptest! {
        #[test]
        fn where_the_bytes_are_cut_does_not_matter(
            stream in "(data: [aé😀]{0,3}|:c|event: e|\r\n|\n|\r){0,30}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            prop_assert_eq!(payloads(chunks), payloads([bytes]));
        }
    }
}
