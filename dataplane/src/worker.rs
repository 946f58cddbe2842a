//! One data-plane thread and the state that only it uses: its connections, usage log and clock. None of it is shared
//! with another thread, so none of it is locked.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use shared::usage::{Note, UsageEvent, UsageLog};
use tokio::time::Sleep;

use crate::metrics::Counters;
use crate::relay::Tails;
use crate::server::io::{Link, Order, Phase};
use crate::settings::Plane;
use crate::upstream::pool::Pool;

/// State of one data-plane thread.
pub(crate) struct Worker {
    pub(crate) plane: Arc<Plane>,
    pub(crate) pool: Pool,
    pub(crate) counters: Arc<Counters>,
    usage: RefCell<Box<dyn UsageLog>>,
    clock: Rc<Cell<u32>>,
    links: RefCell<Vec<Weak<Link>>>,
    /// Answers whose clients disconnected before the usage arrived.
    pub(crate) tails: Tails,
    /// Timers for reuse by later attempts.
    timers: RefCell<Vec<Pin<Box<Sleep>>>>,
    ids: RequestIds,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// Maximum time for a complete request head, in seconds.
const HEAD_SECONDS_MAX: u64 = 28;
/// Maximum time between the GOAWAY of an idle HTTP/2 connection and its end, in seconds.
const GOAWAY_SECONDS_MAX: u64 = 10;

/// Maximum number of timers kept for reuse: about one per concurrently waiting request.
const TIMERS_MAX: usize = 1_024;

impl Worker {
    pub(crate) fn new(plane: Arc<Plane>, counters: Arc<Counters>, usage: Box<dyn UsageLog>) -> Self {
        Self {
            plane,
            pool: Pool::default(),
            counters,
            usage: RefCell::new(usage),
            clock: Rc::new(Cell::new(0)),
            links: RefCell::default(),
            tails: Tails::default(),
            timers: RefCell::default(),
            ids: RequestIds::new(),
        }
    }

    /// Returns the seconds this worker has run. Reading this clock is one load, without a system call.
    pub(crate) fn now(&self) -> u32 {
        self.clock.get()
    }

    /// Creates the state of a connection; the sweeper checks it until the connection ends.
    pub(crate) fn link(&self) -> Rc<Link> {
        let link = Rc::new(Link::new(Phase::Idle, Rc::clone(&self.clock)));
        self.links.borrow_mut().push(Rc::downgrade(&link));
        link
    }

    /// Returns a placeholder connection state for in-process requests.
    pub(crate) fn detached_link(&self) -> Rc<Link> {
        Rc::new(Link::new(Phase::Inside, Rc::clone(&self.clock)))
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

    /// Records an exchange. Returns true if the record survives a kill of the process from now on; otherwise the client
    /// must not get a complete answer.
    #[must_use]
    pub(crate) fn log_usage(&self, event: &UsageEvent) -> bool {
        self.usage.borrow_mut().append(event)
    }

    /// Notes how an exchange is to be recorded if the process is killed before it ends. Returns `None` if the note
    /// could not be written.
    pub(crate) fn note_usage(&self, running: &UsageEvent) -> Option<Note> {
        self.usage.borrow_mut().note(running)
    }

    /// Removes the note of an exchange that has been recorded.
    pub(crate) fn strike_note(&self, note: Note) {
        self.usage.borrow_mut().strike(note);
    }

    /// Returns true if another exchange can be recorded.
    pub(crate) fn can_log_usage(&self) -> bool {
        self.usage.borrow().has_room()
    }

    /// Generates a request id: `req_` and 32 hexadecimal digits (FAIL-7).
    pub(crate) fn request_id(&self) -> HeaderValue {
        self.ids.next()
    }

    /// Runs once a second until the worker ends: advances the clock, closes connections with slow heads or without
    /// activity, closes idle upstream connections, and lets a full usage log check for room.
    pub(crate) async fn sweep(self: Rc<Self>) {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            second.tick().await;
            self.clock.set(self.clock.get().wrapping_add(1));
            self.sweep_links();
            self.pool.sweep(self.now());
            self.usage.borrow_mut().tend();
        }
    }

    fn sweep_links(&self) {
        let idle = self.plane.settings.client_timeouts.idle.as_secs();
        self.links.borrow_mut().retain(|link| {
            let Some(link) = link.upgrade() else { return false };
            let seconds = u64::from(link.seconds_in_phase());
            match link.phase() {
                Phase::Idle if seconds > idle => link.command(Order::Close),
                Phase::Head if seconds > HEAD_SECONDS_MAX => link.command(Order::Close),
                Phase::Http2 if link.has_no_stream() && seconds > idle + GOAWAY_SECONDS_MAX => {
                    link.command(Order::Close);
                }
                Phase::Http2 if link.has_no_stream() && seconds > idle && link.order.get() == Order::None => {
                    link.command(Order::Finish);
                }
                Phase::Idle | Phase::Head | Phase::Busy | Phase::Http2 | Phase::Inside => {}
            }
            true
        });
    }

    /// Sends `order` to every connection.
    pub(crate) fn command_all(&self, order: Order) {
        let links: Vec<_> = self.links.borrow().iter().filter_map(Weak::upgrade).collect();
        for link in links {
            link.command(order);
        }
    }
}

/// Generates unique ids: the first half differs between workers and processes, the second half within a worker.
struct RequestIds {
    worker: u64,
    number: Cell<u64>,
}

impl RequestIds {
    fn new() -> Self {
        let random = RandomState::new();
        Self { worker: random.hash_one(0_u8), number: Cell::new(random.hash_one(1_u8)) }
    }

    fn next(&self) -> HeaderValue {
        // An odd step repeats a number only after 2^64 steps.
        let number = self.number.get().wrapping_add(STEP);
        self.number.set(number);
        let mut text = [0_u8; 36];
        let (prefix, digits) = text.split_at_mut(4);
        prefix.copy_from_slice(b"req_");
        let halves = [self.worker, number].map(u64::to_be_bytes);
        for (byte, pair) in halves.as_flattened().iter().zip(digits.as_chunks_mut::<2>().0) {
            *pair = HEX.get(usize::from(*byte)).copied().unwrap_or_default();
        }
        HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("req_"))
    }
}

/// The two hexadecimal digits of each byte value.
#[expect(clippy::indexing_slicing, reason = "a wrong index fails the build")]
static HEX: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [DIGITS[byte / 16], DIGITS[byte % 16]];
        byte += 1;
    }
    pairs
};

/// 2^64 divided by the golden ratio, so that consecutive ids differ in all digits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
