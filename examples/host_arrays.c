/*
 * A dense layer on host arrays: y = gelu(x W^T + bias), W stored [out, in] as frameworks do.
 *
 * usage: host_arrays [device]   (default cpu)
 */
#include <math.h>
#include <stdio.h>

#include <gk/gk.h>

enum { ROWS = 4, IN = 8, OUT = 3 };

static gk_status layer(gk_context *ctx, const float *x, const float *w, const float *bias, float *y)
{
    void *dev[4] = {NULL};
    const void *host[3] = {x, w, bias};
    const size_t bytes[4] = {sizeof(float) * ROWS * IN, sizeof(float) * OUT * IN,
                             sizeof(float) * OUT, sizeof(float) * ROWS * OUT};
    gk_status status = GK_OK;
    for (int i = 0; i < 4 && status == GK_OK; i++) {
        status = gk_mem_alloc(ctx, bytes[i], &dev[i]);
        if (status == GK_OK && i < 3) {
            status = gk_mem_upload(ctx, dev[i], host[i], bytes[i], NULL);
        }
    }
    if (status == GK_OK) {
        const gk_tensor tx = gk_matrix(dev[0], GK_F32, ROWS, IN);
        const gk_tensor tw = gk_matrix(dev[1], GK_F32, OUT, IN);
        const gk_tensor tb = gk_vector(dev[2], GK_F32, OUT);
        const gk_tensor ty = gk_matrix(dev[3], GK_F32, ROWS, OUT);
        const gk_tensor wt = gk_transposed(&tw);
        gk_matmul_params params = GK_MATMUL_PARAMS_INIT;
        params.bias = &tb;
        params.activation = GK_ACT_GELU_ERF;
        status = gk_matmul(ctx, &tx, &wt, &ty, &params, NULL);
    }
    if (status == GK_OK) {
        status = gk_mem_download(ctx, y, dev[3], bytes[3], NULL);
    }
    for (int i = 0; i < 4; i++) {
        gk_mem_free(ctx, &dev[i]);
    }
    return status;
}

int main(int argc, char **argv)
{
    gk_context *ctx = NULL;
    float x[ROWS * IN];
    float w[OUT * IN];
    float y[ROWS * OUT];
    const float bias[OUT] = {0.5f, -1.0f, 0.25f};
    for (int i = 0; i < ROWS * IN; i++) {
        x[i] = (float)(i % 5) - 2.0f;
    }
    for (int i = 0; i < OUT * IN; i++) {
        w[i] = (float)(i % 3) * 0.5f - 0.5f;
    }
    if (gk_context_create(&ctx, argc > 1 ? argv[1] : "cpu", NULL) != GK_OK ||
        layer(ctx, x, w, bias, y) != GK_OK) {
        fprintf(stderr, "%s\n", gk_error_last()->message);
        gk_context_destroy(&ctx);
        return 1;
    }
    gk_context_destroy(&ctx);
    int wrong = 0;
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < OUT; j++) {
            double sum = (double)bias[j];
            for (int k = 0; k < IN; k++) {
                sum += (double)x[i * IN + k] * (double)w[j * IN + k];
            }
            const double expected = 0.5 * sum * (1 + erf(sum / sqrt(2.0)));
            wrong += fabs((double)y[i * OUT + j] - expected) > 1e-5;
            printf("%8.4f%s", (double)y[i * OUT + j], j + 1 < OUT ? " " : "\n");
        }
    }
    printf("%s\n", wrong == 0 ? "right" : "WRONG");
    return wrong == 0 ? 0 : 1;
}
