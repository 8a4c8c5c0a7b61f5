/* Sizes and places that compiled applications rely on. */
#include <stddef.h>
#include <stdio.h>

#include <gk/gk.h>

static int failures;

static void expect(const char *what, size_t actual, size_t expected)
{
    if (actual != expected) {
        printf("%s is %zu, applications expect %zu\n", what, actual, expected);
        failures++;
    }
}

#define EXPECT_SIZE(type, bytes)          expect("sizeof(" #type ")", sizeof(type), bytes)
#define EXPECT_OFFSET(type, field, bytes) expect(#type "." #field, offsetof(type, field), bytes)

int main(void)
{
    EXPECT_SIZE(gk_tensor, 160);
    EXPECT_OFFSET(gk_tensor, dtype, 8);
    EXPECT_OFFSET(gk_tensor, rank, 12);
    EXPECT_OFFSET(gk_tensor, shape, 16);
    EXPECT_OFFSET(gk_tensor, stride, 80);
    EXPECT_OFFSET(gk_tensor, reserved, 144);
    EXPECT_OFFSET(gk_context_options, cache_path, 8);
    EXPECT_OFFSET(gk_context_options, mode, 16);
    EXPECT_OFFSET(gk_context_options, tune_budget_s, 24);
    EXPECT_OFFSET(gk_context_options, log, 40);
    EXPECT_OFFSET(gk_context_options, kernel_cache_bytes, 56);
    EXPECT_OFFSET(gk_matmul_params, alpha, 8);
    EXPECT_OFFSET(gk_matmul_params, beta, 16);
    EXPECT_OFFSET(gk_matmul_params, bias, 24);
    EXPECT_OFFSET(gk_matmul_params, residual, 32);
    EXPECT_OFFSET(gk_matmul_params, activation, 40);
    EXPECT_OFFSET(gk_matmul_params, math, 44);
    EXPECT_SIZE(gk_error, 1028);

    /* Numbers that are frozen. */
    expect("GK_F64", GK_F64, 1);
    expect("GK_F32", GK_F32, 2);
    expect("GK_F16", GK_F16, 3);
    expect("GK_BF16", GK_BF16, 4);
    expect("GK_E4M3", GK_E4M3, 5);
    expect("GK_E5M2", GK_E5M2, 6);
    expect("GK_I32", GK_I32, 7);
    expect("GK_I8", GK_I8, 8);
    expect("GK_U8", GK_U8, 9);
    expect("GK_BOOL", GK_BOOL, 10);
    expect("-GK_ERR_INVALID", (size_t)-GK_ERR_INVALID, 1);
    expect("-GK_ERR_UNTUNED", (size_t)-GK_ERR_UNTUNED, 10);
    expect("-GK_ERR_INTERNAL", (size_t)-GK_ERR_INTERNAL, 20);
    return failures == 0 ? 0 : 1;
}
