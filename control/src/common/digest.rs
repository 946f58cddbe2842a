//! SHA-256 of files.

use std::fs::File;
use std::io::{self, Read, Write};

use ring::digest::{Context, SHA256};
use shared::hex;

/// Incremental SHA-256.
pub(crate) struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn hex(self) -> String {
        hex::encode(self.0.finish().as_ref())
    }
}

/// Copies a file and returns its length and its digest.
pub(crate) fn copy(mut from: File, to: &mut impl Write) -> io::Result<(u64, String)> {
    let (mut hasher, mut bytes, mut buffer) = (Hasher::default(), 0_u64, vec![0; BUFFER_BYTES]);
    loop {
        let read = from.read(&mut buffer)?;
        let piece = buffer.split_at(read).0;
        if piece.is_empty() {
            return Ok((bytes, hasher.hex()));
        }
        hasher.update(piece);
        bytes += read as u64;
        to.write_all(piece)?;
    }
}

const BUFFER_BYTES: usize = 64 << 10;
