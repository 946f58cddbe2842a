//! Opus in Ogg (RFC 7845): packets of 20 ms, two header pages, positions at 48 kHz.

use ogg::{PacketWriteEndInfo, PacketWriter};
use unsafe_libopus::{
    OPUS_APPLICATION_AUDIO, OPUS_OK, OpusEncoder, opus_encode, opus_encoder_create, opus_encoder_destroy,
};

use super::Encode;
use crate::SAMPLE_RATE;

/// Samples per packet of 20 ms.
const FRAME: usize = 320;
/// The same at 48 kHz, the unit of Ogg positions.
const FRAME_48: u64 = 960;
/// Look-ahead of the encoder at 48 kHz, which players skip (RFC 7845 section 4.2): 6.5 ms, as in libopus at every
/// sample rate.
const PRE_SKIP: u16 = 312;
/// Maximum bytes of a packet of 20 ms (RFC 6716).
const PACKET_BYTES_MAX: usize = 1_275;
/// Packets per page: a third of a second, so that audio is sent while it is generated.
const PACKETS_A_PAGE: u64 = 16;
/// Serial number of the only stream in the file; any number is valid.
const SERIAL: u32 = 1;

pub(super) struct Opus {
    encoder: Encoder,
    pages: PacketWriter<'static, Vec<u8>>,
    /// Samples that do not fill a packet yet.
    waiting: Vec<i16>,
    packets: u64,
    samples: u64,
    begun: bool,
}

impl Opus {
    pub(super) fn new() -> Option<Self> {
        Some(Self {
            encoder: Encoder::new()?,
            pages: PacketWriter::new(Vec::new()),
            waiting: Vec::new(),
            packets: 0,
            samples: 0,
            begun: false,
        })
    }

    fn begin(&mut self) -> Option<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Some(());
        }
        let mut head = b"OpusHead\x01\x01".to_vec();
        head.extend_from_slice(&PRE_SKIP.to_le_bytes());
        head.extend_from_slice(&SAMPLE_RATE.to_le_bytes());
        // No gain, and channel mapping family 0: mono or stereo.
        head.extend_from_slice(&[0, 0, 0]);
        let mut tags = b"OpusTags".to_vec();
        tags.extend_from_slice(&5_u32.to_le_bytes());
        tags.extend_from_slice(b"llmgw");
        tags.extend_from_slice(&0_u32.to_le_bytes());
        for header in [head, tags] {
            self.pages.write_packet(header, SERIAL, PacketWriteEndInfo::EndPage, 0).ok()?;
        }
        Some(())
    }

    /// Encodes the first packet of the waiting samples.
    fn packet(&mut self, last: bool) -> Option<()> {
        let mut frame: Vec<i16> = self.waiting.drain(..self.waiting.len().min(FRAME)).collect();
        frame.resize(FRAME, 0);
        let packet = self.encoder.encode(&frame)?;
        self.packets += 1;
        let whole = self.packets * FRAME_48;
        let (end, position) = if last {
            // The position of the last page cuts off the padding of its last packet.
            (PacketWriteEndInfo::EndStream, whole.min(self.samples * 3 + u64::from(PRE_SKIP)))
        } else if self.packets.is_multiple_of(PACKETS_A_PAGE) {
            (PacketWriteEndInfo::EndPage, whole)
        } else {
            (PacketWriteEndInfo::NormalPacket, whole)
        };
        self.pages.write_packet(packet, SERIAL, end, position).ok()
    }
}

impl Encode for Opus {
    fn encode(&mut self, samples: &[i16], out: &mut Vec<u8>) -> Option<()> {
        self.begin()?;
        self.waiting.extend_from_slice(samples);
        self.samples += samples.len() as u64;
        // Keeps at least one sample for the final packet.
        while self.waiting.len() > FRAME {
            self.packet(false)?;
        }
        out.append(self.pages.inner_mut());
        Some(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Option<()> {
        self.begin()?;
        // Padding that flushes the encoder's look-ahead.
        self.waiting.extend_from_slice(&[0; FRAME]);
        while self.waiting.len() > FRAME {
            self.packet(false)?;
        }
        self.packet(true)?;
        out.append(self.pages.inner_mut());
        Some(())
    }
}

/// libopus's encoder, in a Rust translation of its C source.
struct Encoder(*mut OpusEncoder);

#[expect(unsafe_code, reason = "the translation of libopus has no safe door")]
impl Encoder {
    fn new() -> Option<Self> {
        let mut status = 0;
        let rate = i32::try_from(SAMPLE_RATE).ok()?;
        // SAFETY: takes numbers, writes one through a valid pointer, and returns null or a new encoder.
        let encoder = unsafe { opus_encoder_create(rate, 1, OPUS_APPLICATION_AUDIO, &raw mut status) };
        (status == OPUS_OK && !encoder.is_null()).then_some(Self(encoder))
    }

    fn encode(&mut self, frame: &[i16]) -> Option<Vec<u8>> {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        let (samples, room) = (i32::try_from(frame.len()).ok()?, i32::try_from(packet.len()).ok()?);
        // SAFETY: the encoder lives as long as `self`; `frame` has the given number of samples, for one channel, and
        // `packet` the given number of bytes.
        let length = unsafe { opus_encode(self.0, frame.as_ptr(), samples, packet.as_mut_ptr(), room) };
        packet.truncate(usize::try_from(length).ok().filter(|length| *length > 0)?);
        Some(packet)
    }
}

#[expect(unsafe_code, reason = "the translation of libopus has no safe door")]
impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: created by `opus_encoder_create`, and not used afterwards.
        unsafe { opus_encoder_destroy(self.0) };
    }
}
