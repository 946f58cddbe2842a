//! The six voices, and their OpenAI aliases.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A voice: one language and one speaker.
#[derive(Debug)]
pub struct Voice {
    /// The voice's name, which is its language code.
    pub id: &'static str,
    /// The language as displayed.
    pub language: &'static str,
    /// OpenAI voice names that select this voice.
    pub aliases: &'static [&'static str],
    /// Text analysis and signal generation, which the engine loads from files.
    pub(crate) resources: [Resource; 2],
}

/// One of the engine's files.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) file: &'static str,
    bytes: &'static [u8],
}

macro_rules! resource {
    ($file:literal) => {
        Resource { file: $file, bytes: include_bytes!(concat!("../data/", $file)) }
    };
}

/// All voices, the default first.
pub static VOICES: [Voice; 6] = [
    Voice {
        id: "en-US",
        language: "English (United States)",
        aliases: &["alloy", "ash", "coral", "echo", "nova", "shimmer", "marin", "verse"],
        resources: [resource!("en-US_ta.bin"), resource!("en-US_lh0_sg.bin")],
    },
    Voice {
        id: "en-GB",
        language: "English (United Kingdom)",
        aliases: &["ballad", "fable", "onyx", "sage", "cedar"],
        resources: [resource!("en-GB_ta.bin"), resource!("en-GB_kh0_sg.bin")],
    },
    Voice {
        id: "de-DE",
        language: "German",
        aliases: &[],
        resources: [resource!("de-DE_ta.bin"), resource!("de-DE_gl0_sg.bin")],
    },
    Voice {
        id: "es-ES",
        language: "Spanish",
        aliases: &[],
        resources: [resource!("es-ES_ta.bin"), resource!("es-ES_zl0_sg.bin")],
    },
    Voice {
        id: "fr-FR",
        language: "French",
        aliases: &[],
        resources: [resource!("fr-FR_ta.bin"), resource!("fr-FR_nk0_sg.bin")],
    },
    Voice {
        id: "it-IT",
        language: "Italian",
        aliases: &[],
        resources: [resource!("it-IT_ta.bin"), resource!("it-IT_cm0_sg.bin")],
    },
];

/// Returns the voice with this name or OpenAI alias, ignoring case.
pub fn named(name: &str) -> Option<&'static Voice> {
    VOICES.iter().find(|voice| {
        voice.id.eq_ignore_ascii_case(name)
            || voice.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
    })
}

/// Writes the files of all voices to `folder` unless they exist with the right content.
pub(crate) fn install(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for resource in VOICES.iter().flat_map(|voice| &voice.resources) {
        let path = folder.join(resource.file);
        if std::fs::read(&path).is_ok_and(|bytes| bytes == resource.bytes) {
            continue;
        }
        // Written under a temporary name first: a truncated file would crash the engine.
        let draft = folder.join(format!("{}.new", resource.file));
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(resource.bytes)?;
        std::fs::rename(&draft, &path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voice_is_found_by_its_id_and_aliases() {
        for (name, id) in [("alloy", "en-US"), ("Onyx", "en-GB"), ("DE-de", "de-DE"), ("it-IT", "it-IT")] {
            assert_eq!(named(name).unwrap().id, id);
        }
        assert!(named("nobody").is_none());
    }

    #[test]
    fn voice_files_are_written_once_and_repaired_if_damaged() {
        let folder = tempfile::tempdir().unwrap();
        install(folder.path()).unwrap();
        let broken = folder.path().join("en-US_ta.bin");
        std::fs::write(&broken, b"short").unwrap();
        install(folder.path()).unwrap();
        assert_eq!(std::fs::read(&broken).unwrap(), VOICES[0].resources[0].bytes);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 12);
    }
}
