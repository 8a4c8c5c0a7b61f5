#!/usr/bin/env python3
"""gk-bench as a user meets it, on the CPU device and on a GPU that computes nothing.

usage: test_bench.py BUILD_TOOLS_DIR [unittest options]
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TOOLS = None


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.home = pathlib.Path(self.folder.name)
        self.cache = self.home / 'gk.db'
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(('GK_', 'FAKE_'))}
        self.env.update(HOME=str(self.home), LC_ALL='C')
        for name in ('GK_CXX', 'GK_CXXFLAGS'):
            if name in os.environ:
                self.env[name] = os.environ[name]
        self.env.pop('XDG_CACHE_HOME', None)

    def tearDown(self):
        self.folder.cleanup()

    def run_tool(self, *args, **more):
        return subprocess.run([str(TOOLS / 'gk-bench'), *args], env={**self.env, **more}, text=True,
                              capture_output=True, timeout=300)

    @staticmethod
    def rows(run, kind='row'):
        return [row for row in map(json.loads, run.stdout.splitlines()) if row['type'] == kind]


class Bench(Case):
    def cpu(self, *args, **more):
        return self.run_tool(*args, '--device', 'cpu', '--cache', str(self.cache), **more)

    def gpu(self, *args, **more):
        """On the fake GPU: kernels are named, as none can prove right, and nothing is checked."""
        if 'GK_TEST_FAKE_GPU' not in os.environ:
            self.skipTest('no scripted GPU')
        fake = {'GK_CUDA_DRIVER': os.environ['GK_TEST_FAKE_GPU'],
                'GK_CUBLASLT': os.environ['GK_TEST_FAKE_GPU'],
                'GK_NVRTC': os.environ['GK_TEST_FAKE_NVRTC'], **more}
        return self.run_tool(*args, '--variant', 'simt', '--no-check', '--rounds', '3', '--cache',
                             str(self.cache), **fake)

    def test_usage_errors_need_no_device(self):
        for args in ([], ['no_such_op', '8x8x8'], ['matmul', '8x8'], ['matmul'],
                     ['--host-cost', 'matmul', '8x8x8'], ['matmul', '8x8x8', '--random', '3'],
                     ['--random', '3'], ['matmul', '--random', '0'],
                     ['matmul', '--random', '2', '--max', '0'],
                     ['matmul', '--random', '2', '--seed', 'x'],
                     ['matmul', '8x8x8', '--against', 'cudnn'], ['matmul', '8x8x8', '--rounds', '0'],
                     ['matmul', '8x8x8', '--config', 'A=1'],
                     ['matmul', '8x8x8', '--regret', '--guess'],
                     ['matmul', '8x8x8', '--regret', '--no-check'],
                     ['matmul', '8x8x8', '--regret', '--tunings', '0'],
                     ['add', '8x8', '--against', 'cublaslt'],
                     ['transpose', '8x8x1', '--against', 'cublaslt'],
                     ['matmul', '8x8x8', '--dtype', 'f19'], ['matmul', '8x8x8', '--layout', 'nx'],
                     ['matmul', '8x8x8', '--dtype', 'f' * 40],
                     ['matmul', '--random', '2', '--dtype', 'f19'],
                     ['matmul', '--random', '2', '--dtype', 'f' * 40],
                     ['matmul', '--random', '2', '--layout', 'nnnnnnnnnn'],
                     ['map', '8x8', '--text', 'x0 +'], ['add', '8x8', '--text', 'x0'],
                     ['matmul', '8x8x8', '--text', 'x0'], ['matmul', '8x8x8', '--seed', '2'],
                     ['matmul', '8x8x8', '--max', '9'], ['matmul', '8x8x8', '--tunings', '2'],
                     ['matmul', '8x8x8', '--count', '2'], ['matmul', '8x8x8', '--threads', '2'],
                     ['--host-cost', '--tunings', '2'], ['--host-cost', '--dtype', 'f16'],
                     ['--host-cost', '--regret']):
            with self.subTest(args=args):
                run = self.run_tool(*args, '--cache', str(self.cache),
                                    GK_CUDA_DRIVER='/nonexistent/libcuda.so.1')
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertEqual(run.stdout, '')
                self.assertIn('see gk-bench --help', run.stderr)
                self.assertFalse(self.cache.exists())

    def test_a_wrong_line_of_a_file_is_named(self):
        shapes = self.home / 'shapes.txt'
        for line, why in (('f19 nn 8 8 8', "dtype 'f19' is unknown"),
                          ('f32 nx 8 8 8', "layout 'nx' is unknown"),
                          (f'{"f" * 40} nn 8 8 8', f'dtype is "{"f" * 40}"')):
            shapes.write_text(f'f32 nn 8 8 8\n\n{line}\n')
            run = self.run_tool('matmul', '--shapes', str(shapes),
                                GK_CUDA_DRIVER='/nonexistent/libcuda.so.1')
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(f'shapes.txt:3: {why}', run.stderr)

    def test_a_table_from_a_file(self):
        shapes = self.home / 'shapes.txt'
        shapes.write_text('# two dtypes\nf32 nn 8 8 8\nbf16 nt 24 16 40\ne4m3 nt 16 8 32\n')
        run = self.cpu('matmul_relu', '--shapes', str(shapes), '--rounds', '1')
        self.assertEqual(run.returncode, 0, run.stderr)
        lines = run.stdout.splitlines()
        self.assertRegex(lines[0], r'CPU device, .* gk 0\.1\.0, 20\d\d-\d\d-\d\d \d\d:\d\d UTC')
        self.assertRegex(lines[1], r'^shape +gk +TFLOP/s +GB/s +copy  variant, config')
        self.assertEqual([line[:24].strip() for line in lines[2:]],
                         ['f32 nn 8x8x8', 'bf16 nt 24x16x40', 'e4m3 nt 16x8x32'])
        for line in lines[2:]:
            self.assertRegex(line, r' [A-Z_]+=\d+')

    def test_the_shapes_of_the_documentation_are_read(self):
        shapes = pathlib.Path(__file__).resolve().parents[2] / 'docs/shapes.txt'
        run = self.run_tool('matmul_relu', '--shapes', str(shapes),
                            GK_CUDA_DRIVER='/nonexistent/libcuda.so.1')
        self.assertEqual(run.returncode, 1)
        self.assertIn('GK_ERR_NO_DRIVER', run.stderr)

    def test_json(self):
        run = self.cpu('matmul_relu', '8x8x8', '24x8x40', '--rounds', '1', '--json', '--guess')
        self.assertEqual(run.returncode, 0, run.stderr)
        header = json.loads(run.stdout.splitlines()[0])
        self.assertEqual(header['type'], 'header')
        self.assertIs(header['emulated'], True)
        rows = self.rows(run)
        self.assertEqual([r['shape'] for r in rows], ['f32 nn 8x8x8', 'f32 nn 24x8x40'])
        for row in rows:
            self.assertEqual(row['status'], 'ok')
            self.assertIs(row['tuned'], True)
            self.assertNotIn('(untuned)', run.stdout)
            self.assertLessEqual(row['error'], 1)
            self.assertGreater(row['guess_ratio'], 0)
            # On the CPU device the model decides.
            self.assertEqual((row['guess_variant'], row['guess_config']),
                             (row['variant'], row['config']))
        summary = self.rows(run, 'summary')[0]
        self.assertEqual((summary['rows'], summary['failed'], summary['guesses']), (2, 0, 2))

    def test_a_forced_variant_is_not_tuned(self):
        args = ('matmul', '8x8x8', '--variant', 'simt', '--rounds', '1')
        row = self.rows(self.cpu(*args, '--json', '--no-check'))[0]
        self.assertEqual((row['status'], row['variant'], row['tuned']), ('ok', 'simt', False))
        self.assertNotIn('error', row) # nothing was checked
        self.assertRegex(self.cpu(*args).stdout, r'(?m)^f32 nn 8x8x8 .*  simt .* \(untuned\)$')

    def test_empty_problems_are_no_failures(self):
        for op, shape in (('add', '0x5'), ('matmul', '8x0x8'), ('reduce', '0x4x4')):
            for more in ([], ['--regret']):
                with self.subTest(op=op, more=more):
                    run = self.cpu(op, shape, *more, '--json')
                    self.assertEqual(run.returncode, 0, run.stderr)
                    row = self.rows(run, 'regret' if more else 'row')[0]
                    self.assertEqual((row['shape'], row['status']), (f'f32 nn {shape}', 'empty'))
                    summary = self.rows(run, 'summary')[0]
                    self.assertEqual((summary['rows'], summary['failed']), (1, 0))
                    run = self.cpu(op, shape, *more)
                    self.assertRegex(run.stdout, rf'(?m)^f32 nn {shape} +empty$')

    def test_nan_and_infinity_may_be_right(self):
        for text, dtypes in (('-sqrt(x0)', ('f64', 'f32', 'f16', 'bf16', 'e4m3', 'e5m2')),
                             ('log(x0)', ('f32', 'f16')), ('x0 / 0', ('f32', 'f16', 'bf16')),
                             ('x0 * 1000000', ('f16', 'e5m2', 'e4m3'))):
            for dtype in dtypes:
                with self.subTest(text=text, dtype=dtype):
                    run = self.cpu('map', '7x13', '--text', text, '--dtype', dtype, '--variant',
                                   'vector', '--rounds', '1', '--json')
                    self.assertEqual(run.returncode, 0, run.stderr)
                    self.assertLessEqual(self.rows(run)[0]['error'], 1)
        run = self.cpu('reduce_mean', '3x0x1', '--variant', 'strided', '--rounds', '1', '--json')
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_outputs_of_any_rank_are_checked(self):
        for op, shape in (('reduce', '5x7x1'), ('reduce', '5x7x3'), ('transpose', '5x7x1'),
                          ('transpose', '5x7x3')):
            with self.subTest(op=op, shape=shape):
                run = self.cpu(op, shape, '--rounds', '1', '--json')
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertLessEqual(self.rows(run)[0]['error'], 1)

    def test_a_failing_row_does_not_end_the_table(self):
        args = ('matmul_relu', '8x8x8', '4294967297x4294967297x8', '16x8x8', '--rounds', '1')
        run = self.cpu(*args)
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stdout, r'(?m)^f32 nn 4294967297x4294967297x8 +failed: GK_ERR_')
        self.assertRegex(run.stdout, r'(?m)^f32 nn 16x8x8 ')
        self.assertIn('f32 nn 4294967297x4294967297x8: the problem: ', run.stderr)
        run = self.cpu(*args, '--json')
        self.assertEqual(run.returncode, 1)
        self.assertEqual([r['status'] == 'ok' for r in self.rows(run)], [True, False, True])
        self.assertEqual(self.rows(run, 'summary')[0]['failed'], 1)

    def test_against_needs_a_gpu(self):
        for args in (['matmul_relu', '8x8x8', '--against', 'cublaslt'], ['--host-cost']):
            run = self.cpu(*args)
            self.assertEqual(run.returncode, 1)
            self.assertEqual(run.stdout, '')
            self.assertRegex(run.stderr, 'needs a GPU, gk CPU device is none')

    def test_random_shapes_repeat_with_their_seed(self):
        def shapes(seed):
            run = self.cpu('matmul_relu', '--random', '4', '--seed', seed, '--max', '12',
                           '--rounds', '1', '--json')
            self.assertEqual(run.returncode, 0, run.stderr)
            return [row['shape'] for row in self.rows(run)]
        first = shapes('5')
        self.assertEqual(first, shapes('5'))
        self.assertNotEqual(first, shapes('6'))
        for shape in first:
            for size in shape.split()[-1].split('x'):
                self.assertTrue(1 <= int(size) <= 12, shape)

    def test_regret(self):
        run = self.cpu('matmul_relu', '8x8x8', '--regret', '--tunings', '2', '--rounds', '3',
                       '--json', '--verbose', TMPDIR=str(self.home))
        self.assertEqual(run.returncode, 0, run.stderr)
        compiled = re.findall(r'^(\S+): compiled in', run.stderr, re.MULTILINE)
        self.assertTrue(compiled)
        self.assertEqual(len(compiled), len(set(compiled)), 'a tuning waited for the compiler')
        row = self.rows(run, 'regret')[0]
        self.assertEqual((row['shape'], row['tunings']), ('f32 nn 8x8x8', 2))
        self.assertGreaterEqual(row['candidates'], 2)
        self.assertGreaterEqual(row['median_regret'], 0)
        self.assertLessEqual(row['median_regret'], row['worst_regret'])
        # Nothing of it is left in the user's cache.
        run = subprocess.run([str(TOOLS / 'gk-tune'), 'list', '--device', 'cpu', '--cache',
                              str(self.cache)], env=self.env, text=True, capture_output=True,
                             timeout=60)
        self.assertIn('0 stored', run.stdout)

    def test_regret_says_why_a_shape_failed(self):
        run = self.cpu('matmul', '8x8x8', '--regret', '--tunings', '1', '--variant', 'absent',
                       '--json')
        self.assertEqual(run.returncode, 1)
        row = self.rows(run, 'regret')[0]
        self.assertEqual((row['shape'], row['status']), ('f32 nn 8x8x8', 'GK_ERR_NOT_FOUND'))
        self.assertIn('no variant "absent"', row['message'])
        summary = self.rows(run, 'summary')[0]
        self.assertEqual((summary['rows'], summary['failed']), (1, 1))
        run = self.cpu('matmul', '8x8x8', '--regret', TMPDIR=str(self.home / 'absent'))
        self.assertEqual(run.returncode, 1)
        self.assertIn(f'in {self.home}/absent: No such file or directory (GK_ERR_IO)', run.stderr)
        self.assertRegex(run.stdout, r'(?m)^f32 nn 8x8x8 +failed: GK_ERR_IO$')

    def test_regret_that_cannot_copy_its_file(self):
        process = subprocess.Popen(
            [str(TOOLS / 'gk-bench'), 'matmul', '8x8x8', '--regret', '--tunings', '1', '--device',
             'cpu'], env={**self.env, 'TMPDIR': str(self.home)}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not (found := list(self.home.glob('gk-bench-*'))):
            time.sleep(0.002)
        if found:
            (found[0] / '1.db').mkdir()
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(err, r'cannot copy .*/0\.db to .*/1\.db: Is a directory \(GK_ERR_IO\)')

    def test_interrupt_prints_what_is_finished(self):
        shapes = [f'{8 * i}x8x8' for i in range(1, 60)]
        process = subprocess.Popen(
            [str(TOOLS / 'gk-bench'), 'matmul_relu', *shapes, '--device', 'cpu', '--cache',
             str(self.cache), '--json'], env=self.env, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        process.stdout.readline()
        self.assertIn('f32 nn 8x8x8', process.stdout.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1, out + err)
        self.assertRegex(err, r'interrupted: \d+ of 59 shapes are done')
        summary = json.loads(out.splitlines()[-1])
        self.assertEqual(summary['type'], 'summary')
        self.assertIs(summary['interrupted'], True)
        self.assertTrue(1 <= summary['rows'] < 59)

    def test_against_cublaslt(self):
        run = self.gpu('matmul_relu', '64x64x64', '300x200x100', '--against', 'cublaslt')
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout.splitlines()[0], r'NVIDIA H100.*, cuBLASLt 13\.1\.2, ')
        self.assertRegex(run.stdout, r'(?m)^f32 nn 64x64x64 .* 1\.00 us   1\.000  simt ')
        self.assertRegex(run.stdout, r'geometric mean of 2 ratios: 1\.000; worst 1\.000 ')
        run = self.gpu('matmul_relu', '64x64x64', '--against', 'cublaslt', '--json')
        row = self.rows(run)[0]
        self.assertEqual((row['cublaslt_heuristics'], row['cublaslt_best_index']), (3, 1))
        self.assertEqual((row['cublaslt_split_k'], row['cublaslt_reduction']), (3, 2))
        self.assertAlmostEqual(row['cublaslt_first_seconds'], 2e-6)
        self.assertAlmostEqual(row['ratio'], 1)

    def test_8_bit_floats_go_to_cublaslt_as_it_wants_them(self):
        shape = ('matmul_relu', '64x64x64', '--against', 'cublaslt', '--dtype', 'e4m3', '--json')
        run = self.gpu(*shape, '--layout', 'nt')
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertGreater(self.rows(run)[0]['ratio'], 0)
        run = self.gpu(*shape, '--layout', 'nn')
        self.assertEqual(run.returncode, 1)
        self.assertIn('cuBLASLt has no algorithm for this problem', run.stderr)
        self.assertNotIn('ratio', self.rows(run)[0])

    def test_weak_rows_are_listed(self):
        run = self.gpu('matmul_relu', '64x64x64', '65x64x64', '--against', 'cublaslt', '--guess',
                       FAKE_CUBLASLT='fast')
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r'mean of 2 ratios: 0\.5\d\d; worst 0\.5.*; below 0\.8: 2\n')
        self.assertRegex(run.stdout, r'(?m)^ +0\.5\d\d f32 nn 65x64x64  simt BLOCK_K=')
        self.assertRegex(run.stdout, r'longer than the tuned winner for 2 of 2 \(100 %\)')

    def test_without_cublaslt(self):
        run = self.gpu('matmul_relu', '64x64x64', '--against', 'cublaslt',
                       GK_CUBLASLT='/nonexistent/libcublasLt.so')
        self.assertEqual(run.returncode, 1)
        self.assertIn('cuBLASLt is not to be had: /nonexistent/libcublasLt.so', run.stderr)
        self.assertEqual(run.stdout, '')
        run = self.gpu('matmul_relu', '64x64x64', '--against', 'cublaslt', FAKE_CUBLASLT='none')
        self.assertEqual(run.returncode, 1)
        self.assertIn('no algorithm', run.stderr)
        self.assertRegex(run.stdout, r'(?m)^f32 nn 64x64x64 .* - +-  simt ')

    def test_wrong_results_are_no_row(self):
        if 'GK_TEST_FAKE_GPU' not in os.environ:
            self.skipTest('no scripted GPU')
        # The one element of 1x1x1 is -1, all ones; map's are NaN. Nothing is written.
        for op, shape, dtype, more in (('matmul_relu', '64x64x64', 'f32', ['simt']),
                                       ('transpose', '5x7x1', 'f32', ['tile']),
                                       ('transpose', '5x7x3', 'f32', ['tile']),
                                       ('transpose', '1x1x1', 'i32', ['tile']),
                                       ('map', '7x13', 'f32', ['vector', '--text', '0 * x0 / 0']),
                                       ('map', '7x13', 'f16', ['vector', '--text', '0 * x0 / 0'])):
            with self.subTest(op=op, shape=shape, dtype=dtype):
                run = self.run_tool(op, shape, '--dtype', dtype, '--rounds', '1', '--cache',
                                    str(self.cache), '--variant', *more,
                                    GK_CUDA_DRIVER=os.environ['GK_TEST_FAKE_GPU'],
                                    GK_NVRTC=os.environ['GK_TEST_FAKE_NVRTC'])
                self.assertEqual(run.returncode, 1)
                self.assertIn(f'{dtype} nn {shape}: gk gives wrong results', run.stderr)
                self.assertRegex(run.stdout, rf'(?m)^{dtype} nn {shape} +failed: wrong$')


class HostCost(Case):
    """On the fake GPU that multiplies."""
    def setUp(self):
        if 'GK_TEST_FAKE_GPU' not in os.environ:
            self.skipTest('no scripted GPU')
        super().setUp()
        self.env.update(GK_CUDA_DRIVER=os.environ['GK_TEST_FAKE_GPU'],
                        GK_NVRTC=os.environ['GK_TEST_FAKE_NVRTC'], FAKE_GPU='matmul')

    def test_the_default_cache_is_left_alone(self):
        run = self.run_tool('--host-cost', '--count', '3', '--json')
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(list(self.home.rglob('*.db')), [])
        self.assertEqual(len(self.rows(run, 'header')), 1)
        rows = self.rows(run, 'host_cost')
        self.assertEqual([row['order'] for row in rows], ['cycle', 'random'])
        for row in rows:
            self.assertEqual((row['shapes'], row['threads']), (3, 1))
            self.assertIn('_mma_', row['kernel'])
        # As large as the shapes make them: 3x32, 32x8 and 3x8 of two bytes.
        sizes = re.findall(r'(?m)^allocated (\d+)$', run.stderr)
        self.assertEqual(sizes[:3], ['192', '512', '48'])

    def test_the_variant_counts_though_an_answer_is_stored(self):
        for variant in ('mma', 'simt'):
            run = self.run_tool('--host-cost', '--variant', variant, '--json', '--cache',
                                str(self.cache))
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(f'_{variant}_', self.rows(run, 'host_cost')[0]['kernel'])

    def test_interrupt(self):
        process = subprocess.Popen([str(TOOLS / 'gk-bench'), '--host-cost', '--count', '40',
                                    '--json'], env=self.env, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, out + err)
        self.assertIn('gk-bench: interrupted', err)

    def test_without_a_temporary_folder(self):
        run = self.run_tool('--host-cost', TMPDIR=str(self.home / 'absent'))
        self.assertEqual(run.returncode, 1)
        self.assertIn(f'in {self.home}/absent: No such file or directory (GK_ERR_IO)', run.stderr)


if __name__ == '__main__':
    TOOLS = pathlib.Path(sys.argv.pop(1))
    unittest.main()
