//! Pieces of a document, each compressed once: a whole is put together without compressing anything again.

use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// Compressed bytes that end on a byte boundary and refer to nothing before them, so that they stand anywhere in a stream.
#[derive(Debug)]
pub(crate) struct Piece {
    packed: Bytes,
    plain: Crc,
}

/// A full flush ends the bytes on a boundary and forgets what came before.
const CUT: FlushCompress = FlushCompress::Full;
/// What a flush ends with: an empty block that is stored as it is.
const END: [u8; 4] = [0, 0, 0xff, 0xff];
/// Magic number, deflate, no flags, no time, no extra flags, unknown system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// An empty last block.
const LAST: [u8; 2] = [3, 0];
/// Most bytes of a block that is stored as it is.
const BLOCK: usize = 65_535;

fn sum(bytes: &[u8]) -> Crc {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc
}

impl Piece {
    /// Compresses the bytes.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut deflate = Compress::new(Compression::fast(), false);
        let mut packed = Vec::new();
        let mut rest = bytes;
        loop {
            packed.reserve(bytes.len() / 6 + 256);
            let before = deflate.total_in();
            let status = deflate.compress_vec(rest, &mut packed, CUT);
            let taken = usize::try_from(deflate.total_in() - before).unwrap_or(rest.len());
            rest = &rest[taken.min(rest.len())..];
            // A call may come back with room left and the flush not done: what it ends with says so.
            if !matches!(status, Ok(Status::Ok)) || (rest.is_empty() && packed.len() < packed.capacity() && packed.ends_with(&END)) {
                break;
            }
        }
        packed.shrink_to_fit();
        Self { packed: packed.into(), plain: sum(bytes) }
    }

    /// Bytes that are too few to be worth compressing.
    pub(crate) fn stored(bytes: &[u8]) -> Self {
        let mut packed = Vec::with_capacity(bytes.len() + 5);
        for block in bytes.chunks(BLOCK) {
            let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
            packed.push(0);
            packed.extend_from_slice(&length.to_le_bytes());
            packed.extend_from_slice(&(!length).to_le_bytes());
            packed.extend_from_slice(block);
        }
        Self { packed: packed.into(), plain: sum(bytes) }
    }

    /// Bytes before compression.
    pub(crate) fn plain_len(&self) -> usize {
        usize::try_from(self.plain.amount()).unwrap_or(0)
    }
}

/// The whole as one gzip member.
pub(crate) fn gzip(pieces: &[&Piece]) -> Bytes {
    let mut out = Vec::with_capacity(pieces.iter().map(|p| p.packed.len()).sum::<usize>() + 20);
    out.extend_from_slice(&HEAD);
    let mut whole = Crc::new();
    for piece in pieces {
        out.extend_from_slice(&piece.packed);
        whole.combine(&piece.plain);
    }
    out.extend_from_slice(&LAST);
    out.extend_from_slice(&whole.sum().to_le_bytes());
    out.extend_from_slice(&whole.amount().to_le_bytes());
    out.into()
}

/// The bytes of a gzip member that we wrote.
pub(crate) fn unzip(bytes: &[u8]) -> Bytes {
    let mut plain = Vec::new();
    // We compressed it ourselves.
    let _ = GzDecoder::new(bytes).read_to_end(&mut plain);
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_one_member() {
        let long: String = (0..40_000).map(|i| format!("line {} ", i % 977)).collect();
        let noise: Vec<u8> = (0..200_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let all: [&[u8]; 6] = [b"", b"{\"a\":", long.as_bytes(), &noise, long.as_bytes(), b"}"];
        let pieces: Vec<Piece> = all.iter().enumerate().map(|(i, p)| if i % 2 == 0 { Piece::new(p) } else { Piece::stored(p) }).collect();
        let plain = all.concat();
        let member = gzip(&pieces.iter().collect::<Vec<_>>());
        let mut back = Vec::new();
        GzDecoder::new(&member[..]).read_to_end(&mut back).unwrap();
        assert!(back == plain);
        assert_eq!(pieces.iter().map(Piece::plain_len).sum::<usize>(), plain.len());
        assert!(pieces[2].packed.len() < long.len() / 3);
    }

    #[test]
    fn every_length_ends_on_a_boundary() {
        let text: String = (0..60_000u32).map(|i| format!("{{\"p{}\":{}}}", i.wrapping_mul(2_654_435_761) % 5003, i % 7)).collect();
        for length in (0..400).chain((400..text.len()).step_by(7919)) {
            let plain = &text.as_bytes()[..length];
            let (piece, comma) = (Piece::new(plain), Piece::stored(b","));
            assert!(unzip(&gzip(&[&piece, &comma, &piece])) == [plain, b",", plain].concat(), "{length}");
        }
    }

    #[test]
    fn nothing_is_a_member_too() {
        assert_eq!(unzip(&gzip(&[])), Bytes::new());
        assert_eq!(unzip(&gzip(&[&Piece::new(b""), &Piece::stored(b"")])), Bytes::new());
    }
}
