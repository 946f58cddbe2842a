//! The circuits of one provider instance: one for the upstream and its credential, and one for each model that the
//! upstream has failed to serve, so that a retired model does not block the instance for the other models.
//!
//! Models without failures have no circuit: a request costs one atomic load while no model has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::circuit::{Circuit, CircuitState, Pass, Refused};
use super::limits::ReportedLimits;
use crate::id::ModelId;
use crate::policy::CircuitPolicy;
use crate::usage::StepResult;

/// The circuits of one provider instance and credential, and the limits that its upstream reports.
#[derive(Debug, Default)]
pub struct Circuits {
    instance: Circuit,
    /// False while `models` is empty.
    any_model: AtomicBool,
    /// Models that have failed since they were last served, sorted by id.
    models: ArcSwap<Vec<(ModelId, Arc<Circuit>)>>,
    /// Held while `models` is replaced.
    replacing: Mutex<()>,
    limits: ReportedLimits,
}

/// The conclusion from an attempt about the health of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The target answered the request.
    Served,
    /// The upstream responded and is healthy; the request was at fault, for example.
    Alive,
    /// The upstream responded that it does not have the model or may not serve it.
    ModelFailed,
    /// The upstream cannot be reached, fails, or rejects the credential.
    InstanceFailed,
    /// No conclusion.
    Nothing,
}

/// The circuit that a failure has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The circuit of the instance.
    Instance,
    /// The circuit of the model.
    Model,
}

/// A failed attempt, for display.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// The time of the failure, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The result of the attempt.
    pub result: StepResult,
    /// The upstream's status, if it responded.
    pub status: Option<u16>,
}

/// A permission to try one target. Dropping it without evidence records no outcome; the next caller may probe at once.
#[derive(Debug)]
pub struct Admission<'a> {
    circuits: &'a Circuits,
    model_id: &'a ModelId,
    instance: Pass<&'a Circuit>,
    /// `None` if the model had no circuit when the attempt began.
    model: Option<Pass<Arc<Circuit>>>,
}

/// The maximum number of models of one instance with a circuit; failures of further models are not counted.
const MODELS_MAX: usize = 1_024;

impl Circuits {
    /// Requests permission to try `model`. `now_ms` is called only if a circuit is not closed.
    pub fn ask<'a>(
        &'a self,
        model_id: &'a ModelId,
        now_ms: impl Fn() -> u64,
        policy: &CircuitPolicy,
    ) -> Result<Admission<'a>, Refused> {
        let instance = Circuit::ask(&self.instance, &now_ms, policy)?;
        let model = match self.model(model_id) {
            Some(circuit) => Some(Circuit::ask(circuit, &now_ms, policy)?),
            None => None,
        };
        Ok(Admission { circuits: self, model_id, instance, model })
    }

    /// Returns an admission for an attempt that ignores the state of the circuits.
    pub fn unchecked<'a>(&'a self, model_id: &'a ModelId) -> Admission<'a> {
        let model = self.model(model_id).map(Pass::unchecked);
        Admission { circuits: self, model_id, instance: Pass::unchecked(&self.instance), model }
    }

    /// Returns the remaining milliseconds for which `model` is refused, or `None` if it is not. Starts no probe.
    pub fn rests_ms(&self, model_id: &ModelId, now_ms: u64, policy: &CircuitPolicy) -> Option<u64> {
        let model = self.model(model_id).and_then(|circuit| circuit.rests_ms(now_ms, policy));
        self.instance.rests_ms(now_ms, policy).max(model)
    }

    /// Returns the limits that the upstream reports for this credential.
    pub fn limits(&self) -> &ReportedLimits {
        &self.limits
    }

    /// Returns the circuit of the instance itself.
    pub fn instance(&self) -> &Circuit {
        &self.instance
    }

    /// Returns the circuits that are not closed, by model.
    pub fn models(&self, now_ms: u64, policy: &CircuitPolicy) -> Vec<(ModelId, Arc<Circuit>)> {
        let models = self.models.load();
        let open = models.iter().filter(|(_, circuit)| circuit.state(now_ms, policy) != CircuitState::Closed);
        open.cloned().collect()
    }

    fn model(&self, model_id: &ModelId) -> Option<Arc<Circuit>> {
        if !self.any_model.load(Ordering::Acquire) {
            return None;
        }
        let models = self.models.load();
        let place = models.binary_search_by(|(id, _)| id.cmp(model_id)).ok()?;
        models.get(place).map(|(_, circuit)| Arc::clone(circuit))
    }

    /// Returns the circuit of a model. Creates it if it does not exist and there is room.
    fn model_or_new(&self, model_id: &ModelId) -> Option<Arc<Circuit>> {
        self.replace(|models| match models.binary_search_by(|(id, _)| id.cmp(model_id)) {
            Ok(place) => models.get(place).map(|(_, circuit)| Arc::clone(circuit)),
            Err(_) if models.len() >= MODELS_MAX => None,
            Err(place) => {
                let circuit = Arc::<Circuit>::default();
                models.insert(place, (model_id.clone(), Arc::clone(&circuit)));
                Some(circuit)
            }
        })
    }

    /// Closes and removes the circuit of a model.
    fn model_served(&self, model_id: &ModelId) {
        if let Some(circuit) = self.model(model_id) {
            circuit.close();
            self.replace(|models| models.retain(|(id, _)| id != model_id));
        }
    }

    fn replace<T>(&self, change: impl FnOnce(&mut Vec<(ModelId, Arc<Circuit>)>) -> T) -> T {
        let _alone = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut models = Vec::clone(&self.models.load());
        let result = change(&mut models);
        let any = !models.is_empty();
        self.models.store(Arc::new(models));
        self.any_model.store(any, Ordering::Release);
        result
    }
}

impl Admission<'_> {
    /// Reports that the target answered the request: its circuits close.
    pub fn served(&mut self) {
        self.instance.succeed();
        if let Some(model) = &mut self.model {
            model.succeed();
        }
        self.circuits.model_served(self.model_id);
    }

    /// Reports a failed attempt. Returns the circuit that it opened, if any.
    pub fn failed(
        &mut self,
        (evidence, failed): (Evidence, Failed),
        now_ms: u64,
        policy: &CircuitPolicy,
    ) -> Option<Opened> {
        let Failed { at_ms, result, status } = failed;
        match evidence {
            Evidence::Served | Evidence::Alive => {
                self.instance.succeed();
                None
            }
            Evidence::Nothing => None,
            Evidence::InstanceFailed => {
                let opened = self.instance.fail(now_ms, policy);
                self.circuits.instance.note(at_ms, result, status, opened);
                opened.then_some(Opened::Instance)
            }
            Evidence::ModelFailed => {
                self.instance.succeed();
                if self.model.is_none() {
                    self.model = self.circuits.model_or_new(self.model_id).map(Pass::unchecked);
                }
                let model = self.model.as_mut()?;
                let opened = model.fail(now_ms, policy);
                model.circuit().note(at_ms, result, status, opened);
                opened.then_some(Opened::Model)
            }
        }
    }

    /// Returns true if another request would be refused now.
    pub fn is_open(&self, now_ms: u64) -> bool {
        self.circuits.instance.is_open(now_ms)
            || self.model.as_ref().is_some_and(|model| model.circuit().is_open(now_ms))
    }
}
