//! Compresses `openapi.json` into `OUT_DIR`, without its line breaks and indents.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;

#[expect(clippy::disallowed_methods, reason = "Cargo passes the folder in the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FILE}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let text = fs::read_to_string(FILE)?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    for line in text.lines() {
        packed.write_all(line.trim_start().as_bytes())?;
    }
    Ok(fs::write(out.join("openapi.json.gz"), packed.finish()?)?)
}

const FILE: &str = "openapi.json";
