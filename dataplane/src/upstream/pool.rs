//! Idle connections to upstreams, kept per worker, so that taking one is a map lookup without a lock.
//!
//! The most recently returned HTTP/1.1 connection is reused first. A connection that its upstream has closed returns the
//! next request unsent, because hyper reads before it writes. HTTP/2 connections are shared by the requests of the worker.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use shared::routing::{HttpVersion, Origin};

use super::http1::UpstreamConnection;
use super::http2::SharedConnections;

/// Idle HTTP/1.1 and shared HTTP/2 connections of one worker.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Connections by way, authority or path of a Unix socket, in one map for each combination of TLS and HTTP version.
    slots: RefCell<[Slots; SPEECHES]>,
}

type Slots = BTreeMap<Box<str>, Slot>;

#[derive(Debug, Default)]
struct Slot {
    http1: Vec<Idle>,
    http2: Option<Rc<SharedConnections>>,
}

#[derive(Debug)]
struct Idle {
    connection: Box<UpstreamConnection>,
    since: u32,
}

/// Maximum idle connections that a worker keeps to one origin; further ones are closed.
const IDLE_MAX: usize = 1_024;
/// Seconds after which an idle connection is closed. Load balancers and servers usually close theirs after 60 s; the pool
/// is earlier, so that a request does not meet the close.
pub(super) const IDLE_SECONDS_MAX: u32 = 50;
/// Seconds after which a connection takes no further requests, so that a changed address of an upstream is followed even by
/// connections that are never idle.
pub(super) const AGE_SECONDS_MAX: u32 = 600;
/// Maximum origins of one such combination that are remembered without a connection.
const ORIGINS_MAX: usize = 1_024;
/// Number of combinations of TLS and HTTP version.
const SPEECHES: usize = 6;

fn speech(origin: &Origin) -> usize {
    let version = match origin.http {
        HttpVersion::Auto => 0,
        HttpVersion::Http1 => 1,
        HttpVersion::Http2 => 2,
    };
    version + if origin.tls { 3 } else { 0 }
}

/// Returns the key of the way that `origin` has of its own; otherwise its authority, or the path of its Unix socket, which no
/// authority equals because it has a slash. The way of the variables is the same for the whole life of the process.
fn place(origin: &Origin) -> &str {
    match (&origin.way, &origin.socket) {
        (Some(way), _) => &way.key,
        (None, Some(socket)) => socket,
        (None, None) => origin.authority.as_str(),
    }
}

impl Pool {
    /// Takes the idle HTTP/1.1 connection to `origin` that was used last. If its upstream has closed it, it
    /// returns the next request unsent.
    pub(crate) fn take(&self, origin: &Origin) -> Option<Box<UpstreamConnection>> {
        self.with_slot(origin, |slot| slot.http1.pop().map(|idle| idle.connection))
    }

    /// Returns the connections to `origin` that requests share.
    pub(crate) fn shared(&self, origin: &Origin) -> Rc<SharedConnections> {
        let known = self.with_slot(origin, |slot| slot.http2.clone());
        known.unwrap_or_else(|| {
            let shared = Rc::<SharedConnections>::default();
            self.insert(origin, |slot| slot.http2 = Some(Rc::clone(&shared)));
            shared
        })
    }

    fn with_slot<T>(&self, origin: &Origin, f: impl FnOnce(&mut Slot) -> Option<T>) -> Option<T> {
        let mut slots = self.slots.borrow_mut();
        f(slots.get_mut(speech(origin))?.get_mut(place(origin))?)
    }

    /// Returns a connection to the pool after a complete answer, if it can take another request. A connection that the
    /// upstream has closed is detected when it is taken. `now` is the worker's coarse clock.
    pub(crate) fn put(&self, origin: &Origin, mut connection: Box<UpstreamConnection>, now: u32) {
        if !connection.is_finished() || connection.seconds_since_first_rest(now) >= AGE_SECONDS_MAX {
            return;
        }
        connection.rest();
        self.insert(origin, |slot| {
            if slot.http1.len() < IDLE_MAX {
                slot.http1.push(Idle { connection, since: now });
            }
        });
    }

    fn insert(&self, origin: &Origin, f: impl FnOnce(&mut Slot)) {
        let mut slots = self.slots.borrow_mut();
        let Some(map) = slots.get_mut(speech(origin)) else { return };
        match map.get_mut(place(origin)) {
            Some(slot) => f(slot),
            None => f(map.entry(place(origin).into()).or_default()),
        }
    }

    /// Closes connections that have been idle for too long or were closed by their upstream. Called once a second.
    pub(crate) fn sweep(&self, now: u32) {
        for map in self.slots.borrow_mut().iter_mut() {
            let is_known = map.len() <= ORIGINS_MAX;
            map.retain(|_, slot| {
                slot.http1.retain_mut(|idle| {
                    now.wrapping_sub(idle.since) < IDLE_SECONDS_MAX
                        && idle.connection.seconds_since_first_rest(now) < AGE_SECONDS_MAX
                        && idle.connection.is_reusable()
                });
                if let Some(shared) = &slot.http2 {
                    shared.sweep(now, IDLE_SECONDS_MAX, AGE_SECONDS_MAX);
                }
                // A slot without a connection still knows what its origin speaks.
                let is_shared = slot.http2.as_ref().is_some_and(|shared| is_known || !shared.is_empty());
                is_shared || !slot.http1.is_empty()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shared::provider::path::Paths;
    use shared::proxy::{OwnWay, Proxy, WayProxy};
    use shared::upstream_tls::UpstreamTls;

    use super::*;

    fn origin(number: usize) -> Origin {
        let host = format!("upstream-{number}.example");
        Origin {
            tls: true,
            authority: host.parse().unwrap(),
            host,
            port: 443,
            socket: None,
            way: None,
            paths: Paths::default(),
            lists: Vec::new(),
            http: HttpVersion::Auto,
        }
    }

    #[test]
    fn connections_by_different_ways_are_kept_apart() {
        let pool = Pool::default();
        let by = |proxy: WayProxy, digest: Option<&str>| {
            let tls = digest.map(|digest| UpstreamTls {
                digest: digest.into(),
                settings: Arc::new(()),
                warnings: Vec::new(),
                ends: Vec::new(),
            });
            let way = OwnWay::new("upstream-1.example", proxy, tls, None);
            pool.shared(&Origin { way: Some(Arc::new(way)), ..origin(1) })
        };
        let own = |url: &str| WayProxy::Own(Arc::new(Proxy::parse(url).unwrap()));
        let all = [
            by(own("http://a.example:1"), None),
            by(own("http://u:p@a.example:1"), None),
            by(WayProxy::Direct, None),
            by(WayProxy::OfVariables, Some("one identity")),
            by(WayProxy::OfVariables, Some("another identity")),
            by(WayProxy::Direct, Some("one identity")),
            pool.shared(&origin(1)),
        ];
        assert!((1..all.len()).all(|at| all[..at].iter().all(|other| !Rc::ptr_eq(&all[at], other))));
        assert!(Rc::ptr_eq(&all[0], &by(own("http://a.example:1"), None)));
        assert!(Rc::ptr_eq(&all[3], &by(WayProxy::OfVariables, Some("one identity"))));
        assert!(Rc::ptr_eq(&all[6], &pool.shared(&origin(1))));
    }

    #[test]
    fn the_number_of_remembered_origins_is_bounded() {
        let pool = Pool::default();
        let first = pool.shared(&origin(0));
        for number in 1..ORIGINS_MAX {
            pool.shared(&origin(number));
        }
        pool.sweep(1);
        assert!(Rc::ptr_eq(&pool.shared(&origin(0)), &first));
        pool.shared(&origin(ORIGINS_MAX));
        pool.sweep(2);
        assert!(!Rc::ptr_eq(&pool.shared(&origin(0)), &first));
    }
}
