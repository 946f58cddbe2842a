//! Simulates system failures with a preloaded library whose functions take precedence over the system's own: a disk
//! that fails or hangs, threads that cannot be created or that die, a process that dies at a chosen moment.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::skipped;

/// While the file `full` or `eio` is in the directory FAULTS, writes to `gateway.db` and to the files next to it fail
/// with that error; with `all-full` or `readonly`, writes to the journal and new files there fail too. A full disk
/// still accepts writes to allocated blocks: writes within the length of a journal file, and the memory that SQLite
/// maps (`-shm`). While `hang` exists, calls that open or stat a path that starts with its content never return. While
/// `no-threads` exists, no thread can be created; while `no-epoll` exists, the thread whose name is its content cannot
/// wait for events. The process dies at its DIE_AT-th write to, or rename of, any database.
const FAULTS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static const char *path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, size - 1);
    path[n < 0 ? 0 : n] = 0;
    return path;
}
static int is_set(const char *fault) {
    char path[4096];
    const char *dir = getenv("FAULTS");
    if (!dir) return 0;
    snprintf(path, sizeof path, "%s/%s", dir, fault);
    return access(path, F_OK) == 0;
}
static int is_ordered(const char *fault, int fd) {
    char path[4096];
    if (!is_set(fault)) return 0;
    path_of(fd, path, sizeof path);
    int with_journal = strcmp(fault, "all-full") == 0 || strcmp(fault, "readonly") == 0;
    int database = strstr(path, "gateway.db") && !strstr(path, "-shm");
    return database || (with_journal && strstr(path, "/journal/"));
}
static int refused_to_make(const char *path, int flags) {
    if (!(flags & O_CREAT) || !strstr(path, "/journal/")) return 0;
    if (is_set("all-full")) errno = ENOSPC;
    else if (is_set("readonly")) errno = EROFS;
    else return 0;
    return 1;
}
static int refused(int fd) {
    if (is_ordered("full", fd) || is_ordered("all-full", fd)) errno = ENOSPC;
    else if (is_ordered("readonly", fd)) errno = EROFS;
    else return 0;
    return 1;
}
static int is_allocated(int fd, size_t n, off_t o) {
    char path[4096];
    struct stat found;
    if (!strstr(path_of(fd, path, sizeof path), "/journal/")) return 0;
    return fstat(fd, &found) == 0 && o + (off_t)n <= found.st_size;
}
static int refused_at(int fd, size_t n, off_t o) {
    return !(is_set("all-full") && is_allocated(fd, n, o)) && refused(fd);
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
    if (refused_at(fd, n, o)) return -1;
    write_step(fd);
    return real(fd, b, n, o);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off_t o) {
    REAL(pwrite64);
    if (refused_at(fd, n, o)) return -1;
    write_step(fd);
    return real(fd, b, n, o);
}
int fsync(int fd) {
    REAL(fsync);
    if (is_ordered("eio", fd)) { errno = EIO; return -1; }
    return real(fd);
}
int fdatasync(int fd) {
    REAL(fdatasync);
    if (is_ordered("eio", fd)) { errno = EIO; return -1; }
    return real(fd);
}
int rename(const char *from, const char *to) {
    REAL(rename);
    step(to);
    return real(from, to);
}
static int content(const char *fault, char *text, size_t size) {
    char path[4096];
    const char *dir = getenv("FAULTS");
    if (!dir) return 0;
    snprintf(path, sizeof path, "%s/%s", dir, fault);
    int kept = errno, fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    errno = kept;
    if (fd < 0) return 0;
    ssize_t n = syscall(SYS_read, fd, text, size - 1);
    syscall(SYS_close, fd);
    text[n < 0 ? 0 : n] = 0;
    return 1;
}
static void hang(const char *path) {
    char text[4096];
    if (!path || !content("hang", text, sizeof text) || strncmp(path, text, strlen(text)) != 0) return;
    for (;;) pause();
}
int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    hang(path);
    if (refused_to_make(path, flags)) return -1;
    return syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    REAL(statx);
    hang(path);
    return real(dir, path, flags, mask, found);
}
DIR *opendir(const char *path) {
    REAL(opendir);
    hang(path);
    return real(path);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*life)(void *), void *arg) {
    REAL(pthread_create);
    char text[8];
    if (content("no-threads", text, sizeof text)) return EAGAIN;
    return real(thread, how, life, arg);
}
int epoll_wait(int fd, struct epoll_event *events, int count, int timeout) {
    REAL(epoll_wait);
    char text[64], name[17] = {0};
    if (content("no-epoll", text, sizeof text) && prctl(PR_GET_NAME, name) == 0 && strcmp(name, text) == 0) {
        errno = EIO;
        return -1;
    }
    return real(fd, events, count, timeout);
}
int unlink(const char *path) {
    REAL(unlink);
    step(path);
    return real(path);
}
"#;

/// Compiles the library. `None` if there is no C compiler; the test is then skipped.
pub(crate) fn library(dir: &Path) -> Option<PathBuf> {
    compile(dir, "faults", FAULTS)
}

/// Like [`library`], from `code`, under `name`.
pub(crate) fn compile(dir: &Path, name: &str, code: &str) -> Option<PathBuf> {
    let (source, library) = (dir.join(name).with_extension("c"), dir.join(name).with_extension("so"));
    std::fs::write(&source, code).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
    match compiler.status() {
        Ok(status) => assert!(status.success(), "the library compiles"),
        Err(error) => {
            skipped(&format!("there is no C compiler to make the disk fail with: {error}"));
            return None;
        }
    }
    Some(library)
}
