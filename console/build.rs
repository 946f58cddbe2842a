//! Compresses the console's assets at build time: each text file of `dist/assets` gets a `.br` and a `.gz` in `OUT_DIR`, and
//! `OUT_DIR/packed.rs` is a table of their names and contents, in the order of the names.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

#[expect(clippy::disallowed_methods, reason = "Cargo passes the folder in the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=dist");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let mut names = Vec::new();
    for entry in fs::read_dir("dist/assets")? {
        let path = entry?.path();
        // Fonts are compressed already.
        if path.extension().and_then(OsStr::to_str).is_some_and(|kind| ["css", "js", "svg"].contains(&kind)) {
            names.extend(pack(&path, &out)?);
        }
    }
    names.sort();
    let line = |name: &String| {
        format!(
            "({:?}, include_bytes!({:?})),\n",
            format!("assets/{name}"),
            out.join(name).display().to_string()
        )
    };
    let lines: String = names.iter().map(line).collect();
    Ok(fs::write(out.join("packed.rs"), format!("&[\n{lines}]"))?)
}

/// Writes the compressed forms of a file and returns their names.
fn pack(path: &Path, out: &Path) -> Result<[String; 2], Box<dyn Error>> {
    let name = path.file_name().and_then(OsStr::to_str).ok_or("a name in dist/assets is not UTF-8")?;
    let text = fs::read(path)?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&text)?;
    let mut brotli = Vec::new();
    {
        let mut writer =
            brotli::CompressorWriter::new(&mut brotli, BUFFER_BYTES, BROTLI_QUALITY, BROTLI_WINDOW);
        writer.write_all(&text)?;
    }
    let names = [format!("{name}.br"), format!("{name}.gz")];
    for (name, bytes) in names.iter().zip([brotli, gzip.finish()?]) {
        fs::write(out.join(name), bytes)?;
    }
    Ok(names)
}

const BUFFER_BYTES: usize = 64 << 10;
/// The highest quality: files are compressed once and sent often.
const BROTLI_QUALITY: u32 = 11;
/// The base 2 logarithm of the window: 4 MiB, more than the largest file.
const BROTLI_WINDOW: u32 = 22;
