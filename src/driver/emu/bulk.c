/*
 * Bulk copies. A load lands when a thread waits for its barrier and nothing else can run, of
 * several such the one issued last; a store reads when its thread waits for that, and writes when
 * its thread waits for that or the block has ended: both as late as the hardware might.
 */
#include <string.h>

#include "base/alloc.h"
#include "driver/emu/state.h"

enum { SHARED_STEP = 128, LINE_STEP = 16 };

void gki_emu_map_check(gk_emu_thread *self, const void *map, gk_emu_site site)
{
    const gk_emu_tensor_map *own = map;
    if ((uintptr_t)map % 64 != 0 || own->magic != GK_EMU_MAP_MAGIC) {
        gki_emu_fail(self, site.file, site.line,
                     "there is no tensor map at %p, or it is not aligned to 64 bytes", map);
    }
}

static uint32_t shared_offset(gk_emu_thread *self, const void *shared, uint32_t bytes,
                              uint32_t step, const char *what, gk_emu_site site)
{
    const uintptr_t first = (uintptr_t)self->shared;
    const uintptr_t at = (uintptr_t)shared;
    if (at < first || at - first + bytes > self->shared_bytes || (at - first) % step != 0) {
        gki_emu_fail(self, site.file, site.line,
                     "%s: %u bytes at shared memory offset %lld, must be a multiple of %u inside "
                     "the block's %u bytes",
                     what, bytes, (long long)at - (long long)first, step, self->shared_bytes);
    }
    return (uint32_t)(at - first);
}

/* Memory that the device did not give out has an unknown end. */
static void check_global(gk_emu_thread *self, gki_emu_range used, const char *what,
                         gk_emu_site site)
{
    gki_emu_memory *memory = ((gki_emu_context *)self)->sm->launch->memory;
    if (memory == NULL || used.first == used.end) {
        return;
    }
    const gki_emu_range owner = gki_emu_memory_find(memory, (const void *)used.first);
    if (owner.end != 0 && used.end > owner.end) {
        gki_emu_fail(self, site.file, site.line,
                     "%s: reaches %llu bytes past the end of an allocation of %llu", what,
                     (unsigned long long)(used.end - owner.end),
                     (unsigned long long)(owner.end - owner.first));
    }
}

static gki_emu_box box_of(gk_emu_thread *self, const void *map, int rank, const int *at,
                          const char *what, gk_emu_site site)
{
    gki_emu_map_check(self, map, site);
    gki_emu_box box = {.map = map};
    if (box.map->rank != rank) {
        gki_emu_fail(self, site.file, site.line, "%s: %d coordinates, the map has %d", what, rank,
                     box.map->rank);
    }
    memcpy(box.at, at, sizeof box.at);
    return box;
}

static gki_emu_landing *push_load(gki_emu_context *thread)
{
    gki_emu_gang *gang = thread->sm->gang;
    if (gang->n_loads == gang->loads_capacity) {
        const size_t capacity = gang->loads_capacity == 0 ? 32 : 2 * gang->loads_capacity;
        gki_emu_landing *grown = gki_realloc(gang->loads, capacity * sizeof *grown);
        if (grown == NULL) {
            gki_emu_fail_nomem(&thread->thread, "a kernel's pending loads");
        }
        gang->loads = grown;
        gang->loads_capacity = capacity;
    }
    return &gang->loads[gang->n_loads++];
}

/* Checks what does not depend on the receiving block; returns the bytes that will arrive. */
static uint32_t check_load(gk_emu_thread *self, const gk_emu_load *load, const char *what,
                           gk_emu_site site)
{
    static const uint64_t POLICIES[] = {0, UINT64_C(0x1000000000000000),
                                        UINT64_C(0x12F0000000000000), UINT64_C(0x14F0000000000000)};
    bool known = false;
    for (size_t i = 0; i < sizeof POLICIES / sizeof POLICIES[0]; i++) {
        known |= load->policy == POLICIES[i];
    }
    if (!known) {
        gki_emu_fail(self, site.file, site.line, "%s: 0x%llx is no cache policy", what,
                     load->policy);
    }
    if (load->map != NULL) {
        const gki_emu_box box = box_of(self, load->map, load->rank, load->at, what, site);
        check_global(self, gki_emu_box_range(&box), what, site);
        const uint32_t bytes = gki_emu_box_bytes(box.map);
        shared_offset(self, load->shared, bytes, SHARED_STEP, what, site);
        return bytes;
    }
    const uintptr_t first = (uintptr_t)load->global;
    if (!load->is_store &&
        (load->bytes == 0 || load->bytes % LINE_STEP != 0 || first % LINE_STEP != 0)) {
        gki_emu_fail(self, site.file, site.line, "%s: %u bytes at %p, both must be multiples of 16",
                     what, load->bytes, load->global);
    }
    if (!load->is_store) {
        check_global(self, (gki_emu_range){first, first + load->bytes}, what, site);
    }
    shared_offset(self, load->shared, load->bytes, LINE_STEP, what, site);
    return load->bytes;
}

void gki_emu_bulk_load(gk_emu_thread *self, const gk_emu_load *load, gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_cluster *cluster = thread->sm->cluster;
    const char *what = load->is_store      ? "cluster_store"
                       : load->map == NULL ? "bulk_load"
                       : load->ctas != 0   ? "tma_load_multicast"
                                           : "tma_load";
    const uint32_t bytes = check_load(self, load, what, site);
    const uint32_t offset = (uint32_t)((unsigned char *)load->shared - self->shared);
    const uint32_t ctas = load->ctas != 0 ? load->ctas : UINT32_C(1) << self->cluster_rank;
    if (ctas >> cluster->n_blocks != 0) {
        gki_emu_fail(self, site.file, site.line, "%s: blocks 0x%x, the cluster has %u", what, ctas,
                     cluster->n_blocks);
    }
    for (uint32_t i = 0; i < cluster->n_blocks; i++) {
        if ((ctas >> i & 1) == 0) {
            continue;
        }
        gki_emu_sm *sm = cluster->blocks[i];
        const uint32_t barrier = gki_emu_mbarrier_find(thread, sm, load->barrier, true, what, site);
        memset(sm->shared + offset, GKI_EMU_POISON, bytes);
        gki_emu_landing *landing = push_load(thread);
        *landing = (gki_emu_landing){
            .what = *load,
            .sm = sm,
            .barrier = barrier,
            .bytes = bytes,
            .thread = thread->index,
            .block = self->block_idx,
            .site = site,
        };
        landing->what.shared = sm->shared + offset;
        if (load->is_store) {
            memcpy(landing->data, load->global, sizeof landing->data);
        }
    }
}

static void land(const gki_emu_landing *landing)
{
    const gk_emu_load *what = &landing->what;
    gki_emu_sm *sm = landing->sm;
    unsigned char *shared = what->shared;
    if (what->is_store) {
        memcpy(shared, landing->data, sizeof landing->data);
    } else if (what->map == NULL) {
        memcpy(shared, what->global, landing->bytes);
    } else {
        gki_emu_box box = {.map = what->map};
        memcpy(box.at, what->at, sizeof box.at);
        gki_emu_box_load(&box, sm->shared, (uint32_t)(shared - sm->shared));
    }
}

bool gki_emu_land(gki_emu_gang *gang)
{
    size_t i = gang->n_loads;
    while (i > 0 && gang->loads[i - 1].sm->mbarriers[gang->loads[i - 1].barrier].waiters == 0) {
        i--;
    }
    if (i == 0) {
        return false;
    }
    gki_emu_sm *const sm = gang->loads[i - 1].sm;
    const uint32_t barrier = gang->loads[i - 1].barrier;
    size_t kept = 0;
    for (i = 0; i < gang->n_loads; i++) {
        const gki_emu_landing landing = gang->loads[i];
        if (landing.sm == sm && landing.barrier == barrier) {
            land(&landing);
            gki_emu_mbarrier_complete(sm, barrier, landing.bytes);
        } else {
            gang->loads[kept++] = landing;
        }
    }
    gang->n_loads = kept;
    return true;
}

void gki_emu_bulk_block_returned(gki_emu_sm *sm)
{
    const gki_emu_gang *gang = sm->gang;
    for (size_t i = 0; i < gang->n_loads; i++) {
        const gki_emu_landing *landing = &gang->loads[i];
        if (landing->sm == sm) {
            gki_emu_record(sm, GK_ERR_DEVICE,
                           "block %s has returned before the load of %u bytes that thread %u of "
                           "block %s issued at %s:%d has landed",
                           gki_emu_dim3_text(sm->block_idx).text, landing->bytes, landing->thread,
                           gki_emu_dim3_text(landing->block).text, landing->site.file,
                           landing->site.line);
            return;
        }
    }
}

void gki_emu_bulk_store(gk_emu_thread *self, const gk_emu_store *store, gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    const gki_emu_box box = box_of(self, store->map, store->rank, store->at, "tma_store", site);
    check_global(self, gki_emu_box_range(&box), "tma_store", site);
    shared_offset(self, store->shared, gki_emu_box_bytes(box.map), SHARED_STEP, "tma_store", site);
    if (thread->n_stores == thread->stores_capacity) {
        const size_t capacity = thread->stores_capacity == 0 ? 8 : 2 * thread->stores_capacity;
        gki_emu_departure *grown = gki_realloc(thread->stores, capacity * sizeof *grown);
        if (grown == NULL) {
            gki_emu_fail_nomem(self, "a thread's pending stores");
        }
        thread->stores = grown;
        thread->stores_capacity = capacity;
    }
    thread->stores[thread->n_stores++] =
        (gki_emu_departure){.what = *store, .group = thread->store_groups, .site = site};
}

void gki_emu_bulk_commit(gk_emu_thread *self)
{
    ((gki_emu_context *)self)->store_groups++;
}

static gki_emu_box box_of_store(const gki_emu_departure *departure)
{
    gki_emu_box box = {.map = departure->what.map};
    memcpy(box.at, departure->what.at, sizeof box.at);
    return box;
}

static void read_store(gki_emu_context *thread, gki_emu_departure *departure)
{
    if (departure->data != NULL) {
        return;
    }
    const gki_emu_box box = box_of_store(departure);
    const unsigned char *shared = departure->what.shared;
    departure->data = gki_alloc(gki_emu_box_bytes(box.map));
    if (departure->data == NULL) {
        gki_emu_fail_nomem(&thread->thread, "a store's bytes");
    }
    gki_emu_box_read(&box, thread->thread.shared, (uint32_t)(shared - thread->thread.shared),
                     departure->data);
}

void gki_emu_bulk_wait(gk_emu_thread *self, unsigned pending, int read_only)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    size_t n = 0;
    while (n < thread->n_stores && thread->stores[n].group + pending < thread->store_groups) {
        read_store(thread, &thread->stores[n++]);
    }
    if (read_only || n == 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const gki_emu_box box = box_of_store(&thread->stores[i]);
        gki_emu_box_write(&box, thread->stores[i].data);
        gki_free(thread->stores[i].data);
    }
    thread->n_stores -= n;
    memmove(thread->stores, thread->stores + n, thread->n_stores * sizeof *thread->stores);
}

void gki_emu_bulk_thread_returns(gki_emu_context *thread)
{
    for (size_t i = 0; i < thread->n_stores; i++) {
        const gki_emu_departure *departure = &thread->stores[i];
        if (departure->data == NULL) {
            gki_emu_fail(&thread->thread, departure->site.file, departure->site.line,
                         "tma_store: the thread has returned without waiting until shared memory "
                         "was read");
        }
    }
}

void gki_emu_bulk_finish(gki_emu_gang *gang, bool write)
{
    for (uint32_t i = 0; i < gang->n_blocks; i++) {
        gki_emu_sm *sm = gang->blocks[i];
        for (uint32_t j = 0; j < sm->n_threads; j++) {
            gki_emu_context *thread = &sm->threads[j];
            for (size_t k = 0; k < thread->n_stores; k++) {
                const gki_emu_box box = box_of_store(&thread->stores[k]);
                if (write && thread->stores[k].data != NULL) {
                    gki_emu_box_write(&box, thread->stores[k].data);
                }
                gki_free(thread->stores[k].data);
            }
            thread->n_stores = 0;
        }
    }
    gang->n_loads = 0;
}
