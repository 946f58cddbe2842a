//! The serde names of an event's errors. [`shared::usage::Outcome`], [`shared::usage::Provenance`] and
//! [`shared::usage::StepResult`] define their own. The journal and the tables contain these names, so none of them may
//! ever change.

use shared::error_kind::ErrorKind;

/// Returns the name of an error.
pub fn error(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::BadHttp => "bad_http",
        ErrorKind::InvalidRequest => "invalid_request",
        ErrorKind::UnsupportedField => "unsupported_field",
        ErrorKind::UnsupportedRoute => "unsupported_route",
        ErrorKind::InvalidKey => "invalid_key",
        ErrorKind::Forbidden => "forbidden",
        ErrorKind::NotAllowed => "not_allowed",
        ErrorKind::PrivateProvider => "private_provider",
        ErrorKind::ForbiddenOrigin => "forbidden_origin",
        ErrorKind::NotFound => "not_found",
        ErrorKind::PreviousResponseNotFound => "previous_response_not_found",
        ErrorKind::InvalidEncryptedContent => "invalid_encrypted_content",
        ErrorKind::ModelNotFound => "model_not_found",
        ErrorKind::OperationNotFound => "operation_not_found",
        ErrorKind::MethodNotAllowed => "method_not_allowed",
        ErrorKind::Conflict => "conflict",
        ErrorKind::PreconditionFailed => "precondition_failed",
        ErrorKind::RequestTimeout => "request_timeout",
        ErrorKind::BodyTooLarge => "body_too_large",
        ErrorKind::UnsupportedEncoding => "unsupported_encoding",
        ErrorKind::UpgradeRequired => "upgrade_required",
        ErrorKind::QuotaExceeded => "quota_exceeded",
        ErrorKind::RateLimited => "rate_limited",
        ErrorKind::TooManySignIns => "too_many_sign_ins",
        ErrorKind::NotImplemented => "not_implemented",
        ErrorKind::NoEligibleTarget => "no_eligible_target",
        ErrorKind::BudgetExhausted => "budget_exhausted",
        ErrorKind::Overloaded => "overloaded",
        ErrorKind::DatabaseUnreachable => "database_unreachable",
        ErrorKind::Draining => "draining",
        ErrorKind::UpstreamUnreachable => "upstream_unreachable",
        ErrorKind::UpstreamTimeout => "upstream_timeout",
        ErrorKind::UpstreamInvalid => "upstream_invalid",
        ErrorKind::UpstreamStatus => "upstream_status",
        ErrorKind::UpstreamCut => "upstream_cut",
        ErrorKind::Cancelled => "cancelled",
        ErrorKind::Internal => "internal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use shared::usage::{Outcome, Provenance, StepResult};

    /// Checks every variant, using the list of names in serde's error for an unknown one.
    fn check<T: DeserializeOwned + Serialize + Copy>(name: fn(T) -> &'static str, count: usize) {
        let listed = serde_json::from_str::<T>("\"?\"").err().unwrap().to_string();
        let names: Vec<&str> = listed.split('`').skip(3).step_by(2).collect();
        assert_eq!(names.len(), count, "{listed}");
        for want in names {
            let variant: T = serde_json::from_value(want.into()).unwrap();
            assert_eq!(name(variant), want);
        }
    }

    #[test]
    fn record_names_match_the_serde_names() {
        check(Outcome::name, 5);
        check(Provenance::name, 4);
        check(StepResult::name, 25);
        check(error, 37);
    }
}
