//! Media as the providers write them: base64, data URLs, links and file ids.
//!
//! Base64 that does not decode is not an error: the block stays opaque, since its provider may know better.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use epitome_core::{Digest, Part, media::Media};

/// Decoder that ignores padding, which is often missing and never matters.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Media type for a link to an image of unknown kind.
pub(crate) const ANY_IMAGE: &str = "image/*";

/// A medium whose bytes are in the request as base64.
pub(crate) fn inline(mime: &str, base64: &str) -> Option<Part> {
    BASE64.decode(base64).ok().map(|bytes| Part::Media(Media::inline(mime, &bytes)))
}

/// A medium that the request only refers to.
pub(crate) fn elsewhere(mime: &str, reference: &str) -> Part {
    Part::Media(Media::elsewhere(mime, reference))
}

/// A medium named by a URL, which may hold the bytes itself (`data:image/png;base64,…`).
pub(crate) fn by_url(mime: &str, url: &str) -> Option<Part> {
    let Some(data) = url.strip_prefix("data:") else { return Some(elsewhere(mime, url)) };
    let (kind, payload) = data.split_once(',')?;
    let kind = kind.strip_suffix(";base64")?;
    inline(kind.split(';').next().unwrap_or_default(), payload)
}

/// A file's bytes: a data URL, or bare base64.
pub(crate) fn file_data(mime: &str, data: &str) -> Option<Part> {
    if data.starts_with("data:") { by_url(mime, data) } else { inline(mime, data) }
}

/// The base64 in a string or data URL, and the hash of its decoded bytes.
pub(crate) fn held(text: &str) -> Option<(Digest, &str)> {
    let base64 = match text.strip_prefix("data:") {
        Some(data) => data.split_once(";base64,")?.1,
        None => text,
    };
    BASE64.decode(base64).ok().map(|bytes| (Digest::of(&bytes), base64))
}

#[cfg(test)]
mod tests {
    use epitome_core::media::Place;

    use super::*;

    #[test]
    fn a_url_is_a_link_or_holds_the_bytes() {
        let check = |url: &str, expect: Option<(&str, Option<u64>)>| {
            let found = by_url(ANY_IMAGE, url).map(|part| match part {
                Part::Media(Media { mime, place: Place::Inline { size, .. }, .. }) => (mime, Some(size)),
                Part::Media(Media { mime, .. }) => (mime, None),
                other => panic!("not a medium: {other:?}"),
            });
            assert_eq!(found, expect.map(|(mime, size)| (mime.to_owned(), size)), "{url}");
        };
        check("https://example.org/a.png", Some((ANY_IMAGE, None)));
        check("data:image/png;base64,aGk=", Some(("image/png", Some(2))));
        check("data:image/png;base64,aGk", Some(("image/png", Some(2))));
        check("data:text/plain;charset=utf-8;base64,aGk=", Some(("text/plain", Some(2))));
        check("data:image/png;base64,%%%", None);
        check("data:text/plain,hi", None);
        check("data:nothing", None);
    }
}
