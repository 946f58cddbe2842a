//! Tests the scripted upstream and the client against each other: the tests of the gateway rely on them.

use crate::support::{Answer, Client, Gate, Upstream, chat, proc};

fn client_of(upstream: &Upstream) -> Client {
    let authority = upstream.base_url().replace("http://", "").replace("/v1", "");
    Client::new(authority.parse().unwrap(), None)
}

#[tokio::test]
async fn whole_answers_come_in_the_order_of_the_script() {
    let upstream = Upstream::start().await;
    upstream.then(Answer::error(503)).always(Answer::completion("hello"));
    let client = client_of(&upstream);
    assert_eq!(client.chat(chat::request("m")).await.status, 503);
    let answer = client.chat(chat::request("m")).await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "hello");
    assert_eq!(upstream.requests().len(), 2);
    assert_eq!(upstream.request(1).await.json()["model"], "m");
}

#[tokio::test]
async fn an_event_waits_for_its_gate() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let events = chat::events(&["a", "b"]);
    upstream.always(Answer::gated_events(&events, &gate));
    let mut flow = client_of(&upstream).chat_flow(chat::stream_request("m")).await;
    for event in &events {
        let sent = upstream.sent_bytes();
        gate.open(1);
        assert_eq!(flow.event().await.bytes, *event);
        assert!(upstream.sent_bytes() > sent, "the event was not there before its gate opened");
    }
    assert!(flow.next().await.is_none());
}

#[tokio::test]
async fn the_client_reports_a_cut_and_a_reset_as_broken_streams() {
    let upstream = Upstream::start().await;
    let events = chat::events(&["a", "b"]);
    let begun = || Answer::stream().chunk(&events[0]).chunk(&events[1]);
    upstream.then(begun().close()).then(begun().reset());
    for _ in 0..2 {
        let mut flow = client_of(&upstream).chat_flow(chat::stream_request("m")).await;
        let (_, whole) = flow.rest().await;
        assert!(!whole);
    }
}

#[tokio::test]
async fn the_scripted_upstream_records_a_client_disconnect() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::stream().chunk(chat::role()).hang());
    let mut flow = client_of(&upstream).chat_flow(chat::stream_request("m")).await;
    flow.event().await;
    assert_eq!(upstream.closed_count(), 0);
    let left = std::time::Instant::now();
    drop(flow);
    assert!(upstream.closed(0).await >= left);
}

#[test]
fn children_of_every_thread_are_listed_as_children_of_the_process() {
    let (started, child) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        started.send(child.id()).unwrap();
        // The children of a thread that ends become those of another one.
        let _ = ended.recv();
        child.kill().unwrap();
        child.wait().unwrap();
    });
    let child = child.recv().unwrap();
    let is_listed = proc::children(std::process::id()).contains(&child);
    drop(end);
    thread.join().unwrap();
    assert!(is_listed);
}
