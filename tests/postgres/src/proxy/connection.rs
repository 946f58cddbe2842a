//! One connection through the proxy, from its acceptance to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::commits::Sought;
use super::pump::Pump;
use super::{Plan, ProxyMode, State};

/// How a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// Both sides have closed it.
    Closed,
    /// Both sides get a reset.
    Reset,
    /// The client gets a reset, the server the bytes after some time.
    Late { bytes: Vec<u8>, after: Duration },
}

/// Forwards a connection until it ends.
pub(crate) async fn serve(client: TcpStream, mut plans: watch::Receiver<Plan>, state: Arc<State>) {
    state.connections.fetch_add(1, Ordering::SeqCst);
    forward(client, &mut plans, &state).await;
    state.connections.fetch_sub(1, Ordering::SeqCst);
}

async fn forward(mut client: TcpStream, plans: &mut watch::Receiver<Plan>, state: &State) {
    let halting = |plan: &Plan| plan.mode == ProxyMode::HalfOpen;
    let Ok(plan) = plans.wait_for(|plan| !halting(plan)).await.map(|plan| *plan) else { return };
    if plan.mode == ProxyMode::Cut {
        return reset(client);
    }
    let Ok(mut server) = TcpStream::connect(plan.target).await else { return reset(client) };
    let _ = server.set_nodelay(true);

    let lost = AtomicBool::new(false);
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let requests = Pump::new(Sought::Request, plans.clone(), state, &lost);
        let answers = Pump::new(Sought::Answer, plans.clone(), state, &lost);
        tokio::select! {
            end = both(requests.run(from_client, to_server), answers.run(from_server, to_client)) => end,
            () = broken(plans, &lost) => End::Reset,
        }
    };
    match end {
        End::Closed => {}
        End::Reset => {
            reset(client);
            reset(server);
        }
        End::Late { bytes, after } => {
            reset(client);
            tokio::time::sleep(after).await;
            deliver(server, &bytes).await;
        }
    }
}

/// Waits for both directions, or for the first that ends the connection.
async fn both(requests: impl Future<Output = End>, answers: impl Future<Output = End>) -> End {
    tokio::pin!(requests, answers);
    let (first, requests_ended) = tokio::select! {
        end = &mut requests => (end, true),
        end = &mut answers => (end, false),
    };
    match first {
        End::Closed if requests_ended => answers.await,
        End::Closed => requests.await,
        End::Reset | End::Late { .. } => first,
    }
}

/// Waits until the mode resets the connection.
async fn broken(plans: &mut watch::Receiver<Plan>, lost: &AtomicBool) {
    let resets = |plan: &Plan| match plan.mode {
        ProxyMode::Cut => true,
        ProxyMode::DropAnswers => false,
        _ => lost.load(Ordering::SeqCst),
    };
    // If the proxy is dropped, the connection ends with its runtime.
    if plans.wait_for(resets).await.is_err() {
        std::future::pending().await
    }
}

/// Closes the socket so that the other side gets a reset.
fn reset(socket: TcpStream) {
    let _ = socket.set_zero_linger();
    drop(socket);
}

/// Sends the last bytes, and waits until the server has closed the connection.
async fn deliver(mut server: TcpStream, bytes: &[u8]) {
    if server.write_all(bytes).await.is_ok() && server.shutdown().await.is_ok() {
        let mut answer = [0; 4_096];
        while server.read(&mut answer).await.is_ok_and(|read| read > 0) {}
    }
}
