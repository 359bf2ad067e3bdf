# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Adds the capture library to platform wheels; pyproject.toml has all other settings.

Without OTELGPU_CAPTURE_LIBRARY (the path of a built library) the wheel has no library and is for any platform. With it,
OTELGPU_WHEEL_PLATFORM is the platform tag of the wheel. build_wheels.py sets both."""

import os
import shutil

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

library = os.environ.get("OTELGPU_CAPTURE_LIBRARY", "")
platform = os.environ.get("OTELGPU_WHEEL_PLATFORM", "")
if bool(library) != bool(platform):
    raise SystemExit("OTELGPU_CAPTURE_LIBRARY and OTELGPU_WHEEL_PLATFORM must be set together")


class BuildPy(build_py):
    def run(self):
        super().run()
        if library:
            shutil.copyfile(library, os.path.join(self.build_lib, "otelgpu", "libotelgpu_capture.so"))


class BdistWheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", platform) if platform else super().get_tag()


class Platform(Distribution):
    def has_ext_modules(self):  # the library is opened by path, so the wheel fits every Python of the platform
        return bool(library)


setup(distclass=Platform, cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel})
