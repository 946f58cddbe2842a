//! Sockets whose other end is on the same machine.

use std::net::IpAddr;

use socket2::SockRef;

/// Has `socket`, which is about to connect to `address` or to listen at it, send as fast as the other end reads if that
/// is on the same machine. BBR, where the system has it as its default, would spread a large body over time and set a
/// timer for each part of it, though between the two there is nothing to be congested. Reno is in every kernel and sets
/// none. It is too late once there is a connection: one that BBR began stays paced.
pub(crate) fn none_within_machine(socket: &SockRef<'_>, address: IpAddr) {
    #[cfg(target_os = "linux")]
    if address.to_canonical().is_loopback() {
        // Without it the connection is slower, not wrong.
        socket.set_tcp_congestion(b"reno").ok();
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (socket, address);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::threads::listen;
    use crate::upstream::dial::connect_to;

    #[tokio::test]
    async fn both_ends_within_a_machine_are_without() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = connect_to(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().unwrap();
        for socket in [SockRef::from(&client), SockRef::from(&server)] {
            let name = socket.tcp_congestion().unwrap();
            assert!(name.starts_with(b"reno\0"), "{name:?}");
        }
        assert!(client.nodelay().unwrap());
    }
}
