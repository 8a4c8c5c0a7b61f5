/* Shapes that tests, benchmarks and tools share. */
#include "op/matmul_parts.h"

#define SMOKE(dtype, layout, m, n, k)                                                              \
    {                                                                                              \
        {m, n, k}, GK_CASE_SMOKE, dtype, layout, 0, 0                                              \
    }
#define EDGE(dtype, layout, m, n, k, pad, offset)                                                  \
    {                                                                                              \
        {m, n, k}, GK_CASE_EDGE, dtype, layout, pad, offset                                        \
    }
#define BENCH(dtype, layout, m, n, k)                                                              \
    {                                                                                              \
        {m, n, k}, GK_CASE_BENCH, dtype, layout, 0, 0                                              \
    }

const gk_case gki_matmul_cases[GKI_MATMUL_CASES] = {
    SMOKE("f32", "nn", 64, 64, 64),
    SMOKE("tf32", "nn", 64, 64, 64),
    SMOKE("f16", "nt", 64, 64, 64),
    SMOKE("bf16", "nt", 64, 64, 64),
    SMOKE("bf16:f32", "nn", 64, 64, 64),
    SMOKE("f64", "nn", 33, 17, 33),
    SMOKE("e4m3", "nt", 64, 64, 64),
    SMOKE("e5m2", "nt", 64, 64, 64),
    SMOKE("i8", "nn", 33, 17, 33),
    SMOKE("u8", "nn", 33, 17, 33),
    SMOKE("i32", "nn", 33, 17, 33),
    EDGE("f32", "nn", 1, 1, 1, 0, 0),
    EDGE("f32", "nt", 1, 128, 1, 0, 0),
    EDGE("f16", "tn", 17, 1, 65, 0, 1),
    EDGE("bf16", "tt", 33, 17, 33, 1, 0),
    EDGE("f32", "tt", 127, 129, 31, 3, 1),
    EDGE("bf16", "nn", 127, 129, 31, 8, 0),
    EDGE("tf32", "tn", 65, 129, 33, 1, 1),
    EDGE("e4m3", "nn", 65, 129, 33, 1, 1),
    EDGE("f64", "nt", 3, 5, 7, 1, 1),
    EDGE("i8", "tt", 65, 129, 33, 1, 1),
    EDGE("f32", "nn", 3, 5, 0, 0, 0),
    EDGE("f32", "nn", 0, 4, 3, 0, 0),
    EDGE("f16", "nn", 8, 8, 4096, 0, 0),
    SMOKE("e4m3+f32", "nt", 64, 64, 64),
    /* Columns of A at aligned addresses, and as many tiles of K as may share it. */
    EDGE("f32", "tn", 68, 132, 832, 0, 0),
    EDGE("f32", "tt", 68, 132, 832, 0, 0),
    /* Both operands, or only one of them, at addresses that allow single elements. */
    EDGE("bf16", "nt", 65, 129, 67, 0, 1),
    EDGE("f16", "nn", 65, 128, 67, 0, 0),
    EDGE("bf16", "nn", 65, 129, 64, 0, 0),
    EDGE("f16", "tt", 128, 129, 67, 0, 0),
    EDGE("bf16", "tn", 65, 128, 64, 0, 0),
    EDGE("tf32", "nt", 65, 129, 67, 0, 0),
    EDGE("tf32", "nn", 65, 129, 64, 0, 0),
    /* Odd rows of A with rows of B that are aligned, and are not. */
    EDGE("bf16", "nn", 150, 8, 13, 0, 0),
    EDGE("bf16", "nn", 150, 9, 13, 0, 0),
    BENCH("bf16", "nn", 512, 512, 512),
    BENCH("bf16", "nn", 1024, 1024, 1024),
    BENCH("bf16", "nn", 2048, 2048, 2048),
    BENCH("bf16", "nn", 4096, 4096, 4096),
    BENCH("bf16", "nn", 8192, 8192, 8192),
    BENCH("bf16", "nn", 16384, 16384, 16384),
    BENCH("bf16", "nt", 4096, 4096, 4096),
    BENCH("bf16", "nt", 8192, 8192, 8192),
    BENCH("bf16", "nt", 1, 4096, 4096),
    BENCH("bf16", "nt", 16, 6144, 4096),
    BENCH("bf16", "nt", 16, 4096, 14336),
    BENCH("bf16", "nt", 128, 28672, 4096),
    BENCH("bf16", "nt", 512, 4096, 14336),
    BENCH("bf16", "nt", 2048, 6144, 4096),
    BENCH("bf16", "nt", 8192, 28672, 4096),
    BENCH("bf16", "nn", 1000, 1000, 1000),
    BENCH("bf16", "nn", 4095, 4097, 4099),
    BENCH("bf16", "nn", 777, 333, 555),
    BENCH("bf16", "nn", 8192, 128, 8192),
    BENCH("bf16", "nn", 64, 64, 65536),
    BENCH("bf16", "nn", 4096, 4096, 64),
    BENCH("f16", "nn", 4096, 4096, 4096),
    BENCH("f16", "nn", 8192, 8192, 8192),
    BENCH("f32", "nn", 512, 512, 512),
    BENCH("f32", "nn", 2048, 2048, 2048),
    BENCH("f32", "nn", 4096, 4096, 4096),
    BENCH("tf32", "nn", 4096, 4096, 4096),
    BENCH("tf32", "nn", 8192, 8192, 8192),
    BENCH("e4m3", "nt", 4096, 4096, 4096),
    BENCH("e4m3", "nt", 8192, 8192, 8192),
    BENCH("e4m3", "nt", 128, 28672, 4096),
};
