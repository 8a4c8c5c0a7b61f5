/* Runs a function in a child process, for libraries that are loaded once per process. The test
 * file defines _GNU_SOURCE (mmap's MAP_ANONYMOUS). */
#ifndef IN_CHILD_H
#define IN_CHILD_H

#include "support/gk_test.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs fn(data) on shared memory of that size, zeroed first, and copies it to `data` afterwards.
 * The child must not use cmocka's assertions. */
static inline void in_child(void (*fn)(void *data), void *data, size_t size)
{
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fn(shared);
        _exit(0);
    }
    int status = -1;
    assert_true(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("the child ended with wait status %d", status);
    }
    __builtin_memcpy(data, shared, size);
    (void)munmap(shared, size);
}

#endif
