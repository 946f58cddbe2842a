//! One direction of a connection. Reading goes on while earlier bytes wait, so that a delay does not lower the
//! throughput.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::commits::{Commits, Sought};
use super::connection::End;
use super::{Plan, ProxyMode, State};

/// How many bytes one read takes at most, and how many pieces wait between the two sockets.
const PIECE_BYTES: usize = 16_384;
const PIECES: usize = 64;

/// Forwards one direction as the mode says.
pub(crate) struct Pump<'connection> {
    direction: Sought,
    commits: Commits,
    plans: watch::Receiver<Plan>,
    state: &'connection State,
    /// Set when bytes of the connection were swallowed.
    lost: &'connection AtomicBool,
}

type Pieces = mpsc::Receiver<(Instant, Vec<u8>)>;

impl<'connection> Pump<'connection> {
    /// Returns a pump of requests, or of answers.
    pub(crate) fn new(
        direction: Sought,
        plans: watch::Receiver<Plan>,
        state: &'connection State,
        lost: &'connection AtomicBool,
    ) -> Self {
        Self { direction, commits: Commits::new(direction), plans, state, lost }
    }

    /// Forwards until the sender closes its side, the connection breaks, or the mode ends it.
    pub(crate) async fn run(mut self, from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> End {
        let (queue, pieces) = mpsc::channel(PIECES);
        let reading = async {
            let outcome = read(from, queue).await;
            if outcome.is_err() { End::Reset } else { std::future::pending().await }
        };
        tokio::select! {
            end = reading => end,
            end = self.write(pieces, &mut to) => end.unwrap_or(End::Reset),
        }
    }

    async fn write(&mut self, mut pieces: Pieces, to: &mut WriteHalf<'_>) -> io::Result<End> {
        while let Some((arrived, piece)) = pieces.recv().await {
            if let Some(end) = self.pass(arrived, &piece, to).await? {
                return Ok(end);
            }
        }
        to.shutdown().await?;
        Ok(End::Closed)
    }

    /// Forwards a piece. An empty one is the end of the stream, which waits as bytes do.
    async fn pass(
        &mut self,
        arrived: Instant,
        piece: &[u8],
        to: &mut WriteHalf<'_>,
    ) -> io::Result<Option<End>> {
        let found = self.commits.push(piece);
        let mut rest = piece;
        loop {
            let mode = self.plans.borrow_and_update().mode;
            match (mode, self.direction) {
                (ProxyMode::HalfOpen | ProxyMode::Cut, _) => self.changed().await,
                (ProxyMode::Delay(delay), _) if arrived.elapsed() < delay => tokio::select! {
                    () = sleep_until(arrived + delay) => {}
                    () = self.changed() => {}
                },
                (ProxyMode::Trickle { bytes, every }, _) if !rest.is_empty() => {
                    let (now, later) = rest.split_at(bytes.clamp(1, rest.len()));
                    self.send(now, to).await?;
                    rest = later;
                    tokio::select! {
                        () = sleep(every) => {}
                        () = self.changed() => {}
                    }
                }
                (ProxyMode::DropAnswers, Sought::Answer) => {
                    self.lost.fetch_or(!rest.is_empty(), Ordering::SeqCst);
                    return Ok(None);
                }
                (ProxyMode::LoseCommitAnswer { nth }, Sought::Answer) => {
                    let Some(place) = self.nth(nth, &found) else { return self.finish(rest, to).await };
                    let sent = piece.len() - rest.len();
                    self.send(&rest[..place.saturating_sub(sent)], to).await?;
                    return Ok(Some(End::Reset));
                }
                (ProxyMode::LateCommit { nth, after }, Sought::Request) => {
                    let Some(_) = self.nth(nth, &found) else { return self.finish(rest, to).await };
                    return Ok(Some(End::Late { bytes: rest.to_vec(), after }));
                }
                _ => return self.finish(rest, to).await,
            }
        }
    }

    async fn finish(&self, rest: &[u8], to: &mut WriteHalf<'_>) -> io::Result<Option<End>> {
        self.send(rest, to).await?;
        Ok(None)
    }

    async fn send(&self, bytes: &[u8], to: &mut WriteHalf<'_>) -> io::Result<()> {
        // Counted first: a test that has received the bytes finds them counted.
        let forwarded = match self.direction {
            Sought::Request => &self.state.to_server,
            Sought::Answer => &self.state.to_client,
        };
        forwarded.fetch_add(bytes.len().try_into().unwrap(), Ordering::SeqCst);
        to.write_all(bytes).await
    }

    /// Counts the commits of a piece, and returns the place of the `nth` since the mode was set.
    fn nth(&self, nth: u32, found: &[usize]) -> Option<usize> {
        let place = found.iter().find(|_| self.state.commits.fetch_add(1, Ordering::SeqCst) + 1 == nth)?;
        self.state.struck.store(true, Ordering::SeqCst);
        Some(*place)
    }

    async fn changed(&mut self) {
        // If the proxy is dropped, the connection ends with its runtime.
        if self.plans.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Reads pieces into the queue; the last one is empty.
async fn read(from: ReadHalf<'_>, queue: mpsc::Sender<(Instant, Vec<u8>)>) -> io::Result<()> {
    loop {
        from.readable().await?;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        match from.try_read_buf(&mut piece) {
            Ok(read) => {
                // The pump has ended if nothing takes the piece.
                if queue.send((Instant::now(), piece)).await.is_err() || read == 0 {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
