//! RIFF WAVE. Its length fields contain the value for an unknown length, as usual for streams.

use super::{Encode, put_samples};
use crate::SAMPLE_RATE;

#[derive(Debug, Default)]
pub(super) struct Wav {
    begun: bool,
}

impl Wav {
    fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let unknown = u32::MAX.to_le_bytes();
        let (channels, bits) = (1_u16, 16_u16);
        let bytes_a_second = SAMPLE_RATE * 2;
        out.extend_from_slice(b"RIFF");
        out.extend_from_slice(&unknown);
        out.extend_from_slice(b"WAVEfmt ");
        out.extend_from_slice(&16_u32.to_le_bytes());
        // Format 1: uncompressed PCM.
        out.extend_from_slice(&1_u16.to_le_bytes());
        out.extend_from_slice(&channels.to_le_bytes());
        out.extend_from_slice(&SAMPLE_RATE.to_le_bytes());
        out.extend_from_slice(&bytes_a_second.to_le_bytes());
        out.extend_from_slice(&2_u16.to_le_bytes());
        out.extend_from_slice(&bits.to_le_bytes());
        out.extend_from_slice(b"data");
        out.extend_from_slice(&unknown);
    }
}

impl Encode for Wav {
    fn encode(&mut self, samples: &[i16], out: &mut Vec<u8>) -> Option<()> {
        self.begin(out);
        put_samples(samples, out);
        Some(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Option<()> {
        self.begin(out);
        Some(())
    }
}
