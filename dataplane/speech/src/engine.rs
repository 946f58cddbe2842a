//! One speech engine with one loaded voice. It stays on the thread that created it.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use ttspico::{Engine, EngineResetMode, EngineStatus, PicoError, System};

use crate::voice::Voice;

/// Memory of one engine in bytes, as in the sample program of its vendor.
const MEMORY_BYTES: usize = 2_500_000;
/// Maximum samples per call of the engine.
const STEP_SAMPLES: usize = 1_024;
/// The engine's speed range, in percent.
const SPEED_PERCENT: std::ops::RangeInclusive<u32> = 20..=500;

/// An engine with one loaded voice.
pub(crate) struct Speaker {
    engine: Engine,
    pub(crate) voice: &'static Voice,
}

impl Speaker {
    /// Loads `voice` from `folder`.
    pub(crate) fn new(folder: &Path, voice: &'static Voice) -> Result<Self, PicoError> {
        clear_next_allocation();
        let system = System::new(MEMORY_BYTES)?;
        let definition = System::create_voice(Rc::clone(&system), voice.id)?;
        for resource in &voice.resources {
            let path = folder.join(resource.file);
            let loaded = System::load_resource(Rc::clone(&system), path.to_string_lossy())?;
            definition.borrow_mut().add_resource(loaded)?;
        }
        let engine = engine(definition)?;
        Ok(Self { engine, voice })
    }

    /// Synthesizes one piece of clean text at `percent` of the normal speed. `receive` receives the samples and returns
    /// false to stop; the result is then false.
    pub(crate) fn synthesize(
        &mut self,
        piece: &str,
        percent: u32,
        receive: &mut dyn FnMut(&[i16]) -> bool,
    ) -> Result<bool, PicoError> {
        let percent = percent.clamp(*SPEED_PERCENT.start(), *SPEED_PERCENT.end());
        // The NUL at the end marks the end of the input.
        let text = format!("<speed level=\"{percent}\">{piece}</speed>\0");
        let mut unread = text.as_bytes();
        let mut samples = [0_i16; STEP_SAMPLES];
        while !unread.is_empty() {
            let read = self.engine.put_text(unread)?;
            unread = unread.get(read..).unwrap_or_default();
            loop {
                let (count, status) = self.engine.get_data(samples.as_mut_slice())?;
                if count > 0 && !receive(samples.get(..count).unwrap_or_default()) {
                    self.engine.reset(EngineResetMode::Soft)?;
                    return Ok(false);
                }
                if status == EngineStatus::Idle {
                    break;
                }
            }
        }
        Ok(true)
    }
}

/// Fills with zeros the memory that the engine is about to get. The engine reads parts of its memory that it has not
/// written, and `System::new` does not initialize it, so the length of the same text differed by more than a tenth.
/// Allocators return the block of this size that was freed last.
fn clear_next_allocation() {
    drop(std::hint::black_box(vec![0_u8; MEMORY_BYTES]));
}

/// Creates the engine of a voice that has both its resources.
fn engine(voice: Rc<RefCell<ttspico::Voice>>) -> Result<Engine, PicoError> {
    // SAFETY: the only condition is that the text analysis and the signal generation of the voice have been loaded and
    // added; `Speaker::new` has just added both and would have returned if either had failed.
    #[expect(unsafe_code, reason = "the engine has no other constructor")]
    unsafe {
        ttspico::Voice::create_engine(voice)
    }
}
