/*
 * How long a process waits for its first result when the answer is in the cache file. A child
 * process tunes bf16 256x256x256 into a private file; another one opens a context on it and times
 * the first gk_matmul_relu, from the return of gk_context_create to the end of its
 * synchronisation.
 *
 * Exit status 0, 1, or 77 without a GPU (1 with $GK_TEST_REQUIRE_GPU).
 */
#define _GNU_SOURCE
#include <gk/gk.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 256, NO_GPU = 77 };
static const double LIMIT_MS = 15;
static const uint16_t ONE = 0x3f80; /* 1.0 as bf16 */
static const uint16_t SUM = 0x4380; /* 256.0 */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int complain(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", what, gk_status_name(gk_error_last()->status),
            gk_error_last()->message);
    return 1;
}

/* Operands of ones; c is poisoned. */
static gk_status make_operands(gk_context *ctx, gk_tensor *tensors)
{
    static uint16_t ones[SIZE * SIZE];
    static uint16_t poison[SIZE * SIZE];
    for (int i = 0; i < SIZE * SIZE; i++) {
        ones[i] = ONE;
        poison[i] = 0xffff;
    }
    for (int i = 0; i < 3; i++) {
        void *memory = NULL;
        gk_status status = gk_mem_alloc(ctx, sizeof(ones), &memory);
        if (status == GK_OK) {
            status = gk_mem_upload(ctx, memory, i < 2 ? ones : poison, sizeof(ones), NULL);
        }
        if (status != GK_OK) {
            return status;
        }
        tensors[i] = gk_matrix(memory, GK_BF16, SIZE, SIZE);
    }
    return GK_OK;
}

static int check_result(gk_context *ctx, const gk_tensor *c)
{
    static uint16_t got[SIZE * SIZE];
    if (gk_mem_download(ctx, got, c->data, sizeof(got), NULL) != GK_OK) {
        return complain("download");
    }
    for (int i = 0; i < SIZE * SIZE; i++) {
        if (got[i] != SUM) {
            fprintf(stderr, "c[%d,%d] has the bits %04x, not %04x\n", i / SIZE, i % SIZE, got[i],
                    SUM);
            return 1;
        }
    }
    return 0;
}

/* A noisy measurement is not kept: some attempts. */
static int tune(gk_context *ctx)
{
    gk_tensor t[3];
    gk_call call;
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    gk_tune_report report = {.struct_size = sizeof(report)};
    if (make_operands(ctx, t) != GK_OK ||
        gk_matmul_call(&call, &t[0], &t[1], &t[2], NULL) != GK_OK) {
        return complain("operands");
    }
    options.budget_s = 5;
    options.retune = true;
    for (int attempt = 0; attempt < 3 && !report.saved; attempt++) {
        if (gk_tune(ctx, "matmul_relu", &call, &options, &report) != GK_OK) {
            return complain("gk_tune");
        }
    }
    if (!report.saved) {
        fprintf(stderr, "the answer was not saved\n");
        return 1;
    }
    return 0;
}

static int first_call(gk_context *ctx, double created_ms)
{
    gk_tensor t[3];
    gk_statistics stats = {.struct_size = sizeof(stats)};
    if (make_operands(ctx, t) != GK_OK) {
        return complain("operands");
    }
    const double ready_ms = now_ms();
    if (gk_matmul_relu(ctx, &t[0], &t[1], &t[2], NULL) != GK_OK ||
        gk_synchronize(ctx, NULL) != GK_OK) {
        return complain("gk_matmul_relu");
    }
    const double end_ms = now_ms();
    const double total = end_ms - created_ms;
    printf("first result %.2f ms after gk_context_create (operands %.2f ms, call %.2f ms)\n", total,
           ready_ms - created_ms, end_ms - ready_ms);
    if (gk_stats(ctx, &stats) != GK_OK) {
        return complain("gk_stats");
    }
    if (stats.compiles != 0 || stats.tunes != 0 || stats.hits_cache != 1) {
        fprintf(stderr, "%d compiles, %d tunings, %d answers from the file; not 0, 0, 1\n",
                (int)stats.compiles, (int)stats.tunes, (int)stats.hits_cache);
        return 1;
    }
    if (!(total <= LIMIT_MS)) {
        fprintf(stderr, "%.2f ms, at most %.0f ms are allowed\n", total, LIMIT_MS);
        return 1;
    }
    return check_result(ctx, &t[2]);
}

/* One child's life. Memory ends with the process. */
static int child(const char *path, gk_mode mode)
{
    const gk_context_options options = {
        .struct_size = sizeof(options), .cache_path = path, .mode = mode};
    gk_context *ctx = NULL;
    const gk_status status = gk_context_create(&ctx, "cuda", &options);
    const double created_ms = now_ms();
    if (status != GK_OK) {
        complain("gk_context_create");
        return status == GK_ERR_NO_DRIVER && getenv("GK_TEST_REQUIRE_GPU") == NULL ? NO_GPU : 1;
    }
    const int code = mode == GK_MODE_TUNE ? tune(ctx) : first_call(ctx, created_ms);
    gk_context_destroy(&ctx);
    return code;
}

/* The parent never touches the driver, so that each child starts from nothing. */
static int run_child(const char *path, gk_mode mode)
{
    int how = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        const int code = child(path, mode);
        fflush(NULL);
        _exit(code);
    }
    if (pid < 0 || waitpid(pid, &how, 0) != pid || !WIFEXITED(how)) {
        fprintf(stderr, "a child ended with wait status %d\n", how);
        return 1;
    }
    return WEXITSTATUS(how);
}

int main(void)
{
    static const char *const names[] = {"gk.db", "gk.db-wal", "gk.db-shm"};
    char directory[] = "/tmp/gk-first-XXXXXX";
    char path[64];
    if (mkdtemp(directory) == NULL) {
        perror("mkdtemp");
        return 1;
    }
    snprintf(path, sizeof(path), "%s/gk.db", directory);
    int code = run_child(path, GK_MODE_TUNE);
    if (code == 0) {
        code = run_child(path, GK_MODE_CACHED);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(directory);
    return code;
}
