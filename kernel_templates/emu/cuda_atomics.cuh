// Atomic read-modify-write: true atomics, since launches from several host threads may meet in
// the same memory. Every function returns the old value.
#pragma once

template <class T> inline T gk_emu_atomic_exchange(T *p, T value)
{
    T old;
    __atomic_exchange(p, &value, &old, __ATOMIC_SEQ_CST);
    return old;
}

// Replaces *p by update(*p).
template <class T, class F> inline T gk_emu_atomic_update(T *p, F update)
{
    T old;
    __atomic_load(p, &old, __ATOMIC_SEQ_CST);
    for (;;) {
        T next = update(old);
        if (__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            return old;
        }
    }
}

#define GK_EMU_ATOMICS(T)                                                                          \
    inline T atomicExch(T *p, T value)                                                             \
    {                                                                                              \
        return gk_emu_atomic_exchange(p, value);                                                   \
    }                                                                                              \
    inline T atomicAdd(T *p, T value)                                                              \
    {                                                                                              \
        return gk_emu_atomic_update(p, [value](T old) { return (T)(old + value); });               \
    }
#define GK_EMU_INTEGER_ATOMICS(T)                                                                  \
    GK_EMU_ATOMICS(T)                                                                              \
    inline T atomicMax(T *p, T value)                                                              \
    {                                                                                              \
        return gk_emu_atomic_update(p, [value](T old) { return old < value ? value : old; });      \
    }                                                                                              \
    inline T atomicMin(T *p, T value)                                                              \
    {                                                                                              \
        return gk_emu_atomic_update(p, [value](T old) { return value < old ? value : old; });      \
    }                                                                                              \
    inline T atomicAnd(T *p, T value)                                                              \
    {                                                                                              \
        return __atomic_fetch_and(p, value, __ATOMIC_SEQ_CST);                                     \
    }                                                                                              \
    inline T atomicOr(T *p, T value)                                                               \
    {                                                                                              \
        return __atomic_fetch_or(p, value, __ATOMIC_SEQ_CST);                                      \
    }                                                                                              \
    inline T atomicCAS(T *p, T expected, T value)                                                  \
    {                                                                                              \
        __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST,                  \
                                    __ATOMIC_SEQ_CST);                                             \
        return expected;                                                                           \
    }

GK_EMU_INTEGER_ATOMICS(int)
GK_EMU_INTEGER_ATOMICS(unsigned int)
GK_EMU_INTEGER_ATOMICS(unsigned long long)
GK_EMU_ATOMICS(float)
GK_EMU_ATOMICS(double)

inline int atomicSub(int *p, int value)
{
    return atomicAdd(p, -value);
}
inline unsigned atomicSub(unsigned *p, unsigned value)
{
    return atomicAdd(p, 0u - value);
}

inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
