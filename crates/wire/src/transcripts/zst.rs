//! Files compressed with zstd, unpacked up to a limit.

use std::io::{Error, ErrorKind, Read};

use ruzstd::decoding::{
    FrameDecoder, StreamingDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

use super::{TranscriptError, json_lines::TranscriptLimits};

/// Returns true if the bytes begin as a zstd frame does.
pub(crate) fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
}

/// Unpacks every frame of a file. Stops at the limit, whatever the frames announce.
pub(crate) fn decompress(bytes: &[u8], limits: &TranscriptLimits) -> Result<Vec<u8>, TranscriptError> {
    let mut rest = bytes;
    let mut unpacked = Vec::new();
    while !rest.is_empty() {
        let mut decoder = match StreamingDecoder::new(&mut rest) {
            Ok(decoder) => decoder,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                rest = rest.get(length..).ok_or_else(|| broken("a skippable frame is cut off"))?;
                continue;
            }
            Err(error) => return Err(broken(error)),
        };
        // One byte more than the limit is read, to tell a file at the limit from one beyond it.
        let room = limits.decompressed.saturating_sub(unpacked.len()) as u64;
        let read = decoder.by_ref().take(room.saturating_add(1)).read_to_end(&mut unpacked);
        read.map_err(|source| TranscriptError::Compression { source })?;
        if unpacked.len() > limits.decompressed {
            return Err(TranscriptError::TooLarge { what: "the unpacked file", limit: limits.decompressed });
        }
        check_sum(&decoder.decoder)?;
    }
    Ok(unpacked)
}

fn check_sum(decoder: &FrameDecoder) -> Result<(), TranscriptError> {
    match decoder.get_checksum_from_data() {
        Some(told) if decoder.get_calculated_checksum() != Some(told) => {
            Err(broken("the checksum does not match what was unpacked"))
        }
        _ => Ok(()),
    }
}

fn broken(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TranscriptError {
    TranscriptError::Compression { source: Error::new(ErrorKind::InvalidData, why) }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    #[test]
    fn frames_unpack_one_after_the_other() {
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let file = [packed(b"{\"a\":1}\n"), skippable.to_vec(), packed(b"{\"b\":2}\n")].concat();
        assert!(is_compressed(&file));
        assert_eq!(decompress(&file, &TranscriptLimits::default()).unwrap(), b"{\"a\":1}\n{\"b\":2}\n");
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let file = packed(&vec![b'x'; 1 << 20]);
        let limits = |decompressed| TranscriptLimits { decompressed, ..TranscriptLimits::default() };
        assert!(matches!(decompress(&file, &limits((1 << 20) - 1)), Err(TranscriptError::TooLarge { .. })));
        assert_eq!(decompress(&file, &limits(1 << 20)).unwrap().len(), 1 << 20);
    }

    #[test]
    fn damage_is_an_error() {
        let file = packed(&[b"some text that is long enough ".as_slice(); 50].concat());
        for cut in 1..file.len() {
            assert!(decompress(&file[..cut], &TranscriptLimits::default()).is_err(), "{cut}");
        }
        assert!(decompress(&[&file[..], b"tail"].concat(), &TranscriptLimits::default()).is_err());
    }
}
