#!/usr/bin/env python3
"""What `meson install` leaves is enough to build and run a program with pkg-config alone."""
import glob
import os
import shlex
import subprocess

import tap
from lochos_process import LochosTest

BUILD = os.environ['BUILD_ROOT']
SOURCE = os.environ['SOURCE_ROOT']


class Install(LochosTest):
    def test_example_builds_and_runs(self):
        subprocess.run(['meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', '--destdir',
                        self.folder], check=True, stdout=subprocess.PIPE)
        (pc_file,) = glob.glob(f'{self.folder}/**/lochos.pc', recursive=True)
        prefix = pc_file.split('/lib')[0]
        flags = subprocess.run(
            ['pkg-config', f'--define-variable=prefix={prefix}', '--cflags', '--libs', 'lochos'],
            env={**os.environ, 'PKG_CONFIG_PATH': os.path.dirname(pc_file)}, check=True,
            stdout=subprocess.PIPE, text=True).stdout
        program = self.path('put_get')
        subprocess.run([*shlex.split(os.environ.get('CXX', 'c++')), '-std=c++20',
                        f'{SOURCE}/examples/put_get.cc', '-o', program, *shlex.split(flags)],
                       check=True)
        (library,) = glob.glob(f'{self.folder}/**/liblochos.so', recursive=True)
        ran = subprocess.run([program], timeout=30, check=True, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, 'LD_LIBRARY_PATH': os.path.dirname(library)})
        self.assertIn('1048576 bytes', ran.stdout)


if __name__ == '__main__':
    tap.main()
