//! Checks the invariants in `hold` with the fuzz corpus and with a few inputs, cut at every byte.
#![expect(clippy::indexing_slicing, clippy::expect_used, reason = "a test may")]

mod hold;

use std::fs;

#[test]
fn damaged_bytes_are_rejected_and_valid_ones_survive_a_round_trip() {
    // The length of a name takes two bytes where one would suffice.
    let odd_record = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\x80\0\x5d\0\0\0\0\0\xff\x02\x07\0";
    let mut inputs: Vec<Vec<u8>> =
        [&b""[..], b"\0", b"\xff\xfe\xffw\x01\0\0\0abcd", odd_record].map(Vec::from).into();
    for entry in fs::read_dir(CORPUS).unwrap() {
        inputs.push(fs::read(entry.unwrap().path()).unwrap());
    }
    assert!(inputs.len() > 4, "the corpus is empty");
    for input in inputs {
        for cut in 0..=input.len() {
            hold::journal(&input[..cut]);
            hold::records(&input[..cut]);
        }
    }
}

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/records");
