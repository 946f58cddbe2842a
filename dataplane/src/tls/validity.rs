//! The time in which a certificate is valid, read from its DER form (RFC 5280 section 4.1). rustls judges the certificates of
//! others, but not one's own.

/// The limits, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: u64,
    pub(super) not_after: u64,
}

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The tag of the version, the only optional member before the validity.
const VERSION: u8 = 0xa0;

/// Returns the validity of a certificate; `None` if its form is unknown.
pub(super) fn validity(certificate: &[u8]) -> Option<Validity> {
    let mut certificate = Der(certificate).element(SEQUENCE)?;
    let mut signed = certificate.element(SEQUENCE)?;
    if signed.0.first() == Some(&VERSION) {
        signed.next()?;
    }
    // The serial number, the algorithm of the signature, and the issuer.
    for _ in 0..3 {
        signed.next()?;
    }
    let mut validity = signed.element(SEQUENCE)?;
    let [not_before, not_after] = [validity.time()?, validity.time()?];
    Some(Validity { not_before, not_after })
}

/// The rest of a sequence of DER elements.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Returns the tag and the content of the next element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // Longer lengths than four bytes belong to no certificate.
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn element(&mut self, tag: u8) -> Option<Self> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| Self(content))
    }

    /// Returns the next element, which is a time, in seconds since the Unix epoch.
    fn time(&mut self) -> Option<u64> {
        let (tag, content) = self.next()?;
        let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
        let text = match tag {
            // Two digits of the year, from 1950 to 2049.
            UTC_TIME if text.len() == 12 => format!("{}{text}", if text < "5" { "20" } else { "19" }),
            GENERALIZED_TIME => text.to_owned(),
            _ => return None,
        };
        let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", &text).ok()?;
        let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        // Before the epoch is as good as at its beginning.
        Some(u64::try_from(time.timestamp().as_second()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let bytes = u16::try_from(length).unwrap().to_be_bytes();
        let head = if length < 0x80 { vec![tag, bytes[1]] } else { vec![tag, 0x82, bytes[0], bytes[1]] };
        [head, content.to_vec()].concat()
    }

    fn certificate(version: &[u8], times: [(u8, &str); 2]) -> Vec<u8> {
        let times: Vec<u8> = times.iter().flat_map(|(tag, text)| element(*tag, text.as_bytes())).collect();
        let before =
            [version, &element(2, &[7]), &element(SEQUENCE, &[]), &element(SEQUENCE, &[1; 200])].concat();
        let signed = [before, element(SEQUENCE, &times), element(SEQUENCE, &[2; 300])].concat();
        element(SEQUENCE, &[element(SEQUENCE, &signed), element(3, &[0; 64])].concat())
    }

    #[test]
    fn both_forms_of_times_are_read() {
        let version = element(VERSION, &element(2, &[2]));
        let der = certificate(&version, [(UTC_TIME, "700101000010Z"), (UTC_TIME, "491231235959Z")]);
        assert_eq!(validity(&der), Some(Validity { not_before: 10, not_after: 2_524_607_999 }));
        let der = certificate(&[], [(UTC_TIME, "500101000000Z"), (GENERALIZED_TIME, "20500101000000Z")]);
        assert_eq!(validity(&der), Some(Validity { not_before: 0, not_after: 2_524_608_000 }));
    }

    #[test]
    fn what_is_no_certificate_has_no_validity() {
        let der = certificate(&[], [(UTC_TIME, "700101000010Z"), (UTC_TIME, "491231235959Z")]);
        assert!((0..der.len()).all(|cut| validity(&der[..cut]).is_none()));
        for (tag, text) in [(4, "700101000010Z"), (UTC_TIME, "700101000010"), (UTC_TIME, "701301000010Z")] {
            assert_eq!(
                validity(&certificate(&[], [(tag, text), (UTC_TIME, "491231235959Z")])),
                None,
                "{text}"
            );
        }
        assert_eq!(validity(&[SEQUENCE, 0x85, 1, 1, 1, 1, 1]), None);
        assert_eq!(validity(&[SEQUENCE, 0x80]), None);
    }
}
