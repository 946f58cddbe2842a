//! A provider whose name changes its addresses while connections are open, and when they fail. The resolver is the system's,
//! overridden by a library that reads the addresses of a name from a file.

use std::path::PathBuf;

use super::Rig;
use crate::support::h2_frames::{FrameUpstream, GOAWAY, Manners, Reaction, frame};
use crate::support::{Yaml, faults};

/// Names below `moves.test` have the addresses in the file NAMES_ADDRESSES, separated by spaces.
const NAMES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res) {
    static __typeof__(&getaddrinfo) real;
    if (!real) real = (__typeof__(&getaddrinfo))dlsym(RTLD_NEXT, "getaddrinfo");
    if (!node || !strstr(node, "moves.test")) return real(node, service, hints, res);
    char text[64];
    FILE *file = fopen(getenv("NAMES_ADDRESSES"), "r");
    if (!file) return EAI_NONAME;
    struct addrinfo **next = res;
    int result = EAI_NONAME;
    while (fscanf(file, "%63s", text) == 1 && (result = real(text, service, hints, next)) == 0)
        while (*next) next = &(*next)->ai_next;
    fclose(file);
    return result;
}
"#;

/// A gateway whose provider `up` has a name that moves.
struct Moving {
    rig: Rig,
    addresses: PathBuf,
    _dir: tempfile::TempDir,
}

impl Moving {
    async fn start(port: u16, addresses: &str, members: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = faults::compile(dir.path(), "names", NAMES).expect("a C compiler");
        let file = dir.path().join("addresses");
        std::fs::write(&file, addresses).unwrap();
        let yaml = Yaml::new().provider_with("up", format!("http://moves.test:{port}/v1"), members);
        let rig = Rig::with(yaml, None, |setup| {
            setup.env("LD_PRELOAD", library.to_str().unwrap()).env("NAMES_ADDRESSES", file.to_str().unwrap())
        })
        .await;
        Self { rig, addresses: file, _dir: dir }
    }

    fn moves(&self, addresses: &str) {
        std::fs::write(&self.addresses, addresses).unwrap();
    }

    async fn status(&self) -> u16 {
        self.rig.ask("up/m").await.expect("an answer").0
    }
}

/// Starts an upstream on 127.0.0.`last`.
async fn on(
    last: u8,
    port: u16,
    react: impl Fn(usize, usize) -> Reaction + Send + Sync + 'static,
) -> FrameUpstream {
    let address = ([127, 0, 0, last], port).into();
    FrameUpstream::with(Manners { address, grants: false, ..Manners::default() }, react).await
}

const HTTP2: &str = "http_version: \"2\"\ntimeout: 2";

/// An open connection serves on; when its upstream leaves, the next one goes to the new address, and no request fails.
#[tokio::test]
async fn a_changed_address_is_followed_when_the_old_one_leaves() {
    let old = on(1, 0, |_, _| Reaction::Answer).await;
    let new = on(2, old.port(), |_, _| Reaction::Answer).await;
    let moving = Moving::start(old.port(), "127.0.0.1", HTTP2).await;
    moving
        .rig
        .row("names: the address changes while a connection is open", async {
            assert_eq!(moving.status().await, 200);
            moving.moves("127.0.0.2");
            for _ in 0..5 {
                assert_eq!(moving.status().await, 200);
            }
            assert_eq!((old.counts().requests, new.counts().requests), (6, 0));
            old.say(0, frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
            while new.counts().requests == 0 {
                assert_eq!(moving.status().await, 200);
            }
        })
        .await;
    assert_eq!((old.counts().connections, new.counts().connections), (1, 1));
}

/// The old address is dead: its connection is forgotten without a word. That costs one timeout.
#[tokio::test]
async fn a_changed_address_is_followed_when_the_old_one_is_dead() {
    let old = on(1, 0, |_, request| if request == 0 { Reaction::Answer } else { Reaction::Freeze }).await;
    let new = on(2, old.port(), |_, _| Reaction::Answer).await;
    let moving = Moving::start(old.port(), "127.0.0.1", HTTP2).await;
    let statuses = moving
        .rig
        .row("names: the address changes, and the old one is silent", async {
            let mut statuses = vec![moving.status().await];
            moving.moves("127.0.0.2");
            for _ in 0..4 {
                statuses.push(moving.status().await);
            }
            statuses
        })
        .await;
    assert_eq!(statuses, [200, 504, 200, 200, 200]);
    assert_eq!(new.counts().requests, 3);
}

/// A dead address before the good one costs no request, and neither does a name server that forgets the name while a
/// connection is open.
#[tokio::test]
async fn a_dead_address_is_followed_by_the_next_and_an_unknown_name_fails_only_new_connections() {
    let good = on(2, 0, |_, _| Reaction::Answer).await;
    let moving = Moving::start(good.port(), "127.0.0.3 127.0.0.4 127.0.0.2", HTTP2).await;
    moving
        .rig
        .row("names: dead addresses come first, then the name is unknown", async {
            assert_eq!(moving.status().await, 200);
            std::fs::remove_file(&moving.addresses).unwrap();
            assert_eq!(moving.status().await, 200, "the connection is open");
            good.say(0, frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]));
            while moving.status().await == 200 {}
            let (status, body) = moving.rig.ask("up/m").await.unwrap();
            let text = String::from_utf8_lossy(&body).into_owned();
            assert!(status == 502 && text.contains("its host name was not found"), "{text}");
            moving.moves("127.0.0.3 127.0.0.2");
            assert_eq!(moving.status().await, 200, "the name is known again");
        })
        .await;
    assert_eq!(good.counts().connections, 2);
}

/// A failure is not remembered: the next request resolves the name again.
#[tokio::test]
async fn every_address_may_be_dead() {
    let good = on(2, 0, |_, _| Reaction::Answer).await;
    let moving = Moving::start(good.port(), "127.0.0.3 127.0.0.4", HTTP2).await;
    moving
        .rig
        .row("names: every address is dead, then one works", async {
            assert_eq!(moving.status().await, 502);
            moving.moves("127.0.0.4 127.0.0.2");
            assert_eq!(moving.status().await, 200);
        })
        .await;
}
