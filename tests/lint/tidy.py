#!/usr/bin/env python3
"""Runs a static analyser over every C file of the build.

usage: tidy.py clang-tidy|cppcheck ROOT BUILD
Exit status: 0 clean, 1 findings (printed), 77 the tool is missing.
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys


def c_files(root, build):
    entries = json.loads((build / 'compile_commands.json').read_text())
    names = {(pathlib.Path(e['directory']) / e['file']).resolve() for e in entries}
    return sorted(n for n in names if n.suffix == '.c' and root in n.parents
                  and build.resolve() not in n.parents)


def clang_tidy(root, build):
    tool = shutil.which('clang-tidy-14') or shutil.which('clang-tidy')
    if tool is None:
        return None

    def one(path):
        run = subprocess.run([tool, '--quiet', '-p', str(build), str(path)], capture_output=True,
                             text=True)
        return run.returncode, run.stdout

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(one, c_files(root, build)))
    for _, out in results:
        if out.strip():
            print(out)
    return all(code == 0 for code, _ in results)


def cppcheck(root, build):
    tool = shutil.which('cppcheck')
    if tool is None:
        return None
    sources = [str(p) for p in c_files(root, build) if 'tests' not in p.parts]
    run = subprocess.run([tool, '--quiet', '--enable=warning,performance,portability',
                          '--error-exitcode=1', '--inline-suppr', '--std=c11', '--force',
                          f'-j{os.cpu_count()}', '--suppress=missingIncludeSystem',
                          f'-I{root}/include', f'-I{root}/src', f'-I{root}/kernel_templates',
                          *sources], text=True, stderr=subprocess.STDOUT, stdout=subprocess.PIPE)
    print(run.stdout)
    return run.returncode == 0


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ('clang-tidy', 'cppcheck'):
        sys.exit(__doc__)
    check = clang_tidy if sys.argv[1] == 'clang-tidy' else cppcheck
    clean = check(pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]))
    if clean is None:
        print(f'{sys.argv[1]} is missing')
        sys.exit(77)
    sys.exit(0 if clean else 1)


if __name__ == '__main__':
    main()
