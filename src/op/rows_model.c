/* How long kernels on whole rows take. */
#include "op/rows.h"

#include <math.h>

static double at_least(double value, double limit)
{
    return value > limit ? value : limit;
}

int64_t gki_rows_resident(const gk_device_info *device, const gki_rows_shape *s, int64_t threads,
                          int64_t rows, int64_t vectors, int64_t smem)
{
    const int64_t held = rows * (vectors * (s->vec * (s->size == 8 ? 10 : 5) / 4 + 1) + 24);
    const int64_t registers = (40 + (s->size == 8 ? 32 : 0) + held + 7) / 8 * 8;
    int64_t blocks = device->max_threads_per_sm / threads;
    blocks = gki_rows_smaller(blocks, device->regs_per_sm / (registers * threads));
    blocks = gki_rows_smaller(blocks, device->smem_per_sm / (smem + 1024));
    blocks = gki_rows_smaller(blocks, 32);
    return blocks > 0 ? blocks : 1;
}

static const double KERNEL_START = 2e-6;
static const double LATENCY = 8e-7;    /* from a read to its use */
static const double BANDWIDTH = 0.93;  /* of what the memory's pins could do */
static const double SATURATION = 6e3;  /* bytes under way on a multiprocessor at half the rate */
static const double INSTRUCTIONS = 14; /* for an element, for a vector below */
static const double VECTOR_START = 12;
static const double ALONE = 2; /* clocks of an instruction in a warp that has its scheduler alone */
static const double TURN = 6e-7; /* sums over a block, addresses, the tail */

double gki_rows_seconds(const gk_problem *problem, const gk_device_info *device,
                        const gki_rows_estimate *e)
{
    double flops, bytes;
    gki_rows_work(problem, &flops, &bytes);
    const double pins =
        at_least(2e3 * device->memory_clock_khz * (device->memory_bus_bits / 8.0), 1e11);
    const double sms = at_least(device->sm_count, 1);
    const double clock = at_least(device->clock_khz, 1e6) * 1e3;
    const double share = at_least(e->blocks / sms, 1 / sms);
    const double live = share < e->resident ? share : e->resident;
    const double under_way = at_least(live, 1) * e->in_flight * e->overlap;
    const double rate = pins * BANDWIDTH * under_way / (under_way + SATURATION);
    const double active = share < 1 ? share : 1;
    const double memory = (bytes + e->extra) / (rate * active);
    /* Warps share the schedulers, or are too few to keep them busy. */
    const double instructions = e->elements * (INSTRUCTIONS + VECTOR_START / e->vec);
    const double issue =
        at_least(instructions / 128 * at_least(live, 1), instructions / e->threads * ALONE) / clock;
    const double turn = LATENCY + TURN + e->exchange + issue;
    const double chain = ceil(share / at_least(live, 1e-9) - 1e-9) * e->turns * turn;
    return KERNEL_START + sqrt(memory * memory + chain * chain);
}
