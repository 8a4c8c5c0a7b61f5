/*
 * The reduction kernels' single parameter. Compiled as C by the host and as CUDA C++ by the
 * kernels, so both agree on the layout: 8-byte fields only, no padding.
 *
 * The axes of x that stay ("kept") and those that go ("reduced") stand in lists, outermost first,
 * neighbours merged where they can be. Strides count elements. Products of an index and a stride
 * are taken in 64 bits.
 */
#ifndef GK_REDUCE_ARGS_H
#define GK_REDUCE_ARGS_H

enum { GK_REDUCE_MAX_KEPT = 7, GK_REDUCE_MAX_REDUCED = 8 };

typedef struct gk_reduce_args {
    const void *x;
    void *out;
    void *partials;              /* [tile][split][output of the tile], where splits share a tile */
    unsigned long long *tickets; /* one arrival counter a tile, zero between launches */
    long long outputs;           /* elements of out */
    long long inner;             /* of them those along the innermost kept axis */
    long long length;            /* elements that go into one output */
    long long step;              /* from one of them to the next, if only one axis is reduced */
    long long n_kept;
    long long n_reduced;
    long long kept_size[GK_REDUCE_MAX_KEPT];
    long long kept_x[GK_REDUCE_MAX_KEPT];
    long long kept_out[GK_REDUCE_MAX_KEPT];
    long long reduced_size[GK_REDUCE_MAX_REDUCED];
    long long reduced_x[GK_REDUCE_MAX_REDUCED];
} gk_reduce_args;

#endif
