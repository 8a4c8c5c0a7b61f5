// One operand of a map kernel in registers, and the expression on elements. The constants HAS_X0 ..
// OUT_ALIGN, ACC_TYPE and the macro EXPRESSION come from the renderer.
#pragma once

#include "gk/elementwise.cuh"
#include "gk/vector_memory.cuh"

namespace gk {

// As gk_problem.layout says of the axis that vectors lie along.
enum { ALONG = 0, SPREAD = 2, REPEATED = 3 };

constexpr int VEC = VECTOR / WIDEST;

template <class T> struct alignas(16) elements {
    T at[VEC];
};

// A vector of VEC elements of an input; of one that is repeated, one; of one that is absent, none.
template <class T, bool HAS, int LAYOUT, int ALIGN> struct map_input {
    elements<T> v;

    // `along`: the distance of neighbours, of SPREAD elements only.
    template <int CACHE> GK_DEVICE void load(const void *base, gk_i64 index, gk_i64 along)
    {
        if constexpr (HAS) {
            const T *from = (const T *)base + index;
            if constexpr (LAYOUT == ALONG) {
                load_vector<VEC *(int)sizeof(T), ALIGN, CACHE>(v.at, from);
            } else if constexpr (LAYOUT == REPEATED) {
                v.at[0] = *from;
            } else {
                GK_UNROLL
                for (int k = 0; k < VEC; k++) {
                    v.at[k] = from[k * along];
                }
            }
        }
    }

    // The first `count` elements only.
    GK_DEVICE void load_some(const void *base, gk_i64 index, gk_i64 along, int count)
    {
        if constexpr (HAS) {
            const T *from = (const T *)base + index;
            GK_UNROLL
            for (int k = 0; k < VEC; k++) {
                if (k < (LAYOUT == REPEATED ? 1 : count)) {
                    v.at[k] = from[k * (LAYOUT == SPREAD ? along : 1)];
                }
            }
        }
    }

    GK_DEVICE ACC_TYPE get(int k) const
    {
        if constexpr (HAS) {
            return load_as<ACC_TYPE>(v.at[LAYOUT == REPEATED ? 0 : k]);
        } else {
            return (ACC_TYPE)0;
        }
    }
};

GK_DEVICE ACC_TYPE map_value(ACC_TYPE x0, ACC_TYPE x1, ACC_TYPE x2, ACC_TYPE x3, ACC_TYPE x4)
{
    return EXPRESSION;
}

// A vector of every input.
struct map_inputs {
    map_input<X0_TYPE, HAS_X0, X0_LAYOUT, X0_ALIGN> x0;
    map_input<X1_TYPE, HAS_X1, X1_LAYOUT, X1_ALIGN> x1;
    map_input<X2_TYPE, HAS_X2, X2_LAYOUT, X2_ALIGN> x2;
    map_input<X3_TYPE, HAS_X3, X3_LAYOUT, X3_ALIGN> x3;
    map_input<X4_TYPE, HAS_X4, X4_LAYOUT, X4_ALIGN> x4;

    GK_DEVICE OUT_TYPE value(int k) const
    {
        return store_as<OUT_TYPE>(map_value(x0.get(k), x1.get(k), x2.get(k), x3.get(k), x4.get(k)));
    }
};

} // namespace gk
