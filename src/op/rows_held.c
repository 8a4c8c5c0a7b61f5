/* Rows that a block or a cluster of blocks holds: so many vectors of a thread in registers, others
 * in shared memory. */
#include "op/rows.h"

#include <gk/base.h>

enum { MAX_WORDS = 32 }; /* of registers */

/* Elements of a row for which a thread, one of so many of a block, has registers. */
static int64_t most_elements(const gk_problem *problem, const gki_rows_shape *s, int64_t threads,
                             bool persistent)
{
    if (threads <= 512) {
        return threads > 256 ? 32 : 64;
    }
    /* Of 1024 threads each has 64 registers; softmax keeps exponentials beside the elements. */
    const bool large = s->size == 4 && gki_rows_is_norm(problem) && !persistent;
    return !gki_rows_is_lean(problem, s) ? 8 : large ? 32 : 16;
}

gki_rows_held gki_rows_held_by(const gki_rows_shape *s, int64_t threads, int64_t vectors, bool rest)
{
    const int64_t all = gki_rows_ceil(s->vectors, threads);
    gki_rows_held held = {vectors, rest && all > vectors ? all - vectors : 0, 0, rest};
    const int64_t places = (held.registers + held.shared) * threads;
    held.missing = s->vectors > places ? s->vectors - places : 0;
    return held;
}

bool gki_rows_check_held(const gk_problem *problem, const gk_device_info *device,
                         const gki_rows_shape *s, const gki_rows_held *held, int64_t threads,
                         bool persistent, gk_reason *reason)
{
    const int64_t words = held->registers * gki_rows_ceil(s->vec * s->size, 4);
    const int64_t most = most_elements(problem, s, threads, persistent);
    if (held->missing > 0) {
        return gk_refuse(reason, "a row has up to %lld vectors, registers hold %lld",
                         (long long)s->vectors, (long long)(s->vectors - held->missing));
    }
    if (words > MAX_WORDS || held->registers * s->vec > most) {
        return gk_refuse(reason, "a row takes %lld registers of each of %lld threads",
                         (long long)words, (long long)threads);
    }
    if (held->shared > device->smem_per_block_optin) {
        return gk_refuse(reason, "a row takes %lld vectors of a thread", (long long)held->shared);
    }
    if (held->rest && held->shared == 0) {
        return gk_refuse(reason, "registers hold the whole row");
    }
    if (held->registers > 0 && held->shared > 0 && s->size == 8) {
        return gk_refuse(reason, "f64 takes more registers than such kernels are compiled for");
    }
    return true;
}
