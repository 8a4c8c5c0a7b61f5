#!/usr/bin/env python3
"""The command-line tools as a user meets them: output, exit status, what they leave behind.

usage: test_cli.py BUILD_TOOLS_DIR [unittest options]
"""
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

TOOLS = None


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.home = pathlib.Path(self.folder.name)
        self.cache = self.home / 'gk.db'
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('GK_')}
        self.env.update(HOME=str(self.home), LC_ALL='C')
        for name in ('GK_CXX', 'GK_CXXFLAGS'):
            if name in os.environ:
                self.env[name] = os.environ[name]
        self.env.pop('XDG_CACHE_HOME', None)

    def tearDown(self):
        self.folder.cleanup()

    def run_tool(self, tool, *args, **more):
        return subprocess.run([str(TOOLS / tool), *args], env={**self.env, **more}, text=True,
                              capture_output=True, timeout=300)

    def tune(self, *args, **more):
        return self.run_tool('gk-tune', *args, '--device', 'cpu', '--cache', str(self.cache), **more)

    def test_help_needs_no_gpu(self):
        for tool in ('gk-tune', 'gk-info', 'gk-bench'):
            run = self.run_tool(tool, '--help')
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(f'usage: {tool}', run.stdout)
            self.assertEqual(run.stderr, '')
            self.assertIn('0.1.', self.run_tool(tool, '--version').stdout)

    def test_usage_errors_exit_2_and_touch_nothing(self):
        wrong = [
            [], ['nonsense'], ['warm'], ['warm', 'no_such_op', '8x8x8'], ['warm', 'matmul_relu'],
            ['warm', 'matmul_relu', '12abcx8x8'], ['warm', 'matmul_relu', '-5x8x8'],
            ['warm', 'matmul_relu', ''], ['warm', 'matmul_relu', '8x8'],
            ['warm', 'matmul_relu', '8x8x8x8'], ['warm', 'matmul_relu', '8x x8'],
            ['warm', 'matmul_relu', '99999999999999999999x8x8'],
            ['warm', 'matmul_relu', '8x8x8', '--budget', 'soon'],
            ['warm', 'matmul_relu', '8x8x8', '--effort', 'heroic'],
            ['warm', 'matmul_relu', '8x8x8', '--jobs', '0'],
            ['warm', 'matmul_relu', '8x8x8', '--no-such-option'],
            ['warm', 'matmul_relu', '--shapes', str(self.home / 'absent')],
            ['explain', 'matmul_relu'], ['explain', 'matmul_relu', '8x8'],
            ['explain', 'no_such_op', '8x8x8'], ['list', 'no_such_op'],
            ['list', 'matmul', 'matmul'], ['export'], ['import', 'a', 'b'], ['info', 'all'],
            ['warm', 'matmul_relu', '8x8x8', '--dtype', 'f19'],
            ['warm', 'matmul_relu', '8x8x8', '--layout', 'nnn'],
            ['warm', 'map', '8x8', '--text', 'x0 +'], ['warm', 'add', '8x8', '--text', 'x0'],
            ['warm', 'matmul', '8x8x8', '--text', 'x0'],
            ['warm', 'matmul', '8x8x8', '--replace'],
            ['export', str(self.home / 'a'), '--replace'],
            ['explain', 'matmul', '8x8x8', '--dtype', 'f19'],
            ['explain', 'matmul', '8x8x8', '--shapes', 'a'],
            ['explain', 'matmul', '8x8x8', '--retune'], ['list', '--dtype', 'f16'],
            ['info', '--effort', 'quick'], ['import', 'a', '--json'],
        ]
        for args in wrong:
            with self.subTest(args=args):
                run = self.run_tool('gk-tune', *args, '--device', 'cpu', '--cache', str(self.cache))
                self.assertEqual(run.returncode, 2, f'{args}: {run.stdout}{run.stderr}')
                self.assertEqual(run.stdout, '')
                self.assertIn('gk-tune: ', run.stderr)
                self.assertEqual(list(self.home.iterdir()), [])
        for args in (['--cache'], ['--budget'], ['--shapes']):
            missing = self.run_tool('gk-tune', 'warm', 'matmul_relu', '8x8x8', '--device', 'cpu',
                                    *args)
            self.assertEqual(missing.returncode, 2, args)
            self.assertEqual(missing.stdout, '')
            self.assertEqual(list(self.home.iterdir()), [])

    def test_sizes_beyond_32_bits_are_not_cut(self):
        run = self.tune('warm', 'matmul_relu', '4294967297x4294967297x4294967297')
        self.assertEqual(run.returncode, 1)
        self.assertIn('4294967297x4294967297x4294967297', run.stderr)
        self.assertNotIn('1x1x1 ', run.stdout)

    def test_warm_prints_a_table_and_the_next_run_is_stored(self):
        run = self.tune('warm', 'matmul_relu', '20x24x8', '--effort', 'quick')
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r'shape +variant +time +TFLOP/s')
        self.assertRegex(run.stdout, r'f32 nn 20x24x8 +simt ')
        self.assertRegex(run.stderr, r'\[1/1\] f32 nn 20x24x8 .* ETA 00:00')
        again = self.tune('warm', 'matmul_relu', '20x24x8')
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn('(stored)', again.stdout)
        listed = self.tune('list', 'matmul')
        self.assertIn('M=20 N=24 K=8', listed.stdout)
        self.assertIn('1 stored', listed.stdout)
        explained = self.tune('explain', 'matmul_relu', '20x24x8')
        self.assertEqual(explained.returncode, 0, explained.stderr)
        self.assertRegex(explained.stdout, r'(?m)^\* .* ok .* simt ')
        info = self.tune('info')
        self.assertIn(str(self.cache), info.stdout)
        self.assertIn('1 answers, 1 for this device', info.stdout)
        self.assertEqual(stat.S_IMODE(self.cache.stat().st_mode), 0o600)

    def test_shapes_file_and_json(self):
        shapes = self.home / 'shapes.txt'
        shapes.write_text('# two problems\nf32 nn 8 8 8\nbf16 nt 8 16 8  # the second\n\n')
        run = self.tune('warm', 'matmul_relu', '--shapes', str(shapes), '--json', '--effort',
                        'quick')
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = [json.loads(line) for line in run.stdout.splitlines()]
        self.assertEqual([r['shape'] for r in rows], ['f32 nn 8x8x8', 'bf16 nt 8x16x8'])
        self.tune('warm', 'matmul_relu', '8x8x8', '--dtype', 'tf32', '--effort', 'quick')
        self.assertRegex(self.tune('list').stdout, r'activation=relu math=tf32')
        for row in rows:
            self.assertEqual(row['status'], 'ok')
            self.assertIs(row['saved'], True)
            self.assertGreaterEqual(row['tried'], 1)
            self.assertRegex(row['config'], r'^[A-Z_]+=\d+')
        self.assertEqual([r['op'] for r in rows], ['matmul_relu'] * 2)
        bad = self.home / 'bad.txt'
        for line in ('f32 nn 8 8\n', 'f19 nn 8 8 8\n'):
            bad.write_text(line)
            run = self.tune('warm', 'matmul_relu', '--shapes', str(bad))
            self.assertEqual(run.returncode, 2)
            self.assertIn('bad.txt:1', run.stderr)

    def test_an_empty_problem_is_no_failure(self):
        run = self.tune('warm', 'add', '0x5', '--json')
        self.assertEqual(run.returncode, 0, run.stderr)
        row = json.loads(run.stdout)
        self.assertEqual((row['op'], row['status']), ('add', 'empty'))
        self.assertRegex(self.tune('warm', 'add', '0x5').stdout, r'(?m)^f32 nn 0x5 +empty$')

    def test_odd_shapes_files(self):
        shapes = self.home / 'shapes.txt'
        warm = ('warm', 'matmul_relu', '--effort', 'quick', '--json', '--shapes', str(shapes))
        # The end of a long comment is none of the problems; the last line may lack its newline.
        shapes.write_text('# ' + 'x' * 509 + ' f32 nn 16 8 8\r\nf32 nn 8 8 8' + ' ' * 600 + '\r')
        run = self.tune(*warm)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([json.loads(line)['shape'] for line in run.stdout.splitlines()],
                         ['f32 nn 8x8x8'])
        shapes.write_bytes(b'\nf32 nn 8 8 8\0 9\n')
        run = self.tune(*warm)
        self.assertEqual(run.returncode, 2)
        self.assertIn('shapes.txt:2 holds a NUL byte', run.stderr)
        run = self.tune('warm', 'matmul_relu', '--shapes', str(self.home))
        self.assertEqual(run.returncode, 2)
        self.assertIn('Is a directory', run.stderr)

    def test_json_of_a_path_that_is_not_utf8(self):
        name = os.fsencode(self.home) + b'/a"\n\xff\xc0\xaf\xed\xa0\x80\xc3\xa9.db'
        run = subprocess.run([TOOLS / 'gk-tune', 'info', '--json', '--device', 'cpu', '--cache',
                              name], env=self.env, capture_output=True, timeout=60, check=True)
        path = json.loads(run.stdout.decode('utf-8'))['cache']
        self.assertEqual(path[-14:], '/a"\n' + '\ufffd' * 6 + '\u00e9.db')

    def test_list_takes_a_preset(self):
        self.tune('warm', 'matmul_relu', '8x8x8', '--effort', 'quick')
        self.assertIn('1 stored', self.tune('list', 'matmul_relu').stdout)

    def test_fractions_of_whole_things_are_refused(self):
        run = self.tune('warm', 'matmul_relu', '8x8x8', '--jobs', '1.5')
        self.assertEqual(run.returncode, 2)
        self.assertIn('--jobs is "1.5", expected a whole number', run.stderr)

    def test_export_without_the_file_keeps_the_earlier_export(self):
        blocked = self.home / 'file'
        blocked.write_text('not a directory')
        earlier = self.home / 'earlier.txt'
        earlier.write_text('kept')
        run = self.run_tool('gk-tune', 'export', str(earlier), '--device', 'cpu', '--cache',
                            str(blocked / 'gk.db'))
        self.assertEqual(run.returncode, 1)
        self.assertIn('the cache file cannot be used', run.stderr)
        self.assertEqual(earlier.read_text(), 'kept')

    def test_one_failing_shape_exits_1_and_the_others_are_kept(self):
        run = self.tune('warm', 'matmul_relu', '8x8x8', '4294967297x4294967297x8', '--effort',
                        'quick')
        self.assertEqual(run.returncode, 1)
        self.assertIn('4294967297x4294967297x8', run.stderr)
        self.assertIn('1 stored', self.tune('list').stdout)

    def test_unknown_dtype_fails_and_names_it(self):
        run = self.tune('warm', 'matmul_relu', '8x8x8', '--dtype', 'f19')
        self.assertNotEqual(run.returncode, 0)
        self.assertIn('f19', run.stderr)

    def test_unwritable_cache_exits_1_and_names_the_shape(self):
        blocked = self.home / 'file'
        blocked.write_text('not a directory')
        run = self.run_tool('gk-tune', 'warm', 'matmul_relu', '8x8x8', '--effort', 'quick',
                            '--device', 'cpu', '--cache', str(blocked / 'gk.db'))
        self.assertEqual(run.returncode, 1)
        self.assertIn('f32 nn 8x8x8: the answer was not saved', run.stderr)

    def test_reader_that_closes_early(self):
        self.assertEqual(self.tune('warm', 'matmul_relu', '8x8x8', '--effort', 'quick').returncode,
                         0)
        read, write = os.pipe()
        os.close(read)
        run = subprocess.run([str(TOOLS / 'gk-tune'), 'list', '--device', 'cpu', '--cache',
                              str(self.cache)], env=self.env, stdout=write,
                             stderr=subprocess.PIPE, text=True, timeout=60)
        os.close(write)
        self.assertEqual(run.returncode, 1)
        self.assertIn('standard output', run.stderr)

    def test_reader_that_closes_early_while_tuning(self):
        read, write = os.pipe()
        os.close(read)
        run = subprocess.run([str(TOOLS / 'gk-tune'), 'warm', 'matmul_relu', '8x8x8', '8x16x8',
                              '--effort', 'quick', '--device', 'cpu', '--cache', str(self.cache)],
                             env=self.env, stdout=write, stderr=subprocess.PIPE, text=True,
                             timeout=300)
        os.close(write)
        self.assertEqual(run.returncode, 1)
        self.assertIn('standard output', run.stderr)
        self.assertIn('2 stored', self.tune('list').stdout)

    def test_tools_need_neither_driver_nor_compiler(self):
        if shutil.which('readelf') is None:
            self.skipTest('readelf is missing')
        for tool in ('gk-tune', 'gk-info', 'gk-bench'):
            dynamic = subprocess.run(['readelf', '-d', str(TOOLS / tool)], capture_output=True,
                                     text=True, check=True).stdout
            needed = [line for line in dynamic.splitlines() if '(NEEDED)' in line]
            self.assertNotEqual(needed, [])
            self.assertNotRegex('\n'.join(needed), 'libcuda|libnvrtc')

    @unittest.skipIf('GK_TEST_FAKE_CUDA' not in os.environ, 'no scripted libcuda')
    def test_stubs_first_in_the_library_path(self):
        stubs = self.home / 'stubs'
        stubs.mkdir()
        for name in ('libcuda.so', 'libcuda.so.1'):
            (stubs / name).symlink_to(os.environ['GK_TEST_FAKE_CUDA'])
        path = {'LD_LIBRARY_PATH': str(stubs), 'FAKE_CUDA': 'init=34'}
        run = self.run_tool('gk-tune', 'info', '--cache', str(self.cache), **path)
        self.assertEqual(run.returncode, 1)
        self.assertIn('GK_ERR_NO_DRIVER', run.stderr)
        self.assertIn('stub', run.stderr)
        # The rest of the library does not care.
        self.assertEqual(self.run_tool('gk-tune', '--help', **path).returncode, 0)
        run = self.tune('warm', 'matmul_relu', '8x8x8', '--effort', 'quick', **path)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_interrupt_keeps_finished_shapes(self):
        shapes = [f'{8 * i}x8x8' for i in range(1, 40)]
        process = subprocess.Popen(
            [str(TOOLS / 'gk-tune'), 'warm', 'matmul_relu', *shapes, '--device', 'cpu', '--cache',
             str(self.cache)], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)
        process.stdout.readline()
        self.assertIn('f32 nn 8x8x8', process.stdout.readline())
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1, out + err)
        self.assertIn('interrupted', err)
        stored = int(self.tune('list').stdout.splitlines()[-1].split()[0])
        self.assertGreaterEqual(stored, 1)
        self.assertLess(stored, len(shapes))

    def test_a_second_interrupt_ends_at_once(self):
        compiler = self.home / 'c++'
        compiler.write_text('#!/bin/sh\ncase "$*" in *-shared*) echo > "$0.begun"; exec sleep 10;; esac\n'
                            'exec c++ "$@"\n')
        compiler.chmod(0o700)
        process = subprocess.Popen(
            [str(TOOLS / 'gk-tune'), 'warm', 'matmul_relu', '8x8x8', '--device', 'cpu', '--cache',
             str(self.cache)], env={**self.env, 'GK_CXX': str(compiler)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while process.poll() is None and not (self.home / 'c++.begun').exists():
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=5), -signal.SIGINT)
        finally:
            process.kill()
            process.wait()

    def test_export_import_round_trip(self):
        self.tune('warm', 'matmul_relu', '8x8x8', '8x16x8', '--effort', 'quick')
        first = self.home / 'first.txt'
        second = self.home / 'second.txt'
        self.assertEqual(self.tune('export', str(first)).returncode, 0)
        self.cache.unlink()
        for sidecar in self.home.glob('gk.db-*'):
            sidecar.unlink()
        run = self.tune('import', str(first))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn('imported 2 answers', run.stderr)
        self.assertEqual(self.tune('export', str(second)).returncode, 0)
        self.assertEqual(first.read_bytes(), second.read_bytes())
        again = self.tune('warm', 'matmul_relu', '8x8x8')
        self.assertIn('(stored)', again.stdout)
        with first.open('a') as file:
            file.write('rubbish\n')
        run = self.tune('import', str(first))
        self.assertEqual(run.returncode, 1)
        self.assertIn('skipped 1', run.stderr)

    def test_no_gpu_is_said_plainly(self):
        run = self.run_tool('gk-tune', 'info', '--cache', str(self.cache),
                            GK_CUDA_DRIVER='/nonexistent/libcuda.so.1')
        self.assertEqual(run.returncode, 1)
        self.assertIn('GK_ERR_NO_DRIVER', run.stderr)
        self.assertIn('driver', run.stderr)
        info = self.run_tool('gk-info', GK_CUDA_DRIVER='/nonexistent/libcuda.so.1')
        self.assertEqual(info.returncode, 0)
        self.assertRegex(info.stdout, r'cuda +not usable')
        self.assertRegex(info.stdout, r'cpu +gk CPU device')
        self.assertIn('matmul', info.stdout)

    def test_unknown_device(self):
        run = self.run_tool('gk-tune', 'info', '--device', 'gpu')
        self.assertEqual(run.returncode, 1)
        self.assertIn('expected "cuda", "cuda:N" or "cpu"', run.stderr)


if __name__ == '__main__':
    TOOLS = pathlib.Path(sys.argv.pop(1))
    unittest.main()
