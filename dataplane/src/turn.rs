//! Writes of the connections of a worker: fair to the others, and cheap for the system.

use std::io::IoSlice;

use tokio::io::ReadBuf;

/// Bytes that one connection may move before it yields to the other connections of its worker. Without this limit, a
/// client as fast as the worker would occupy it for tens of megabytes.
pub(crate) const TURN_BYTES: usize = 512 << 10;

/// Returns the first of `bufs` that fit into `left` bytes as a whole.
pub(crate) fn fitting<'a, 'b>(bufs: &'a [IoSlice<'b>], left: usize) -> &'a [IoSlice<'b>] {
    let mut bytes = 0_usize;
    let fits = |buf: &&IoSlice<'_>| {
        bytes += buf.len();
        bytes <= left
    };
    let count = bufs.iter().take_while(fits).count();
    bufs.split_at(count).0
}

/// Maximum bytes of slices that are joined before they are written.
pub(crate) const SHORT_BYTES_MAX: usize = 2 << 10;

/// Copies `bufs` into `space` if they are several and fit: the system takes one slice faster than it reads a list of them.
pub(crate) fn joined<'a>(bufs: &[IoSlice<'_>], space: &'a mut ReadBuf<'_>) -> Option<&'a [u8]> {
    let bytes = bufs.iter().fold(0_usize, |bytes, buf| bytes.saturating_add(buf.len()));
    if bufs.len() < 2 || bytes > space.remaining() {
        return None;
    }
    bufs.iter().for_each(|buf| space.put_slice(buf));
    Some(space.filled())
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    #[test]
    fn several_short_slices_are_joined() {
        let long = [b'x'; SHORT_BYTES_MAX];
        for (slices, want) in [
            (&[&b"ab"[..], b"", b"cde"][..], Some(&b"abcde"[..])),
            (&[b"abc"], None),
            (&[&long], None),
            (&[&long[1..], b"x"], Some(&long)),
            (&[&long, b"x"], None),
        ] {
            let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
            let mut space = [const { MaybeUninit::uninit() }; SHORT_BYTES_MAX];
            assert_eq!(joined(&slices, &mut ReadBuf::uninit(&mut space)), want);
        }
    }
}
