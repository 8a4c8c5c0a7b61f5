// Matrix products of a warpgroup (wgmma), a part of gk/hopper.cuh.
#pragma once
#include "gk/dtypes.cuh"

namespace gk {

// f32 of which the tensor core reads the first 19 bits.
struct tf32 {
    gk_u32 bits;
};

// Matrix products of a warpgroup: D[64 x N] (+)= A[64 x K] * B[K x N], K 32 bytes long. Thread t of
// the warpgroup holds rows t / 32 * 16 + t % 32 / 4 (+ 8) and columns 8 j + t % 4 * 2 (+ 1):
// d[4 j + 2 * upper_row + odd_column].

// Describes an operand in shared memory. SWIZZLE: bytes, 0, 32, 64 or 128. K-major with a swizzle:
// `stride` bytes from 8 rows to the next 8, `leading` unused. MN-major with a swizzle: `leading`
// from one SWIZZLE bytes wide slab to the next, `stride` from 8 K rows to the next 8. An offset of
// n bytes is added as n / 16.
template <int SWIZZLE>
GK_DEVICE gk_u64 matrix_descriptor(const void *shared, gk_u32 leading, gk_u32 stride)
{
    constexpr gk_u64 MODE = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : SWIZZLE == 32 ? 3 : 0;
    return (gk_u64)((shared_address(shared) & 0x3ffff) >> 4) | (gk_u64)(leading >> 4) << 16 |
           (gk_u64)(stride >> 4) << 32 | MODE << 62;
}

// Before the first wgmma, and after other instructions wrote its registers.
GK_DEVICE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

GK_DEVICE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most PENDING of the latest groups are unfinished.
template <int PENDING> GK_DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from moving uses of the sums across this point.
template <int N> GK_DEVICE void keep_registers(float (&d)[N])
{
    GK_UNROLL
    for (int i = 0; i < N; ++i) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

// The parts of the instruction's text that depend on the type. TRANS: which operands in shared
// memory are MN-major, A's bit first; only 16-bit types have the choice.
template <class T> struct wgmma_type;
template <> struct wgmma_type<f16> {
    static constexpr char SHAPE[] = "k16.f32.f16.f16";
    static constexpr bool TRANSPOSES = true;
};
template <> struct wgmma_type<bf16> {
    static constexpr char SHAPE[] = "k16.f32.bf16.bf16";
    static constexpr bool TRANSPOSES = true;
};
template <> struct wgmma_type<tf32> {
    static constexpr char SHAPE[] = "k8.f32.tf32.tf32";
    static constexpr bool TRANSPOSES = false;
};
template <> struct wgmma_type<e4m3> {
    static constexpr char SHAPE[] = "k32.f32.e4m3.e4m3";
    static constexpr bool TRANSPOSES = false;
};
template <> struct wgmma_type<e5m2> {
    static constexpr char SHAPE[] = "k32.f32.e5m2.e5m2";
    static constexpr bool TRANSPOSES = false;
};
template <bool CHOICE, bool A, bool B> struct wgmma_major {
    static_assert(!A && !B, "operands of this type are K-major");
    static constexpr char BOTH[] = "";
    static constexpr char RIGHT[] = "";
};
template <> struct wgmma_major<true, false, false> {
    static constexpr char BOTH[] = ", 0, 0";
    static constexpr char RIGHT[] = ", 0";
};
template <> struct wgmma_major<true, false, true> {
    static constexpr char BOTH[] = ", 0, 1";
    static constexpr char RIGHT[] = ", 1";
};
template <> struct wgmma_major<true, true, false> {
    static constexpr char BOTH[] = ", 1, 0";
};
template <> struct wgmma_major<true, true, true> {
    static constexpr char BOTH[] = ", 1, 1";
};

// The registers of N columns, as the instruction names them and as operands.
// clang-format off
#define GK_NAMES_8 "%0,%1,%2,%3"
#define GK_NAMES_16 GK_NAMES_8 ",%4,%5,%6,%7"
#define GK_NAMES_24 GK_NAMES_16 ",%8,%9,%10,%11"
#define GK_NAMES_32 GK_NAMES_24 ",%12,%13,%14,%15"
#define GK_NAMES_40 GK_NAMES_32 ",%16,%17,%18,%19"
#define GK_NAMES_48 GK_NAMES_40 ",%20,%21,%22,%23"
#define GK_NAMES_56 GK_NAMES_48 ",%24,%25,%26,%27"
#define GK_NAMES_64 GK_NAMES_56 ",%28,%29,%30,%31"
#define GK_NAMES_72 GK_NAMES_64 ",%32,%33,%34,%35"
#define GK_NAMES_80 GK_NAMES_72 ",%36,%37,%38,%39"
#define GK_NAMES_88 GK_NAMES_80 ",%40,%41,%42,%43"
#define GK_NAMES_96 GK_NAMES_88 ",%44,%45,%46,%47"
#define GK_NAMES_104 GK_NAMES_96 ",%48,%49,%50,%51"
#define GK_NAMES_112 GK_NAMES_104 ",%52,%53,%54,%55"
#define GK_NAMES_120 GK_NAMES_112 ",%56,%57,%58,%59"
#define GK_NAMES_128 GK_NAMES_120 ",%60,%61,%62,%63"
#define GK_NAMES_136 GK_NAMES_128 ",%64,%65,%66,%67"
#define GK_NAMES_144 GK_NAMES_136 ",%68,%69,%70,%71"
#define GK_NAMES_152 GK_NAMES_144 ",%72,%73,%74,%75"
#define GK_NAMES_160 GK_NAMES_152 ",%76,%77,%78,%79"
#define GK_NAMES_168 GK_NAMES_160 ",%80,%81,%82,%83"
#define GK_NAMES_176 GK_NAMES_168 ",%84,%85,%86,%87"
#define GK_NAMES_184 GK_NAMES_176 ",%88,%89,%90,%91"
#define GK_NAMES_192 GK_NAMES_184 ",%92,%93,%94,%95"
#define GK_NAMES_200 GK_NAMES_192 ",%96,%97,%98,%99"
#define GK_NAMES_208 GK_NAMES_200 ",%100,%101,%102,%103"
#define GK_NAMES_216 GK_NAMES_208 ",%104,%105,%106,%107"
#define GK_NAMES_224 GK_NAMES_216 ",%108,%109,%110,%111"
#define GK_NAMES_232 GK_NAMES_224 ",%112,%113,%114,%115"
#define GK_NAMES_240 GK_NAMES_232 ",%116,%117,%118,%119"
#define GK_NAMES_248 GK_NAMES_240 ",%120,%121,%122,%123"
#define GK_NAMES_256 GK_NAMES_248 ",%124,%125,%126,%127"
#define GK_SUMS_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define GK_SUMS_16 GK_SUMS_8, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define GK_SUMS_24 GK_SUMS_16, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define GK_SUMS_32 GK_SUMS_24, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define GK_SUMS_40 GK_SUMS_32, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define GK_SUMS_48 GK_SUMS_40, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define GK_SUMS_56 GK_SUMS_48, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define GK_SUMS_64 GK_SUMS_56, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define GK_SUMS_72 GK_SUMS_64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define GK_SUMS_80 GK_SUMS_72, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define GK_SUMS_88 GK_SUMS_80, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define GK_SUMS_96 GK_SUMS_88, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define GK_SUMS_104 GK_SUMS_96, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define GK_SUMS_112 GK_SUMS_104, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define GK_SUMS_120 GK_SUMS_112, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define GK_SUMS_128 GK_SUMS_120, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define GK_SUMS_136 GK_SUMS_128, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define GK_SUMS_144 GK_SUMS_136, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define GK_SUMS_152 GK_SUMS_144, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define GK_SUMS_160 GK_SUMS_152, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define GK_SUMS_168 GK_SUMS_160, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define GK_SUMS_176 GK_SUMS_168, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define GK_SUMS_184 GK_SUMS_176, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define GK_SUMS_192 GK_SUMS_184, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define GK_SUMS_200 GK_SUMS_192, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define GK_SUMS_208 GK_SUMS_200, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define GK_SUMS_216 GK_SUMS_208, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define GK_SUMS_224 GK_SUMS_216, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define GK_SUMS_232 GK_SUMS_224, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define GK_SUMS_240 GK_SUMS_232, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define GK_SUMS_248 GK_SUMS_240, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define GK_SUMS_256 GK_SUMS_248, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
// clang-format on

template <int N> struct wgmma_size;

// I0 to I6 are the numbers of the operands behind the sums.
#define GK_WGMMA_SIZE(N, I0, I1, I2, I3, I4, I5, I6, I7)                                           \
    template <> struct wgmma_size<N> {                                                             \
        template <class Type, class Major>                                                         \
        static GK_DEVICE void multiply(float (&d)[N / 2], gk_u64 a, gk_u64 b, int accumulate)      \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " I0 ", 0;\n"                           \
                         "wgmma.mma_async.sync.aligned.m64n" #N I3 " {" GK_NAMES_##N               \
                         "}, " I1 ", " I2 ", p, 1, 1" I4 ";\n}"                                    \
                         : GK_SUMS_##N                                                             \
                         : "r"(accumulate), "l"(a), "l"(b), "C"(Type::SHAPE), "C"(Major::BOTH));   \
        }                                                                                          \
        template <class Type, class Major>                                                         \
        static GK_DEVICE void multiply(float (&d)[N / 2], const gk_u32 (&a)[4], gk_u64 b,          \
                                       int accumulate)                                             \
        {                                                                                          \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " I0 ", 0;\n"                           \
                         "wgmma.mma_async.sync.aligned.m64n" #N I6 " {" GK_NAMES_##N               \
                         "}, {" I1 "," I2 "," I3 "," I4 "}, " I5 ", p, 1, 1" I7 ";\n}"             \
                         : GK_SUMS_##N                                                             \
                         : "r"(accumulate), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),    \
                           "C"(Type::SHAPE), "C"(Major::RIGHT));                                   \
        }                                                                                          \
    };
// clang-format off
GK_WGMMA_SIZE(8, "%4", "%5", "%6", "%7", "%8", "%9", "%10", "%11")
GK_WGMMA_SIZE(16, "%8", "%9", "%10", "%11", "%12", "%13", "%14", "%15")
GK_WGMMA_SIZE(24, "%12", "%13", "%14", "%15", "%16", "%17", "%18", "%19")
GK_WGMMA_SIZE(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22", "%23")
GK_WGMMA_SIZE(40, "%20", "%21", "%22", "%23", "%24", "%25", "%26", "%27")
GK_WGMMA_SIZE(48, "%24", "%25", "%26", "%27", "%28", "%29", "%30", "%31")
GK_WGMMA_SIZE(56, "%28", "%29", "%30", "%31", "%32", "%33", "%34", "%35")
GK_WGMMA_SIZE(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38", "%39")
GK_WGMMA_SIZE(72, "%36", "%37", "%38", "%39", "%40", "%41", "%42", "%43")
GK_WGMMA_SIZE(80, "%40", "%41", "%42", "%43", "%44", "%45", "%46", "%47")
GK_WGMMA_SIZE(88, "%44", "%45", "%46", "%47", "%48", "%49", "%50", "%51")
GK_WGMMA_SIZE(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54", "%55")
GK_WGMMA_SIZE(104, "%52", "%53", "%54", "%55", "%56", "%57", "%58", "%59")
GK_WGMMA_SIZE(112, "%56", "%57", "%58", "%59", "%60", "%61", "%62", "%63")
GK_WGMMA_SIZE(120, "%60", "%61", "%62", "%63", "%64", "%65", "%66", "%67")
GK_WGMMA_SIZE(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70", "%71")
GK_WGMMA_SIZE(136, "%68", "%69", "%70", "%71", "%72", "%73", "%74", "%75")
GK_WGMMA_SIZE(144, "%72", "%73", "%74", "%75", "%76", "%77", "%78", "%79")
GK_WGMMA_SIZE(152, "%76", "%77", "%78", "%79", "%80", "%81", "%82", "%83")
GK_WGMMA_SIZE(160, "%80", "%81", "%82", "%83", "%84", "%85", "%86", "%87")
GK_WGMMA_SIZE(168, "%84", "%85", "%86", "%87", "%88", "%89", "%90", "%91")
GK_WGMMA_SIZE(176, "%88", "%89", "%90", "%91", "%92", "%93", "%94", "%95")
GK_WGMMA_SIZE(184, "%92", "%93", "%94", "%95", "%96", "%97", "%98", "%99")
GK_WGMMA_SIZE(192, "%96", "%97", "%98", "%99", "%100", "%101", "%102", "%103")
GK_WGMMA_SIZE(200, "%100", "%101", "%102", "%103", "%104", "%105", "%106", "%107")
GK_WGMMA_SIZE(208, "%104", "%105", "%106", "%107", "%108", "%109", "%110", "%111")
GK_WGMMA_SIZE(216, "%108", "%109", "%110", "%111", "%112", "%113", "%114", "%115")
GK_WGMMA_SIZE(224, "%112", "%113", "%114", "%115", "%116", "%117", "%118", "%119")
GK_WGMMA_SIZE(232, "%116", "%117", "%118", "%119", "%120", "%121", "%122", "%123")
GK_WGMMA_SIZE(240, "%120", "%121", "%122", "%123", "%124", "%125", "%126", "%127")
GK_WGMMA_SIZE(248, "%124", "%125", "%126", "%127", "%128", "%129", "%130", "%131")
GK_WGMMA_SIZE(256, "%128", "%129", "%130", "%131", "%132", "%133", "%134", "%135")
// clang-format on
#undef GK_WGMMA_SIZE

// Without `accumulate` the old sums are not read. T: f16, bf16, tf32, e4m3, e5m2.
template <class T, int N, bool A_MN_MAJOR, bool B_MN_MAJOR>
GK_DEVICE void wgmma(float (&d)[N / 2], gk_u64 a_descriptor, gk_u64 b_descriptor, bool accumulate)
{
    typedef wgmma_type<T> type;
    wgmma_size<N>::template multiply<type, wgmma_major<type::TRANSPOSES, A_MN_MAJOR, B_MN_MAJOR>>(
        d, a_descriptor, b_descriptor, accumulate);
}

// A from registers, each holding 4 bytes of K: rows and their order as for D, then 16 bytes of K
// on.
template <class T, int N, bool B_MN_MAJOR>
GK_DEVICE void wgmma(float (&d)[N / 2], const gk_u32 (&a)[4], gk_u64 b_descriptor, bool accumulate)
{
    typedef wgmma_type<T> type;
    wgmma_size<N>::template multiply<type, wgmma_major<type::TRANSPOSES, false, B_MN_MAJOR>>(
        d, a, b_descriptor, accumulate);
}

} // namespace gk
