/* Shapes that tests, benchmarks and tools share. */
#include "op/map.h"

#define SMOKE(dtype, layout, m, n)                                                                 \
    {                                                                                              \
        {m, n}, GK_CASE_SMOKE, dtype, layout, 0, 0                                                 \
    }
#define EDGE(dtype, layout, m, n, pad, offset)                                                     \
    {                                                                                              \
        {m, n}, GK_CASE_EDGE, dtype, layout, pad, offset                                           \
    }
#define BENCH(dtype, layout, m, n)                                                                 \
    {                                                                                              \
        {m, n}, GK_CASE_BENCH, dtype, layout, 0, 0                                                 \
    }

const gk_case gki_map_cases[GKI_MAP_CASES] = {
    SMOKE("f32", "nn", 64, 64),        SMOKE("f16", "nn", 64, 64),
    SMOKE("bf16", "nn", 64, 64),       SMOKE("f64", "nn", 33, 17),
    SMOKE("e4m3:bf16", "nn", 64, 64),  SMOKE("bf16:f32", "nn", 64, 64),
    EDGE("f32", "nn", 1, 1, 0, 0),     EDGE("f16", "nn", 1, 1029, 0, 3),
    EDGE("f32", "rn", 127, 129, 0, 1), EDGE("bf16", "cn", 65, 129, 8, 0),
    EDGE("f32", "sn", 3, 5, 3, 0),     EDGE("bf16", "tn", 127, 65, 0, 0),
    EDGE("f32", "nt", 33, 67, 1, 1),   EDGE("f16", "tt", 33, 67, 0, 0),
    EDGE("e5m2", "nn", 33, 17, 3, 1),  EDGE("f32", "nn", 0, 4, 0, 0),
    BENCH("f32", "nn", 1, 134217728),  BENCH("bf16", "nn", 1, 134217728),
    BENCH("f16", "nn", 1, 134217728),  BENCH("f32", "nn", 1823, 781),
    BENCH("bf16", "nn", 1823, 781),    BENCH("f32", "nn", 8192, 8192),
    BENCH("bf16", "rn", 8192, 8192),   BENCH("f32", "tn", 8192, 8192),
};
