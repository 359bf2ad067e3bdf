// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops_test

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testdata/einsum.py writes testdata/einsum.txt: the results of NumPy's exhaustive search for
// random equations with diagonals, broadcasting and implicit outputs.
func TestEinsumCountsEqualNumPys(t *testing.T) {
	f, err := os.Open("testdata/einsum.txt")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		field := strings.Fields(line)
		require.Len(t, field, 5, line)
		var shapes [][]int
		for s := range strings.SplitSeq(field[1], ",") {
			shapes = append(shapes, shape(t, s))
		}
		p := plan(t, field[0], shapes...)
		require.Equal(t, field[2], fmt.Sprintf("%.0f", p.Naive.FLOPs), line)
		require.Equal(t, field[3], fmt.Sprintf("%.0f", p.Best.FLOPs), line)
		require.Equal(t, shape(t, field[4]), append([]int{}, p.Output...), line)
		n++
	}
	require.Equal(t, 250, n)
}

func shape(t *testing.T, s string) []int {
	out := []int{}
	if s == "-" {
		return out
	}
	for d := range strings.SplitSeq(s, "x") {
		n, err := strconv.Atoi(d)
		require.NoError(t, err)
		out = append(out, n)
	}
	return out
}
