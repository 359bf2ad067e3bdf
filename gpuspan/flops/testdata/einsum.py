# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes einsum.txt: NumPy's results for random equations. python3 einsum.py > einsum.txt (needs NumPy 1.x).

Each line has the equation, shapes, operations of one loop nest, operations of NumPy's optimal path, and shape of the
result. NumPy prints costs with four digits only, so they are added up here, step by step of its path, by its own
functions."""
import random
import sys

import numpy as np
from numpy.core.einsumfunc import _find_contraction, _flop_count, _parse_einsum_input


def equation(r):
    sizes = {c: r.choice([1, 2, 3, 4, 5, 7, 30]) for c in "abcdefgZ"}
    terms, shapes = [], []
    dots = [r.randint(2, 4) for _ in range(r.choice([0, 0, 0, 1, 2]))]
    for _ in range(r.choice([2, 3, 3, 4, 4, 5, 5, 6, 7])):
        term = r.sample(sorted(sizes), r.randint(1, 3))
        if r.random() < 0.15:
            term.append(term[0])  # a diagonal
        shape = [sizes[c] for c in term]
        if dots and r.random() < 0.7:
            own = dots[r.randint(0, len(dots)):]
            at = r.choice([0, len(term)])
            term[at:at] = ["..."]
            shape[at:at] = [d if r.random() < 0.8 else 1 for d in own]
        terms.append("".join(term))
        shapes.append(shape)
    left = ",".join(terms)
    if r.random() < 0.3:
        return left, shapes  # implicit output
    used = sorted(set(left) - set(".,"))
    out = r.sample(used, r.randint(0, min(3, len(used))))
    return left + "->" + ("..." if "..." in left else "") + "".join(out), shapes


def main():
    r = random.Random(1)
    print("# numpy", np.__version__)
    n = 0
    while n < 250:
        eq, shapes = equation(r)
        operands = [np.broadcast_to(np.float32(1), s) for s in shapes]
        left, out, _ = _parse_einsum_input((eq, *operands))
        sets, result = [set(t) for t in left.split(",")], set(out)
        everything = set().union(*sets)
        if everything == result and len(sets) > 2:
            continue  # NumPy searches no path if nothing is summed
        sizes = {}
        for term, s in zip(left.split(","), shapes):
            for c, d in zip(term, s):
                sizes[c] = max(sizes.get(c, 1), d)
        path = np.einsum_path(eq, *operands, optimize=("optimal", 2**62))[0][1:]
        best = 0
        left_over = list(sets)
        for step in path:
            _, left_over, removed, contracted = _find_contraction(tuple(sorted(step)), left_over, result)
            best += _flop_count(contracted, bool(removed), len(step), sizes)
        naive = _flop_count(everything, bool(everything - result), len(sets), sizes)
        form = lambda s: "x".join(map(str, s)) or "-"
        print(eq, ",".join(map(form, shapes)), naive, best, form([sizes[c] for c in out]))
        n += 1


if __name__ == "__main__":
    sys.exit(main())
