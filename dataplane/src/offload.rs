//! Work on large bodies, which would hold up the other requests of a worker: it runs on a blocking thread.

/// Runs `work`, whose time grows with a body of `bytes` bytes: here if the body is small, otherwise on a blocking thread.
/// If the caller leaves, work that has begun there goes on to its end.
pub(crate) async fn run<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes <= HERE_BYTES_MAX {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and the caller with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// True if work on a body of `bytes` bytes leaves the worker.
pub(crate) fn is_large(bytes: u64) -> bool {
    bytes > HERE_BYTES_MAX as u64
}

/// The maximum bytes of a body that is handled on the worker itself.
const HERE_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn only_large_work_leaves_the_worker() {
        let here = thread::current().id();
        assert_eq!(run(HERE_BYTES_MAX, || thread::current().id()).await, here);
        assert_ne!(run(HERE_BYTES_MAX + 1, || thread::current().id()).await, here);
    }

    #[tokio::test]
    #[should_panic(expected = "odd")]
    async fn a_panic_on_the_blocking_thread_reaches_the_caller() {
        run(HERE_BYTES_MAX + 1, || panic!("odd")).await
    }
}
