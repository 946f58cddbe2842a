//! Raw samples at 24 kHz: resampled from the engine's rate by 3/2 with a windowed sinc filter.

use std::f32::consts::PI;

use super::{Encode, put_samples};

/// Input samples per output sample.
const TAPS: usize = 24;
const UP: usize = 3;
const DOWN: usize = 2;

#[derive(Debug)]
pub(super) struct Pcm {
    /// Filter weights for each of the three positions between two input samples.
    phases: [[f32; TAPS]; UP],
    /// The latest input samples, oldest first.
    window: [f32; TAPS],
    /// Position of the next output sample after the newest input sample, in thirds of an input sample.
    ahead: usize,
}

impl Default for Pcm {
    fn default() -> Self {
        let mut phases = [[0.0; TAPS]; UP];
        for (phase, weights) in phases.iter_mut().enumerate() {
            for (tap, weight) in weights.iter_mut().enumerate() {
                *weight = weigh(tap, phase);
            }
            let sum: f32 = weights.iter().sum();
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        Self { phases, window: [0.0; TAPS], ahead: 0 }
    }
}

/// Returns the weight of window sample `tap` for a position `phase` thirds after the middle of the window.
fn weigh(tap: usize, phase: usize) -> f32 {
    let middle = TAPS as f32 / 2.0 - 1.0;
    let distance = tap as f32 - middle - phase as f32 / UP as f32;
    let sinc = if distance.abs() < 1e-6 { 1.0 } else { (PI * distance).sin() / (PI * distance) };
    // Blackman window.
    let place = (tap as f32 + 0.5 - phase as f32 / UP as f32) / TAPS as f32;
    let window = 0.42 - 0.5 * (2.0 * PI * place).cos() + 0.08 * (4.0 * PI * place).cos();
    sinc * window
}

impl Encode for Pcm {
    fn encode(&mut self, samples: &[i16], out: &mut Vec<u8>) -> Option<()> {
        let mut made = Vec::with_capacity(samples.len() * UP / DOWN + 1);
        for sample in samples {
            self.window.rotate_left(1);
            if let Some(newest) = self.window.last_mut() {
                *newest = f32::from(*sample);
            }
            while let Some(weights) = self.phases.get(self.ahead) {
                let sum: f32 = weights.iter().zip(&self.window).map(|(weight, sample)| weight * sample).sum();
                made.push(rounded(sum));
                self.ahead += DOWN;
            }
            self.ahead -= UP;
        }
        put_samples(&made, out);
        Some(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Option<()> {
        self.encode(&[0; TAPS / 2], out)
    }
}

#[expect(clippy::as_conversions, clippy::cast_possible_truncation, reason = "clamped to what fits")]
fn rounded(sample: f32) -> i16 {
    sample.round().clamp(f32::from(i16::MIN), f32::from(i16::MAX)) as i16
}
