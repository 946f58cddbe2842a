//! The build identity of a binary.

/// The version, commit, time and target of a build; reported by `/health`, `GET /admin/api/state` and `llmgw version`
/// (HEALTH-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BuildIdentity {
    /// The release version.
    pub version: &'static str,
    /// The git commit, or `unknown`.
    pub commit: &'static str,
    /// The time of the build, in RFC 3339.
    pub built_at: &'static str,
    /// The target triple.
    pub target: &'static str,
}
