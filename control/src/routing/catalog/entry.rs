//! The catalog entry of one provider instance.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::evidence::{CatalogEvidence, CatalogFailure, Inference, ModelEvidence};
use super::listing::ListedModel;
use crate::common::bounds::TESTED_MODELS;

/// The catalog of one instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CatalogEntry {
    /// The URL of the model list. An instance that has moved to another URL does not use this entry.
    pub(crate) url: String,
    /// A keyed hash that distinguishes the credential of the evidence from others without revealing it.
    pub(crate) credential: String,
    pub(crate) evidence: CatalogEvidence,
    /// The evidence about single models, by id; at most [`TESTED_MODELS`].
    pub(crate) tested: BTreeMap<String, ModelEvidence>,
    /// The listed models, by id.
    pub(crate) models: BTreeMap<String, ListedModel>,
}

impl CatalogEntry {
    /// Returns the evidence about a model; `None` if it was never tested.
    pub(crate) fn tested(&self, model: &str) -> Option<ModelEvidence> {
        if let Some(evidence) = self.tested.get(model) {
            return Some(evidence.clone());
        }
        // Files of earlier releases contain only the model that was proven last.
        let Inference { proven_at_ms, model: proven, request_id, .. } = &self.evidence.inference;
        (proven.as_deref() == Some(model)).then(|| ModelEvidence {
            proven_at_ms: *proven_at_ms,
            request_id: request_id.clone(),
            last_error: None,
        })
    }

    /// Returns the time of the newest list and evidence.
    pub(crate) fn changed_at_ms(&self) -> u64 {
        let CatalogEvidence { reachable, catalog, inference } = &self.evidence;
        let failures = [&reachable.last_error, &catalog.last_error, &inference.last_error];
        let failed = failures.into_iter().flatten().map(|failure| failure.at_ms);
        let proven = [reachable.at_ms, catalog.synced_at_ms, inference.proven_at_ms].into_iter().flatten();
        let tested = self.tested.values().filter_map(ModelEvidence::tested_at_ms);
        failed.chain(proven).chain(tested).max().unwrap_or(0)
    }

    /// Stores the result of a test of `model`, in place of the oldest one if there are too many.
    pub(crate) fn learn(&mut self, model: &str, now_ms: u64, tested: Tested<'_>) {
        let inference = &mut self.evidence.inference;
        let mut evidence = self.tested.remove(model).unwrap_or_default();
        match tested {
            Tested::Completed { request_id } => {
                let proof = (Some(now_ms), Some(request_id.to_owned()));
                (evidence.proven_at_ms, evidence.request_id) = proof.clone();
                (inference.proven_at_ms, inference.request_id) = proof;
                inference.model = Some(model.to_owned());
                (evidence.last_error, inference.last_error) = (None, None);
            }
            Tested::Failed(failure) => {
                evidence.last_error = failure.cloned();
                inference.last_error = failure.cloned();
            }
        }
        if !self.tested.contains_key(model) && TESTED_MODELS.is_full(self.tested.len()) {
            let oldest = self.tested.iter().min_by_key(|(_, evidence)| evidence.tested_at_ms());
            if let Some(oldest) = oldest.map(|(model, _)| model.clone()) {
                self.tested.remove(&oldest);
            }
        }
        self.tested.insert(model.to_owned(), evidence);
    }
}

/// The result of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tested<'a> {
    /// The model answered the request with this ID.
    Completed { request_id: &'a str },
    /// The model did not answer; contains the upstream's failure, if an upstream was called.
    Failed(Option<&'a CatalogFailure>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;

    #[test]
    fn the_evidence_about_each_model_is_kept_up_to_a_bound() {
        let mut entry = CatalogEntry::default();
        entry.learn("a", 1, Tested::Completed { request_id: "req_a" });
        let failure = CatalogFailure { at_ms: 2, ..CatalogFailure::default() };
        entry.learn("b", 2, Tested::Failed(Some(&failure)));
        let a = entry.tested("a").unwrap();
        assert_eq!((a.proven_at_ms, a.request_id.as_deref(), a.last_error), (Some(1), Some("req_a"), None));
        let b = entry.tested("b").unwrap();
        assert_eq!((b.proven_at_ms, b.last_error.as_ref()), (None, Some(&failure)));
        assert_eq!(entry.evidence.inference.model.as_deref(), Some("a"));
        entry.learn("a", 3, Tested::Failed(Some(&failure)));
        let a = entry.tested("a").unwrap();
        assert!(a.proven_at_ms == Some(1) && a.last_error.is_some(), "an earlier proof stays");
        passes(&TESTED_MODELS, || {
            for number in 0..TESTED_MODELS.max() {
                let at_ms = 10 + u64::try_from(number).unwrap();
                entry.learn(&format!("m{number}"), at_ms, Tested::Completed { request_id: "r" });
            }
        });
        assert_eq!(entry.tested.len(), TESTED_MODELS.max());
        assert!(entry.tested("a").is_none() && entry.tested("m0").is_some(), "the oldest one makes room");
    }

    #[test]
    fn a_file_of_an_earlier_release_proves_the_model_that_was_proven_last() {
        let text = r#"{"url": "u", "evidence": {"inference": {"proven_at_ms": 5, "model": "m", "request_id": "r"}}}"#;
        let entry: CatalogEntry = serde_json::from_str(text).unwrap();
        assert_eq!(entry.tested("m").unwrap().proven_at_ms, Some(5));
        assert_eq!(entry.tested("n"), None);
    }
}
