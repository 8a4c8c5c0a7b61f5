/* How much faster gk_copy_column is than a copy for each element: prints both times and their
 * ratio. usage: gpu_copy_column [DEVICE]. Exit status 0, 1 if it is not faster or fails, 77 without
 * a driver. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <gk/gk.h>

enum { ROWS = 65536, COLS = 1024, COLUMN = 5, REPEATS = 10 };

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(void)
{
    (void)fprintf(stderr, "gpu_copy_column: %s\n", gk_error_last()->message);
    return 1;
}

static bool is_column(gk_context *ctx, const float *matrix, const float *vector)
{
    float *copy = calloc(ROWS, sizeof(*copy));
    bool good =
        copy != NULL && gk_mem_download(ctx, copy, vector, ROWS * sizeof(*copy), NULL) == GK_OK;
    for (size_t i = 0; i < ROWS && good; i++) {
        good = copy[i] == matrix[i * COLS + COLUMN];
    }
    free(copy);
    return good;
}

static int compare(gk_context *ctx, const float *matrix, float *vector)
{
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        const double begin = now();
        if (gk_copy_column(ctx, vector, matrix, ROWS, COLS, COLUMN, GK_F32, NULL) != GK_OK) {
            return fail();
        }
        const double seconds = now() - begin;
        best = seconds < best ? seconds : best;
    }
    if (!is_column(ctx, matrix, vector)) {
        (void)fprintf(stderr, "gpu_copy_column: the vector is not the column\n");
        return 1;
    }
    const double begin = now();
    for (size_t i = 0; i < ROWS; i++) {
        if (gk_mem_upload(ctx, vector + i, matrix + i * COLS + COLUMN, sizeof(float), NULL) !=
            GK_OK) {
            return fail();
        }
    }
    const double loop = now() - begin;
    printf("a column of %d x %d f32: one strided copy %.1f us, %d copies %.1f us, ratio %.1f\n",
           ROWS, COLS, best * 1e6, ROWS, loop * 1e6, loop / best);
    return loop > best ? 0 : 1;
}

int main(int argc, char **argv)
{
    const gk_context_options options = {.struct_size = sizeof(options), .cache_path = ":memory:"};
    gk_context *ctx = NULL;
    void *vector = NULL;
    const gk_status status = gk_context_create(&ctx, argc > 1 ? argv[1] : "cuda", &options);
    if (status != GK_OK) {
        (void)fail();
        return status == GK_ERR_NO_DRIVER && getenv("GK_TEST_REQUIRE_GPU") == NULL ? 77 : 1;
    }
    float *matrix = calloc((size_t)ROWS * COLS, sizeof(*matrix));
    int result = 1;
    for (size_t i = 0; matrix != NULL && i < (size_t)ROWS * COLS; i++) {
        matrix[i] = (float)i;
    }
    if (matrix != NULL && gk_mem_alloc(ctx, ROWS * sizeof(float), &vector) == GK_OK) {
        result = compare(ctx, matrix, vector);
    }
    (void)gk_mem_free(ctx, &vector);
    free(matrix);
    gk_context_destroy(&ctx);
    return result;
}
