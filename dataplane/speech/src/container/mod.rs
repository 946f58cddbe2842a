//! Encoders of audio samples into the response formats.

mod mp3;
mod opus;
mod pcm;
mod wav;

/// The audio formats that a speech request may select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// MPEG layer III, 16 kHz, mono.
    Mp3,
    /// Opus in Ogg.
    Opus,
    /// RIFF with 16-bit samples, 16 kHz, mono.
    Wav,
    /// Raw little-endian 16-bit samples, 24 kHz, mono, as OpenAI sends them.
    Pcm,
}

impl Container {
    /// All formats, the default first.
    pub const ALL: [Self; 4] = [Self::Mp3, Self::Opus, Self::Wav, Self::Pcm];

    /// Returns the `response_format` value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mp3 => "mp3",
            Self::Opus => "opus",
            Self::Wav => "wav",
            Self::Pcm => "pcm",
        }
    }

    /// Returns the `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Mp3 => "audio/mpeg",
            Self::Opus => "audio/ogg",
            Self::Wav => "audio/wav",
            Self::Pcm => "audio/pcm",
        }
    }

    /// Returns the format with this `response_format` value.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|container| container.name() == name)
    }

    pub(crate) fn encoder(self) -> Option<Box<dyn Encode>> {
        Some(match self {
            Self::Mp3 => Box::new(mp3::Mp3::new()?),
            Self::Opus => Box::new(opus::Opus::new()?),
            Self::Wav => Box::new(wav::Wav::default()),
            Self::Pcm => Box::new(pcm::Pcm::default()),
        })
    }
}

/// Encodes samples incrementally and appends the output to `out`. `None` means that the encoder failed.
pub(crate) trait Encode {
    fn encode(&mut self, samples: &[i16], out: &mut Vec<u8>) -> Option<()>;
    fn finish(&mut self, out: &mut Vec<u8>) -> Option<()>;
}

fn put_samples(samples: &[i16], out: &mut Vec<u8>) {
    out.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
}

#[cfg(test)]
mod tests;
