// A thread's vectors of a row in shared memory, or in registers and shared memory.
#pragma once
#include "gk/rows.cuh"

namespace gk {

// Vectors and edges of a row like row_in_registers, but in shared memory: as many vectors as there
// are up to `limit`, at most `most`. Vector i of the thread lies at space + i * pitch, and no other
// thread touches it. AHEAD vectors are stored at a time. ONCE: what is loaded and stored leaves the
// second-level cache first.
template <int EDGES, int AHEAD, bool ONCE = false> struct row_in_shared {
    row_view view;
    gk_i64 begin, step, limit;
    int count, most;
    unsigned char *space;
    int pitch;
    row_edges<EDGES> edges;

    // A place for vector 0 of the thread, those of all threads side by side.
    GK_DEVICE void take_room(unsigned char *shared, int vectors, gk_i64 end, int threads)
    {
        space = shared + threadIdx.x * (VEC * SIZE);
        pitch = threads * VEC * SIZE;
        most = vectors;
        limit = end;
    }

    GK_DEVICE void load(int i)
    {
        const X_TYPE *const from =
            view.x + view.at(begin + i * step) * (VEC > 1 ? 1 : view.x_stride);
        if constexpr (ONCE && VEC * SIZE == 16) {
            cp_async_once(space + i * pitch, from);
        } else if constexpr (VEC > 1) {
            cp_async<VEC * SIZE>(space + i * pitch, from, VEC * SIZE);
        } else {
            *(X_TYPE *)(space + i * pitch) = *from;
        }
    }

    // Vectors [from, to).
    GK_DEVICE void load(int from, int to)
    {
        _Pragma("unroll 2") for (int i = from; i < to; i++)
        {
            load(i);
        }
    }

    GK_DEVICE void place(const row_view &of)
    {
        const gk_i64 end = of.vectors < limit ? of.vectors : limit;
        const gk_i64 left = begin < end ? (end - begin + step - 1) / step : 0;
        view = of;
        count = left < most ? (int)left : most;
    }

    GK_DEVICE void load_all(const row_view &of, gk_i64 from, gk_i64 stride)
    {
        begin = from;
        step = stride;
        place(of);
        load(0, count);
        cp_async_commit();
        edges.load(view, begin, step);
    }

    GK_DEVICE void ready() const
    {
        cp_async_wait<0>();
    }

    GK_DEVICE void get(ACC (&x)[VEC], int i) const
    {
        gk_u32 words[WORDS];
        load_words<VEC * SIZE>(words, space + i * pitch);
        unpack(x, words);
    }

    template <class F> GK_DEVICE void each(F &f, int from, int to) const
    {
        _Pragma("unroll 2") for (int i = from; i < to; i++)
        {
            ACC x[VEC];
            get(x, i);
            f(x, true);
        }
    }

    template <class F> GK_DEVICE void each(F &f) const
    {
        each(f, 0, count);
        edges.each(view, begin, step, f);
    }

    // Stores COUNT vectors from vector `i` on, and loads those of the view in their places.
    template <int COUNT>
    GK_DEVICE void put(const gk_rows_args &args, const row_result &result, const row_view &now,
                       int i)
    {
        row_factors<VEC> factors[COUNT];
        GK_UNROLL
        for (int k = 0; k < COUNT; k++) {
            factors[k].load(args, now.at(begin + (i + k) * step));
        }
        GK_UNROLL
        for (int k = 0; k < COUNT; k++) {
            ACC x[VEC];
            get(x, i + k);
            put_elements<VEC, ONCE ? CACHE_STREAM : CACHE_DEFAULT>(
                factors[k], result, now, now.at(begin + (i + k) * step), x);
            if (i + k < count) {
                load(i + k);
            }
        }
    }

    // The same of vectors [from, to).
    GK_DEVICE void put(const gk_rows_args &args, const row_result &result, const row_view &now,
                       int from, int to)
    {
        int i = from;
        GK_NO_UNROLL
        for (; i + AHEAD <= to; i += AHEAD) {
            put<AHEAD>(args, result, now, i);
        }
        GK_NO_UNROLL
        for (; i < to; i++) {
            put<1>(args, result, now, i);
        }
    }

    // Stores the row.
    GK_DEVICE void put_last(const gk_rows_args &args, const row_result &result)
    {
        const int had = count;
        count = 0;
        put(args, result, view, 0, had);
        edges.put(args, result, view, begin, step);
    }

    // The same, and loads the same vectors of `next` behind it. Rows may begin differently, so that
    // either may have a vector more.
    GK_DEVICE void put_all(const gk_rows_args &args, const row_result &result, const row_view &next)
    {
        const row_view now = view;
        const int had = count;
        edges.put(args, result, now, begin, step);
        edges.load(next, begin, step);
        place(next);
        put(args, result, now, 0, had);
        load(had, count);
        cp_async_commit();
    }
};

// The first N vectors in registers, the others in shared memory: more of rows on chip at once.
template <int N, int EDGES, int AHEAD> struct row_in_both {
    row_in_registers<N, EDGES> first;
    row_in_shared<0, AHEAD> rest;

    GK_DEVICE void take_room(unsigned char *shared, int vectors, gk_i64 end, int threads)
    {
        rest.take_room(shared, vectors - N, end, threads);
    }

    GK_DEVICE void load_all(const row_view &of, gk_i64 from, gk_i64 stride)
    {
        first.load_all(of, from, stride);
        rest.load_all(of, from + N * stride, stride);
    }

    GK_DEVICE void ready() const
    {
        rest.ready();
    }

    template <class F> GK_DEVICE void each(F &f) const
    {
        first.each(f);
        rest.each(f);
    }

    GK_DEVICE void put_last(const gk_rows_args &args, const row_result &result)
    {
        first.put_last(args, result);
        rest.put_last(args, result);
    }

    GK_DEVICE void put_all(const gk_rows_args &args, const row_result &result, const row_view &next)
    {
        first.put_all(args, result, next);
        rest.put_all(args, result, next);
    }
};
template <int EDGES, int AHEAD> struct row_in_both<0, EDGES, AHEAD> : row_in_shared<EDGES, AHEAD> {
};

} // namespace gk
