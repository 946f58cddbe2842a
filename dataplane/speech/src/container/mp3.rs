//! MP3 by LAME, which accepts the engine's 16 kHz without resampling.

use mp3lame_encoder::{Bitrate, Builder, Encoder, FlushNoGap, MonoPcm, Quality, max_required_buffer_size};

use super::Encode;
use crate::SAMPLE_RATE;

pub(super) struct Mp3(Encoder);

/// Buffer space for the final flush, in bytes.
const LAST_BYTES: usize = 7_200;

impl Mp3 {
    pub(super) fn new() -> Option<Self> {
        let encoder = Builder::new()?
            .with_num_channels(1)
            .and_then(|builder| builder.with_sample_rate(SAMPLE_RATE))
            .and_then(|builder| builder.with_brate(Bitrate::Kbps48))
            .and_then(|builder| builder.with_quality(Quality::Good))
            // The tag would have to be written in front of the audio after all of it is encoded.
            .and_then(|builder| builder.with_to_write_vbr_tag(false))
            .and_then(Builder::build);
        encoder.ok().map(Self)
    }
}

impl Encode for Mp3 {
    fn encode(&mut self, samples: &[i16], out: &mut Vec<u8>) -> Option<()> {
        out.reserve(max_required_buffer_size(samples.len()));
        self.0.encode_to_vec(MonoPcm(samples), out).ok().map(|_| ())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Option<()> {
        out.reserve(LAST_BYTES);
        self.0.flush_to_vec::<FlushNoGap>(out).ok().map(|_| ())
    }
}
