//! Packs: a set of objects as one file, written without deltas.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::Digest;

use crate::id::ObjectKind;

/// Collects objects into the bytes of a version 2 pack.
pub(crate) struct Packer {
    bytes: Vec<u8>,
    count: u32,
}

impl Packer {
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::with_capacity(64 * 1024);
        bytes.extend_from_slice(b"PACK\0\0\0\x02\0\0\0\0");
        Self { bytes, count: 0 }
    }

    /// Adds one object; each may be added only once.
    pub(crate) fn add(&mut self, kind: ObjectKind, content: &[u8]) -> std::io::Result<()> {
        let mut size = content.len();
        let mut byte = (kind.code() << 4) | (size & 0x0f) as u8;
        size >>= 4;
        while size > 0 {
            self.bytes.push(byte | 0x80);
            byte = (size & 0x7f) as u8;
            size >>= 7;
        }
        self.bytes.push(byte);
        let mut encoder = ZlibEncoder::new(&mut self.bytes, Compression::fast());
        encoder.write_all(content)?;
        encoder.finish()?;
        self.count += 1;
        Ok(())
    }

    /// The finished pack with its checksum.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes[8..12].copy_from_slice(&self.count.to_be_bytes());
        let sum = sha1::Sha1::digest(&self.bytes);
        self.bytes.extend_from_slice(&sum);
        self.bytes
    }
}
