/* transpose's kernels on the CPU device, sampled. */
#include "op_harness.h"

int main(int argc, char **argv)
{
    const op_harness_options defaults = {
        .device = "cpu",
        .op = "transpose",
        .sample = 64,
        .seed = 1,
        .threads = 2,
        .epilogue = "none",
        .shapes =
            "1x1x1,1x128x1,17x1x1,33x17x1,127x129x1,3x5x7,64x64x1,65x129x2,128x257x1,2x1000x1,"
            "1001x2x1,300x40x3"};
    return op_harness_main(argc, argv, &defaults);
}
