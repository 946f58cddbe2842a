//! Reads the size of an image from its first bytes, without decoding it. Decoders differ in which header of a file they
//! believe: Pillow takes the last `IHDR` of a PNG and grows a GIF to its frames. So every header before the image data
//! counts, the largest one wins, and a size is final only if no later header can exceed it.

/// An image size in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// The width.
    pub width: u64,
    /// The height.
    pub height: u64,
}

/// The size that the first bytes of an image state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatedSize {
    /// The size.
    pub size: ImageSize,
    /// True if no later part of the file can state a larger size.
    pub is_final: bool,
}

/// Returns the size that the headers of a PNG, GIF, JPEG or WebP image state; `None` if they state none.
pub fn size_of(bytes: &[u8]) -> Option<StatedSize> {
    let mut found = Found::default();
    // A walk ends early where the bytes end; what it has found until then is not final.
    let _ = match bytes {
        [0x89, b'P', b'N', b'G', ..] => png(bytes, &mut found),
        [b'G', b'I', b'F', b'8', ..] => gif(bytes, &mut found),
        [0xff, 0xd8, ..] => jpeg(bytes, &mut found),
        [b'R', b'I', b'F', b'F', ..] if bytes.get(8..12) == Some(b"WEBP") => webp(bytes, &mut found),
        _ => None,
    };
    let Found { size: ImageSize { width, height }, is_final } = found;
    let edge = |edge: u64| edge.min(EDGE_MAX);
    let size = ImageSize { width: edge(width), height: edge(height) };
    (width > 0 && height > 0).then_some(StatedSize { size, is_final })
}

/// Returns true if the bytes begin as one of the formats of [`size_of`].
pub(crate) fn is_picture(bytes: &[u8]) -> bool {
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    is_webp || [&b"\x89PNG"[..], b"GIF8", b"\xff\xd8\xff"].iter().any(|start| bytes.starts_with(start))
}

/// The largest edges so far.
struct Found {
    size: ImageSize,
    is_final: bool,
}

impl Default for Found {
    fn default() -> Self {
        Self { size: ImageSize { width: 0, height: 0 }, is_final: false }
    }
}

impl Found {
    fn add(&mut self, width: u64, height: u64) {
        self.size.width = self.size.width.max(width);
        self.size.height = self.size.height.max(height);
    }
}

/// Walks the chunks up to the image data. Others may precede the header, as those of pictures made for iOS do.
fn png(bytes: &[u8], found: &mut Found) -> Option<()> {
    let mut at = 8_usize;
    loop {
        let length = usize::try_from(big(bytes, at, 4)?).ok()?;
        match bytes.get(at + 4..at + 8)? {
            b"IHDR" => found.add(big(bytes, at + 8, 4)?, big(bytes, at + 12, 4)?),
            b"IDAT" | b"IEND" => {
                found.is_final = true;
                return Some(());
            }
            _ => {}
        }
        at = at.checked_add(length)?.checked_add(12)?;
    }
}

/// Walks the frames up to the end of the file.
fn gif(bytes: &[u8], found: &mut Found) -> Option<()> {
    found.add(little(bytes, 6, 2)?, little(bytes, 8, 2)?);
    let mut at = 13_usize + colours(*bytes.get(10)?);
    loop {
        match *bytes.get(at)? {
            // An extension: its label, then its blocks.
            0x21 => at = after_blocks(bytes, at + 2)?,
            0x2c => {
                let edge =
                    |place, length| Some(little(bytes, at + place, 2)? + little(bytes, at + length, 2)?);
                found.add(edge(1, 5)?, edge(3, 7)?);
                // The colours of the frame and the size of its codes precede the blocks.
                at = after_blocks(bytes, at + 11 + colours(*bytes.get(at + 9)?))?;
            }
            _ => {
                found.is_final = true;
                return Some(());
            }
        }
    }
}

/// Returns the bytes of the table of colours that `flags` announce.
fn colours(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 6 << (flags & 7) }
}

fn after_blocks(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1 + length;
        if length == 0 {
            return Some(at);
        }
    }
}

/// Walks the segments up to the image data.
fn jpeg(bytes: &[u8], found: &mut Found) -> Option<()> {
    let mut at = 2_usize;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            0xda => {
                // A frame without lines gets its height after the data.
                found.is_final = found.size.height > 0;
                return Some(());
            }
            marker => {
                if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
                    found.add(big(bytes, at + 7, 2)?, big(bytes, at + 5, 2)?);
                }
                let length = usize::try_from(big(bytes, at + 2, 2)?).ok()?;
                at += 2 + length.max(2);
            }
        }
    }
}

/// Walks the chunks up to the image data; of an animation, up to the end of the file.
fn webp(bytes: &[u8], found: &mut Found) -> Option<()> {
    let end = usize::try_from(little(bytes, 4, 4)?).ok()?.checked_add(8)?;
    let mut at = 12_usize;
    while at < end {
        let data = at + 8;
        match bytes.get(at..at + 4)? {
            b"VP8X" => found.add(little(bytes, data + 4, 3)? + 1, little(bytes, data + 7, 3)? + 1),
            b"ANMF" => {
                let edge = |place, length| {
                    Some(2 * little(bytes, data + place, 3)? + little(bytes, data + length, 3)? + 1)
                };
                found.add(edge(0, 6)?, edge(3, 9)?);
            }
            kind @ (b"VP8L" | b"VP8 ") => {
                let (width, height) = frame_of_webp(kind, bytes, data)?;
                found.add(width, height);
                found.is_final = true;
                return Some(());
            }
            _ => {}
        }
        let length = usize::try_from(little(bytes, at + 4, 4)?).ok()?;
        at = data.checked_add(length)?.checked_add(length % 2)?;
    }
    found.is_final = true;
    Some(())
}

fn frame_of_webp(kind: &[u8], bytes: &[u8], data: usize) -> Option<(u64, u64)> {
    if kind == b"VP8L" {
        let bits = little(bytes, data + 1, 4)?;
        return Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1));
    }
    Some((little(bytes, data + 6, 2)? & 0x3fff, little(bytes, data + 8, 2)? & 0x3fff))
}

fn big(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let number = bytes.get(at..at.checked_add(length)?)?;
    Some(number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn little(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let number = bytes.get(at..at.checked_add(length)?)?;
    Some(number.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// The longest edge that counts: no decoder of a vendor reads a picture of that many pixels in both directions.
const EDGE_MAX: u64 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
        [&(data.len() as u32).to_be_bytes()[..], name, data, &[0; 4]].concat()
    }

    fn header(width: u32, height: u32) -> Vec<u8> {
        chunk(b"IHDR", &[&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 6, 0, 0, 0]].concat())
    }

    fn png(chunks: &[Vec<u8>]) -> Vec<u8> {
        [&b"\x89PNG\r\n\x1a\n"[..], &chunks.concat(), &chunk(b"IDAT", &[0; 9])].concat()
    }

    /// Returns a GIF with a screen of 10 by 20 and frames of these places and sizes.
    fn gif(frames: &[[u16; 4]]) -> Vec<u8> {
        let mut gif = [&b"GIF89a\x0a\0\x14\0\x80\0\0"[..], &[7; 6], b"\x21\xf9\x04\0\0\0\0\0"].concat();
        for frame in frames {
            gif.push(b',');
            frame.iter().for_each(|number| gif.extend(number.to_le_bytes()));
            gif.extend(b"\x81");
            gif.extend([9; 12]);
            gif.extend(b"\x02\x03abc\x01d\0");
        }
        gif.push(b';');
        gif
    }

    fn segment(marker: u8, data: &[u8]) -> Vec<u8> {
        [&[0xff, marker][..], &(data.len() as u16 + 2).to_be_bytes(), data].concat()
    }

    fn frame(width: u16, height: u16) -> Vec<u8> {
        segment(0xc2, &[&[8][..], &height.to_be_bytes(), &width.to_be_bytes(), &[3]].concat())
    }

    fn jpeg(segments: &[Vec<u8>]) -> Vec<u8> {
        [&[0xff, 0xd8][..], &segments.concat(), &[0xff], &segment(0xda, &[1, 2])].concat()
    }

    fn webp(chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
        let mut body = b"WEBP".to_vec();
        for (name, data) in chunks {
            body.extend([&name[..], &(data.len() as u32).to_le_bytes(), data].concat());
            body.extend(vec![0; data.len() % 2]);
        }
        [&b"RIFF"[..], &(body.len() as u32).to_le_bytes(), &body].concat()
    }

    const VP8: &[u8] = &[0, 0, 0, 0x9d, 0x01, 0x2a, 64, 1, 240, 0];
    const VP8L: &[u8] = &[0x2f, 0x63, 0xc0, 0x0c, 0];
    const CANVAS: &[u8] = &[0, 0, 0, 0, 99, 0, 0, 49, 0, 0];

    #[test]
    fn image_sizes_are_read_from_every_header_before_the_data() {
        let moved = &[&[10, 0, 0, 0, 0, 0, 99, 1, 0, 49, 0, 0, 0, 0, 0, 0][..], &[0; 3]].concat();
        let rows = [
            ("PNG", png(&[header(1_920, 1_080)]), (1_920, 1_080)),
            ("PNG for iOS", png(&[chunk(b"CgBI", &[1; 4]), header(2_048, 9)]), (2_048, 9)),
            ("PNG with a chunk before its header", png(&[chunk(b"tEXt", &[0; 50]), header(7, 9)]), (7, 9)),
            ("PNG with two headers", png(&[header(1, 1), header(2_048, 2_048)]), (2_048, 2_048)),
            ("PNG of billions of pixels", png(&[header(u32::MAX, u32::MAX)]), (16_384, 16_384)),
            ("GIF", gif(&[[0, 0, 10, 20]]), (10, 20)),
            ("GIF with a frame larger than its screen", gif(&[[0, 0, 2_048, 1_024]]), (2_048, 1_024)),
            ("GIF whose second frame is larger", gif(&[[0, 0, 1, 1], [8, 0, 2_048, 9]]), (2_056, 20)),
            ("JPEG", jpeg(&[segment(0xe0, &[1; 2]), segment(0xc4, &[9]), frame(200, 100)]), (200, 100)),
            ("JPEG with two frames", jpeg(&[frame(1, 1), frame(200, 100)]), (200, 100)),
            ("WebP", webp(&[(b"VP8 ", VP8)]), (320, 240)),
            ("WebP without loss", webp(&[(b"VP8L", VP8L)]), (100, 52)),
            (
                "WebP with a canvas",
                webp(&[(b"VP8X", CANVAS), (b"ICCP", &[1; 7]), (b"VP8L", VP8L)]),
                (100, 52),
            ),
            ("WebP whose frame exceeds its canvas", webp(&[(b"VP8X", CANVAS), (b"VP8 ", VP8)]), (320, 240)),
            ("animated WebP", webp(&[(b"VP8X", CANVAS), (b"ANIM", &[0; 6]), (b"ANMF", moved)]), (376, 50)),
        ];
        for (name, bytes, (width, height)) in rows {
            let want = StatedSize { size: ImageSize { width, height }, is_final: true };
            assert_eq!(size_of(&bytes), Some(want), "{name}");
            assert!(is_picture(&bytes), "{name}");
            for end in 0..bytes.len() {
                let cut = size_of(&bytes[..end]);
                assert!(cut.is_none_or(|cut| !cut.is_final || cut == want), "{name}, cut at {end}");
            }
        }
    }

    #[test]
    fn headers_without_a_size_state_none() {
        let rows = [
            ("no edge", png(&[header(0, 0)])),
            ("no header", png(&[chunk(b"tEXt", &[0; 9])])),
            ("a chunk longer than the file", [&b"\x89PNG\r\n\x1a\n"[..], &[0xff; 40]].concat()),
            ("lines that are counted after the data", jpeg(&[frame(200, 0)])),
            ("another format", b"BM".to_vec()),
        ];
        for (name, bytes) in rows {
            assert_eq!(size_of(&bytes), None, "{name}");
        }
    }
}
