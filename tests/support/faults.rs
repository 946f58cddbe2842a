//! A disk that fails, and a process that dies at a chosen moment: a library that stands before the system's own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// While the file `full` or `eio` is in the directory FAULTS, writes to `gateway.db` and to what is beside it fail in that
/// way; with `all-full` or `readonly`, writes to the journal too. The process dies at its DIE_AT-th write to any database, or change of a name of one.
const FAULTS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static const char *path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, size - 1);
    path[n < 0 ? 0 : n] = 0;
    return path;
}
static int told(const char *fault, int fd) {
    char path[4096];
    const char *dir = getenv("FAULTS");
    if (!dir) return 0;
    snprintf(path, sizeof path, "%s/%s", dir, fault);
    if (access(path, F_OK) != 0) return 0;
    path_of(fd, path, sizeof path);
    int with_journal = strcmp(fault, "all-full") == 0 || strcmp(fault, "readonly") == 0;
    return strstr(path, "gateway.db") || (with_journal && strstr(path, "/journal/"));
}
static int refused(int fd) {
    if (told("full", fd) || told("all-full", fd)) errno = ENOSPC;
    else if (told("readonly", fd)) errno = EROFS;
    else return 0;
    return 1;
}
static void step(const char *path) {
    static atomic_long steps;
    const char *at = getenv("DIE_AT");
    if (!at || !(strstr(path, "gateway.db") || strstr(path, "usage.db"))) return;
    if (atomic_fetch_add(&steps, 1) + 1 == atol(at)) _exit(137);
}
static void write_step(int fd) {
    char path[4096];
    if (getenv("DIE_AT")) step(path_of(fd, path, sizeof path));
}
#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
ssize_t write(int fd, const void *b, size_t n) {
    REAL(write);
    if (refused(fd)) return -1;
    write_step(fd);
    return real(fd, b, n);
}
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) {
    REAL(pwrite);
    if (refused(fd)) return -1;
    write_step(fd);
    return real(fd, b, n, o);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off_t o) {
    REAL(pwrite64);
    if (refused(fd)) return -1;
    write_step(fd);
    return real(fd, b, n, o);
}
int fsync(int fd) {
    REAL(fsync);
    if (told("eio", fd)) { errno = EIO; return -1; }
    return real(fd);
}
int fdatasync(int fd) {
    REAL(fdatasync);
    if (told("eio", fd)) { errno = EIO; return -1; }
    return real(fd);
}
int rename(const char *from, const char *to) {
    REAL(rename);
    step(to);
    return real(from, to);
}
int unlink(const char *path) {
    REAL(unlink);
    step(path);
    return real(path);
}
"#;

/// The library, compiled; none where there is no C compiler.
pub(crate) fn library(dir: &Path) -> Option<PathBuf> {
    let (source, library) = (dir.join("faults.c"), dir.join("faults.so"));
    std::fs::write(&source, FAULTS).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
    match compiler.status() {
        Ok(status) => assert!(status.success(), "the library compiles"),
        Err(_) => return None,
    }
    Some(library)
}
