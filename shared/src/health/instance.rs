//! The circuits of one provider instance: one for the upstream and its credential, and one for each model that the
//! upstream has failed to serve, so that a retired model does not block the instance for the other models.
//!
//! Models without failures have no circuit: a request costs one atomic load while no model has failed. Rate limits are no
//! failures: they make a model rest.

use std::sync::Arc;

use super::circuit::{Circuit, CircuitState, Pass, Refused};
use super::limits::ReportedLimits;
use super::loads::{Loads, TargetLoad};
use super::per_model::PerModel;
use super::rests::Rests;
use crate::id::ModelId;
use crate::policy::CircuitPolicy;
use crate::usage::StepResult;

/// The circuits of one provider instance and credential, the rests and loads of its models, and the limits that its upstream
/// reports.
#[derive(Debug, Default)]
pub struct Circuits {
    instance: Circuit,
    /// Models that have failed since they were last served. Failures of further models than fit are not counted.
    models: PerModel<Circuit>,
    rests: Rests,
    loads: Loads,
    /// The attempts with this credential, if its instance has several.
    load: Arc<TargetLoad>,
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
    /// The upstream is healthy, and limits the rate of requests.
    RateLimited,
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

impl Circuits {
    /// Requests permission to try `model`. `now_ms` is called only if a circuit is not closed.
    pub fn ask<'a>(
        &'a self,
        model_id: &'a ModelId,
        now_ms: impl Fn() -> u64,
        policy: &CircuitPolicy,
    ) -> Result<Admission<'a>, Refused> {
        let instance = Circuit::ask(&self.instance, &now_ms, policy)?;
        let model = match self.models.get(model_id) {
            Some(circuit) => Some(Circuit::ask(circuit, &now_ms, policy)?),
            None => None,
        };
        Ok(Admission { circuits: self, model_id, instance, model })
    }

    /// Returns an admission for an attempt that ignores the state of the circuits.
    pub fn unchecked<'a>(&'a self, model_id: &'a ModelId) -> Admission<'a> {
        let model = self.models.get(model_id).map(Pass::unchecked);
        Admission { circuits: self, model_id, instance: Pass::unchecked(&self.instance), model }
    }

    /// Returns the remaining milliseconds for which `model` is refused, or `None` if it is not. Starts no probe.
    pub fn open_ms(&self, model_id: &ModelId, now_ms: u64, policy: &CircuitPolicy) -> Option<u64> {
        let model = self.models.get(model_id).and_then(|circuit| circuit.open_ms(now_ms, policy));
        self.instance.open_ms(now_ms, policy).max(model)
    }

    /// Returns the rests of the models.
    pub fn rests(&self) -> &Rests {
        &self.rests
    }

    /// Returns the loads of the models.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Returns the load of the credential, over all models.
    pub fn load(&self) -> &Arc<TargetLoad> {
        &self.load
    }

    /// Returns the limits that the upstream reports for this credential.
    pub fn limits(&self) -> &ReportedLimits {
        &self.limits
    }

    /// Returns the circuit of the instance itself.
    pub fn instance(&self) -> &Circuit {
        &self.instance
    }

    /// Returns the failures of a model in a row.
    pub fn failures_of(&self, model_id: &ModelId) -> u32 {
        self.models.get(model_id).map_or(0, |circuit| circuit.failures())
    }

    /// Returns the circuits that are not closed, by model.
    pub fn models(&self, now_ms: u64, policy: &CircuitPolicy) -> Vec<(ModelId, Arc<Circuit>)> {
        let models = self.models.all();
        let open = models.iter().filter(|(_, circuit)| circuit.state(now_ms, policy) != CircuitState::Closed);
        open.cloned().collect()
    }

    /// Closes and removes the circuit of a model.
    fn model_served(&self, model_id: &ModelId, now_ms: impl FnOnce() -> u64) {
        if let Some(circuit) = self.models.get(model_id) {
            circuit.close();
            self.models.remove(model_id);
        }
        self.rests.served(model_id, now_ms);
    }
}

impl Admission<'_> {
    /// Reports that the target answered the request: its circuits close. `now_ms` is called only if the model has rested.
    pub fn served(&mut self, now_ms: impl FnOnce() -> u64) {
        self.instance.succeed();
        if let Some(model) = &mut self.model {
            model.succeed();
        }
        self.circuits.model_served(self.model_id, now_ms);
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
            Evidence::Served | Evidence::Alive | Evidence::RateLimited => {
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
                    self.model =
                        self.circuits.models.get_or_new(self.model_id, |_| false).map(Pass::unchecked);
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
