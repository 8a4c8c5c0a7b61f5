// Warp shuffles, votes and __syncwarp. Only the lanes in the mask take part; a shuffle from a lane
// that does not take part gives 0xFF bytes, since CUDA leaves the value undefined.
#pragma once

#define GK_EMU_FULL_MASK 0xffffffffu

inline void gk_emu_no_operation(void *const *, unsigned)
{
}

inline void __syncwarp(unsigned mask = GK_EMU_FULL_MASK, GK_EMU_SITE)
{
    gk_emu_collective(gk_emu_no_operation, "__syncwarp", mask, false, nullptr, file, line);
}

inline unsigned __activemask()
{
    return gk_emu_self->host->lanes(gk_emu_self);
}

template <class T> struct gk_emu_shuffle {
    T value;
    T result;
    int source; // lane, after the direction is resolved
};

template <class T> inline void gk_emu_shuffle_lanes(void *const *operands, unsigned lanes)
{
    for (int lane = 0; lane < GK_EMU_WARP; lane++) {
        if ((lanes >> lane & 1u) == 0) {
            continue;
        }
        auto *const own = static_cast<gk_emu_shuffle<T> *>(operands[lane]);
        if ((lanes >> own->source & 1u) == 0) {
            __builtin_memset(&own->result, 0xff, sizeof own->result);
            continue;
        }
        own->result = static_cast<gk_emu_shuffle<T> *>(operands[own->source])->value;
    }
}

template <class T>
inline T gk_emu_shuffle_from(unsigned mask, T value, int source, const char *name, const char *file,
                             int line)
{
    gk_emu_shuffle<T> operand = {value, value, source};
    gk_emu_collective(gk_emu_shuffle_lanes<T>, name, mask, false, &operand, file, line);
    return operand.result;
}

inline void gk_emu_check_width(int width, const char *name, const char *file, int line)
{
    if (width < 1 || width > GK_EMU_WARP || (width & (width - 1)) != 0) {
        gk_emu_self->host->fail(gk_emu_self, file, line,
                                "%s: width is %d, must be a power of two from 1 to 32", name,
                                width);
    }
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = GK_EMU_WARP, GK_EMU_SITE)
{
    gk_emu_check_width(width, "__shfl_sync", file, line);
    const int lane = (int)gk_emu_self->lane;
    const int first = lane & ~(width - 1);
    return gk_emu_shuffle_from(mask, value, first | (source & (width - 1)), "__shfl_sync", file,
                               line);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = GK_EMU_WARP,
                        GK_EMU_SITE)
{
    gk_emu_check_width(width, "__shfl_up_sync", file, line);
    const int lane = (int)gk_emu_self->lane;
    const bool inside = delta <= (unsigned)(lane & (width - 1));
    return gk_emu_shuffle_from(mask, value, inside ? lane - (int)delta : lane, "__shfl_up_sync",
                               file, line);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = GK_EMU_WARP,
                          GK_EMU_SITE)
{
    gk_emu_check_width(width, "__shfl_down_sync", file, line);
    const int lane = (int)gk_emu_self->lane;
    const bool inside = delta < (unsigned)(width - (lane & (width - 1)));
    return gk_emu_shuffle_from(mask, value, inside ? lane + (int)delta : lane, "__shfl_down_sync",
                               file, line);
}

// A lane of an earlier segment may be read, one of a later segment may not.
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = GK_EMU_WARP,
                         GK_EMU_SITE)
{
    gk_emu_check_width(width, "__shfl_xor_sync", file, line);
    const int lane = (int)gk_emu_self->lane;
    const int source = lane ^ (lane_mask & (GK_EMU_WARP - 1));
    const bool inside = source <= (lane | (width - 1));
    return gk_emu_shuffle_from(mask, value, inside ? source : lane, "__shfl_xor_sync", file, line);
}

struct gk_emu_vote {
    bool predicate;
    unsigned ballot;
};

inline void gk_emu_vote_lanes(void *const *operands, unsigned lanes)
{
    unsigned ballot = 0;
    for (int lane = 0; lane < GK_EMU_WARP; lane++) {
        if ((lanes >> lane & 1u) != 0 && static_cast<gk_emu_vote *>(operands[lane])->predicate) {
            ballot |= 1u << lane;
        }
    }
    for (int lane = 0; lane < GK_EMU_WARP; lane++) {
        if ((lanes >> lane & 1u) != 0) {
            static_cast<gk_emu_vote *>(operands[lane])->ballot = ballot;
        }
    }
}

// One operation a vote function: lanes of a warp that mix them are a mistake.
template <int KIND> inline void gk_emu_vote_kind(void *const *operands, unsigned lanes)
{
    gk_emu_vote_lanes(operands, lanes);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, GK_EMU_SITE)
{
    gk_emu_vote operand = {predicate != 0, 0};
    gk_emu_collective(gk_emu_vote_kind<0>, "__ballot_sync", mask, false, &operand, file, line);
    return operand.ballot;
}

inline int __any_sync(unsigned mask, int predicate, GK_EMU_SITE)
{
    gk_emu_vote operand = {predicate != 0, 0};
    gk_emu_collective(gk_emu_vote_kind<1>, "__any_sync", mask, false, &operand, file, line);
    return operand.ballot != 0;
}

inline int __all_sync(unsigned mask, int predicate, GK_EMU_SITE)
{
    gk_emu_vote operand = {predicate == 0, 0};
    gk_emu_collective(gk_emu_vote_kind<2>, "__all_sync", mask, false, &operand, file, line);
    return operand.ballot == 0;
}
