#!/usr/bin/env python3
# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes llvm.tsv: the occupancy that LLVM's compiler for AMD devices states for kernels with given resources.

usage: llvm.py path/to/llc >llvm.tsv    (LLVM 19)
"""
import itertools, re, subprocess, sys

TARGETS = "gfx908 gfx90a gfx942 gfx1030 gfx1031 gfx1035 gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151".split()
VGPRS = [8, 24, 25, 32, 40, 48, 64, 72, 96, 97, 120, 128, 129, 168, 200, 256]
AGPRS = [0, 32, 100]
SGPRS = [16, 80, 88, 96]


def function(name, target, vgprs, agprs, sgprs, lds, group):
    clobbers = [f"~{{v{vgprs - 1}}}", f"~{{s{sgprs - 1}}}"] + ([f"~{{a{agprs - 1}}}"] if agprs else [])
    use = f"store volatile i8 0, ptr addrspace(3) @lds_{name}\n" if lds else ""
    head = f"@lds_{name} = internal addrspace(3) global [{lds} x i8] poison, align 16\n" if lds else ""
    return (f'{head}define amdgpu_kernel void @{name}() "amdgpu-flat-work-group-size"="{group},{group}" {{\n'
            f'  call void asm sideeffect "", "{",".join(clobbers)}"()\n  {use}  ret void\n}}\n')


def main():
    print("target\tvgprs\tagprs\tsgprs\tlds\tgroup\toccupancy")
    for target in TARGETS:
        accumulates = target in ("gfx908", "gfx90a", "gfx942")
        cases = [(v, a, 16, 0, 64) for v in VGPRS for a in (AGPRS if accumulates else [0])]
        cases += [(8, 0, s, 0, 64) for s in SGPRS]
        cases += [(8, 0, 16, lds, group) for lds, group in itertools.product(
            [0, 2048, 4096, 8192, 12288, 16384, 20480, 32768, 65536], [64, 128, 256, 512, 1024])]
        text = "".join(function(f"k{i}", target, *c) for i, c in enumerate(cases))
        out = subprocess.run([sys.argv[1], "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={target}"], input=text, text=True,
                             capture_output=True, check=True).stdout
        kernels = re.findall(r"^k(\d+):.*?; NumSgprs: (\d+).*?; NumVgprs: (\d+).*?; Occupancy: (\d+)", out, re.S | re.M)
        agpr = dict(re.findall(r"^k(\d+):.*?; NumAgprs: (\d+)", out, re.S | re.M)) if accumulates else {}
        assert len(kernels) == len(cases), (target, len(kernels), len(cases))
        for i, sgprs, vgprs, occupancy in kernels:
            _, _, _, lds, group = cases[int(i)]
            print(target, vgprs, agpr.get(i, 0), sgprs, lds, group, occupancy, sep="\t")


main()
