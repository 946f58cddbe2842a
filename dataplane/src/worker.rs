//! One data-plane thread and the state that only it uses: its connections, upstreams, usage log and clock. None of it is
//! shared with another thread, so none of it is locked.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shared::snapshot::Route;
use shared::usage::UsageLog;
use tokio::time::Sleep;
use wire::request::Head;

use crate::adapt::RoutedRequest;
use crate::clock::CoarseClock;
use crate::metrics::{Counters, add};
use crate::process::Process;
use crate::record::UsageRecorder;
use crate::relay::{LateUsageQueue, RelayContext};
use crate::request_id::RequestIds;
use crate::request_span::RequestSpans;
use crate::running::RunningList;
use crate::server::balance::BusyMeter;
use crate::server::body::HeldBody;
use crate::server::connections::Connections;
use crate::upstream::Upstreams;
use crate::upstream::pool::Pool;

/// State of one data-plane thread.
pub(crate) struct Worker {
    pub(crate) process: Arc<Process>,
    pub(crate) connections: Connections,
    pub(crate) upstreams: Rc<Upstreams>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) usage: Rc<UsageRecorder>,
    pub(crate) relays: Rc<RelayContext>,
    pub(crate) running: Rc<RunningList>,
    pub(crate) request_ids: RequestIds,
    /// `None` if requests are not traced.
    pub(crate) spans: Option<RequestSpans>,
    /// The place among the workers of the process.
    index: usize,
    clock: CoarseClock,
    /// Timers for reuse by later attempts.
    timers: RefCell<Vec<Pin<Box<Sleep>>>>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}

/// Maximum number of timers kept for reuse: about one per concurrently waiting request.
const TIMERS_MAX: usize = 1_024;

impl Worker {
    /// Creates the state of the worker with this index.
    pub(crate) fn new(process: Arc<Process>, index: usize, usage: Box<dyn UsageLog>) -> Self {
        let counters = process.counters.get(index).cloned().unwrap_or_default();
        let (clock, settings) = (CoarseClock::default(), Arc::clone(&process.settings));
        let upstreams = Rc::new(Upstreams {
            pool: Pool::default(),
            tls: Arc::clone(&process.tls),
            voices: Arc::clone(&process.voices),
            clock: clock.clone(),
        });
        let usage = UsageRecorder::new(usage, Arc::clone(&counters), &settings);
        let spans = settings.traces.clone().map(RequestSpans::new);
        let relays = RelayContext {
            upstreams: Rc::clone(&upstreams),
            clock: clock.clone(),
            keepalive: settings.stream_keepalive,
            usage_grace: settings.usage_grace,
            late_usage: LateUsageQueue::default(),
        };
        Self {
            connections: Connections::new(settings, Arc::clone(&process.connections), clock.clone()),
            process,
            upstreams,
            counters,
            usage: Rc::new(usage),
            relays: Rc::new(relays),
            running: Rc::new(RunningList::new(shared::clock::unix_ms())),
            request_ids: RequestIds::new(),
            spans,
            index,
            clock,
            timers: RefCell::default(),
        }
    }

    /// Returns the view of a request from which requests for its targets are built.
    pub(crate) fn routed<'a>(
        &'a self,
        route: &'a Route,
        head: &'a Head,
        body: &'a HeldBody,
    ) -> RoutedRequest<'a> {
        let preamble = self.process.settings.preamble.as_deref();
        RoutedRequest { ids: &self.request_ids, preamble, route, head, body, seal: None }
    }

    /// Returns a timer that an earlier attempt put back; its deadline is arbitrary.
    pub(crate) fn take_timer(&self) -> Option<Pin<Box<Sleep>>> {
        self.timers.borrow_mut().pop()
    }

    /// Keeps a timer for a later attempt.
    pub(crate) fn put_timer(&self, timer: Pin<Box<Sleep>>) {
        let mut timers = self.timers.borrow_mut();
        if timers.len() < TIMERS_MAX {
            timers.push(timer);
        }
    }

    /// Runs once a second until the worker ends: advances the clock, closes connections with slow heads or without
    /// activity, balances the load of the workers, closes idle upstream connections, and lets a full usage log check for
    /// room.
    pub(crate) async fn sweep(self: Rc<Self>) {
        let mut meter = BusyMeter::new();
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            second.tick().await;
            self.clock.advance();
            self.connections.sweep();
            if let Some(busy) = meter.measure() {
                self.balance(busy);
            }
            self.upstreams.pool.sweep(self.clock.now());
            self.usage.tend();
        }
    }

    /// Publishes how busy the worker is. If it is too busy, and another one is not, some clients are asked to connect
    /// again.
    fn balance(&self, busy: usize) {
        let loads = &self.process.loads;
        if let Some(own) = loads.get(self.index) {
            own.busy.store(busy, Ordering::Relaxed);
        }
        let others = loads.iter().enumerate().filter(|(index, _)| *index != self.index);
        if let Some(least) = others.map(|(_, load)| load.busy.load(Ordering::Relaxed)).min() {
            add(&self.counters.connections_moved, self.connections.relieve(busy, least));
        }
    }
}
