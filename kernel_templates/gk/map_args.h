// Parameters of the map kernels, shared with the host. Every field has 8 bytes. Strides count
// elements. out[i] = expression of x[0][i], x[1][i], ..
#ifndef GK_MAP_ARGS_H
#define GK_MAP_ARGS_H

// map.cu: everything lies along one axis of unit stride, or repeats one element.
typedef struct gk_map_args {
    void *out;
    const void *x[5]; // absent inputs: NULL
    long long n;
    long long head; // elements before the first vector
} gk_map_args;

// map_strided.cu: `outer` axes, the last the fastest, around one inner axis of n elements. The last
// row of strides is out's.
typedef struct gk_map_strided_args {
    void *out;
    const void *x[5];
    long long n;
    long long rows; // product of the outer axes
    long long outer;
    long long shape[7];
    long long inner_stride[6];
    long long stride[6][7];
} gk_map_strided_args;

#endif
