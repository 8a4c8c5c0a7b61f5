#define _GNU_SOURCE /* pipe2 */
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

enum { OUTPUT_LIMIT = 1 << 20, POLL_MS = 20 };

typedef struct child {
    pid_t pid;
    int pipe; /* -1 once it is at its end */
    int wait_status;
    bool ended;
    gki_buf output;
} child;

/* Own process group, so that a timeout also ends what the child started; default signals; nothing
 * to read. */
static int spawn(const char *const *argv, int write_end, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) {
        return rc;
    }
    rc = posix_spawnattr_init(&attributes);
    if (rc != 0) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return rc;
    }
    sigset_t none;
    sigset_t usual;
    (void)sigemptyset(&none);
    (void)sigemptyset(&usual);
    (void)sigaddset(&usual, SIGPIPE);
    (void)sigaddset(&usual, SIGCHLD);
    (void)sigaddset(&usual, SIGTERM);
    short flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    rc = posix_spawnattr_setsigmask(&attributes, &none);
    rc = rc != 0 ? rc : posix_spawnattr_setsigdefault(&attributes, &usual);
    rc = rc != 0 ? rc : posix_spawnattr_setflags(&attributes, flags);
    rc = rc != 0
             ? rc
             : posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    rc = rc != 0 ? rc : posix_spawn_file_actions_adddup2(&actions, write_end, STDOUT_FILENO);
    rc = rc != 0 ? rc : posix_spawn_file_actions_adddup2(&actions, write_end, STDERR_FILENO);
    if (rc == 0) {
        /* posix_spawn takes char *const[] but does not write. */
        union {
            const char *const *in;
            char *const *out;
        } arguments = {.in = argv};
        rc = posix_spawnp(pid, argv[0], &actions, &attributes, arguments.out, environ);
    }
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* Reads once; false if nothing came. */
static bool drain(child *c)
{
    char bytes[8192];
    ssize_t n = read(c->pipe, bytes, sizeof bytes);
    if (n > 0) {
        size_t room = OUTPUT_LIMIT - c->output.length;
        gki_buf_append(&c->output, bytes, (size_t)n < room ? (size_t)n : room);
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        (void)close(c->pipe);
        c->pipe = -1;
    }
    return false;
}

/* errno, or 0. */
static int reap(child *c, int flags)
{
    while (!c->ended) {
        pid_t got = waitpid(c->pid, &c->wait_status, flags);
        if (got == c->pid) {
            c->ended = true;
        } else if (got == 0) {
            return 0;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* Until the child has ended and its output is read. A grandchild may hold the pipe open. */
static int follow(child *c, double timeout_s, bool *timed_out)
{
    uint64_t start = gki_clock_ns();
    while (!c->ended) {
        struct pollfd fd = {.fd = c->pipe, .events = POLLIN};
        int ready = poll(&fd, 1, c->pipe >= 0 ? POLL_MS : 1);
        if (ready > 0) {
            (void)drain(c);
        }
        if (ready <= 0 || c->pipe < 0) {
            int error = reap(c, WNOHANG);
            if (error != 0) {
                return error;
            }
        }
        double elapsed = (double)(gki_clock_ns() - start) * 1e-9;
        if (!c->ended && timeout_s > 0 && elapsed > timeout_s) {
            *timed_out = true;
            (void)kill(-c->pid, SIGKILL);
            (void)kill(c->pid, SIGKILL);
            int error = reap(c, 0);
            if (error != 0) {
                return error;
            }
        }
    }
    while (c->pipe >= 0 && drain(c)) {
    }
    return 0;
}

static gk_status start(const char *const *argv, child *c)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return gki_fail_code(GK_ERR_IO, "proc", errno, "cannot create a pipe for '%s': %s", argv[0],
                             strerror(errno));
    }
    int rc = fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 ? spawn(argv, ends[1], &c->pid) : errno;
    (void)close(ends[1]);
    if (rc != 0) {
        (void)close(ends[0]);
        return gki_fail_code(GK_ERR_IO, "proc", rc, "cannot start '%s': %s", argv[0], strerror(rc));
    }
    c->pipe = ends[0];
    return GK_OK;
}

gk_status gki_proc_run(const char *const *argv, double timeout_s, gki_proc_result *out)
{
    *out = (gki_proc_result){0};
    child c = {.pipe = -1};
    gk_status status = start(argv, &c);
    if (status != GK_OK) {
        return status;
    }
    bool timed_out = false;
    int error = follow(&c, timeout_s, &timed_out);
    if (c.pipe >= 0) {
        (void)close(c.pipe);
    }
    gki_buf_puts(&c.output, "");
    if (error != 0) {
        /* ECHILD: the application ignores SIGCHLD, and the kernel threw the status away. */
        status = gki_fail_code(GK_ERR_IO, "proc", error, "the exit status of '%s' is lost: %s",
                               argv[0], strerror(error));
    } else if (timed_out) {
        status = gk_fail(GK_ERR_TIMEOUT, "proc", "'%s' ran longer than %lld ms and was killed",
                         argv[0], (long long)(timeout_s * 1e3));
    } else if (c.output.failed) {
        status = gki_fail_nomem("proc", c.output.length);
    }
    if (status != GK_OK) {
        gki_buf_free(&c.output);
        return status;
    }
    if (WIFEXITED(c.wait_status)) {
        out->exit_code = WEXITSTATUS(c.wait_status);
    } else {
        out->exit_code = -1;
        out->signal = WTERMSIG(c.wait_status);
    }
    out->output = c.output.text;
    return GK_OK;
}
