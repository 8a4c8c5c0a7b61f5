#!/usr/bin/env python3
"""Rules of the source tree that no compiler checks.

usage: lint.py includes|calls|sizes|format|text ROOT
Exit status: 0 all well, 1 a rule is broken (each place is printed), 77 a tool is missing.
"""
import pathlib
import re
import shutil
import subprocess
import sys

# Which folders of src/ a folder may include from; every one may include <gk/...>.
MAY_INCLUDE = {
    'base': set(),
    'driver': {'base'},
    'cache': {'base'},
    'jit': {'base', 'cache', 'driver'},
    'tune': {'base', 'cache', 'driver', 'jit'},
    'op': {'base'},
    'api': {'base', 'cache', 'driver', 'jit', 'tune', 'op'},
}
# Outside the table: the kernel parameter structs that host and kernels share, generated files.
SHARED_WITH_KERNELS = re.compile(r'^(<gk/\w+_args\.h>|"emu/abi\.h")$')
PUBLIC_ONLY = ['tools', 'examples', 'tests/gpu', 'tests/cli']
BANNED = re.compile(r'(?<![\w.>])(malloc|calloc|realloc|free|strdup|strndup|aligned_alloc|'
                    r'posix_memalign|system|popen|sprintf|vsprintf|strcpy|strcat|gets|setlocale|'
                    r'strtok|printf|puts|putchar)\s*\(')
MAX_FILE = 600
MAX_FUNCTION = 60
MAY_EXCEED = re.compile(r'kernel_templates/(matmul|attention)_\w+\.cu$')


def files(root, patterns, folders):
    for folder in folders:
        for pattern in patterns:
            yield from sorted((root / folder).rglob(pattern))


def includes_of(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+([<"][^>"]+[>"])', line)
        if match:
            yield number, match.group(1)


def check_includes(root):
    for path in files(root, ['*.c', '*.h'], ['src']):
        parts = path.relative_to(root / 'src').parts
        if len(parts) < 2:
            continue
        allowed = MAY_INCLUDE[parts[0]] | {parts[0]}
        for number, name in includes_of(path):
            if SHARED_WITH_KERNELS.match(name) or not name.startswith('"'):
                continue
            folder = name[1:-1].split('/')[0]
            if folder not in allowed:
                yield f'{path}:{number}: {parts[0]} may not include {name}'
    for path in files(root, ['*.c', '*.h'], PUBLIC_ONLY):
        for number, name in includes_of(path):
            if name.startswith('"') and '/' in name:
                yield f'{path}:{number}: only <gk/...> is open to {path.parent.name}, not {name}'
    for path in files(root, ['*.cu', '*.cuh'], ['kernel_templates']):
        emulated = 'emu' in path.parts
        for number, name in includes_of(path):
            if name.startswith('<') and not emulated:
                yield f'{path}:{number}: a template includes no system header: {name}'


def strip_comments(text):
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
    return pattern.sub(lambda m: re.sub(r'[^\n]', ' ', m.group(0)), text)


def check_calls(root):
    for path in files(root, ['*.c', '*.h'], ['src']):
        text = strip_comments(path.read_text())
        for number, line in enumerate(text.splitlines(), 1):
            match = BANNED.search(line)
            if match and path.name != 'alloc.c' and 'format(printf' not in line:
                yield f'{path}:{number}: {match.group(1)} is not called here'


def functions_of(path):
    start = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line == '{':
            start = number
        elif line == '}' and start is not None:
            yield start, number - start + 1
            start = None


def check_sizes(root):
    folders = ['include', 'src', 'tools', 'tests', 'examples', 'kernel_templates']
    for path in files(root, ['*.c', '*.h', '*.cu', '*.cuh', '*.py'], folders):
        relative = str(path.relative_to(root))
        lines = len(path.read_text().splitlines())
        if lines > MAX_FILE and not MAY_EXCEED.search(relative):
            yield f'{relative}: {lines} lines, at most {MAX_FILE}'
        if path.suffix in ('.c', '.h'):
            for start, length in functions_of(path):
                if length > MAX_FUNCTION:
                    yield f'{relative}:{start}: a function of {length} lines, at most {MAX_FUNCTION}'


def check_format(root):
    tool = shutil.which('clang-format-14') or shutil.which('clang-format')
    if tool is None:
        print('clang-format is missing')
        sys.exit(77)
    sources = [str(p) for p in files(root, ['*.c', '*.h', '*.cu', '*.cuh'],
                                     ['include', 'src', 'tools', 'tests', 'examples',
                                      'kernel_templates'])]
    run = subprocess.run([tool, '--dry-run', '-Werror', *sources], capture_output=True, text=True)
    if run.returncode != 0:
        yield from [line for line in run.stderr.splitlines() if 'error:' in line]


def check_text(root):
    names = subprocess.run(['git', '-C', str(root), 'ls-files'], capture_output=True, text=True)
    if names.returncode != 0:
        print('not a git checkout')
        sys.exit(77)
    for name in names.stdout.splitlines():
        path = root / name
        if not path.is_file():
            continue
        data = path.read_bytes()
        if b'\0' in data:
            yield f'{name}: a binary file'
            continue
        for number, line in enumerate(data.decode().splitlines(), 1):
            if line != line.rstrip():
                yield f'{name}:{number}: blanks at the end of the line'
            if '\t' in line and not name.endswith('.tsv'):
                yield f'{name}:{number}: a tab'
            if re.search(r'\b(TODO|FIXME|XXX)\b', line) and name != 'tests/lint/lint.py':
                yield f'{name}:{number}: an unfinished mark'


def main():
    checks = {'includes': check_includes, 'calls': check_calls, 'sizes': check_sizes,
              'format': check_format, 'text': check_text}
    if len(sys.argv) != 3 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    broken = list(checks[sys.argv[1]](pathlib.Path(sys.argv[2])))
    print('\n'.join(broken))
    sys.exit(1 if broken else 0)


if __name__ == '__main__':
    main()
