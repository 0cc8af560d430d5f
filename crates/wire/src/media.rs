//! Media as the providers write them: base64, data URLs, links and file ids.
//!
//! Base64 that does not decode is not an error: the block stays opaque, since its provider may know better.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use epitome_core::{ContentPart, Digest, media::Media};

/// Decoder that ignores padding, which is often missing and never matters.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Media type for a link to an image of unknown kind.
pub(crate) const ANY_IMAGE: &str = "image/*";

/// Writes bytes as base64.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Writes bytes as a data URL.
pub(crate) fn data_url(mime: &str, bytes: &[u8]) -> String {
    format!("data:{mime};base64,{}", base64(bytes))
}

/// A medium whose bytes are in the request as base64.
pub(crate) fn inline_part(mime: &str, base64: &str) -> Option<ContentPart> {
    BASE64.decode(base64).ok().map(|bytes| ContentPart::Media(Media::inline(mime, &bytes)))
}

/// A medium that the request only refers to.
pub(crate) fn linked_part(mime: &str, reference: &str) -> ContentPart {
    ContentPart::Media(Media::elsewhere(mime, reference))
}

/// A medium named by a URL, which may hold the bytes itself (`data:image/png;base64,…`).
pub(crate) fn url_part(mime: &str, url: &str) -> Option<ContentPart> {
    let Some(data) = url.strip_prefix("data:") else { return Some(linked_part(mime, url)) };
    let (kind, payload) = data.split_once(',')?;
    let kind = kind.strip_suffix(";base64")?;
    inline_part(kind.split(';').next().unwrap_or_default(), payload)
}

/// A file's bytes: a data URL, or bare base64.
pub(crate) fn file_part(mime: &str, data: &str) -> Option<ContentPart> {
    if data.starts_with("data:") { url_part(mime, data) } else { inline_part(mime, data) }
}

/// The base64 in a string or data URL, and the hash of its decoded bytes.
pub(crate) fn decode_base64(text: &str) -> Option<(Digest, &str)> {
    let base64 = match text.strip_prefix("data:") {
        Some(data) => data.split_once(";base64,")?.1,
        None => text,
    };
    BASE64.decode(base64).ok().map(|bytes| (Digest::of(&bytes), base64))
}

#[cfg(test)]
mod tests {
    use epitome_core::media::MediaLocation;

    use super::*;

    #[test]
    fn a_url_is_a_link_or_holds_the_bytes() {
        let check = |url: &str, expect: Option<(&str, Option<u64>)>| {
            let found = url_part(ANY_IMAGE, url).map(|part| match part {
                ContentPart::Media(Media { mime, place: MediaLocation::Inline { size, .. }, .. }) => {
                    (mime, Some(size))
                }
                ContentPart::Media(Media { mime, .. }) => (mime, None),
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
