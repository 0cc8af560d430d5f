//! Options of a request in mode `compact` beyond its body, read from headers of the gateway's own.

use std::borrow::Cow;

use epitome::{core::Tokens, rewrite::RequestOverrides};
use http::HeaderMap;

use super::errors::GatewayError;
use crate::units::parse_tokens;

/// Most letters in the focus of a summary.
const LONGEST_FOCUS: usize = 2_000;

/// Reads the options from the headers of a request.
pub(super) fn parse_options(headers: &HeaderMap) -> Result<RequestOverrides, GatewayError> {
    let window = match headers.get("x-epitome-window") {
        None => None,
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| parse_tokens(text.trim()).ok());
            Some(Tokens(number.ok_or_else(GatewayError::wrong_window)?))
        }
    };
    let compact = headers.get("x-epitome-compact").map(|value| focus(value.as_bytes())).transpose()?;
    Ok(RequestOverrides { window, compact })
}

/// Reads the focus: plain text, or with its letters escaped as in `%E2%82%AC`, because headers cannot hold
/// all letters.
fn focus(value: &[u8]) -> Result<String, GatewayError> {
    let unescaped = String::from_utf8(unescaped(value)).map(Cow::Owned);
    let text = unescaped.unwrap_or_else(|_| String::from_utf8_lossy(value));
    let text = text.trim();
    if text.chars().count() > LONGEST_FOCUS {
        return Err(GatewayError::long_focus(LONGEST_FOCUS));
    }
    Ok(text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect())
}

/// Replaces escaped bytes. A `%` that escapes nothing stays.
pub(super) fn unescaped(value: &[u8]) -> Vec<u8> {
    let digit = |at: usize| value.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = Vec::with_capacity(value.len());
    let mut at = 0;
    while let Some(byte) = value.get(at) {
        let escaped = digit(at + 1).zip(digit(at + 2)).filter(|_| *byte == b'%');
        let escaped = escaped.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        bytes.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// The window and the focus.
    type Read = (Option<Tokens>, Option<String>);

    fn read(name: &'static str, value: &[u8]) -> Result<Read, GatewayError> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_bytes(value).expect("a header's value"));
        parse_options(&headers).map(|RequestOverrides { window, compact }| (window, compact))
    }

    #[test]
    fn a_window_is_a_positive_number_of_tokens_or_refused() {
        let window = |value: &str| read("x-epitome-window", value.as_bytes());
        assert_eq!(window("128000"), Ok((Some(Tokens(128_000)), None)));
        assert_eq!(window("1.5M"), Ok((Some(Tokens(1_500_000)), None)));
        for wrong in ["", "0", "-1", "45%", "1e6", "99999999999999999999", "12 000"] {
            let trouble = window(wrong).expect_err("no window");
            assert_eq!((trouble.status.as_u16(), trouble.code), (400, "wrong_window"), "{wrong}");
        }
        let none = parse_options(&HeaderMap::new()).expect("no header is wrong");
        assert_eq!((none.window, none.compact), (None, None));
    }

    #[test]
    fn a_focus_is_read_plain_or_escaped() {
        let check = |value: &[u8], expect: &str| {
            let focus = read("x-epitome-compact", value);
            assert_eq!(focus, Ok((None, Some(expect.to_owned()))), "{value:?}");
        };
        check(b"", "");
        check(b"the failing tests", "the failing tests");
        check(b"caf%C3%A9%0Aand 100% of %e2%82%ac%", "café and 100% of €%");
        check("straße".as_bytes(), "straße");
        // Its unescaped form is not text.
        check(b"%FF", "%FF");
        check(b"\xff", "\u{fffd}");
        check("é".repeat(2_000).as_bytes(), &"é".repeat(2_000));
        let long = read("x-epitome-compact", "%C3%A9".repeat(2_001).as_bytes()).expect_err("too long");
        assert_eq!((long.status.as_u16(), long.code), (400, "long_focus"));
    }
}
