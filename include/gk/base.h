/*
 * Status codes, element types, the error record, logging, version.
 *
 * Every function that can fail returns gk_status: GK_OK (0) or a negative code. The detail stands
 * in a record of the calling thread, see gk_error_last().
 *
 * A struct that begins with struct_size may grow at its end in later versions. The caller sets
 * struct_size to sizeof the struct as it was compiled. What a shorter one lacks is taken as zero,
 * or not written. What a longer one adds must be zero in a struct that is read (GK_ERR_VERSION),
 * and is zeroed in one that is written. A size above 4096 was not set (GK_ERR_VERSION); one that is
 * no multiple of 8, or ends within a text, is no struct's (GK_ERR_INVALID). Then nothing else is
 * read or written.
 */
#ifndef GK_BASE_H
#define GK_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gk/version.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#error "gk supports POSIX systems only"
#endif
#define GK_API       __attribute__((visibility("default")))
#define GK_NODISCARD __attribute__((warn_unused_result))

/*
 * X(name, number, text). Numbers are frozen: a code never changes its meaning and is never reused.
 */
#define GK_STATUS_MAP(X)                                                                           \
    X(GK_OK, 0, "success")                                                                         \
    X(GK_ERR_INVALID, -1, "invalid argument")                                                      \
    X(GK_ERR_UNSUPPORTED, -2, "unsupported combination")                                           \
    X(GK_ERR_NOMEM, -3, "out of memory")                                                           \
    X(GK_ERR_NO_DRIVER, -4, "no usable driver or device")                                          \
    X(GK_ERR_DEVICE, -5, "the device or its driver reported an error")                             \
    X(GK_ERR_LOST, -6, "the device context is lost")                                               \
    X(GK_ERR_NO_COMPILER, -7, "no usable kernel compiler")                                         \
    X(GK_ERR_COMPILE, -8, "a kernel did not compile")                                              \
    X(GK_ERR_NO_CONFIG, -9, "no usable configuration")                                             \
    X(GK_ERR_UNTUNED, -10, "the problem is not tuned and the mode forbids tuning")                 \
    X(GK_ERR_NOT_PREPARED, -11, "the kernel is not loaded and the stream is being captured")       \
    X(GK_ERR_CACHE, -12, "the cache file cannot be used")                                          \
    X(GK_ERR_IO, -13, "input or output failed")                                                    \
    X(GK_ERR_VERSION, -14, "incompatible version")                                                 \
    X(GK_ERR_TIMEOUT, -15, "time limit exceeded")                                                  \
    X(GK_ERR_NOT_FOUND, -16, "not found")                                                          \
    X(GK_ERR_VERIFY, -17, "a kernel gave wrong results")                                           \
    X(GK_ERR_CANCELLED, -18, "cancelled")                                                          \
    X(GK_ERR_FORKED, -19, "the context was created before fork")                                   \
    X(GK_ERR_INTERNAL, -20, "internal error")

typedef enum gk_status {
#define GK_STATUS_ENUM(name, number, text) name = (number),
    GK_STATUS_MAP(GK_STATUS_ENUM)
#undef GK_STATUS_ENUM
} gk_status;

/* The code's name, e.g. "GK_ERR_INVALID"; never NULL. Thread-safe. */
GK_API const char *gk_status_name(gk_status status);

/* The code's one-line meaning; never NULL. Thread-safe. */
GK_API const char *gk_status_text(gk_status status);

/*
 * X(suffix, number, bytes, name). Numbers are frozen. f16 is IEEE binary16; bf16 is bfloat16;
 * e4m3 and e5m2 are the OCP 8-bit formats (e4m3 has no infinities).
 */
#define GK_DTYPE_MAP(X)                                                                            \
    X(F64, 1, 8, "f64")                                                                            \
    X(F32, 2, 4, "f32")                                                                            \
    X(F16, 3, 2, "f16")                                                                            \
    X(BF16, 4, 2, "bf16")                                                                          \
    X(E4M3, 5, 1, "e4m3")                                                                          \
    X(E5M2, 6, 1, "e5m2")                                                                          \
    X(I32, 7, 4, "i32")                                                                            \
    X(I8, 8, 1, "i8")                                                                              \
    X(U8, 9, 1, "u8")                                                                              \
    X(BOOL, 10, 1, "bool")

typedef enum gk_dtype {
    GK_DTYPE_NONE = 0, /* an absent argument */
#define GK_DTYPE_ENUM(suffix, number, bytes, name) GK_##suffix = (number),
    GK_DTYPE_MAP(GK_DTYPE_ENUM)
#undef GK_DTYPE_ENUM
        GK_DTYPE_COUNT = 11
} gk_dtype;

/* Bytes of one element; 0 for a number that is no dtype. Thread-safe. */
GK_API size_t gk_dtype_size(gk_dtype dtype);

/* "f32" and so on; "?" for a number that is no dtype. Thread-safe. */
GK_API const char *gk_dtype_name(gk_dtype dtype);

/* The dtype of that name, GK_DTYPE_NONE if there is none. Thread-safe. */
GK_API gk_dtype gk_dtype_parse(const char *name);

/* What went wrong last in the calling thread. */
typedef struct gk_error {
    gk_status status;
    int32_t driver_code; /* the CUresult, nvrtcResult, SQLite or errno value behind it; 0 if none */
    char where[48];      /* the part of the library where the failure was born */
    char message[972];   /* names the argument and the values; a truncated message ends in "..." */
} gk_error;

/*
 * The calling thread's last failure. It is set by every call that returns a failure and left alone
 * by calls that succeed. Never NULL; owned by the library; valid until this thread's next failing
 * call. Thread-safe.
 */
GK_API const gk_error *gk_error_last(void);

typedef enum gk_log_level {
    GK_LOG_ERROR = 1,
    GK_LOG_WARNING = 2,
    GK_LOG_INFO = 3,
    GK_LOG_DEBUG = 4,
} gk_log_level;

/*
 * Receives one line without a newline. May be called from any thread that uses the context and from
 * those it compiles in, and must not call gk functions on that context.
 */
typedef void (*gk_log_fn)(void *user, gk_log_level level, const char *line);

/* GK_VERSION of the library that runs, and the same as "0.1.0". Thread-safe. */
GK_API uint32_t gk_version(void);
GK_API const char *gk_version_string(void);

#ifdef __cplusplus
}
#endif

#endif
