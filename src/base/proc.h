/* Child processes, without a shell. */
#ifndef GKI_PROC_H
#define GKI_PROC_H

#include <gk/base.h>

typedef struct gki_proc_result {
    int exit_code; /* -1 if a signal ended it */
    int signal;
    char *output; /* stdout and stderr together, at most 1 MiB, NUL-terminated; gki_free */
} gki_proc_result;

/* Runs argv (argv[0] looked up in PATH, NULL-terminated) to its end, with no input and in a process
 * group of its own. GK_ERR_IO if it cannot be started; GK_ERR_TIMEOUT if it runs longer than
 * timeout_s (its group is killed; 0 = no limit). *out is zeroed on failure. */
gk_status gki_proc_run(const char *const *argv, double timeout_s, gki_proc_result *out);

#endif
