/* How long kernels on whole rows take. */
#include "op/rows.h"

#include <math.h>

#include "op/model.h"

static double at_least(double value, double limit)
{
    return value > limit ? value : limit;
}

/* Blocks of so many threads, of so many registers each, that a multiprocessor holds. */
static int64_t fitting(const gk_device_info *device, int64_t threads, int64_t registers,
                       int64_t smem)
{
    int64_t blocks = device->max_threads_per_sm / threads;
    blocks = gki_rows_smaller(blocks, device->regs_per_sm / ((registers + 7) / 8 * 8 * threads));
    blocks = gki_rows_smaller(blocks, device->smem_per_sm / (smem + 1024));
    blocks = gki_rows_smaller(blocks, 32);
    return blocks > 0 ? blocks : 1;
}

int64_t gki_rows_resident(const gk_device_info *device, const gki_rows_shape *s, int64_t threads,
                          int64_t rows, int64_t vectors, int64_t smem)
{
    const int64_t held = rows * (vectors * (s->vec * (s->size == 8 ? 10 : 5) / 4 + 1) + 24);
    return fitting(device, threads, 40 + (s->size == 8 ? 32 : 0) + held, smem);
}

bool gki_rows_is_norm(const gk_problem *problem)
{
    return problem->dtype[ROWS_WEIGHT] != 0;
}

int64_t gki_rows_likely(const gk_problem *problem, const gk_device_info *device,
                        const gki_rows_shape *s, int64_t threads, int64_t rows, int64_t vectors,
                        int64_t smem)
{
    const int64_t sure = gki_rows_resident(device, s, threads, rows, vectors, smem);
    const int64_t words = gki_rows_ceil(s->vec * s->size, 4);
    /* Read off the compiler's results: softmax keeps exponentials, too. */
    const bool narrow = s->size < 4;
    const int64_t each = gki_rows_is_norm(problem) ? words + (narrow ? 3 : 1)
                         : narrow                  ? 3 * words + 2
                                                   : 2 * words;
    const int64_t held = vectors > 0 ? rows * vectors * each : 7 * words;
    const int64_t blocks =
        fitting(device, threads, (gki_rows_is_norm(problem) ? 22 : 12) + held, smem);
    return blocks > sure ? blocks : sure;
}

int64_t gki_rows_holding(const gk_problem *problem, const gk_device_info *device,
                         const gki_rows_shape *s, const gki_rows_held *held, int64_t threads,
                         int64_t smem)
{
    if (held->registers == 0 || held->shared == 0) {
        return gki_rows_likely(problem, device, s, threads, 1, held->registers, smem);
    }
    /* Read off the compiler's results; the template, too, leaves 64 for up to four vectors. */
    const bool narrow = s->size < 4;
    int64_t registers = gki_rows_is_norm(problem) ? (narrow ? 40 : 32) + 5 * held->registers
                        : narrow                  ? 40 + 9 * held->registers
                                                  : 16 + 8 * held->registers;
    const int64_t least = gki_rows_is_norm(problem) && threads < 1024 ? 52 : 40;
    registers = registers > least ? registers : least;
    const int64_t most = held->registers <= 4 ? gki_rows_smaller(registers, 64) : registers;
    return fitting(device, threads, most, smem);
}

/* Seconds, unless they say otherwise. */
static const double KERNEL_START = 1.42e-6;
static const double LATENCY = 1.1e-7;  /* from a read to its use, beyond what bandwidth explains */
static const double TURN = 1e-7;       /* addresses, barriers, the tail */
static const double BANDWIDTH = 0.893; /* of what the memory's pins could do */
static const double SM_BYTES = 6e10;   /* a second, that a multiprocessor reads and writes */
static const double PERSISTENT = 1.12; /* what loads take longer that follow their block's stores */
static const double SOFTMAX_ELEMENT = 7; /* instructions of an element, of a vector below */
static const double NORM_ELEMENT = 4.6;
static const double VECTOR_START = 43;
static const double SOFTMAX_ROUND = 30; /* of a thread when twice as many lanes merge their sums */
static const double NORM_ROUND = 7;
static const double ALONE = 4.3;    /* clocks of an instruction of one warp */
static const double GATHERED = 2.2; /* blocks of a small grid, for each multiprocessor there is */
static const double BESIDE = 0.3;   /* of its turn that a block takes longer for each of them */
static const double IN_SHARED = 0.077; /* what rows held there cost where memory bounds */
static const double SHARPNESS = 3.6;   /* of the longest of what goes on at once */

/* How many times as long the memory takes as at its full rate, where the blocks of the only wave,
 * or of the last one, are on few multiprocessors. */
static double slowed(double share, double live, double sms, double rate)
{
    const double waves = share / live;
    const double full = waves > 1 ? floor(waves + 1e-9) : 0;
    const double rest = (waves - full) * live; /* blocks of the last wave, for a multiprocessor */
    const double reach = (rest < 1 ? rest : 1) * sms * SM_BYTES / rate; /* of it, by the last */
    if (full >= 8 || rest < 1e-3) {
        return 1;
    }
    return full / waves + rest / share / (reach < 1 ? reach : 1);
}

/* How much longer a block's turn is where blocks gather on some multiprocessors while others have
 * none, as kernels do that begin beside the end of the one in front. */
static double crowding(double share, double resident)
{
    const double wanted = GATHERED * share < resident ? GATHERED * share : resident;
    const double few = share < 1 ? 1 : share < 2 ? 2 - share : 0; /* of more some are everywhere */
    return wanted > 1 ? 1 + BESIDE * (wanted - 1) * few : 1;
}

double gki_rows_seconds(const gk_problem *problem, const gk_device_info *device,
                        const gki_rows_estimate *e)
{
    double flops, bytes;
    gki_rows_work(problem, &flops, &bytes);
    const double pins = gki_model_pins(device);
    const double sms = e->seats > 0 ? e->seats : at_least(device->sm_count, 1);
    const double clock = at_least(device->clock_khz, 1e6) * 1e3;
    const double share = at_least(e->blocks / sms, 1 / sms);
    const double live = share < e->resident ? share : e->resident;
    const double rate = pins * BANDWIDTH;
    const double memory = (bytes + e->extra) / rate * slowed(share, live, sms, rate) *
                          (e->persistent ? PERSISTENT : 1) *
                          (1 + e->seldom / at_least(e->resident, 1));
    const double element = gki_rows_is_norm(problem) ? NORM_ELEMENT : SOFTMAX_ELEMENT;
    const double rounds = log2(e->lanes) * (gki_rows_is_norm(problem) ? NORM_ROUND : SOFTMAX_ROUND);
    const double instructions =
        e->elements * (element + VECTOR_START / e->vec) + e->threads * rounds;
    const double issue = at_least(share, 1) * e->turns * instructions / 128 / clock;
    /* Of one block, one thing after the other. */
    const double turn = LATENCY + TURN + e->exchange + instructions / e->threads * ALONE / clock;
    const double waves = share / live;
    const double chain = (waves > 8 ? waves + 0.5 : ceil(waves - 1e-9)) * e->turns * turn *
                         crowding(share, e->resident);
    const double starts = gki_model_starts(device, e->blocks, (int64_t)e->threads);
    const double all =
        pow(pow(memory, SHARPNESS) + pow(issue, SHARPNESS) + pow(chain, SHARPNESS), 1 / SHARPNESS);
    const double longer = 1 + e->slower + (e->in_shared ? IN_SHARED : 0);
    return (KERNEL_START + at_least(all, starts)) * longer;
}
