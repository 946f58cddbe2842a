//! Tests that each format preserves the duration, and that the uncompressed formats preserve the signal.

use super::Container;

/// A tone of `seconds` at 440 Hz.
fn tone(seconds: f32) -> Vec<i16> {
    let count = (seconds * 16_000.0) as usize;
    (0..count)
        .map(|n| ((n as f32 * 440.0 / 16_000.0 * std::f32::consts::TAU).sin() * 9_000.0) as i16)
        .collect()
}

fn encode(container: Container, samples: &[i16]) -> Vec<u8> {
    let (mut encoder, mut out) = (container.encoder().unwrap(), Vec::new());
    for piece in samples.chunks(1_000) {
        encoder.encode(piece, &mut out).unwrap();
    }
    encoder.finish(&mut out).unwrap();
    out
}

#[test]
fn wave_files_hold_the_samples_after_the_header() {
    let samples = tone(0.5);
    let file = encode(Container::Wav, &samples);
    assert_eq!(
        (&file[..4], &file[8..16], file.len()),
        (&b"RIFF"[..], &b"WAVEfmt "[..], 44 + samples.len() * 2)
    );
    let read: Vec<i16> = file[44..].chunks(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect();
    assert_eq!(read, samples);
}

#[test]
fn pcm_output_is_the_same_tone_resampled_to_24_khz() {
    let bytes = encode(Container::Pcm, &tone(1.0));
    let samples: Vec<i16> = bytes.chunks(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect();
    assert!((24_000..24_040).contains(&samples.len()), "{}", samples.len());
    let rises = samples[2_000..22_000].windows(2).filter(|two| two[0] < 0 && two[1] >= 0).count();
    assert!((365..=368).contains(&rises), "{rises} waves in 20,000 samples of 440 Hz");
    let loudest = samples[2_000..22_000].iter().max().unwrap();
    assert!((8_900..=9_100).contains(loudest), "{loudest}");
}

#[test]
fn mp3_has_a_frame_for_every_576_samples() {
    let file = encode(Container::Mp3, &tone(2.0));
    // 48 kbit/s are 6,000 bytes per second.
    assert!((11_500..14_000).contains(&file.len()), "{}", file.len());
    assert_eq!((file[0], file[1] & 0xe0), (0xff, 0xe0), "a frame begins");
}

#[test]
fn opus_pages_hold_the_length_of_the_sound() {
    let samples = tone(1.0);
    let file = encode(Container::Opus, &samples);
    let mut reader = ogg::PacketReader::new(std::io::Cursor::new(file));
    let mut packets = Vec::new();
    while let Some(packet) = reader.read_packet().unwrap() {
        packets.push(packet);
    }
    assert!(packets[0].data.starts_with(b"OpusHead") && packets[1].data.starts_with(b"OpusTags"));
    let last = packets.last().unwrap();
    assert!(last.last_in_stream());
    assert_eq!(last.absgp_page(), 48_000 + 312);
    assert_eq!(packets.len() - 2, 51, "a second in packets of 20 ms, and what is looked ahead");
}

#[test]
fn empty_input_is_a_valid_file_in_each_format() {
    for container in Container::ALL {
        let file = encode(container, &[]);
        assert!(file.len() < 2_000, "{container:?}");
        assert_eq!(Container::named(container.name()), Some(container));
    }
}
