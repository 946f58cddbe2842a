//! What a binary is.

/// What was built, when and from what; shown by `/health`, `GET /admin/api/state` and `llmgw version`
/// (HEALTH-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BuildIdentity {
    /// The release.
    pub version: &'static str,
    /// The git commit, or `unknown`.
    pub commit: &'static str,
    /// When, in RFC 3339.
    pub built_at: &'static str,
    /// The target triple.
    pub target: &'static str,
}
