//! The result of an exchange as its client noticed it.

use records::{Record, RecordName, Trace};

use super::attempts::was_tried;

/// The result of an exchange as its client noticed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeEnd {
    Completed,
    /// It failed for no fault of the client.
    Failed,
    /// Its answer broke off after output had started, or the process ended.
    Cut,
    Cancelled,
    /// It failed because of the request or because of a limit of the caller.
    Refused,
}

impl ExchangeEnd {
    pub(crate) fn of(record: &Record<'_>, trace: Trace<'_>) -> Self {
        match record.name(RecordName::Outcome) {
            "completed" => Self::Completed,
            "cancelled" => Self::Cancelled,
            "cut" | "interrupted" => Self::Cut,
            _ if is_fault_of_client(u64::from(record.status)) => Self::Refused,
            _ if (400..500).contains(&record.status) && !{ trace }.any(|step| was_tried(&step)) => {
                Self::Refused
            }
            _ => Self::Failed,
        }
    }
}

/// True for statuses that say that the request itself cannot be served, by whichever target.
pub(crate) fn is_fault_of_client(status: u64) -> bool {
    matches!(status, 400 | 413 | 415 | 422)
}
