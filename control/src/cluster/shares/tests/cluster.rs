//! One run: nodes, requests, faults and the checks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use postgres_server::{Database, ProxyMode, shared};
use shared::quota::{Claim, Metric, Period};

use super::nodes::{BUDGETS, Disk, IDS, Kinds, Node, Process, Running};
use crate::db::testing::{connect, postgres_database, process_of};

pub(super) struct Cluster {
    random: Random,
    pub(super) database: Database<'static>,
    kinds: Kinds,
    pub(super) nodes: Vec<Node>,
    /// The processes that requests go to, by node.
    pub(super) open: Arc<Mutex<Vec<Arc<Process>>>>,
    pub(super) budgets: Arc<Budgets>,
    next_node: u32,
    /// What gone nodes have used of each budget, by node.
    gone: Vec<(u32, Disk)>,
}

/// What is really used and held of the budgets.
#[derive(Default)]
pub(super) struct Budgets {
    /// They only grow, here before they do in the database.
    limits: [AtomicU64; 2],
    taken: [AtomicU64; 2],
    /// The most that one request used beyond what it held.
    excess: [AtomicU64; 2],
    fault: Mutex<Option<String>>,
    pub(super) figures: Figures,
}

/// How much a run did.
#[derive(Debug, Default)]
pub(super) struct Figures {
    served: AtomicU64,
    refused: AtomicU64,
    waited: AtomicU64,
    kills: AtomicU64,
    disks_lost: AtomicU64,
    broken: AtomicU64,
    commits_lost: AtomicU64,
    checks: AtomicU64,
    excesses: AtomicU64,
}

impl Figures {
    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn waited(&self) {
        self.waited.fetch_add(1, Ordering::Relaxed);
    }

    fn all(&self) -> [&AtomicU64; 9] {
        let Self { served, refused, waited, kills, disks_lost, broken, commits_lost, checks, excesses } =
            self;
        [served, refused, waited, kills, disks_lost, broken, commits_lost, checks, excesses]
    }

    pub(super) fn add(&self, other: &Self) {
        for (sum, count) in self.all().into_iter().zip(other.all()) {
            sum.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Panics if the runs hardly tested anything.
    pub(super) fn check(&self, seeds: u64) {
        for (at, count) in self.all().into_iter().enumerate().take(8) {
            // A lost disk is the rarest of them.
            assert!(count.load(Ordering::Relaxed) >= seeds / 16, "figure {at}: {self:?}");
        }
    }
}

impl Budgets {
    /// Notes what a request has taken, after it has.
    pub(super) fn took(&self, held: [u64; 2]) {
        self.figures.served.fetch_add(1, Ordering::Relaxed);
        for at in 0..2 {
            let taken = self.taken[at].fetch_add(held[at], Ordering::SeqCst) + held[at];
            let most = self.limit(at) + self.excess[at].load(Ordering::SeqCst);
            if taken > most {
                self.fail(format!("{taken} of {} taken: {most} at most", IDS[at]));
            }
        }
    }

    /// Notes what a request has used, before it settles.
    pub(super) fn settles(&self, held: [u64; 2], used: [u64; 2]) {
        for at in 0..2 {
            if used[at] > held[at] {
                self.figures.excesses.fetch_add(1, Ordering::Relaxed);
                self.excess[at].fetch_max(used[at] - held[at], Ordering::SeqCst);
                self.taken[at].fetch_add(used[at] - held[at], Ordering::SeqCst);
            } else {
                self.taken[at].fetch_sub(held[at] - used[at], Ordering::SeqCst);
            }
        }
    }

    pub(super) fn taken(&self, at: usize) -> u64 {
        self.taken[at].load(Ordering::SeqCst)
    }

    fn limit(&self, at: usize) -> u64 {
        self.limits[at].load(Ordering::SeqCst)
    }

    fn fail(&self, fault: String) {
        self.fault.lock().unwrap().get_or_insert(fault);
    }

    pub(super) fn checked(&self) -> Result<(), String> {
        self.fault.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

/// A sequence of numbers that depends on a seed alone.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn of(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

impl Cluster {
    /// Runs one seed with budgets, in which nodes are killed too.
    pub(super) fn run(seed: u64) -> Result<Figures, String> {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let limits = [[4, 80], [30, 600]][random.below(2) as usize].map(|most| 1 + random.below(most));
        let nodes = 2 + random.below(3);
        Self::with(random, (BUDGETS, limits), nodes).run_with(seed, 16)
    }

    /// Runs a seed with the first of 16 kinds of faults; the last five are kills.
    pub(super) fn run_with(mut self, seed: u64, faults: u64) -> Result<Figures, String> {
        let (url, open, budgets) = (self.database.url(), Arc::clone(&self.open), Arc::clone(&self.budgets));
        let (stop, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let result = thread::scope(|scope| {
            let checker = scope.spawn(|| check_rows(&url, &open, &budgets, &is_over));
            let takers = [0, 1, 2, 3].map(|taker| {
                let (open, budgets, stop) = (&open, &budgets, &stop);
                scope.spawn(move || send_requests(Random(seed << 8 | taker), open, budgets, stop))
            });
            let end = Instant::now() + FAULTS_TIME;
            while Instant::now() < end && budgets.checked().is_ok() {
                self.strike(faults);
                self.raise();
            }
            self.heal();
            stop.store(true, Ordering::SeqCst);
            takers.into_iter().for_each(|taker| taker.join().unwrap());
            let result = self.use_up();
            is_over.store(true, Ordering::SeqCst);
            checker.join().unwrap();
            result
        });
        self.stop();
        result?;
        budgets.checked()?;
        drop(self);
        Ok(Arc::into_inner(budgets).map(|budgets| budgets.figures).unwrap())
    }

    /// Starts nodes that share two limits.
    pub(super) fn with(random: Random, (kinds, limits): (Kinds, [u64; 2]), nodes: u64) -> Self {
        let database = postgres_database();
        let db = connect(&database.url());
        for ((id, (metric, period)), limit) in IDS.iter().zip(kinds).zip(limits) {
            db.execute(
                "INSERT INTO quotas (id, kind, subject, metric, period, amount, hard, version, created_at_ms, updated_at_ms) \
                 VALUES (:id, 'gateway', '', :metric, :period, :amount, 1, 1, 1, 1)",
                (id, metric.name(), period.map(Period::name), limit),
            )
            .unwrap();
        }
        // The nodes have seen this server.
        db.batch(SEEN).unwrap();
        let budgets = Arc::new(Budgets { limits: limits.map(AtomicU64::new), ..Budgets::default() });
        let mut cluster = Self {
            random,
            database,
            kinds,
            nodes: Vec::new(),
            open: Arc::default(),
            budgets,
            next_node: 1,
            gone: Vec::new(),
        };
        for _ in 0..nodes {
            cluster.add_node();
        }
        cluster
    }

    fn add_node(&mut self) {
        let node = Node::new(self.next_node, shared().address());
        self.next_node += 1;
        self.nodes.push(node);
        self.start(self.nodes.len() - 1, Disk::default());
    }

    fn start(&mut self, at: usize, disk: Disk) {
        let url = self.database.url_at(self.nodes[at].proxy.address());
        let process = process_of(&mut connect(&self.database.url()), self.nodes[at].id.into());
        self.nodes[at].start(process, url, self.kinds, disk);
        *self.open.lock().unwrap() =
            self.nodes.iter().filter_map(|node| node.process.as_ref().map(Arc::clone)).collect();
    }

    /// Raises the limits a little: so nodes are near the end of what they have for most of the run.
    fn raise(&mut self) {
        let more = [self.random.below(6), self.random.below(120)];
        for (at, id) in IDS.into_iter().enumerate().filter(|(at, _)| more[*at] > 0) {
            self.budgets.limits[at].fetch_add(more[at], Ordering::SeqCst);
            let more = more[at];
            self.database.query(&format!("UPDATE quotas SET amount = amount + {more} WHERE id = '{id}'"));
        }
    }

    /// Breaks something, and lets some time pass.
    fn strike(&mut self, faults: u64) {
        let at = self.random.below(self.nodes.len() as u64) as usize;
        let after = Duration::from_millis(100 + self.random.below(400));
        let nth = 1 + self.random.below(3) as u32;
        let figures = &self.budgets.figures;
        let mode = match self.random.below(faults) {
            0..4 => ProxyMode::Pass,
            4 => ProxyMode::Cut,
            5 => ProxyMode::DropAnswers,
            6 => ProxyMode::HalfOpen,
            7 => ProxyMode::Delay(after / 10),
            8..10 => ProxyMode::LoseCommitAnswer { nth },
            10 => ProxyMode::LateCommit { nth, after },
            // The server has given the transaction up by then.
            11 => ProxyMode::LateCommit { nth, after: Duration::from_millis(1_500) },
            kind => {
                let node = &mut self.nodes[at];
                let disk = node.kill().unwrap();
                figures.kills.fetch_add(1, Ordering::Relaxed);
                if kind == 15 {
                    figures.disks_lost.fetch_add(1, Ordering::Relaxed);
                    self.gone.push((node.id, disk));
                    node.id = self.next_node;
                    self.next_node += 1;
                    self.start(at, Disk::default());
                } else {
                    self.start(at, disk);
                }
                return;
            }
        };
        if mode != ProxyMode::Pass {
            figures.broken.fetch_add(1, Ordering::Relaxed);
        }
        self.nodes[at].proxy.set(mode);
        let end = Instant::now() + Duration::from_millis(20 + self.random.below(150));
        while Instant::now() < end {
            pause(5);
        }
        if self.nodes[at].proxy.struck() {
            self.budgets.figures.commits_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn heal(&self) {
        self.nodes.iter().for_each(|node| node.proxy.set(ProxyMode::Pass));
    }

    /// Uses up what is left of each limit, in ever smaller claims at one node: the others give back what they hold.
    pub(super) fn use_up(&mut self) -> Result<(), String> {
        let end = Instant::now() + USE_UP_TIME;
        for (at, id) in IDS.into_iter().enumerate() {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            let mut running = Vec::new();
            loop {
                let lost = self.lost(at);
                let rest = self.budgets.limit(at).saturating_sub(self.budgets.taken(at) + lost);
                if rest == 0 {
                    break;
                }
                if Instant::now() > end {
                    let rows = self.database.query("SELECT * FROM quota_window");
                    let shares = self.database.query("SELECT * FROM quota_share");
                    let nodes: Vec<String> = self.nodes.iter().map(Node::state).collect();
                    return Err(format!(
                        "{rest} of {id} are left, {lost} lost with disks: {rows:?} {shares:?} {nodes:#?}"
                    ));
                }
                let is_tokens = self.kinds[at].0 == Metric::TotalTokens;
                let amount = if is_tokens { (rest / 3).max(1) } else { 1 };
                let claim = Claim { input_least: amount, input_wanted: amount, ..Claim::default() };
                let process = self.nodes[node].process.as_ref().unwrap();
                match process.begin(&claim, Some(at), &self.budgets) {
                    Some(request) => running.push(request),
                    None => pause(50),
                }
                self.budgets.checked()?;
            }
            running.into_iter().for_each(|request| request.end(100, &self.budgets));
        }
        Ok(())
    }

    /// Returns what nodes hold of a budget that are gone and have not used it.
    fn lost(&self, at: usize) -> u64 {
        let held = |(node, disk): &(u32, Disk)| {
            let id = IDS[at];
            let sql = format!("SELECT granted FROM quota_share WHERE quota = '{id}' AND node = {node}");
            let granted = self.database.query(&sql).first().map_or(0, |row| row[0].parse::<u64>().unwrap());
            granted.saturating_sub(disk.used[at])
        };
        self.gone.iter().map(held).sum()
    }

    pub(super) fn stop(&mut self) {
        for node in &mut self.nodes {
            node.thread.take().into_iter().for_each(super::super::ShareThread::stop);
        }
    }
}

/// Sends requests to any node until told to stop.
pub(super) fn send_requests(
    mut random: Random,
    open: &Mutex<Vec<Arc<Process>>>,
    budgets: &Budgets,
    stop: &AtomicBool,
) {
    let mut running = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let process = {
            let open = open.lock().unwrap();
            Arc::clone(&open[random.below(open.len() as u64) as usize])
        };
        let least = 1 + random.below(10);
        let wanted = least + random.below(30);
        let claim = Claim { input_least: least, input_wanted: wanted, ..Claim::default() };
        running.extend(process.begin(&claim, None, budgets));
        pause(random.below(6));
        if running.len() > 3 || random.below(3) == 0 && !running.is_empty() {
            let at = random.below(running.len() as u64) as usize;
            end(running.swap_remove(at), &mut random, budgets);
        }
    }
    running.into_iter().for_each(|request| end(request, &mut random, budgets));
}

/// Ends a request. Only one that holds less than it wants uses more than it holds.
fn end(request: Running, random: &mut Random, budgets: &Budgets) {
    let percent = if random.below(4) == 0 { 100 } else { random.below(101) };
    request.end(percent, budgets);
}

/// A limit's window in the database, and the shares of it.
#[derive(Debug)]
struct Window {
    quota: String,
    amount: i64,
    granted: i64,
    shares: i64,
    smallest: i64,
}

impl Window {
    /// Returns whether I1 and I2 hold, where requests have used at most `excess` tokens beyond what they held.
    fn is_whole(&self, excess: u64) -> bool {
        let excess = if self.quota == IDS[1] { excess as i64 } else { 0 };
        self.granted == self.shares && self.granted <= self.amount + excess && self.smallest >= 0
    }
}

/// Checks I1 and I2 in the database, and I3 between it and the counters, at every moment until the run is over.
fn check_rows(url: &str, open: &Mutex<Vec<Arc<Process>>>, budgets: &Budgets, is_over: &AtomicBool) {
    let db = connect(url);
    // How often in a row a node seemed to have taken too much: rows and counters are not read at the same moment.
    let mut above: HashMap<(u32, usize), u32> = HashMap::new();
    while !is_over.load(Ordering::SeqCst) {
        let windows: Vec<Window> = db
            .rows(WINDOWS, (), |row| {
                let (quota, amount, granted) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Window { quota, amount, granted, shares: row.get(3)?, smallest: row.get(4)? })
            })
            .unwrap();
        // Read after the rows: a request notes its excess before it settles, so that no row counts one that is not noted.
        let excess = budgets.excess[1].load(Ordering::SeqCst);
        if let Some(broken) = windows.iter().find(|window| !window.is_whole(excess)) {
            budgets.fail(format!("{broken:?}, excess {excess}"));
        }
        let processes = open.lock().unwrap().clone();
        let granted = || -> Vec<(String, u32, u64)> {
            let read = "SELECT quota, node, granted FROM quota_share";
            db.rows(read, (), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
        };
        let before = granted();
        let taken: Vec<_> = processes.iter().map(|process| [process.taken(0), process.taken(1)]).collect();
        let after = granted();
        for (process, taken) in processes.iter().zip(taken) {
            for (at, id) in IDS.into_iter().enumerate() {
                let rows = before.iter().chain(&after).filter(|row| row.0 == id && row.1 == process.id);
                let granted = rows.map(|row| row.2).max().unwrap_or(0);
                let excess = budgets.excess[at].load(Ordering::SeqCst);
                let looks = above.entry((process.id, at)).or_default();
                let Some(taken) = taken[at].filter(|taken| *taken > granted + excess) else {
                    *looks = 0;
                    continue;
                };
                *looks += 1;
                if *looks == 8 {
                    let node = process.id;
                    budgets.fail(format!("I3: node {node} has taken {taken} of {id}, granted {granted}"));
                }
            }
        }
        budgets.figures.checks.fetch_add(1, Ordering::Relaxed);
        pause(10);
    }
}

pub(super) fn pause(ms: u64) {
    thread::park_timeout(Duration::from_millis(ms));
}

const SEEN: &str =
    "UPDATE cluster SET server = CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS BIGINT)";
const WINDOWS: &str = "SELECT w.quota, q.amount, w.granted, CAST(coalesce(sum(s.granted), 0) AS BIGINT) AS shares, \
     coalesce(min(s.granted), 0) AS smallest FROM quota_window AS w JOIN quotas AS q ON q.id = w.quota \
     LEFT JOIN quota_share AS s ON s.quota = w.quota AND s.start_ms = w.start_ms \
     GROUP BY w.quota, w.start_ms, w.granted, q.amount";
const FAULTS_TIME: Duration = Duration::from_millis(1_500);
/// Unknown outcomes take some seconds to decide: a statement that hangs is cancelled on a connection that may hang too.
const USE_UP_TIME: Duration = Duration::from_secs(40);
