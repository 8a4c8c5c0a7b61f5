#!/usr/bin/env python3
"""The errors of gk's f32 products against cuBLAS's, both from f64, on one GPU.

Data: N(0,1), uniform in [0, 1), and magnitudes spread over 12 decimal orders. Printed are the
relative Frobenius norm of the error, its largest element, and that in proportion to |A||B|. gk's
output is poisoned before each of 20 runs, which must agree bit by bit. Problems are tuned first.

Exit status: 0 gk's errors are nowhere larger and all runs agree, 1 otherwise, 77 without torch, a
GPU or libgk.
"""
import argparse
import ctypes as C
import os
import sys

from compare_torch import Gk, GkError, tensor_of

import torch

RUNS = 20


def normal(shape):
    return torch.randn(shape, device="cuda", dtype=torch.float32)


def uniform(shape):
    return torch.rand(shape, device="cuda", dtype=torch.float32)


def spread(shape):
    exponents = torch.rand(shape, device="cuda", dtype=torch.float64) * 12 - 6
    return (torch.randn(shape, device="cuda", dtype=torch.float64) * 10**exponents).float()


DATA = {"N(0,1)": normal, "uniform": uniform, "12 orders": spread}


def errors(result, exact, magnitude):
    error = (result.double() - exact).abs()
    norm = (torch.linalg.norm(error) / torch.linalg.norm(exact)).item()
    return norm, error.max().item(), (error / magnitude).max().item()


def compare(gk, a, b):
    """gk's and cuBLAS's errors, the winner, and whether gk's runs agree."""
    exact = a.double() @ b.double()
    magnitude = a.double().abs() @ b.double().abs()
    c = torch.empty((a.shape[0], b.shape[1]), device="cuda", dtype=torch.float32)
    views = [tensor_of(t) for t in (a, b, c)]
    report = gk.tune((b"matmul", range(3), (0.0, 0.0, 1.0, 0.0), None), views)
    stream = C.c_void_p(torch.cuda.current_stream().cuda_stream)
    first = None
    agree = True
    for _ in range(RUNS):
        c.fill_(float("nan"))
        gk.check(gk.lib.gk_matmul(gk.context, *(C.byref(v) for v in views), None, stream))
        first = c.clone() if first is None else first
        agree = agree and torch.equal(first.view(torch.int32), c.view(torch.int32))
    own = errors(first, exact, magnitude)
    peer = errors(a @ b, exact, magnitude)
    return own, peer, report.variant.decode(), agree


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--lib", default="build/src/libgk.so")
    parser.add_argument("--cache", default="/tmp/gk-compare.db")
    parser.add_argument("--budget", type=float, default=5)
    parser.add_argument("shapes", nargs="*",
                        default=["512x512x512", "2048x2048x2048", "4096x4096x4096"])
    options = parser.parse_args()
    if not torch.cuda.is_available() or not os.path.exists(options.lib):
        print("compare_errors: skipped, no GPU or no library", file=sys.stderr)
        return 77
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; norm, largest, of |A||B|")
    good = True
    gk = Gk(options.lib, options.cache, options.budget)
    for shape in options.shapes:
        m, n, k = (int(size) for size in shape.split("x"))
        for name, make in DATA.items():
            own, peer, variant, agree = compare(gk, make((m, k)), make((k, n)))
            worse = not all(mine <= theirs for mine, theirs in zip(own, peer))  # NaN is worse
            good = good and agree and not worse
            print(f"{shape:16} {name:10} {variant:10} gk {own[0]:.2e} {own[1]:.2e} {own[2]:.2e}  "
                  f"cuBLAS {peer[0]:.2e} {peer[1]:.2e} {peer[2]:.2e}"
                  f"{'' if agree else '  RUNS DIFFER'}{'  WORSE' if worse else ''}", flush=True)
    gk.close()
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GkError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
