//! The default connection limit: less than half of the descriptor limit, because a relayed request holds two
//! descriptors (LIM-5).

/// Returns the default limit of open client connections.
pub(super) fn connections_max() -> usize {
    std::fs::read_to_string("/proc/self/limits")
        .ok()
        .and_then(|limits| of_limits(&limits))
        .unwrap_or(FALLBACK)
}

fn of_limits(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = line.split_whitespace().next()?;
    if soft == "unlimited" {
        return Some(MAX);
    }
    let descriptors: usize = soft.parse().ok()?;
    Some((descriptors / 2).saturating_sub(RESERVE).clamp(MIN, MAX))
}

/// Used where the limit cannot be read: half of the usual 1,024, less the reserve.
const FALLBACK: usize = 1_024 / 2 - RESERVE;
/// Descriptors reserved for files, listeners and the like.
const RESERVE: usize = 32;
const MIN: usize = 16;
const MAX: usize = 262_144;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_limit_stays_below_half_of_the_descriptor_limit() {
        let cases = [
            ("Max open files            1024                 524288               files", Some(480)),
            ("x\nMax open files            1048576              1048576              files\n", Some(262_144)),
            ("Max open files            unlimited            unlimited            files", Some(262_144)),
            ("Max open files            20                   20                   files", Some(16)),
            ("Max locked memory         8388608              8388608              bytes", None),
            ("Max open files", None),
        ];
        for (limits, want) in cases {
            assert_eq!(of_limits(limits), want, "{limits}");
        }
        assert!(connections_max() >= MIN);
    }
}
