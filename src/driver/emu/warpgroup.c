/*
 * Warpgroup instructions. Each thread of the four warps issues them for itself and goes on; they
 * are executed when a thread waits for them, all 128 have issued them, and nothing else can run:
 * only then do they read shared memory. The accumulators of an instruction in flight hold poison,
 * their values are kept as a tile of sums.
 */
#include <string.h>

#include "base/alloc.h"
#include "driver/emu/state.h"

enum {
    TILES = 16, /* sets of accumulators that a warpgroup works on */
    MAX_COLUMNS = 256,
    ROWS = 64,
    MAX_PENDING = 7, /* groups that may be left unfinished */
    THREADS = GK_EMU_WARPGROUP,
};

typedef struct tile {
    uint32_t columns;        /* 0: not used yet */
    uint32_t flying;         /* threads that have not waited for their last instruction on it */
    float *sums;             /* ROWS x columns */
    float *d[THREADS];       /* the threads' accumulators */
    uint64_t last[THREADS];  /* the threads' instruction in flight; 0: none */
    uint64_t given[THREADS]; /* tick at which the thread got its accumulators back */
} tile;

typedef struct operation {
    gk_emu_wgmma what; /* without d and a */
    bool in_registers;
    uint32_t tile;
    uint32_t issued; /* threads */
    gk_emu_site site;
    uint32_t a[THREADS][4];
} operation;

struct gki_emu_warpgroup {
    gki_emu_context *threads; /* THREADS of them */
    uint64_t executed;        /* instructions */
    operation *operations;    /* those that are not: number executed + 1 stands first */
    size_t n_operations;
    size_t capacity;
    tile tiles[TILES];
    float scratch[GKI_EMU_WGMMA_SCRATCH];
};

void gki_emu_warpgroups_reset(gki_emu_sm *sm)
{
    for (uint32_t i = 0; i < GKI_EMU_WARPGROUPS; i++) {
        gki_emu_warpgroup *group = sm->warpgroups[i];
        if (group == NULL) {
            continue;
        }
        group->executed = 0;
        group->n_operations = 0;
        for (uint32_t j = 0; j < TILES; j++) {
            float *sums = group->tiles[j].sums;
            memset(&group->tiles[j], 0, sizeof group->tiles[j]);
            group->tiles[j].sums = sums;
        }
    }
}

void gki_emu_warpgroups_free(gki_emu_sm *sm)
{
    for (uint32_t i = 0; i < GKI_EMU_WARPGROUPS; i++) {
        gki_emu_warpgroup *group = sm->warpgroups[i];
        if (group == NULL) {
            continue;
        }
        for (uint32_t j = 0; j < TILES; j++) {
            gki_free(group->tiles[j].sums);
        }
        gki_free(group->operations);
        gki_free(group);
    }
}

static uint32_t member_of(const gki_emu_context *thread)
{
    return thread->index % THREADS;
}

static gki_emu_warpgroup *group_of(gki_emu_context *thread)
{
    gki_emu_warpgroup **place = &thread->sm->warpgroups[thread->index / THREADS];
    if (*place == NULL) {
        *place = gki_calloc(1, sizeof **place);
        if (*place == NULL) {
            gki_emu_fail_nomem(&thread->thread, "a warpgroup");
        }
    }
    (*place)->threads = thread->sm->threads + thread->index / THREADS * THREADS;
    return *place;
}

/* Of a thread's accumulators, number 4 j + 2 h + i is in row first + 8 h, column 8 j + pair + i. */
static float *row_of(const tile *t, uint32_t member)
{
    const uint32_t lane = member % GK_EMU_WARP;
    const uint32_t first = member / GK_EMU_WARP * 16 + lane / 4;
    return t->sums + (size_t)first * t->columns + 2 * (lane % 4);
}

/* Copies two floats; the bits in which they differ from what was there. */
static uint64_t replace_pair(float *to, const float *from)
{
    uint64_t old;
    uint64_t new;
    memcpy(&old, to, sizeof(old));
    memcpy(&new, from, sizeof(new));
    memcpy(to, &new, sizeof(new));
    return old ^ new;
}

/* Takes the accumulators' values; true if they are still what was given back. */
static bool take(tile *t, uint32_t member)
{
    float *const row = row_of(t, member);
    const float *const d = t->d[member];
    const size_t half = (size_t)8 * t->columns;
    uint64_t differs = 0;
    for (uint32_t j = 0; j < t->columns / 8; j++) {
        differs |= replace_pair(row + 8 * j, d + 4 * j);
        differs |= replace_pair(row + half + 8 * j, d + 4 * j + 2);
    }
    return differs == 0;
}

/* Gives them back; true if they were left alone meanwhile. */
static bool give(tile *t, uint32_t member)
{
    const float *const row = row_of(t, member);
    float *const d = t->d[member];
    const size_t half = (size_t)8 * t->columns;
    uint64_t same = UINT64_MAX;
    for (uint32_t j = 0; j < t->columns / 8; j++) {
        uint64_t found[2];
        memcpy(found, d + 4 * j, 16);
        same &= found[0] & found[1];
        memcpy(d + 4 * j, row + 8 * j, 8);
        memcpy(d + 4 * j + 2, row + half + 8 * j, 8);
    }
    return same == UINT64_MAX;
}

static bool same_instruction(const operation *own, const gk_emu_wgmma *what)
{
    const gk_emu_wgmma *first = &own->what;
    return first->type == what->type && first->columns == what->columns &&
           first->b_descriptor == what->b_descriptor && first->b_mn_major == what->b_mn_major &&
           first->accumulate == what->accumulate && own->in_registers == (what->a != NULL) &&
           (own->in_registers ||
            (first->a_descriptor == what->a_descriptor && first->a_mn_major == what->a_mn_major));
}

static void check_descriptor(gki_emu_context *thread, const char *name, uint64_t descriptor,
                             bool mn_major, uint32_t rows, uint32_t type)
{
    const char *fault =
        gki_emu_descriptor_fault(descriptor, mn_major, rows, type, thread->thread.shared_bytes);
    if (fault != NULL) {
        gki_emu_fail(&thread->thread, thread->file, thread->line,
                     "wgmma: the descriptor of %s is 0x%016llx: %s", name,
                     (unsigned long long)descriptor, fault);
    }
}

/* The tile of the thread's accumulators, a free one if they are new. */
static uint32_t find_tile(gki_emu_context *thread, gki_emu_warpgroup *group,
                          const gk_emu_wgmma *what)
{
    const uint32_t member = member_of(thread);
    uint32_t unused = TILES;
    for (uint32_t i = 0; i < TILES; i++) {
        const tile *t = &group->tiles[i];
        if (t->columns == what->columns && t->d[member] == what->d) {
            return i;
        }
        const bool better = unused == TILES || (group->tiles[unused].columns && !t->columns);
        if (t->flying == 0 && better) {
            unused = i;
        }
    }
    if (unused == TILES) {
        gki_emu_fail(&thread->thread, thread->file, thread->line,
                     "wgmma: %d sets of accumulators are in flight", TILES);
    }
    tile *t = &group->tiles[unused];
    if (t->sums == NULL) {
        t->sums = gki_alloc_aligned(64, sizeof(float) * ROWS * MAX_COLUMNS);
        if (t->sums == NULL) {
            gki_emu_fail_nomem(&thread->thread, "a warpgroup's accumulators");
        }
    }
    float *sums = t->sums;
    memset(t, 0, sizeof *t);
    t->sums = sums;
    t->columns = what->columns;
    return unused;
}

static operation *push(gki_emu_context *thread, gki_emu_warpgroup *group, const gk_emu_wgmma *what)
{
    if (what->a == NULL) {
        check_descriptor(thread, "A", what->a_descriptor, what->a_mn_major != 0, ROWS, what->type);
    }
    check_descriptor(thread, "B", what->b_descriptor, what->b_mn_major != 0, what->columns,
                     what->type);
    if (group->n_operations == group->capacity) {
        const size_t capacity = group->capacity == 0 ? 16 : 2 * group->capacity;
        operation *grown = gki_realloc(group->operations, capacity * sizeof *grown);
        if (grown == NULL) {
            gki_emu_fail_nomem(&thread->thread, "a warpgroup's instructions");
        }
        group->operations = grown;
        group->capacity = capacity;
    }
    const uint32_t index = find_tile(thread, group, what);
    operation *own = &group->operations[group->n_operations++];
    own->what = *what;
    own->in_registers = what->a != NULL;
    own->tile = index;
    own->issued = 0;
    own->site = (gk_emu_site){thread->file, thread->line};
    return own;
}

/* No other set of the thread's accumulators that is in flight shares registers with these. */
static void check_overlap(gki_emu_context *thread, const gki_emu_warpgroup *group,
                          const gk_emu_wgmma *what)
{
    const uint32_t member = member_of(thread);
    const uintptr_t first = (uintptr_t)what->d;
    const uintptr_t end = first + what->columns / 2 * sizeof *what->d;
    for (uint32_t i = 0; i < TILES; i++) {
        const tile *t = &group->tiles[i];
        const uintptr_t other = (uintptr_t)t->d[member];
        if (t->last[member] != 0 && first < other + t->columns / 2 * sizeof *what->d &&
            other < end) {
            gki_emu_fail(&thread->thread, thread->file, thread->line,
                         "wgmma: accumulators overlap those of an instruction of another shape in "
                         "flight");
        }
    }
}

/* The first of a chain of instructions on the thread's accumulators. */
static void begin(gki_emu_context *thread, const gki_emu_warpgroup *group, tile *t,
                  const gk_emu_wgmma *what)
{
    const uint32_t member = member_of(thread);
    check_overlap(thread, group, what);
    const bool known = t->d[member] == what->d && t->given[member] != 0;
    const bool fenced = thread->fenced > (known ? t->given[member] : 0);
    bool touched = !what->accumulate || !known;
    t->d[member] = what->d;
    if (what->accumulate) {
        touched |= !take(t, member);
    }
    if (touched && !fenced) {
        gki_emu_fail(&thread->thread, thread->file, thread->line,
                     "wgmma: no wgmma_fence since the accumulators were used otherwise");
    }
    memset(what->d, GKI_EMU_POISON, what->columns / 2 * sizeof *what->d);
    t->flying++;
}

void gki_emu_wgmma(gk_emu_thread *self, const gk_emu_wgmma *what, gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    const uint32_t member = member_of(thread);
    gki_emu_set_place(thread, "wgmma", site.file, site.line);
    gki_emu_need_warpgroup(thread);
    gki_emu_warpgroup *group = group_of(thread);
    const size_t position = (size_t)(thread->issued - group->executed);
    operation *own =
        position < group->n_operations ? &group->operations[position] : push(thread, group, what);
    if (own->issued > 0 && !same_instruction(own, what)) {
        gki_emu_fail(self, site.file, site.line,
                     "wgmma: other threads of the warpgroup have issued another instruction, or "
                     "one with other descriptors, at %s:%d",
                     own->site.file, own->site.line);
    }
    tile *t = &group->tiles[own->tile];
    if (t->last[member] == 0) {
        begin(thread, group, t, what);
    } else if (t->d[member] != what->d) {
        gki_emu_fail(self, site.file, site.line,
                     "wgmma: the warpgroup's threads pair accumulators differently than before");
    }
    t->last[member] = ++thread->issued;
    if (what->a != NULL) {
        memcpy(own->a[member], what->a, sizeof own->a[member]);
    }
    own->issued++;
}

void gki_emu_wgmma_fence(gk_emu_thread *self)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    thread->fenced = ++thread->ticks;
}

void gki_emu_wgmma_commit(gk_emu_thread *self)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    thread->group_ends[thread->wgmma_groups++ % GKI_EMU_GROUPS] = thread->issued;
}

/* Executes up to the instruction of that number, if all threads have issued it. */
static void execute(gki_emu_warpgroup *group, const unsigned char *shared, uint64_t number)
{
    const size_t n = (size_t)(number - group->executed);
    if (n > group->n_operations || group->operations[n - 1].issued < THREADS) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const operation *own = &group->operations[i];
        gki_emu_wgmma_multiply(&own->what, shared, own->in_registers ? own->a : NULL,
                               group->scratch, group->tiles[own->tile].sums);
    }
    group->executed = number;
    group->n_operations -= n;
    memmove(group->operations, group->operations + n,
            group->n_operations * sizeof *group->operations);
}

/* Wakes who waits for what has been executed; true if somebody does. */
static bool wake_waiting(gki_emu_warpgroup *group)
{
    bool woken = false;
    for (uint32_t i = 0; i < THREADS; i++) {
        gki_emu_context *thread = &group->threads[i];
        if (thread->awaited != 0 && thread->awaited <= group->executed) {
            thread->awaited = 0;
            gki_emu_wake(thread);
            woken = true;
        }
    }
    return woken;
}

bool gki_emu_warpgroups_retry(gki_emu_sm *sm)
{
    bool woken = false;
    for (uint32_t i = 0; i < GKI_EMU_WARPGROUPS; i++) {
        gki_emu_warpgroup *group = sm->warpgroups[i];
        if (group == NULL || group->threads == NULL) {
            continue;
        }
        for (uint32_t j = 0; j < THREADS; j++) {
            const uint64_t number = group->threads[j].awaited;
            if (number > group->executed) {
                execute(group, sm->shared, number);
            }
        }
        woken |= wake_waiting(group);
    }
    return woken;
}

void gki_emu_wgmma_wait(gk_emu_thread *self, unsigned pending, gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    const uint32_t member = member_of(thread);
    gki_emu_set_place(thread, "wgmma_wait", site.file, site.line);
    gki_emu_need_warpgroup(thread);
    if (pending > MAX_PENDING) {
        gki_emu_fail(self, site.file, site.line, "wgmma_wait: %u groups, must be at most %d",
                     pending, MAX_PENDING);
    }
    if (thread->wgmma_groups <= pending) {
        return;
    }
    const uint64_t number =
        thread->group_ends[(thread->wgmma_groups - pending - 1) % GKI_EMU_GROUPS];
    if (number <= thread->finished) {
        return;
    }
    gki_emu_warpgroup *group = group_of(thread);
    if (number > group->executed) {
        thread->awaited = number;
        gki_emu_wait_here(thread);
    }
    thread->finished = number;
    for (uint32_t i = 0; i < TILES; i++) {
        tile *t = &group->tiles[i];
        if (t->last[member] == 0 || t->last[member] > number) {
            continue;
        }
        if (!give(t, member)) {
            gki_emu_fail(self, site.file, site.line,
                         "wgmma_wait: accumulators were written while an instruction was in "
                         "flight on them");
        }
        t->last[member] = 0;
        t->flying--;
        t->given[member] = ++thread->ticks;
    }
}

void gki_emu_wgmma_thread_returns(gki_emu_context *thread)
{
    if (thread->issued > thread->finished) {
        gki_emu_fail(&thread->thread, thread->file, thread->line,
                     "wgmma: the thread has returned without waiting for it, issued");
    }
}
