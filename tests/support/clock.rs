//! Sets the clock of gateways in tests that count by hour or day, or whose prices depend on the hour. The clock starts
//! at half past twelve (UTC), so that no test crosses the boundary of such a window, or at a time that the test
//! chooses.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::skipped;

/// Adds CLOCK_OFFSET seconds to the system's time of day, and those in the file CLOCK_FILE, which a test can change while the gateway
/// runs. Durations are not affected.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static const volatile long long *set;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("CLOCK_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) set = mapped;
}
static time_t offset(void) {
    const char *seconds = getenv("CLOCK_OFFSET");
    return (seconds ? (time_t)atoll(seconds) : 0) + (set ? (time_t)*set : 0);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    if (result == 0 && now) now->tv_sec += offset();
    return result;
}
"#;

/// Returns the environment of a process whose clock shows the [next noon](next_noon) now. Empty if there is no C compiler.
pub(crate) fn at_noon() -> Vec<(&'static str, String)> {
    at(next_noon()).unwrap_or_default()
}

/// Returns the Unix time of the next half past twelve. An earlier one could lie before the build of the binary, which a gateway
/// takes for a wrong clock.
pub(crate) fn next_noon() -> i64 {
    let morning = now() - NOON_SECONDS;
    morning - morning.rem_euclid(SECONDS_IN_DAY) + SECONDS_IN_DAY + NOON_SECONDS
}

/// Returns the environment of a process whose clock shows this Unix time now. `None` if there is no C compiler.
pub(crate) fn at(unix_seconds: i64) -> Option<Vec<(&'static str, String)>> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| library(Path::new(env!("CARGO_TARGET_TMPDIR")))).as_ref()?;
    let offset = unix_seconds - now();
    Some(vec![("LD_PRELOAD", library.to_str().unwrap().to_owned()), ("CLOCK_OFFSET", offset.to_string())])
}

/// A clock that a test sets while gateways run.
#[derive(Debug)]
pub(crate) struct SetClock(PathBuf);

impl SetClock {
    /// Returns a clock that is right. `None` if there is no C compiler.
    pub(crate) fn right(dir: &Path) -> Option<(Self, Vec<(&'static str, String)>)> {
        let clock = Self(dir.join("clock"));
        clock.set_ahead(0);
        let mut environment = at(now())?;
        environment.push(("CLOCK_FILE", clock.0.to_str().unwrap().to_owned()));
        Some((clock, environment))
    }

    /// Sets the clock so many seconds ahead of that of the machine.
    pub(crate) fn set_ahead(&self, seconds: i64) {
        // The gateway has mapped the file, so its length stays.
        let mut file = File::options().write(true).create(true).truncate(false).open(&self.0).unwrap();
        file.write_all(&seconds.to_ne_bytes()).unwrap();
    }
}

fn now() -> i64 {
    i64::try_from(shared::clock::unix_ms() / 1_000).unwrap()
}

/// Compiles the library. Each test process compiles a separate one.
fn library(dir: &Path) -> Option<PathBuf> {
    let name = format!("clock-{}", std::process::id());
    let (source, library) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.so")));
    std::fs::write(&source, CLOCK).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
    match compiler.status() {
        Ok(status) => assert!(status.success(), "the library compiles"),
        Err(error) => {
            skipped(&format!("there is no C compiler to set the gateway's clock with: {error}"));
            return None;
        }
    }
    Some(library)
}

const NOON_SECONDS: i64 = 12 * 3_600 + 1_800;
const SECONDS_IN_DAY: i64 = 86_400;
