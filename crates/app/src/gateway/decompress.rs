//! Expansion of compressed bytes as they come, up to a limit: a few bytes may stand for very many.
//!
//! The bytes that are passed on are never touched; only the gateway's copy of them is expanded.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// Compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentCoding {
    /// No compression.
    Identity,
    /// Gzip.
    Gzip,
    /// Zlib, or bare deflate, which some servers send under the same name.
    Deflate,
    /// Brotli.
    Brotli,
    /// Zstandard.
    Zstandard,
    /// An unknown compression, or several.
    Unknown,
}

impl ContentCoding {
    /// Reads the compression of a body from its headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut named = Self::Identity;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            for name in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                named = match (Self::named(name), named) {
                    (Self::Identity, before) => before,
                    (coding, Self::Identity) => coding,
                    _ => Self::Unknown,
                };
            }
        }
        named
    }

    /// Returns true if bytes can be expanded as they come. Zstandard is expanded at the end: its decoder
    /// keeps bytes until it knows that later ones do not refer to them.
    pub(super) fn flows(self) -> bool {
        self != Self::Zstandard
    }

    fn named(name: &[u8]) -> Self {
        match name.to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Self::Identity,
            b"gzip" | b"x-gzip" => Self::Gzip,
            b"deflate" => Self::Deflate,
            b"br" => Self::Brotli,
            b"zstd" => Self::Zstandard,
            _ => Self::Unknown,
        }
    }
}

/// Reason why compressed bytes cannot be expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecompressError {
    /// The expansion is larger than the limit.
    TooLarge,
    /// The bytes are not valid in the stated compression.
    Garbage,
}

/// Expands bytes as they come.
pub(super) struct BodyDecompressor(CodingDecoder);

enum CodingDecoder {
    Plain(BoundedSink),
    Gzip(MultiGzDecoder<BoundedSink>),
    /// Undecided: the first byte shows which of the next two it is.
    Deflate(BoundedSink),
    Zlib(ZlibDecoder<BoundedSink>),
    Bare(DeflateDecoder<BoundedSink>),
    Brotli(Box<DecompressorWriter<BoundedSink>>),
    Never(BoundedSink),
}

impl BodyDecompressor {
    /// Makes an expander for `coding`, up to `limit` bytes. Bytes that cannot be [expanded as they
    /// come](Coding::flows) count as garbage.
    pub(super) fn new(coding: ContentCoding, limit: usize) -> Self {
        let sink = BoundedSink { bytes: Vec::new(), left: limit };
        Self(match coding {
            ContentCoding::Identity => CodingDecoder::Plain(sink),
            ContentCoding::Gzip => CodingDecoder::Gzip(MultiGzDecoder::new(sink)),
            ContentCoding::Deflate => CodingDecoder::Deflate(sink),
            ContentCoding::Brotli => CodingDecoder::Brotli(Box::new(DecompressorWriter::new(sink, 4096))),
            ContentCoding::Zstandard | ContentCoding::Unknown => CodingDecoder::Never(sink),
        })
    }

    /// Takes the next bytes and returns their expansion, as far as it is known yet.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, DecompressError> {
        self.decide(bytes);
        let written = match &mut self.0 {
            CodingDecoder::Plain(sink) => sink.write_all(bytes),
            CodingDecoder::Gzip(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            CodingDecoder::Zlib(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            CodingDecoder::Bare(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            CodingDecoder::Brotli(decoder) => decoder.write_all(bytes),
            CodingDecoder::Deflate(_) => Ok(()),
            CodingDecoder::Never(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        written?;
        Ok(std::mem::take(&mut self.sink().bytes))
    }

    /// Decides between zlib and bare deflate, which some servers send under the name of zlib. A zlib header
    /// has an 8 in its lower half.
    fn decide(&mut self, bytes: &[u8]) {
        if let (CodingDecoder::Deflate(sink), Some(first)) = (&mut self.0, bytes.first()) {
            let sink = std::mem::take(sink);
            self.0 = if first & 0x0f == 8 {
                CodingDecoder::Zlib(ZlibDecoder::new(sink))
            } else {
                CodingDecoder::Bare(DeflateDecoder::new(sink))
            };
        }
    }

    fn sink(&mut self) -> &mut BoundedSink {
        match &mut self.0 {
            CodingDecoder::Plain(sink) | CodingDecoder::Deflate(sink) | CodingDecoder::Never(sink) => sink,
            CodingDecoder::Gzip(decoder) => decoder.get_mut(),
            CodingDecoder::Zlib(decoder) => decoder.get_mut(),
            CodingDecoder::Bare(decoder) => decoder.get_mut(),
            CodingDecoder::Brotli(decoder) => decoder.get_mut(),
        }
    }
}

/// Expands bytes that are complete, up to `limit`.
pub(super) fn expand(coding: ContentCoding, bytes: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    match coding {
        ContentCoding::Zstandard => frames(bytes, limit),
        _ => BodyDecompressor::new(coding, limit).push(bytes),
    }
}

/// Expands frames of Zstandard.
fn frames(mut bytes: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    /// Largest window that HTTP allows (RFC 9659).
    const WINDOW: u64 = 8 << 20;
    let mut sink = BoundedSink { bytes: Vec::new(), left: limit };
    while !bytes.is_empty() {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW);
        let mut reader =
            StreamingDecoder::new_with_decoder(&mut bytes, decoder).map_err(|_| DecompressError::Garbage)?;
        io::copy(&mut reader, &mut sink)?;
    }
    Ok(sink.bytes)
}

impl From<io::Error> for DecompressError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::FileTooLarge => Self::TooLarge,
            _ => Self::Garbage,
        }
    }
}

/// Destination of expanded bytes, up to a limit.
#[derive(Default)]
struct BoundedSink {
    bytes: Vec<u8>,
    left: usize,
}

impl Write for BoundedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };
    use http::HeaderValue;

    use super::*;

    const TEXT: &str = "data: {\"a\":1}\n\ndata: {\"a\":1}\n\n";

    /// [`TEXT`] as Brotli writes it uncompressed: a header, a block that is stored, and an empty last one.
    fn brotli() -> Vec<u8> {
        let stored = u32::try_from(TEXT.len() - 1).expect("short");
        // Window 16 (0), not the last (0), length in four nibbles (00), the length less one, stored (1).
        let header = (stored << 4) | (1 << 20);
        let mut bytes = header.to_le_bytes()[..3].to_vec();
        bytes.extend_from_slice(TEXT.as_bytes());
        bytes.push(0b11);
        bytes
    }

    fn zstandard(text: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).expect("a vector takes all");
        encoder.finish().expect("a vector takes all")
    }

    fn all() -> Vec<(ContentCoding, Vec<u8>)> {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(TEXT.as_bytes()).expect("a vector takes all");
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
        bare.write_all(TEXT.as_bytes()).expect("a vector takes all");
        vec![
            (ContentCoding::Identity, TEXT.into()),
            (ContentCoding::Gzip, gzip(TEXT.as_bytes())),
            (ContentCoding::Deflate, zlib.finish().expect("a vector takes all")),
            (ContentCoding::Deflate, bare.finish().expect("a vector takes all")),
            (ContentCoding::Brotli, brotli()),
            (ContentCoding::Zstandard, zstandard(TEXT.as_bytes())),
        ]
    }

    #[test]
    fn what_is_compressed_reads_as_before_wherever_it_is_cut() {
        for (coding, bytes) in all() {
            assert_eq!(expand(coding, &bytes, 1000).as_deref(), Ok(TEXT.as_bytes()), "{coding:?}");
            if coding.flows() {
                let mut expander = BodyDecompressor::new(coding, 1000);
                let pushed: Vec<u8> =
                    bytes.chunks(1).flat_map(|byte| expander.push(byte).expect("it is whole")).collect();
                assert_eq!(pushed, TEXT.as_bytes(), "{coding:?}");
            }
        }
    }

    #[test]
    fn few_bytes_that_stand_for_too_many_are_refused() {
        for (coding, bytes) in all() {
            assert_eq!(expand(coding, &bytes, TEXT.len() - 1), Err(DecompressError::TooLarge), "{coding:?}");
        }
        let zeros = vec![0; 10 << 20];
        assert_eq!(expand(ContentCoding::Gzip, &gzip(&zeros), 1 << 20), Err(DecompressError::TooLarge));
        assert_eq!(
            expand(ContentCoding::Zstandard, &zstandard(&zeros), 1 << 20),
            Err(DecompressError::TooLarge)
        );
    }

    #[test]
    fn garbage_is_said_to_be_garbage() {
        for coding in [
            ContentCoding::Gzip,
            ContentCoding::Deflate,
            ContentCoding::Brotli,
            ContentCoding::Zstandard,
            ContentCoding::Unknown,
        ] {
            assert_eq!(expand(coding, &[0xff; 64], 1000), Err(DecompressError::Garbage), "{coding:?}");
        }
    }

    #[test]
    fn a_stream_is_read_as_far_as_it_was_flushed() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"data: 1\n\n").expect("a vector takes all");
        encoder.flush().expect("a vector takes all");
        let flushed = encoder.get_ref().clone();
        assert_eq!(
            BodyDecompressor::new(ContentCoding::Gzip, 1000).push(&flushed).as_deref(),
            Ok(&b"data: 1\n\n"[..])
        );
    }

    #[test]
    fn a_coding_is_known_by_its_name_and_several_are_not() {
        let check = |value: &'static str, expect: ContentCoding| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(ContentCoding::of(&headers), expect, "{value}");
        };
        assert_eq!(ContentCoding::of(&HeaderMap::new()), ContentCoding::Identity);
        check("GZip", ContentCoding::Gzip);
        check("identity, br", ContentCoding::Brotli);
        check("zstd", ContentCoding::Zstandard);
        check("gzip, br", ContentCoding::Unknown);
        check("dcb", ContentCoding::Unknown);
    }
}
