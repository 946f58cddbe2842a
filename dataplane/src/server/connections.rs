//! The client connections of one worker: their states, and the sweep that closes slow and idle ones (LIM-5).

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::io::{Link, Order, Phase};
use crate::clock::CoarseClock;
use crate::settings::Settings;

/// The client connections of one worker.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(super) settings: Arc<Settings>,
    /// Number of connections of all workers.
    pub(super) total: Arc<AtomicUsize>,
    clock: CoarseClock,
    links: RefCell<Vec<Weak<Link>>>,
}

/// Maximum time for a complete request head, in seconds.
const HEAD_SECONDS_MAX: u64 = 28;
/// Maximum time between the GOAWAY of an idle HTTP/2 connection and its end, in seconds.
const GOAWAY_SECONDS_MAX: u64 = 10;

impl Connections {
    pub(crate) fn new(settings: Arc<Settings>, total: Arc<AtomicUsize>, clock: CoarseClock) -> Self {
        Self { settings, total, clock, links: RefCell::default() }
    }

    /// Creates the state of a connection; the sweep checks it until the connection ends.
    pub(super) fn link(&self) -> Rc<Link> {
        let link = Rc::new(Link::new(Phase::Idle, self.clock.clone()));
        self.links.borrow_mut().push(Rc::downgrade(&link));
        link
    }

    /// Returns a placeholder connection state for in-process requests.
    pub(crate) fn detached_link(&self) -> Rc<Link> {
        Rc::new(Link::new(Phase::Inside, self.clock.clone()))
    }

    /// Closes connections with slow heads and idle connections. Runs once a second.
    pub(crate) fn sweep(&self) {
        let idle = self.settings.client_timeouts.idle.as_secs();
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
