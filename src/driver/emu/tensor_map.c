/* Tensor maps of the CPU device: boxes of an array, and how they lie in shared memory. */
#include <string.h>

#include "base/error.h"
#include "driver/emu/state.h"
#include "driver/emu/tensor_map.h"

enum { CHUNK = 16, MAX_ROW = 256 * 8 };

_Static_assert(sizeof(gk_emu_tensor_map) == sizeof(gk_tensor_map), "a tensor map");

gk_status gki_emu_map_encode(gki_device *device, const gk_map_desc *desc, gk_tensor_map *out)
{
    (void)device;
    gk_emu_tensor_map map = {
        .magic = GK_EMU_MAP_MAGIC,
        .rank = (unsigned short)desc->rank,
        .element = (unsigned short)gk_dtype_size((gk_dtype)desc->dtype),
        .data = (uintptr_t)desc->data,
        .swizzle = (unsigned short)desc->swizzle,
        .tf32 = desc->tf32 != 0,
    };
    const int64_t row = (int64_t)desc->box[0] * map.element;
    if (desc->swizzle != 0 && row != (int64_t)desc->swizzle) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "a tensor map's boxes are %lld bytes wide, a swizzle of %u bytes needs as "
                       "many",
                       (long long)row, (unsigned)desc->swizzle);
    }
    for (uint32_t i = 0; i < GK_EMU_MAX_RANK; i++) {
        const bool is_there = i < desc->rank;
        map.dims[i] = is_there ? desc->dims[i] : 1;
        map.strides[i] = i == 0 ? map.element : is_there ? desc->strides[i] : 0;
        map.box[i] = (unsigned short)(is_there ? desc->box[i] : 1);
    }
    memcpy(out, &map, sizeof map);
    return GK_OK;
}

uint32_t gki_emu_box_bytes(const gk_emu_tensor_map *map)
{
    uint32_t bytes = map->element;
    for (int i = 0; i < GK_EMU_MAX_RANK; i++) {
        bytes *= map->box[i];
    }
    return bytes;
}

/* The part of axis i that lies in the array, as [*first, *end) of the box. */
static void clip(const gki_emu_box *box, int i, int64_t *first, int64_t *end)
{
    const int64_t at = box->at[i];
    const int64_t n = box->map->box[i];
    *first = at < 0 ? -at : 0;
    *end = box->map->dims[i] - at < n ? box->map->dims[i] - at : n;
}

gki_emu_range gki_emu_box_range(const gki_emu_box *box)
{
    const gk_emu_tensor_map *map = box->map;
    uintptr_t first = (uintptr_t)map->data;
    uintptr_t last = first;
    for (int i = 0; i < GK_EMU_MAX_RANK; i++) {
        int64_t from = 0;
        int64_t end = 0;
        clip(box, i, &from, &end);
        if (from >= end) {
            return (gki_emu_range){0, 0};
        }
        first += (uintptr_t)((box->at[i] + from) * map->strides[i]);
        last += (uintptr_t)((box->at[i] + end - 1) * map->strides[i]);
    }
    return (gki_emu_range){first, last + map->element};
}

/* A walk over the rows of a box. */
typedef struct walk {
    const gki_emu_box *box;
    int64_t first[GK_EMU_MAX_RANK];
    int64_t end[GK_EMU_MAX_RANK];
    int64_t row[GK_EMU_MAX_RANK]; /* [0] is not used */
    uint32_t index;               /* of the row */
    uint32_t count;
    uint32_t bytes; /* a row */
} walk;

static walk walk_begin(const gki_emu_box *box)
{
    walk w = {.box = box, .bytes = (uint32_t)box->map->box[0] * box->map->element};
    w.count = gki_emu_box_bytes(box->map) / w.bytes;
    for (int i = 0; i < GK_EMU_MAX_RANK; i++) {
        clip(box, i, &w.first[i], &w.end[i]);
    }
    return w;
}

static void walk_next(walk *w)
{
    w->index++;
    for (int i = 1; i < GK_EMU_MAX_RANK; i++) {
        if (++w->row[i] < w->box->map->box[i]) {
            return;
        }
        w->row[i] = 0;
    }
}

/* Where the row's elements are that lie in the array, NULL if none does; *skip bytes of the row
 * come before them, and they take *n. */
static unsigned char *walk_global(const walk *w, uint32_t *skip, uint32_t *n)
{
    const gk_emu_tensor_map *map = w->box->map;
    if (w->first[0] >= w->end[0]) {
        return NULL;
    }
    uintptr_t address =
        (uintptr_t)map->data + (uintptr_t)((w->box->at[0] + w->first[0]) * map->element);
    for (int i = 1; i < GK_EMU_MAX_RANK; i++) {
        if (w->row[i] < w->first[i] || w->row[i] >= w->end[i]) {
            return NULL;
        }
        address += (uintptr_t)((w->box->at[i] + w->row[i]) * map->strides[i]);
    }
    *skip = (uint32_t)w->first[0] * map->element;
    *n = (uint32_t)(w->end[0] - w->first[0]) * map->element;
    return (unsigned char *)address;
}

/* The swizzle exchanges 16-byte chunks by address bits 7 and up. */
static uint32_t swizzled(uint32_t offset, uint32_t swizzle)
{
    const uint32_t mask = swizzle / CHUNK - (swizzle != 0);
    return offset ^ (offset >> 7 & mask) * CHUNK;
}

/* To nearest even, as the H100 does it; NaN stays NaN. */
static void round_to_tf32(unsigned char *row, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        uint32_t bits;
        memcpy(&bits, row + i, sizeof bits);
        if ((bits & 0x7fffffffu) > 0x7f800000u) {
            bits |= 0x400000u;
        } else if ((bits & 0x7f800000u) != 0x7f800000u) {
            bits += 0xfffu + (bits >> 13 & 1);
        }
        bits &= ~UINT32_C(0x1fff);
        memcpy(row + i, &bits, sizeof bits);
    }
}

void gki_emu_box_load(const gki_emu_box *box, unsigned char *shared, uint32_t offset)
{
    unsigned char row[MAX_ROW];
    walk w = walk_begin(box);
    for (; w.index < w.count; walk_next(&w)) {
        uint32_t skip = 0;
        uint32_t n = 0;
        const unsigned char *source = walk_global(&w, &skip, &n);
        if (source == NULL || n < w.bytes || box->map->tf32) {
            memset(row, 0, w.bytes);
            if (source != NULL) {
                memcpy(row + skip, source, n);
            }
            source = row;
        }
        if (box->map->tf32) {
            round_to_tf32(row, w.bytes);
        }
        const uint32_t to = offset + w.index * w.bytes;
        if (box->map->swizzle == 0) {
            memcpy(shared + to, source, w.bytes);
            continue;
        }
        for (uint32_t i = 0; i < w.bytes; i += CHUNK) {
            memcpy(shared + swizzled(to + i, box->map->swizzle), source + i, CHUNK);
        }
    }
}

void gki_emu_box_read(const gki_emu_box *box, const unsigned char *shared, uint32_t offset,
                      unsigned char *data)
{
    const uint32_t bytes = gki_emu_box_bytes(box->map);
    for (uint32_t i = 0; i < bytes; i += CHUNK) {
        memcpy(data + i, shared + swizzled(offset + i, box->map->swizzle), CHUNK);
    }
}

void gki_emu_box_write(const gki_emu_box *box, const unsigned char *data)
{
    walk w = walk_begin(box);
    for (; w.index < w.count; walk_next(&w)) {
        uint32_t skip = 0;
        uint32_t n = 0;
        unsigned char *to = walk_global(&w, &skip, &n);
        if (to != NULL) {
            /* Rows are cut at multiples of 16 bytes only, as the H100 does it. */
            const int64_t line = box->map->dims[0] * box->map->element;
            const int64_t cut = (line + CHUNK - 1) / CHUNK * CHUNK - box->at[0] * box->map->element;
            const uint32_t end = cut < w.bytes ? (uint32_t)cut : w.bytes;
            memcpy(to, data + (size_t)w.index * w.bytes + skip, end - skip);
        }
    }
}
