/*
 * C = relu(A B) on device memory: tuned at the first call, checked against a plain loop.
 *
 * usage: matmul_relu [device [M N K]]   (device: cuda, cuda:N or cpu; default cuda)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <gk/gk.h>

/* The largest difference between c and relu(a b), in units of what f32 rounding explains. */
static double worst_error(const float *a, const float *b, const float *c, int64_t m, int64_t n,
                          int64_t k)
{
    double worst = 0;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            double magnitude = 0;
            for (int64_t p = 0; p < k; p++) {
                const double product = (double)a[i * k + p] * (double)b[p * n + j];
                sum += product;
                magnitude += fabs(product);
            }
            const double expected = sum < 0 ? 0 : sum;
            const double error = fabs((double)c[i * n + j] - expected);
            worst = fmax(worst, error / (1.2e-7 * (magnitude + 1e-30) * sqrt((double)k + 1)));
        }
    }
    return worst;
}

/* Uploads both operands, multiplies, downloads the result. */
static gk_status multiply(gk_context *ctx, const float *host_a, const float *host_b, float *host_c,
                          int64_t m, int64_t n, int64_t k, char *kernel, size_t kernel_size)
{
    const size_t bytes[3] = {(size_t)(m * k) * sizeof(float), (size_t)(k * n) * sizeof(float),
                             (size_t)(m * n) * sizeof(float)};
    void *dev[3] = {NULL};
    gk_status status = GK_OK;
    for (int i = 0; i < 3 && status == GK_OK; i++) {
        status = gk_mem_alloc(ctx, bytes[i], &dev[i]);
    }
    if (status == GK_OK) {
        status = gk_mem_upload(ctx, dev[0], host_a, bytes[0], NULL);
    }
    if (status == GK_OK) {
        status = gk_mem_upload(ctx, dev[1], host_b, bytes[1], NULL);
    }

    const gk_tensor a = gk_matrix(dev[0], GK_F32, m, k);
    const gk_tensor b = gk_matrix(dev[1], GK_F32, k, n);
    const gk_tensor c = gk_matrix(dev[2], GK_F32, m, n);
    if (status == GK_OK) {
        status = gk_matmul_relu(ctx, &a, &b, &c, NULL);
    }
    if (status == GK_OK) {
        status = gk_mem_download(ctx, host_c, dev[2], bytes[2], NULL);
    }

    /* Which kernel ran: a plan of the same problem knows. */
    gk_call call;
    gk_plan *plan = NULL;
    gk_plan_description info = {.struct_size = sizeof(info)};
    if (status == GK_OK) {
        status = gk_matmul_call(&call, &a, &b, &c, NULL);
    }
    if (status == GK_OK) {
        status = gk_plan_create(&plan, ctx, "matmul_relu", &call, NULL);
    }
    if (status == GK_OK) {
        status = gk_plan_info(plan, &info);
        snprintf(kernel, kernel_size, "%s", info.kernel);
    }
    gk_plan_destroy(&plan);
    for (int i = 0; i < 3; i++) {
        gk_mem_free(ctx, &dev[i]);
    }
    return status;
}

static float *random_values(int64_t count)
{
    float *values = malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; values != NULL && i < count; i++) {
        values[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    }
    return values;
}

/* The sizes from the command line; false if one is no number from 1 to 65536. */
static bool read_sizes(char **words, int64_t *sizes)
{
    for (int i = 0; i < 3; i++) {
        char *end;
        sizes[i] = strtoll(words[i], &end, 10);
        if (end == words[i] || *end != '\0' || sizes[i] < 1 || sizes[i] > 65536) {
            fprintf(stderr, "a size is \"%s\", expected a number from 1 to 65536\n", words[i]);
            return false;
        }
    }
    return true;
}

/* 0 if the device's result is right. */
static int run(const char *device, const float *a, const float *b, float *c, const int64_t *sizes)
{
    gk_context *ctx = NULL;
    char kernel[128];
    gk_status status = gk_context_create(&ctx, device, NULL);
    if (status == GK_OK) {
        status = multiply(ctx, a, b, c, sizes[0], sizes[1], sizes[2], kernel, sizeof(kernel));
    }
    if (status != GK_OK) {
        fprintf(stderr, "%s\n", gk_error_last()->message);
    }
    gk_context_destroy(&ctx);
    if (status != GK_OK) {
        return 1;
    }
    const double worst = worst_error(a, b, c, sizes[0], sizes[1], sizes[2]);
    printf("%s  %lldx%lldx%lld f32 on %s: %s, error %.2f of the allowed\n",
           worst <= 1 ? "right" : "WRONG", (long long)sizes[0], (long long)sizes[1],
           (long long)sizes[2], device, kernel, worst);
    return worst <= 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
    int64_t sizes[3] = {200, 120, 88};
    if ((argc > 2 && argc != 5) || (argc == 5 && !read_sizes(argv + 2, sizes))) {
        fprintf(stderr, "usage: matmul_relu [device [M N K]]\n");
        return 2;
    }
    float *a = random_values(sizes[0] * sizes[2]);
    float *b = random_values(sizes[2] * sizes[1]);
    float *c = random_values(sizes[0] * sizes[1]);
    int code = 1;
    if (a != NULL && b != NULL && c != NULL) {
        code = run(argc > 1 ? argv[1] : "cuda", a, b, c, sizes);
    } else {
        fprintf(stderr, "out of memory\n");
    }
    free(a);
    free(b);
    free(c);
    return code;
}
