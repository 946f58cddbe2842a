//! Request ids (FAIL-7).

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};

use http::HeaderValue;
use shared::hex;

/// Generates the request ids of one worker: the first half differs between workers and processes, the second half within a worker.
#[derive(Debug)]
pub(crate) struct RequestIds {
    worker: u64,
    number: Cell<u64>,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        let random = RandomState::new();
        Self { worker: random.hash_one(0_u8), number: Cell::new(random.hash_one(1_u8)) }
    }

    /// Generates an id: `req_` and 32 hexadecimal digits.
    pub(crate) fn next(&self) -> HeaderValue {
        // An odd step repeats a number only after 2^64 steps.
        let number = self.number.get().wrapping_add(STEP);
        self.number.set(number);
        let mut text = [0_u8; 36];
        let (prefix, digits) = text.split_at_mut(4);
        prefix.copy_from_slice(b"req_");
        hex::write([self.worker, number].map(u64::to_be_bytes).as_flattened(), digits);
        HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("req_"))
    }
}

/// 2^64 divided by the golden ratio, so that consecutive ids differ in all digits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
