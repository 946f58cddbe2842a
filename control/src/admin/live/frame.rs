//! A frame of the live stream, and the events that lead from an earlier frame to it. The events from the frame right
//! before are written once, for all listeners that have kept up.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use shared::id::KeyId;

use super::events::{LiveRunning, put};
use super::seen::SeenValue;

/// The state of the gateway at one moment.
#[derive(Debug, Default)]
pub(super) struct LiveFrame {
    /// Counts the frames; 0 before the first.
    pub(super) number: u64,
    /// The event `figures`.
    pub(super) figures: Vec<u8>,
    /// Each provider as JSON.
    pub(super) providers: Vec<Numbered<Arc<str>>>,
    /// The listed running exchanges by their ids.
    pub(super) running: BTreeMap<Arc<str>, Numbered<ListedExchange>>,
    /// The number of running exchanges that are not listed.
    pub(super) more: usize,
    /// The events `change`.
    pub(super) changes: VecDeque<Numbered<Arc<[u8]>>>,
    pub(super) seen: VecDeque<Numbered<Arc<SeenValue>>>,
    pub(super) is_draining: bool,
    /// The events since the frame before, without `seen`; [`LiveFrame::after`] writes them.
    pub(super) step: Bytes,
}

/// A running exchange, and the key with which it was sent.
#[derive(Clone, Debug)]
pub(super) struct ListedExchange {
    pub(super) key: KeyId,
    pub(super) json: Arc<RawValue>,
}

/// A value and the number of the frame in which it first occurred.
#[derive(Clone, Debug)]
pub(super) struct Numbered<T> {
    pub(super) number: u64,
    pub(super) value: T,
}

impl LiveFrame {
    /// Returns the frame with the events that lead from `before` to it.
    pub(super) fn after(mut self, before: &Self) -> Self {
        self.step = self.events_since(before).into();
        self
    }

    /// Returns the part of the frame that belongs to some keys: running exchanges, and watched requests with one of them.
    pub(super) fn of_keys(&self, keys: &HashSet<KeyId>) -> Self {
        let running = self.running.iter().filter(|(_, exchange)| keys.contains(&exchange.value.key));
        let has_key = |request: &&Numbered<Arc<SeenValue>>| {
            request.value.key.as_deref().is_some_and(|key| keys.contains(&KeyId::new(key)))
        };
        Self {
            number: self.number,
            figures: ALIVE.to_vec(),
            running: running.map(|(id, exchange)| (Arc::clone(id), exchange.clone())).collect(),
            seen: self.seen.iter().filter(has_key).cloned().collect(),
            is_draining: self.is_draining,
            ..Self::default()
        }
    }

    /// Writes the events that lead from `known` to this frame, without `seen`.
    fn events_since(&self, known: &Self) -> Vec<u8> {
        let mut out = self.figures.clone();
        let providers = self.providers.iter().filter(|provider| provider.number > known.number);
        let providers: Vec<&str> = providers.map(|provider| &*provider.value).collect();
        if !providers.is_empty() {
            out.extend_from_slice(
                format!("event: providers\ndata: [{}]\n\n", providers.join(",")).as_bytes(),
            );
        }
        self.write_running(known, &mut out);
        for change in self.changes.iter().filter(|change| change.number > known.number) {
            out.extend_from_slice(&change.value);
        }
        out
    }

    fn write_running(&self, known: &Self, out: &mut Vec<u8>) {
        let changed = self.running.values().filter(|exchange| exchange.number > known.number);
        let begun_or_changed: Vec<&RawValue> = changed.map(|exchange| &*exchange.value.json).collect();
        let ended = known.running.keys().filter(|id| !self.running.contains_key(*id));
        let ended: Vec<&str> = ended.map(|id| &**id).collect();
        if known.number == 0 || !begun_or_changed.is_empty() || !ended.is_empty() {
            put(out, "running", &LiveRunning { begun_or_changed, ended, more: self.more });
        }
    }
}

/// The position of a listener in the stream.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The last frame that was sent.
    known: Arc<LiveFrame>,
    /// The number of the last frame whose watched requests were sent, or of the frame that was there before.
    seen_last: u64,
    is_watching: bool,
}

impl Progress {
    /// Creates the position of a listener who comes after the frame number `seen_last`.
    pub(super) fn new(is_watching: bool, seen_last: u64) -> Self {
        Self { is_watching, seen_last, ..Self::default() }
    }

    /// Returns the events of a frame, and what was new in the frames since the last one.
    pub(super) fn advance(&mut self, frame: &Arc<LiveFrame>) -> Bytes {
        let has_kept_up = self.known.number > 0 && self.known.number + 1 == frame.number;
        // The part of a frame that belongs to some keys has no step.
        let is_written = has_kept_up && !frame.step.is_empty();
        let events = if is_written { frame.step.clone() } else { frame.events_since(&self.known).into() };
        let seen_last = std::mem::replace(&mut self.seen_last, frame.number);
        self.known = Arc::clone(frame);
        if !self.is_watching {
            return events;
        }
        let mut all = Vec::from(events);
        for request in frame.seen.iter().filter(|request| request.number > seen_last) {
            put(&mut all, "seen", &request.value.json);
        }
        all.into()
    }
}

/// In the place of the figures, which are for administrators: proxies and pages do not take the stream for dead.
const ALIVE: &[u8] = b"event: alive\ndata: {}\n\n";

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with one provider, one running exchange and one change for each of these numbers.
    fn frame(number: u64, numbers: &[u64]) -> LiveFrame {
        let numbered = |number: &u64| Numbered {
            number: *number,
            value: Arc::<str>::from(format!("{{\"n\":{number}}}")),
        };
        let change = |number: &u64| Numbered {
            number: *number,
            value: Arc::<[u8]>::from(format!("<{number}>").into_bytes()),
        };
        let exchange = |number: &u64| {
            let json = RawValue::from_string(number.to_string()).unwrap().into();
            let value = ListedExchange { key: KeyId::new(format!("key-{number}")), json };
            (format!("id-{number:02}").into(), Numbered { number: *number, value })
        };
        LiveFrame {
            number,
            figures: b"figures ".to_vec(),
            providers: numbers.iter().map(numbered).collect(),
            running: numbers.iter().map(exchange).collect(),
            more: 3,
            changes: numbers.iter().map(change).collect::<VecDeque<_>>(),
            ..LiveFrame::default()
        }
    }

    /// The texts of a listener that gets some frames.
    fn sent(progress: &mut Progress, frame: LiveFrame) -> String {
        String::from_utf8(progress.advance(&Arc::new(frame)).to_vec()).unwrap()
    }

    fn providers(list: &str) -> String {
        format!("event: providers\ndata: [{list}]\n\n")
    }

    fn running(begun: &str, ended: &str) -> String {
        format!("event: running\ndata: {{\"begun_or_changed\":[{begun}],\"ended\":[{ended}],\"more\":3}}\n\n")
    }

    #[test]
    fn a_listener_that_misses_frames_gets_the_newest_and_all_changes() {
        let mut progress = Progress::default();
        let first = sent(&mut progress, frame(7, &[2, 7]));
        let want = format!("figures {}{}<2><7>", providers("{\"n\":2},{\"n\":7}"), running("2,7", ""));
        assert_eq!(first, want);
        assert_eq!(sent(&mut progress, frame(9, &[2, 7])), "figures ");
        let late = sent(&mut progress, frame(12, &[7, 10, 12]));
        let want = format!(
            "figures {}{}<10><12>",
            providers("{\"n\":10},{\"n\":12}"),
            running("10,12", "\"id-02\"")
        );
        assert_eq!(late, want);
    }

    #[test]
    fn the_part_of_some_keys_holds_their_exchanges_alone() {
        let keys = HashSet::from([KeyId::new("key-7"), KeyId::new("key-9")]);
        let mut progress = Progress::default();
        let part = frame(7, &[2, 7]).of_keys(&keys);
        let running = |begun: &str, ended: &str| {
            format!(
                "event: alive\ndata: {{}}\n\nevent: running\ndata: {{\"begun_or_changed\":[{begun}],\"ended\":[{ended}],\"more\":0}}\n\n"
            )
        };
        assert_eq!(sent(&mut progress, part), running("7", ""));
        let without = frame(9, &[2]).of_keys(&keys);
        assert_eq!(sent(&mut progress, without), running("", "\"id-07\""));
    }

    #[test]
    fn a_listener_that_keeps_up_gets_the_events_that_are_written_once() {
        let before = frame(7, &[2, 7]);
        let next = Arc::new(frame(8, &[7, 8]).after(&before));
        let mut listeners = [Progress::default(), Progress::default()];
        let want = format!("figures {}{}<8>", providers("{\"n\":8}"), running("8", "\"id-02\""));
        let known = Arc::new(before);
        let events = listeners.each_mut().map(|listener| {
            listener.advance(&known);
            listener.advance(&next)
        });
        assert_eq!(events[0], want);
        assert_eq!(events[0].as_ptr(), events[1].as_ptr(), "one buffer for all");
        let newcomer = Progress::default().advance(&next);
        assert!(newcomer.ends_with(b"<7><8>"), "the first frame has everything");
    }
}
