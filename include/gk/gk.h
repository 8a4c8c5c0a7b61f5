/*
 * gk: GPU kernels that specialise themselves.
 *
 * A kernel is a source template in CUDA C++. At run time gk fixes its tile sizes as constants,
 * compiles it, measures the candidates on the device in front of it, and keeps the winner with its
 * compiled code in a SQLite file. The next process starts with the answer.
 *
 *     #include <gk/gk.h>
 *
 *     gk_context *ctx;
 *     if (gk_context_create(&ctx, "cuda", NULL) != GK_OK) {
 *         fprintf(stderr, "%s\n", gk_error_last()->message);
 *         return 1;
 *     }
 *     gk_tensor a = gk_matrix(dev_a, GK_BF16, m, k);
 *     gk_tensor b = gk_matrix(dev_b, GK_BF16, k, n);
 *     gk_tensor c = gk_matrix(dev_c, GK_BF16, m, n);
 *     if (gk_matmul_relu(ctx, &a, &b, &c, stream) != GK_OK) { ... }
 *     gk_context_destroy(&ctx);
 *
 * base.h status and dtypes, context.h device and memory, tensor.h views, ops.h the operations,
 * plan.h explicit plans, tune.h tuning and the cache, extend.h how operations are described.
 */
#ifndef GK_GK_H
#define GK_GK_H

#include <gk/base.h>
#include <gk/context.h>
#include <gk/extend.h>
#include <gk/ops.h>
#include <gk/plan.h>
#include <gk/tensor.h>
#include <gk/tune.h>
#include <gk/version.h>

#endif
