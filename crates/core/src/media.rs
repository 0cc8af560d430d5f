//! Media known by content: the bytes are stored once, everything else refers to their hash.

use serde::{Deserialize, Serialize};

use crate::hash_chain::Digest;

/// An image, document or sound, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// The MIME type the sender gave, or an empty string.
    pub mime: String,
    /// Location of the bytes.
    pub place: MediaLocation,
    /// Width and height in pixels, for images whose header gives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<(u32, u32)>,
}

/// Location of a medium's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaLocation {
    /// They came along, as base64 inside the event's raw JSON.
    Inline {
        /// BLAKE3 of the decoded bytes.
        hash: Digest,
        /// Number of bytes.
        size: u64,
    },
    /// They stay where they were: a URL, or a file id of the provider.
    Elsewhere(String),
}

impl Media {
    /// Describes bytes that came along.
    pub fn inline(mime: impl Into<String>, bytes: &[u8]) -> Self {
        let dimensions = imagesize::blob_size(bytes)
            .ok()
            .and_then(|size| Some((u32::try_from(size.width).ok()?, u32::try_from(size.height).ok()?)));
        let place = MediaLocation::Inline { hash: Digest::of(bytes), size: bytes.len() as u64 };
        Self { mime: mime.into(), place, dimensions }
    }

    /// Describes something named but not sent.
    pub fn elsewhere(mime: impl Into<String>, reference: impl Into<String>) -> Self {
        Self { mime: mime.into(), place: MediaLocation::Elsewhere(reference.into()), dimensions: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_png_header_gives_dimensions() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x20\0\0\0\x10\x08\x06\0\0\0";
        assert_eq!(Media::inline("image/png", png).dimensions, Some((32, 16)));
        assert_eq!(Media::inline("image/png", b"not an image").dimensions, None);
    }
}
