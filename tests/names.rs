//! Upstream names that do not resolve, or whose first address is dead (LIM-5): a provider's name server that hangs affects
//! only that provider. The resolver is the system's, overridden by a library in which some names hang.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::client::{Failure, Whole};
use crate::support::figure::{figure, times};
use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat, faults, wait};

/// While the file NAMES_HANG exists, look-ups of names that begin with `hangs` do not return, and are logged to
/// NAMES_ASKED; every name below `test` resolves to this machine, and those that begin with `two` to 127.0.0.2 before it.
const NAMES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res) {
    static __typeof__(&getaddrinfo) real;
    if (!real) real = (__typeof__(&getaddrinfo))dlsym(RTLD_NEXT, "getaddrinfo");
    if (node && strncmp(node, "hangs", 5) == 0) {
        close(open(getenv("NAMES_ASKED"), O_CREAT | O_WRONLY, 0600));
        while (access(getenv("NAMES_HANG"), F_OK) == 0) usleep(10000);
    }
    const char *first = node && strncmp(node, "two", 3) == 0 ? "127.0.0.2" : NULL;
    if (node && strstr(node, ".test")) node = "127.0.0.1";
    int result = first ? real(first, service, hints, res) : 0;
    if (!first || result) return first ? result : real(node, service, hints, res);
    struct addrinfo *last = *res;
    while (last->ai_next) last = last->ai_next;
    return real(node, service, hints, &last->ai_next);
}
"#;

/// A gateway with one worker and the providers `hung`, whose name look-up hangs, and `good`.
struct Rig {
    dir: TempDir,
    gateway: Gateway,
    upstream: Upstream,
}

impl Rig {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = faults::compile(dir.path(), "names", NAMES).expect("a C compiler");
        std::fs::write(hang(dir.path()), "").unwrap();
        let upstream = Upstream::start().await;
        upstream.always(Answer::completion("ok"));
        let url = |host: &str| upstream.base_url().replace("127.0.0.1", host);
        let yaml = Yaml::new().provider_with("hung", url("hangs.test"), "models: [m]").provider_with(
            "good",
            url("works.test"),
            "models: [m]",
        );
        let setup = Setup::new(&yaml)
            .env("LD_PRELOAD", library.to_str().unwrap())
            .env("NAMES_HANG", hang(dir.path()).to_str().unwrap())
            .env("NAMES_ASKED", marker(dir.path()).to_str().unwrap())
            .env("LLMGW_DRAIN_SECONDS", "0")
            .env("LLMGW_WORKERS", "1");
        Self { gateway: setup.start().await, upstream, dir }
    }

    /// Sends forty requests for the provider whose name hangs, once the look-up has started.
    async fn send_forty_hung_requests(&self) -> JoinSet<Result<Whole, Failure>> {
        let mut hung = JoinSet::new();
        for _ in 0..40 {
            let client = self.gateway.client().with("content-type", "application/json");
            let body = Bytes::from(chat::request("hung/m"));
            hung.spawn(async move { client.send("POST", "/v1/chat/completions", body).await });
        }
        let marker = marker(self.dir.path());
        wait::eventually("a look-up that hangs", async || marker.exists().then_some(())).await;
        let client = self.gateway.client();
        wait::eventually("forty requests", async || {
            let metrics = client.get("/metrics").await.ok()?;
            let text = String::from_utf8(metrics.body.to_vec()).ok()?;
            let count = text.lines().find_map(|line| line.strip_prefix("llmgw_connections "))?;
            (count.parse::<usize>().ok()? > 40).then_some(())
        })
        .await;
        hung
    }
}

fn hang(dir: &Path) -> PathBuf {
    dir.join("hang")
}

fn marker(dir: &Path) -> PathBuf {
    dir.join("asked")
}

#[tokio::test]
async fn a_hung_name_server_delays_only_its_own_provider() {
    let rig = Rig::start().await;
    let hung = rig.send_forty_hung_requests().await;
    let client = rig.gateway.client();
    assert_eq!(client.chat(chat::request("good/m")).await.status, 200, "another name is looked up");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(chat::request("good/m").as_bytes()).unwrap();
    let unpacked = client.with("content-encoding", "gzip").chat(packed.finish().unwrap()).await;
    assert_eq!(unpacked.status, 200, "a body is unpacked");
    assert_eq!(rig.upstream.requests().len(), 2);
    for answer in hung.join_all().await {
        let answer = answer.unwrap();
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (502, "upstream_unreachable"),
            "{answer:?}"
        );
    }
    std::fs::remove_file(hang(rig.dir.path())).unwrap();
    wait::eventually("the provider whose name has an answer again", async || {
        (rig.gateway.client().chat(chat::request("hung/m")).await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_hung_name_server_does_not_delay_the_stop() {
    let mut rig = Rig::start().await;
    let hung = rig.send_forty_hung_requests().await;
    rig.gateway.signal(Signal::TERM);
    assert!(rig.gateway.exit().await.success());
    drop(hung);
}

/// Returns a listener whose queue is full, and the connections in it: the kernel drops the packets of further ones.
fn black_hole(address: SocketAddr) -> Vec<Socket> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&address.into()).unwrap();
    listener.listen(0).unwrap();
    let mut sockets = vec![listener];
    for _ in 0..4 {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        client.set_nonblocking(true).unwrap();
        client.connect(&address.into()).ok();
        sockets.push(client);
    }
    sockets
}

#[tokio::test]
async fn a_dead_address_does_not_hide_the_next_one_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let library = faults::compile(dir.path(), "names", NAMES).expect("a C compiler");
    let upstream = Upstream::start().await;
    // Each request needs a new connection.
    upstream.always(Answer::completion("ok").close());
    let _hole = black_hole(SocketAddr::from(([127, 0, 0, 2], upstream.address().port())));
    let yaml = Yaml::one(upstream.base_url().replace("127.0.0.1", "two.test"));
    let gateway = Setup::new(&yaml).env("LD_PRELOAD", library.to_str().unwrap()).start().await;
    let mut waits = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        let answer = gateway.client().chat(chat::request("m")).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        waits.push(began.elapsed());
    }
    assert_eq!(upstream.connections(), 3);
    figure(
        "LIM-5",
        format!("a name whose first address is dead, a new connection each: {}", times(&mut waits)),
    );
}
