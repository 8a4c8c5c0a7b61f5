/*
 * Second tier: how operations are described to the engine. The built-in operations register
 * through these structs. May change in a minor version, unlike the other headers.
 *
 *   op        a problem: its arguments, shape rule, reference, tolerance, work and cases
 *   variant   one kernel template of an op, with its tunables and validity rule
 *   config    one value for each tunable of a variant
 *   problem   everything an answer depends on: dtypes, layouts, alignments, dims, attributes
 */
#ifndef GK_EXTEND_H
#define GK_EXTEND_H

#include <gk/base.h>
#include <gk/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GK_MAX_ARGS = 6,
    GK_MAX_ATTRS = 8,
    GK_MAX_DIMS = 6,
    GK_MAX_PARAMS = 12,
    GK_MAX_CONSTANTS = 32,
    GK_MAX_CODE = 4096, /* bytes of gk_constants.code */
    GK_MAX_MAPS = 4,
    GK_MAX_MAP_RANK = 5,
    GK_MAX_PACKED_ARGS = 512, /* bytes that gk_op_desc.pack writes */
    GK_MAX_KERNEL_ARGS =
        1024, /* bytes of a kernel's parameter struct: maps, then what was packed */
};

/* The device as templates and models need to know it. */
typedef struct gk_device_info {
    char name[256];
    int32_t ordinal;
    int32_t cc; /* compute capability * 10: 90 for 9.0; 80 on the CPU device */
    int32_t sm_count;
    int32_t max_threads_per_block;
    int32_t max_threads_per_sm;
    int32_t regs_per_sm; /* 32-bit registers */
    int32_t regs_per_block;
    int32_t clock_khz;
    int32_t memory_clock_khz;
    int32_t memory_bus_bits;
    int32_t driver_version; /* as cuDriverGetVersion gives it; 0 on the CPU device */
    int64_t smem_per_block; /* without opting in */
    int64_t smem_per_block_optin;
    int64_t smem_per_sm;
    int64_t l2_bytes;
    int64_t memory_bytes;
    int32_t is_emulated; /* 1 on the CPU device: its times say nothing about speed */
    char arch[16];       /* what kernels are compiled for: "sm_90a", "x86_64" */
    char compiler[64];   /* "nvrtc 13.0", "c++ 12.2.0 x86_64-linux-gnu" */
} gk_device_info;

/*
 * One call's operands: a tensor for each of the op's arguments (NULL = an absent optional one), a
 * value for each of its attributes, and its text if the op takes one (others do not look at it).
 * Plain data; the tensors and the text are borrowed.
 */
typedef struct gk_call {
    const gk_tensor *args[GK_MAX_ARGS];
    double attrs[GK_MAX_ATTRS];
    const char *text;
} gk_call;

/*
 * What an answer is looked up by. Zero-filled before it is written, compared and hashed as bytes.
 * text: what infer() makes of the call's text, so that texts of one meaning are equal; the one copy
 * that the process keeps of it for good, so that equal texts are equal pointers.
 * The meaning of layout and align is the op's own; smaller align is never legal where larger is
 * needed, so a configuration for align x serves every align above x.
 */
typedef struct gk_problem {
    const char *text; /* NULL = the op takes none */
    int64_t dims[GK_MAX_DIMS];
    uint8_t dtype[GK_MAX_ARGS];  /* gk_dtype of each argument, 0 = absent */
    uint8_t layout[GK_MAX_ARGS]; /* GK_LAYOUT_* of each argument */
    uint8_t align[GK_MAX_ARGS];  /* bytes, 1 to 16, dividing the pointer and the outer strides */
    uint8_t attrs[GK_MAX_ATTRS]; /* values of the attributes that are part of the identity */
    uint16_t op;                 /* the op's index in this process' registry */
    uint8_t reserved[4];
} gk_problem;

enum {
    GK_LAYOUT_ROW = 0,
    GK_LAYOUT_COL = 1,
    GK_LAYOUT_STRIDED = 2,
    GK_LAYOUT_REPEAT = 3, /* one element along the axis that counts: stride 0 */
    GK_LAYOUT_PACKED = 4, /* one run without gaps, whose order does not count */
};

/*
 * A tunable. Values are listed, not computed, so that a space can be read. At-launch params come
 * last, and a configuration that is refused with their first values is refused with all of them.
 */
typedef struct gk_param {
    const char *name;      /* "BLOCK_M": [A-Z][A-Z0-9_]*, the constant's name in the template */
    const char *label;     /* precedes the value in the kernel's name: "x", "_s" */
    const int32_t *values; /* ascending */
    uint32_t n_values;
    uint32_t at_launch; /* 1: not compiled in; the same code serves every value */
} gk_param;

/* values[i] belongs to the variant's params[i]; entries past n_params are 0. */
typedef struct gk_config {
    int32_t values[GK_MAX_PARAMS];
} gk_config;

/* Names and values that the renderer writes before the template. */
typedef enum gk_constant_kind {
    GK_CONSTANT_INT,  /* constexpr int NAME = value; */
    GK_CONSTANT_BOOL, /* constexpr bool NAME = value; */
    GK_CONSTANT_TYPE, /* using NAME = gk::f32; value is a gk_dtype */
    GK_CONSTANT_CODE, /* #define NAME and the line of code at gk_constants.code + value */
} gk_constant_kind;

typedef struct gk_constant {
    const char *name; /* a string literal */
    gk_constant_kind kind;
    int64_t value;
} gk_constant;

typedef struct gk_constants {
    gk_constant items[GK_MAX_CONSTANTS];
    uint32_t n_items;
    char tag[24];           /* part of the kernel's name: "relu_bf16" */
    char code[GK_MAX_CODE]; /* NUL-terminated texts for GK_CONSTANT_CODE */
} gk_constants;

/* How a kernel is launched for one problem and configuration. */
typedef struct gk_launch {
    int64_t grid; /* blocks, 1 to 2^31 - 1 */
    int32_t threads;
    int32_t cluster;     /* blocks a cluster; 0 or 1 = none */
    int32_t cooperative; /* 1: all blocks are on the device at once, or the launch is refused */
    int32_t overlap;     /* 1: may begin while the kernel before it in the stream ends; the kernel
                            waits for that one itself before it touches memory. The engine ignores
                            it where the device or a cooperative launch does not allow it */
    int64_t smem;        /* bytes of dynamic shared memory */
    int64_t workspace;   /* bytes of device scratch memory, any contents */
    int64_t zeroed;      /* bytes of a second area: zero before, and left zero by every launch */
} gk_launch;

/*
 * A view of an operand for the tensor memory accelerator: an array whose elements follow one
 * another in dimension 0, and the box of it that one instruction moves. Elements of a box outside
 * the array are read as zeros and not written, but for those that share the last 16 bytes of a line
 * with elements inside. A box begins at a multiple of 16 bytes in dimension 0.
 */
typedef struct gk_map_desc {
    void *data;                       /* 16-byte aligned */
    int32_t dtype;                    /* gk_dtype of the elements; 8-bit ones travel as bytes */
    uint32_t rank;                    /* 1 to GK_MAX_MAP_RANK */
    int64_t dims[GK_MAX_MAP_RANK];    /* elements, 1 to 2^32 */
    int64_t strides[GK_MAX_MAP_RANK]; /* bytes, multiples of 16 below 2^40; [0] is not used */
    int32_t box[GK_MAX_MAP_RANK];     /* elements, 1 to 256; box[0] is a multiple of 16 bytes */
    uint32_t swizzle;                 /* bytes: 0, 32, 64 or 128; box[0] takes no more than that */
    uint32_t l2_promotion;            /* bytes: 0, 64, 128 or 256 */
    uint32_t tf32;                    /* 1: loads round f32 to tf32, to nearest even */
} gk_map_desc;

/* Why a configuration cannot serve: a printf-formatted sentence, "" while none was given. */
typedef struct gk_reason {
    char text[160];
} gk_reason;

/* One template of an op. All pointers live as long as the process. */
typedef struct gk_variant {
    size_t struct_size;
    const char *name;   /* "simt"; stored with results */
    const char *source; /* the template's file name, "matmul_simt.cu" */
    const gk_param *params;
    uint32_t n_params;
    int32_t min_cc;
    /* True if the configuration can serve the problem on the device; otherwise false, with the
     * reason unless that is NULL: a space has millions of configurations, few of which are asked
     * why. The engine itself checks threads, shared memory and grid against the device. */
    bool (*check)(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason);
    /* The problem's constants; the configuration's are written by the engine. */
    void (*constants)(const gk_problem *problem, gk_constants *out);
    void (*launch)(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out);
    /* Predicted seconds; ranks configurations and makes the answer for untuned problems. */
    double (*model)(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config);
    /*
     * With n_maps > 0 the kernel's parameter struct begins with that many gk_tensor_map
     * (gk/tensor_map.h), made from what maps() describes; what the op packs follows, and the whole
     * is a multiple of 64 bytes. maps() writes all of out[0 .. n_maps - 1] (zero-filled) from the
     * tensors' data and strides, the problem, the device, the configuration and workspace alone:
     * for the same values it is not asked again. False: the operands cannot be described, a defect
     * of check().
     */
    uint32_t n_maps; /* 0 to GK_MAX_MAPS */
    bool (*maps)(const gk_call *call, const gk_problem *problem, const gk_device_info *device,
                 const gk_config *config, void *workspace, gk_map_desc *out);
} gk_variant;

typedef struct gk_arg_desc {
    const char *name;   /* as in messages: "a" */
    uint32_t is_output; /* 1: written; exactly the arguments that are not are inputs */
    uint32_t optional;
} gk_arg_desc;

typedef struct gk_attr_desc {
    const char *name;
    uint32_t in_identity;     /* 1: gk_problem.attrs holds what infer() keeps of it; 0: 0 there */
    double default_value;     /* used where a tool or a preset sets nothing */
    const char *const *names; /* names of the values 0, 1, ..; NULL = a plain number */
    uint32_t n_names;
} gk_attr_desc;

/* The op under a name of its own with some attributes, or the text, fixed: matmul_relu. */
typedef struct gk_preset {
    const char *name;
    uint32_t fixed; /* bit i: attribute i always has the value attrs[i] */
    double attrs[GK_MAX_ATTRS];
    const char *text; /* NULL = the call's */
} gk_preset;

enum { GK_CASE_SMOKE = 1, GK_CASE_EDGE = 2, GK_CASE_BENCH = 4 };

/*
 * A problem in the words of the command line, and the op's own test and benchmark data.
 * dims holds what SHAPE says ("4096x4096x64"), layout the word behind --layout.
 */
typedef struct gk_case {
    int64_t dims[GK_MAX_DIMS];
    uint32_t tags;
    const char *dtype;  /* "bf16", "tf32", .. */
    const char *layout; /* "nn"; NULL = the op's default */
    int64_t pad;        /* elements added to each leading dimension */
    int64_t offset;     /* elements by which each pointer misses its alignment */
} gk_case;

/* Allowed difference: |out - ref| <= absolute + relative * scale, where scale is the magnitude the
 * reference reports for the element (sum of absolute products for a matmul). */
typedef struct gk_tolerance {
    double relative;
    double absolute;
} gk_tolerance;

typedef struct gk_op_desc {
    size_t struct_size;
    const char *name;
    uint32_t revision; /* part of every key: changes when the op's meaning does */
    const gk_arg_desc *args;
    uint32_t n_args;
    const gk_attr_desc *attrs;
    uint32_t n_attrs;
    const char *text_name;        /* "expression": calls have a text; NULL = they have none */
    const char *const *dim_names; /* "M", "N", "K" */
    uint32_t n_dims;
    const gk_preset *presets;
    uint32_t n_presets;
    const gk_variant *const *variants;
    uint32_t n_variants;
    const gk_case *cases;
    uint32_t n_cases;

    /*
     * The only shape validation: checks every rule and writes the problem (zero-filled by the
     * caller, op already set). A failure is reported through gk_fail() with the argument's name
     * and both values. Depends on nothing but the tensors' fields and the attributes. Does no
     * allocation; called on every call but exact repetitions.
     */
    gk_status (*infer)(const gk_call *call, gk_problem *problem);
    /* True if nothing is to be computed (an output without elements). */
    bool (*is_empty)(const gk_problem *problem);
    /* True if the output's old contents are an input too. NULL = never. */
    bool (*reads_output)(const gk_problem *problem);
    /*
     * Writes the kernel's parameter struct for one run, or the part behind the variant's maps: at
     * most GK_MAX_PACKED_ARGS bytes to `out`; returns how many. workspace has gk_launch.workspace
     * bytes, zeroed gk_launch.zeroed bytes of zeros; both are shared by all launches in one stream.
     * Depends on nothing but its arguments: an exact repetition of a call uses the bytes again.
     */
    size_t (*pack)(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                   const gk_config *config, void *workspace, void *zeroed, void *out);
    /*
     * Turns a case into tensors (data NULL; strides, dtypes and shapes set), attributes and text;
     * the last two come in with the preset's values, or defaults (no text). call->args points into
     * `tensors`.
     */
    gk_status (*example)(const gk_case *item, gk_tensor *tensors, gk_call *call);
    /*
     * The op in host memory, element by element in double precision. Tensors hold host pointers;
     * `out` is packed. scale, if not NULL, has as many elements as the output
     * and receives each element's magnitude for gk_tolerance.
     */
    void (*reference)(const gk_call *call, const gk_problem *problem, double *out, double *scale);
    gk_tolerance (*tolerance)(const gk_problem *problem);
    void (*work)(const gk_problem *problem, double *flops, double *bytes);
    /*
     * A peak for the roofline: flops per second of the device for this problem's arithmetic; 0 if
     * unknown. NULL: memory alone bounds the op.
     */
    double (*peak)(const gk_problem *problem, const gk_device_info *device);
    /*
     * The next two let the tuner check candidates for problems too large for `reference`. Both
     * write tensors[i] for each argument that is present and `out`, whose args point into
     * `tensors` and whose attributes are the call's. NULL or false = there is none.
     *
     * reduce: a smaller problem of the same class. Dtypes, layouts, alignment classes and
     * attributes are the call's (so infer gives the same gk_problem but for dims, once the data
     * pointers are set with the call's alignment), no dimension exceeds the call's, dimensions are
     * ragged (no multiples of usual tiles) where the call's are large enough, and there is room for
     * more than one tile of each. Every variant's constants are the call's: what is checked must be
     * the same code. Work stays below max_flops. tensors[i].data is NULL.
     */
    bool (*reduce)(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out);
    /*
     * part: the index-th of a few parts of the call itself, as views into its tensors (data is the
     * call's plus an offset, strides are the call's): `reference` of the part gives the elements of
     * the call's output that the part's output views. Reductions are not shortened. Part 0 holds
     * the output's first element, part 1 its last, further ones lie in between (index is also the
     * seed of where). Work stays below max_flops if one output element's does. False past the last.
     */
    bool (*part)(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                 gk_call *out);
} gk_op_desc;

/*
 * Records a failure for gk_error_last() and returns the status. `where` is a short literal such as
 * "matmul". Thread-safe.
 */
GK_API gk_status gk_fail(gk_status status, const char *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes reason->text (truncated if need be) unless reason is NULL, and returns false. */
GK_API bool gk_refuse(gk_reason *reason, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The op of that name, by its own or a preset's name; NULL if there is none. *preset, if not NULL,
 * becomes the preset or NULL. Thread-safe. */
GK_API const gk_op_desc *gk_op_find(const char *name, const gk_preset **preset);

/* Gives the attributes and the text that the preset fixes their values; preset may be NULL.
 * Thread-safe. */
GK_API void gk_preset_apply(const gk_preset *preset, gk_call *call);

/* The i-th op, NULL past the last. Thread-safe. */
GK_API const gk_op_desc *gk_op_at(uint32_t index);

#ifdef __cplusplus
}
#endif

#endif
