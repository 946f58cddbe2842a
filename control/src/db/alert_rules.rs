//! The table `alert_rules`: the conditions that raise alerts.

use serde::{Deserialize, Serialize};

use super::names::{Labels, object_name};
use crate::db::engine::{Db, DbError, DbResult, Row, named_params};

/// The kind of an alert and of its events (ADM-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum AlertKind {
    QuotaWarning,
    QuotaExhausted,
    KeyExpiring,
    ProviderDown,
    ProviderRecovered,
    CredentialExpiring,
    CredentialBroken,
    CertificateExpiring,
    SpendAnomaly,
    CatalogDrift,
    ConfigReloadFailed,
    DiskLow,
    BackupFailed,
    NodeLost,
    NodeSkew,
    ShippingBehind,
}

impl AlertKind {
    /// All kinds with their names.
    pub(crate) const ALL: [(&'static str, Self); 16] = [
        ("quota_warning", Self::QuotaWarning),
        ("quota_exhausted", Self::QuotaExhausted),
        ("key_expiring", Self::KeyExpiring),
        ("provider_down", Self::ProviderDown),
        ("provider_recovered", Self::ProviderRecovered),
        ("credential_expiring", Self::CredentialExpiring),
        ("credential_broken", Self::CredentialBroken),
        ("certificate_expiring", Self::CertificateExpiring),
        ("spend_anomaly", Self::SpendAnomaly),
        ("catalog_drift", Self::CatalogDrift),
        ("config_reload_failed", Self::ConfigReloadFailed),
        ("disk_low", Self::DiskLow),
        ("backup_failed", Self::BackupFailed),
        ("node_lost", Self::NodeLost),
        ("node_skew", Self::NodeSkew),
        ("shipping_behind", Self::ShippingBehind),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Returns the kind in words, as the title of an alert.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::QuotaWarning => "Quota nearly used up",
            Self::QuotaExhausted => "Quota used up",
            Self::KeyExpiring => "Key expires",
            Self::ProviderDown => "Provider down",
            Self::ProviderRecovered => "Provider works again",
            Self::CredentialExpiring => "Credential expires",
            Self::CredentialBroken => "Credential rejected",
            Self::CertificateExpiring => "Certificate expires",
            Self::SpendAnomaly => "Unusual spending",
            Self::CatalogDrift => "Model no longer listed",
            Self::ConfigReloadFailed => "Changed configuration is invalid",
            Self::DiskLow => "Disk nearly full",
            Self::BackupFailed => "Backup failed",
            Self::NodeLost => "Node lost",
            Self::NodeSkew => "Node differs from the others",
            Self::ShippingBehind => "Usage is not stored",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// The urgency of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// A person should look at it during the day.
    Warn,
    /// A person must act.
    Bad,
}

impl Severity {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        if name == "warn" { Self::Warn } else { Self::Bad }
    }
}

/// A rule, as stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "StoredAlertRule"))]
pub(crate) struct AlertRule {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) kind: AlertKind,
    /// The objects that the rule concerns, as alerts name them; null for all.
    pub(crate) objects: Option<Vec<String>>,
    /// Its meaning depends on the kind: per cent of a limit (`quota_warning`), days before the end (`key_expiring`,
    /// `certificate_expiring`), hours before the end (`credential_expiring`), times the upper bound of usual spending
    /// (`spend_anomaly`), per cent of free space (`disk_low`), minutes that usage waits (`shipping_behind`). Null for other
    /// kinds.
    pub(crate) threshold: Option<f64>,
    /// For `spend_anomaly`: spending of an hour up to this amount is never an anomaly, in micro-dollars. Null for other
    /// kinds.
    pub(crate) floor_micro_usd: Option<u64>,
    pub(crate) severity: Severity,
    /// The time for which a condition must hold before an alert opens.
    pub(crate) hold_seconds: u32,
    /// The time for which a condition must be absent before its alert is resolved.
    pub(crate) clear_seconds: u32,
    /// False if the rule raises no alerts; its open ones are resolved.
    pub(crate) enabled: bool,
    /// Grows with each change; the `ETag` of the object.
    pub(crate) version: u64,
    /// In milliseconds since the Unix epoch; 0 for a built-in rule.
    pub(crate) created_at_ms: u64,
    /// In milliseconds since the Unix epoch; 0 for a built-in rule that was never changed.
    pub(crate) updated_at_ms: u64,
}

impl AlertRule {
    fn of(row: Row<'_>) -> DbResult<Self> {
        let (kind, severity): (String, String) = (row.get("kind")?, row.get("severity")?);
        let objects: Option<String> = row.get("objects")?;
        Ok(Self {
            id: row.get("id")?,
            name: row.get("name")?,
            kind: AlertKind::named(&kind)
                .ok_or_else(|| DbError::bad_value("an alert rule of an unknown kind"))?,
            objects: objects.map(|objects| serde_json::from_str(&objects).unwrap_or_default()),
            threshold: row.get("threshold")?,
            floor_micro_usd: row.get("floor_micro_usd")?,
            severity: Severity::named(&severity),
            hold_seconds: row.get("hold_seconds")?,
            clear_seconds: row.get("clear_seconds")?,
            enabled: row.get("enabled")?,
            version: row.get("version")?,
            created_at_ms: row.get("created_at_ms")?,
            updated_at_ms: row.get("updated_at_ms")?,
        })
    }
}

/// A rule, as the API shows it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AlertRule"))]
pub(crate) struct ShownRule {
    #[serde(flatten)]
    rule: AlertRule,
    /// The names of `objects` in their order, for a limit that of its subject; the ID of one without a name. Null for all.
    object_names: Option<Vec<String>>,
}

impl ShownRule {
    /// Adds the names of its objects to `rule`.
    pub(crate) fn of(db: &Db, labels: &mut Labels, rule: AlertRule) -> DbResult<Self> {
        let name = |object: &String| object_name(db, labels, object);
        let names = rule.objects.as_ref().map(|objects| objects.iter().map(name).collect());
        Ok(Self { object_names: names.transpose()?, rule })
    }
}

/// Returns all rules; there are at most [`RULES_MAX`].
pub(crate) fn all(db: &Db) -> DbResult<Vec<AlertRule>> {
    db.rows(ALL, (), AlertRule::of)
}

pub(crate) fn find(db: &Db, id: &str) -> DbResult<Option<AlertRule>> {
    db.optional_row(FIND, [id], AlertRule::of)
}

/// Inserts a new row, or stores the next version of one.
pub(crate) fn put(tx: &Db, rule: &AlertRule) -> DbResult<()> {
    tx.execute(
        PUT,
        named_params! {
            ":id": rule.id,
            ":name": rule.name,
            ":kind": rule.kind.name(),
            ":objects": rule.objects.as_ref().map(|objects| serde_json::json!(objects).to_string()),
            ":threshold": rule.threshold,
            ":floor": rule.floor_micro_usd,
            ":severity": rule.severity.name(),
            ":hold": rule.hold_seconds,
            ":clear": rule.clear_seconds,
            ":enabled": rule.enabled,
            ":version": rule.version,
            ":created": rule.created_at_ms,
            ":updated": rule.updated_at_ms,
        },
    )?;
    Ok(())
}

pub(crate) fn delete(tx: &Db, id: &str) -> DbResult<()> {
    tx.execute(DELETE, [id])?;
    Ok(())
}

/// The maximum number of rules.
pub(crate) const RULES_MAX: usize = 200;
const ALL: &str = "SELECT * FROM alert_rules ORDER BY id";
const FIND: &str = "SELECT * FROM alert_rules WHERE id = :id";
const PUT: &str = "INSERT INTO alert_rules (id, name, kind, objects, threshold, floor_micro_usd, severity, hold_seconds, \
     clear_seconds, enabled, version, created_at_ms, updated_at_ms) VALUES (:id, :name, :kind, :objects, :threshold, :floor, \
     :severity, :hold, :clear, :enabled, :version, :created, :updated) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, objects = excluded.objects, threshold = excluded.threshold, \
     floor_micro_usd = excluded.floor_micro_usd, severity = excluded.severity, hold_seconds = excluded.hold_seconds, \
     clear_seconds = excluded.clear_seconds, enabled = excluded.enabled, version = excluded.version, \
     updated_at_ms = excluded.updated_at_ms";
const DELETE: &str = "DELETE FROM alert_rules WHERE id = :id";
