/* softmax's kernels on the CPU device, sampled. */
#include "op_harness.h"

int main(int argc, char **argv)
{
    const op_harness_options defaults = {
        .device = "cpu", .op = "softmax", .sample = 24, .seed = 1, .threads = 2};
    return op_harness_main(argc, argv, &defaults);
}
