/* transpose's kernels on a GPU: all of them. */
#include "op_harness.h"

int main(int argc, char **argv)
{
    const op_harness_options defaults = {
        .device = "cuda", .op = "transpose", .sample = 0, .seed = 1, .threads = 16};
    return op_harness_main(argc, argv, &defaults);
}
