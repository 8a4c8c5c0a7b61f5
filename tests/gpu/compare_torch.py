#!/usr/bin/env python3
"""gk's elementwise and row operations against PyTorch eager and torch.compile on one GPU.

Operands are torch's own tensors, N(0,1); every runner is captured in a CUDA graph on torch's stream
that goes through copies of the operands which together exceed twice the L2 cache; runners are timed
in turn and medians are taken. A device copy of 1 GiB (not from a graph, which copies more slowly)
and a kernel that only reads 1 GiB are timed in the same turns. gk's outputs are poisoned and
compared with f64. Problems are tuned first. Ctrl-C ends it with what is finished.

Exit status: 0 all is right, 1 a result is wrong or a call failed, 77 without torch, a GPU or libgk.
"""
import argparse
import ctypes as C
import json
import math
import os
import re
import statistics
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"compare_torch: skipped, PyTorch is missing ({error})", file=sys.stderr)
    sys.exit(77)

DTYPES = {"f32": (2, torch.float32), "f16": (3, torch.float16), "bf16": (4, torch.bfloat16)}
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
GIB = 1 << 30
L2_BYTES = 50 << 20
ALL_AXES = -(1 << 31)


# --- gk through ctypes ---


class Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("dtype", C.c_int32), ("rank", C.c_int32),
                ("shape", C.c_int64 * 8), ("stride", C.c_int64 * 8), ("reserved", C.c_uint32 * 4)]


class ContextOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("cache_path", C.c_char_p), ("mode", C.c_int),
                ("tune_budget_s", C.c_double), ("compile_threads", C.c_int32),
                ("log_level", C.c_int), ("log", C.c_void_p), ("log_user", C.c_void_p),
                ("kernel_cache_bytes", C.c_uint64)]


class ReduceParams(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("op", C.c_int), ("axis", C.c_int32),
                ("keepdim", C.c_int32)]


class Call(C.Structure):
    _fields_ = [("args", C.POINTER(Tensor) * 6), ("attrs", C.c_double * 8), ("text", C.c_char_p)]


class TuneOptions(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("effort", C.c_int), ("budget_s", C.c_double),
                ("retune", C.c_bool), ("variant", C.c_char_p), ("progress", C.c_void_p),
                ("progress_user", C.c_void_p)]


class TuneReport(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("from_cache", C.c_bool), ("saved", C.c_bool),
                ("space", C.c_uint32), ("tried", C.c_uint32), ("refused", C.c_uint32),
                ("measured", C.c_uint32), ("variant", C.c_char * 32), ("config", C.c_char * 256),
                ("seconds", C.c_double), ("spread", C.c_double), ("guess_seconds", C.c_double),
                ("wall_s", C.c_double), ("compile_s", C.c_double), ("flops", C.c_double),
                ("bytes", C.c_double), ("roofline_seconds", C.c_double)]


class Error(C.Structure):
    _fields_ = [("status", C.c_int), ("driver_code", C.c_int32), ("where", C.c_char * 48),
                ("message", C.c_char * 972)]


class GkError(RuntimeError):
    pass


def tensor_of(t):
    """A view of a torch tensor."""
    number = next(n for n, dtype in DTYPES.values() if dtype == t.dtype)
    view = Tensor(data=t.data_ptr(), dtype=number, rank=t.dim())
    for axis in range(t.dim()):
        view.shape[axis] = t.shape[axis]
        view.stride[axis] = t.stride(axis)
    return view


class Gk:
    """The library with one context on the first GPU."""

    def __init__(self, path, cache, budget):
        self.lib = C.CDLL(path)
        self.lib.gk_error_last.restype = C.POINTER(Error)
        self.context = C.c_void_p()
        self.budget = budget
        options = ContextOptions(C.sizeof(ContextOptions), cache.encode(), 0, budget)
        self.check(self.lib.gk_context_create(C.byref(self.context), b"cuda", C.byref(options)))

    def check(self, status):
        if status != 0:
            last = self.lib.gk_error_last().contents
            raise GkError(f"gk: status {status}, {last.where.decode()}: {last.message.decode()}")

    def tune(self, problem, tensors):
        """Tunes what is not tuned yet; returns the report."""
        op, places, attrs, text = problem
        call = Call(text=text)
        for place, tensor in zip(places, tensors):
            call.args[place] = C.pointer(tensor)
        for i, value in enumerate(attrs):
            call.attrs[i] = value
        options = TuneOptions(C.sizeof(TuneOptions), 0, self.budget)
        report = TuneReport(C.sizeof(TuneReport))
        self.check(self.lib.gk_tune(self.context, op, C.byref(call), C.byref(options),
                                    C.byref(report)))
        return report

    def close(self):
        self.lib.gk_context_destroy(C.byref(self.context))


# --- operations: what gk, eager and the reference do ---


class Op:
    """inputs: shapes of the operands; out: shape of the result, given x's."""

    n_inputs = 1

    def inputs(self, shape):
        return [shape] * self.n_inputs

    def out(self, shape):
        return shape

    def scale(self, ref, xs):
        return ref.abs()

    def units(self, shape):
        """Units of 2^-24 of the scale by which f32 results may be off."""
        return 16


class Map(Op):
    def __init__(self, call, text, n_inputs, eager):
        self.call, self.n_inputs, self.eager = call, n_inputs, eager
        self.problem = (b"map", [*range(n_inputs), 5], [], text)

    def gk(self, gk, xs, out, stream):
        refs = [C.byref(x) for x in xs]
        return getattr(gk.lib, self.call)(gk.context, *refs, C.byref(out), stream)


class Softmax(Op):
    problem = (b"softmax", [0, 1], [0], None)

    def eager(self, x):
        return torch.softmax(x, -1)

    def gk(self, gk, xs, out, stream):
        return gk.lib.gk_softmax(gk.context, C.byref(xs[0]), C.byref(out), stream)

    def units(self, shape):
        return 40 + math.sqrt(shape[-1]) / 8


class RmsNorm(Op):
    EPS = 1e-5
    problem = (b"norm", [0, 2, 1], [0, EPS], None)

    def inputs(self, shape):
        return [shape, shape[-1:]]

    def eager(self, x, weight):
        return F.rms_norm(x, x.shape[-1:], weight, self.EPS)

    def gk(self, gk, xs, out, stream):
        return gk.lib.gk_rms_norm(gk.context, C.byref(xs[0]), C.byref(xs[1]), C.byref(out),
                                  C.c_double(self.EPS), stream)

    def units(self, shape):
        return 10 + math.sqrt(shape[-1]) / 8


class Transpose(Op):
    problem = (b"transpose", [0, 1], [], None)

    def out(self, shape):
        return shape[::-1]

    def eager(self, x):
        return x.t().contiguous()

    def gk(self, gk, xs, out, stream):
        return gk.lib.gk_transpose(gk.context, C.byref(xs[0]), C.byref(out), stream)

    def units(self, shape):
        return 0


class Sum(Op):
    def __init__(self, axis):
        self.axis = axis
        self.attr = ALL_AXES if axis is None else axis
        self.problem = (b"reduce", [0, 1], [0, self.attr, 0], None)

    def out(self, shape):
        return [1] if self.axis is None else [n for i, n in enumerate(shape) if i != self.axis]

    def eager(self, x):
        return x.sum() if self.axis is None else x.sum(self.axis)

    def gk(self, gk, xs, out, stream):
        params = ReduceParams(C.sizeof(ReduceParams), 0, self.attr, 0)
        return gk.lib.gk_reduce(gk.context, C.byref(xs[0]), C.byref(out), C.byref(params), stream)

    def scale(self, ref, xs):
        return self.eager(xs[0].abs()).reshape(ref.shape)


OPS = {
    "add": Map("gk_add", b"x0 + x1", 2, lambda x, y: x + y),
    "x*y+z": Map("gk_fma", b"fma(x0, x1, x2)", 3, lambda x, y, z: x * y + z),
    "silu": Map("gk_silu", b"silu(x0)", 1, F.silu),
    "softmax": Softmax(),
    "rms_norm": RmsNorm(),
    "transpose": Transpose(),
    "row_sum": Sum(1),
    "column_sum": Sum(0),
    "sum": Sum(None),
}
READERS = ("row_sum", "column_sum", "sum")


def rows():
    """(op, shape, dtype, whether it is in the table that means are taken over)"""
    n = 1 << 27
    both = ("f32", "bf16")
    table = [(op, [n], d) for d in both for op in ("add", "x*y+z", "silu")]
    table += [(op, [1823, 781], "f32") for op in ("softmax", "rms_norm", "transpose", "row_sum")]
    table += [("softmax", [1823, 781], "bf16")]
    for side in (4096, 8192):
        square = [side, side]
        table += [(op, square, d) for d in both for op in ("softmax", "rms_norm", "transpose")]
        table += [("row_sum", square, "f32")]
    table += [(op, [32768, 1024], "f32") for op in ("softmax", "rms_norm")]
    table += [("softmax", s, d) for s in ([4096, 32768], [1024, 131072]) for d in both]
    table += [(op, [16, 1 << 20], d) for op in ("softmax", "rms_norm") for d in both]
    table += [("sum", [1 << 28], "f32")]
    more = [("softmax", [32768, 1024], "bf16"), ("rms_norm", [32768, 1024], "bf16")]
    more += [("rms_norm", s, d) for s in ([4096, 32768], [1024, 131072]) for d in both]
    more += [("transpose", [4096, 32768], d) for d in both]
    more += [("row_sum", [8192, 8192], "bf16")]
    more += [("row_sum", [1024, 131072], d) for d in both]
    more += [("column_sum", s, d) for s in ([8192, 8192], [1024, 131072]) for d in both]
    return [(*r, True) for r in table] + [(*r, False) for r in more]


def name_of(row):
    return f"{row[0]} {'x'.join(map(str, row[1]))} {row[2]}"


# --- one row ---


class Operands:
    """Copies of one row's operands."""

    def __init__(self, row, seed):
        self.op, self.shape, self.dtype = OPS[row[0]], row[1], row[2]
        kind = DTYPES[self.dtype][1]
        shapes = self.op.inputs(self.shape)
        size = torch.empty((), dtype=kind).element_size()
        outs = self.op.out(self.shape)
        self.bytes = size * (sum(math.prod(s) for s in shapes) + math.prod(outs))
        torch.manual_seed(seed)
        self.sets = []
        for _ in range(max(2, min(256, -(-2 * L2_BYTES // self.bytes)))):
            xs = [torch.randn(s, device="cuda", dtype=torch.float32).to(kind) for s in shapes]
            out = torch.full(outs, float("nan"), device="cuda", dtype=kind)
            self.sets.append((xs, out, [tensor_of(x) for x in xs], tensor_of(out)))

    def error(self):
        """The first copy's largest error as a share of what is allowed; NaN is infinite."""
        xs, out, _, _ = self.sets[0]
        wide = [x.double() for x in xs]
        ref = self.op.eager(*wide).reshape(out.shape)
        scale = self.op.scale(ref, wide)
        units = self.op.units(self.shape)
        if units == 0:
            return 0.0 if torch.equal(ref, out.double()) else math.inf
        allowed = units * 2.0**-24 * scale + 1e-37
        if self.dtype != "f32":
            allowed = allowed + 2 * UNIT[self.dtype] * ref.abs()
        worst = ((out.double() - ref).abs() / allowed).max().item()
        return worst if worst == worst else math.inf


def capture(stream, run, indices):
    """A graph of run(i) for all i, and what they returned, which it needs."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
        kept = [run(i) for i in indices]
    return graph, kept


class Runner:
    """What is timed: `count` runs, as one graph or, with graph=False, one by one. A graph has them
    again and again: between its replays the device waits."""

    MOST_PASSES = 16

    def __init__(self, stream, run, count, once=None, graph=True):
        self.run, self.runs, self.graph = run, count, None
        with torch.cuda.stream(stream):
            for i in range(1 if once is None else count):
                (once or run)(i)
        torch.cuda.synchronize()
        if graph:
            self.graph, self.kept = capture(stream, run, range(count))
        self.samples = []
        self.replays = 1
        # A graph's first replay uploads it.
        shortest = max(min(self.time() for _ in range(3)), 1e-6)
        passes = min(self.MOST_PASSES, int(1e-3 / shortest / count))
        if graph and passes > 1:
            self.runs = count * passes
            self.graph, self.kept = capture(stream, run, list(range(count)) * passes)
            self.time()
        self.replays = max(1, min(50, int(1e-3 / shortest / self.runs)))

    def time(self):
        """Seconds of one run."""
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(self.replays):
            if self.graph is not None:
                self.graph.replay()
            else:
                for i in range(self.runs):
                    self.run(i)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / (self.replays * self.runs)


def gk_runner(gk, stream, operands):
    def run(i):
        _, _, xs, out = operands.sets[i]
        gk.check(operands.op.gk(gk, xs, out, C.c_void_p(stream.cuda_stream)))

    return Runner(stream, run, len(operands.sets), once=run)


def torch_runner(stream, operands, function):
    return Runner(stream, lambda i: function(*operands.sets[i][0]), len(operands.sets))


def compiled(op):
    torch._dynamo.reset()
    return torch.compile(op.eager, dynamic=False)


def read_kernel():
    """A kernel that only reads, as (x, flag) -> None; None without Triton."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    @triton.jit
    def read(x, out, impossible, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        total = tl.sum(tl.load(x + at), 0)
        if total == impossible:
            tl.store(out, total)

    return lambda x, out, block: read[(x.numel() // block,)](x, out, 1e30, BLOCK=block, num_warps=4)


class Bench:
    def __init__(self, args):
        self.args = args
        self.gk = Gk(args.lib, args.cache, args.budget)
        self.stream = torch.cuda.Stream()
        self.source = torch.randn(GIB // 4, device="cuda")
        target = torch.empty_like(self.source)
        flag = torch.empty(1, device="cuda")
        self.copy = Runner(self.stream, lambda _: target.copy_(self.source), 1,
                           graph=False)
        self.readers = []
        read = read_kernel()
        for block in (2048, 4096, 8192) if read else ():
            run = lambda _, block=block: read(self.source, flag, block)
            self.readers.append(Runner(self.stream, run, 1))

    def row(self, row):
        op, shape, dtype, in_table = row
        operands = Operands(row, 1)
        report = self.gk.tune(operands.op.problem, [*operands.sets[0][2], operands.sets[0][3]])
        runners = {"gk": gk_runner(self.gk, self.stream, operands)}
        torch.cuda.synchronize()
        error = operands.error()
        runners["eager"] = torch_runner(self.stream, operands, operands.op.eager)
        if not self.args.no_compile:
            runners["compiled"] = torch_runner(self.stream, operands, compiled(operands.op))
        runners["copy"] = self.copy
        if op in READERS:
            runners.update({f"read{i}": r for i, r in enumerate(self.readers)})
        for runner in runners.values():
            runner.samples = []
        for turn in range(self.args.rounds + 1):
            for runner in list(runners.values())[::-1 if turn % 2 else 1]:
                runner.samples.append(runner.time())
        seconds = {name: statistics.median(r.samples[1:]) for name, r in runners.items()}
        rate = operands.bytes / seconds["gk"]
        reads = [s for name, s in seconds.items() if name.startswith("read")]
        return {
            "op": op, "shape": "x".join(map(str, shape)), "dtype": dtype, "table": in_table,
            "seconds": seconds, "rate": rate, "error": error,
            "copy_share": rate / (2 * GIB / seconds["copy"]),
            "read_share": rate / (GIB / min(reads)) if reads else None,
            "variant": report.variant.decode(), "config": report.config.decode(),
        }

    def compile_only(self, row):
        operands = Operands(row, 1)
        compiled(operands.op)(*operands.sets[0][0])


# --- what is printed ---

HEAD = ("| op | shape | dtype | gk us | eager us | compiled us | eager/gk | compiled/gk | GB/s "
        "| of copy | of read | error | variant, config |")


def line(r):
    s = r["seconds"]
    eager = s["eager"] / s["gk"]
    other = s.get("compiled")
    cells = [
        r["op"], r["shape"], r["dtype"], f"{s['gk'] * 1e6:.2f}", f"{s['eager'] * 1e6:.2f}",
        f"{other * 1e6:.2f}" if other else "-", f"{eager:.2f}",
        f"{other / s['gk']:.2f}" if other else "-", f"{r['rate'] * 1e-9:.0f}",
        f"{r['copy_share']:.3f}", f"{r['read_share']:.3f}" if r["read_share"] else "-",
        f"{r['error']:.2f}", f"{r['variant']} {r['config']}",
    ]
    return "| " + " | ".join(cells) + " |"


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def print_summary(results):
    table = [r for r in results if r["table"]]
    for peer in ("eager", "compiled"):
        ratios = {f"{r['op']} {r['shape']} {r['dtype']}": r["seconds"][peer] / r["seconds"]["gk"]
                  for r in table if peer in r["seconds"]}
        if ratios:
            worst = min(ratios, key=ratios.get)
            print(f"{peer}: geometric mean {mean(list(ratios.values())):.3f} of {len(ratios)} "
                  f"rows, worst {ratios[worst]:.3f} ({worst}), "
                  f"below 1: {sum(v < 1 for v in ratios.values())}")
    if results:
        copies = [2e-9 * GIB / r["seconds"]["copy"] for r in results]
        print(f"copy of 1 GiB: {min(copies):.0f} to {max(copies):.0f} GB/s")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--lib", default=os.environ.get(
        "GK_LIB", os.path.join(here, "../../build/src/libgk.so.0.1")))
    parser.add_argument("--cache", default=":memory:", help="gk's cache file")
    parser.add_argument("--budget", type=float, default=3, help="seconds of a tuning")
    parser.add_argument("--rows", default="", help="a regular expression over 'OP SHAPE DTYPE'")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--compile-only", metavar="I/N",
                        help="only compile the I-th of N parts of the rows, for Inductor's cache")
    parser.add_argument("--json", help="a file for the results")
    return parser.parse_args()


def main():
    args = arguments()
    if not torch.cuda.is_available() or not os.path.exists(args.lib):
        what = "no GPU" if os.path.exists(args.lib) else f"no {args.lib}"
        print(f"compare_torch: skipped, {what}", file=sys.stderr)
        return 77
    chosen = [r for r in rows() if re.search(args.rows, name_of(r))]
    bench = Bench(args)
    if args.compile_only:
        part, parts = map(int, args.compile_only.split("/"))
        for row in chosen[part::parts]:
            bench.compile_only(row)
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n{HEAD}\n|{'---|' * 13}")
    results, failed = [], 0
    for row in chosen:
        try:
            results.append(bench.row(row))
            failed += not results[-1]["error"] <= 1
            print(line(results[-1]), flush=True)
        except (GkError, RuntimeError) as error:
            failed += 1
            print(f"{name_of(row)}: {error}", flush=True)
        except KeyboardInterrupt:
            print(f"interrupted: {len(results)} of {len(chosen)} rows")
            break
        torch.cuda.empty_cache()
    print_summary(results)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
