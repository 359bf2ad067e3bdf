// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An interpreter of the subset of PTX that kernels.ptx uses, written from the PTX ISA. It verifies
// the kernels' arithmetic, indices and barriers without a GPU.

type instruction struct {
	guard string // predicate register, empty for always
	op    []string
	args  []string
}

type ptxKernel struct {
	params []string       // names in order
	sizes  map[string]int // bytes of each parameter
	regs   map[string]bool
	shared map[string]uint64 // offsets
	size   uint64            // of shared memory
	code   []instruction
	labels map[string]int
}

var entryPattern = regexp.MustCompile(`(?s)\.visible \.entry (\w+)\(([^)]*)\)\s*\{(.*?)\n\}`)

func parsePTX(t *testing.T, text string) map[string]*ptxKernel {
	t.Helper()
	text = regexp.MustCompile(`//[^\n]*`).ReplaceAllString(text, "")
	kernels := map[string]*ptxKernel{}
	for _, m := range entryPattern.FindAllStringSubmatch(text, -1) {
		k := &ptxKernel{
			sizes: map[string]int{}, regs: map[string]bool{}, shared: map[string]uint64{},
			labels: map[string]int{},
		}
		for p := range strings.SplitSeq(m[2], ",") {
			f := strings.Fields(p)
			require.Len(t, f, 3, p)
			k.params = append(k.params, f[2])
			bits, err := strconv.Atoi(f[1][2:])
			require.NoError(t, err)
			k.sizes[f[2]] = bits / 8
		}
		for line := range strings.SplitSeq(m[3], "\n") {
			line = strings.TrimSpace(line)
			switch {
			case line == "":
			case strings.HasSuffix(line, ":"):
				k.labels[strings.TrimSuffix(line, ":")] = len(k.code)
			default:
				require.True(t, strings.HasSuffix(line, ";"), line)
				k.statement(t, strings.TrimSuffix(line, ";"))
			}
		}
		kernels[m[1]] = k
	}
	return kernels
}

func (k *ptxKernel) statement(t *testing.T, line string) {
	t.Helper()
	if rest, ok := strings.CutPrefix(line, ".reg "); ok {
		_, names, _ := strings.Cut(rest, " ")
		for r := range strings.SplitSeq(names, ",") {
			k.regs[strings.TrimSpace(r)] = true
		}
		return
	}
	if rest, ok := strings.CutPrefix(line, ".shared "); ok {
		m := regexp.MustCompile(`\.b8 (\w+)\[(\d+)\]`).FindStringSubmatch(rest)
		require.NotNil(t, m, rest)
		n, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		k.shared[m[1]] = k.size
		k.size += uint64(n)
		return
	}
	var in instruction
	if strings.HasPrefix(line, "@") {
		in.guard, line, _ = strings.Cut(line[1:], " ")
	}
	op, args, _ := strings.Cut(line, " ")
	in.op = strings.Split(op, ".")
	if args != "" {
		for a := range strings.SplitSeq(args, ",") {
			in.args = append(in.args, strings.TrimSpace(a))
		}
	}
	for _, a := range append(in.args, in.guard) {
		a = strings.Trim(a, "[]")
		if strings.HasPrefix(a, "%") && !strings.Contains(a, ".") && a != "%globaltimer" {
			require.True(t, k.regs[a], "undeclared register in %q", line)
		}
	}
	k.code = append(k.code, in)
}

type thread struct {
	regs map[string]uint64
	pc   int
	done bool
}

// launch runs a kernel over memory that starts at address base.
func (k *ptxKernel) launch(t *testing.T, memory []byte, grid, block [2]uint32, args ...uint64) {
	t.Helper()
	require.Len(t, args, len(k.params))
	for by := range grid[1] {
		for bx := range grid[0] {
			shared := make([]byte, k.size)
			var threads []*thread
			for ty := range block[1] {
				for tx := range block[0] {
					threads = append(threads, &thread{regs: map[string]uint64{
						"%tid.x": uint64(tx), "%tid.y": uint64(ty), "%ctaid.x": uint64(bx), "%ctaid.y": uint64(by),
						"%ntid.x": uint64(block[0]), "%ntid.y": uint64(block[1]),
					}})
				}
			}
			for running := true; running; { // from barrier to barrier
				running = false
				for _, th := range threads {
					if !th.done {
						k.step(t, th, memory, shared, args)
						running = running || !th.done
					}
				}
			}
		}
	}
}

// step runs one thread to the next barrier or the end.
func (k *ptxKernel) step(t *testing.T, th *thread, memory, shared []byte, args []uint64) {
	value := func(a string) uint64 {
		if v, ok := th.regs[a]; ok {
			return v
		}
		if off, ok := k.shared[a]; ok {
			return off
		}
		if h, ok := strings.CutPrefix(a, "0f"); ok {
			n, err := strconv.ParseUint(h, 16, 32)
			require.NoError(t, err)
			return n
		}
		n, err := strconv.ParseUint(a, 10, 64)
		require.NoError(t, err, "operand %q is neither set nor a number", a)
		return n
	}
	f := func(a string) float32 { return math.Float32frombits(uint32(value(a))) }
	for steps := 0; ; steps++ {
		require.Less(t, steps, 1<<20, "endless loop")
		in := k.code[th.pc]
		th.pc++
		if in.guard != "" && value(in.guard) == 0 {
			continue
		}
		width := in.op[len(in.op)-1]
		set := func(v uint64) {
			if width == "u32" || width == "f32" {
				v = uint64(uint32(v))
			}
			th.regs[in.args[0]] = v
		}
		switch strings.Join(in.op[:min(2, len(in.op))], ".") {
		case "ld.param":
			name := strings.Trim(in.args[1], "[]")
			for i, p := range k.params {
				if p == name {
					bits, _ := strconv.Atoi(width[1:])
					require.Equal(t, k.sizes[p]*8, bits, name)
					set(args[i])
				}
			}
		case "ld.global":
			a := value(strings.Trim(in.args[1], "[]"))
			set(uint64(binary.LittleEndian.Uint32(memory[a:])))
		case "st.global":
			a := value(strings.Trim(in.args[0], "[]"))
			binary.LittleEndian.PutUint32(memory[a:], uint32(value(in.args[1])))
		case "ld.shared":
			set(uint64(binary.LittleEndian.Uint32(shared[value(strings.Trim(in.args[1], "[]")):])))
		case "st.shared":
			binary.LittleEndian.PutUint32(shared[value(strings.Trim(in.args[0], "[]")):], uint32(value(in.args[1])))
		case "mov.u32", "mov.u64", "mov.f32", "cvta.to":
			set(value(in.args[1]))
		case "add.u32", "add.u64":
			set(value(in.args[1]) + value(in.args[2]))
		case "sub.u64":
			set(value(in.args[1]) - value(in.args[2]))
		case "mad.lo":
			set(value(in.args[1])*value(in.args[2]) + value(in.args[3]))
		case "mul.wide":
			th.regs[in.args[0]] = uint64(uint32(value(in.args[1]))) * uint64(uint32(value(in.args[2])))
		case "fma.rn":
			set(uint64(math.Float32bits(fused(f(in.args[1]), f(in.args[2]), f(in.args[3])))))
		case "setp.ge", "setp.lt":
			a, b := value(in.args[1]), value(in.args[2])
			th.regs[in.args[0]] = 0
			if in.op[1] == "ge" && a >= b || in.op[1] == "lt" && a < b {
				th.regs[in.args[0]] = 1
			}
		case "bra":
			to, ok := k.labels[in.args[0]]
			require.True(t, ok, "no label %s", in.args[0])
			th.pc = to
		case "bar.sync":
			return
		case "ret":
			th.done = true
			return
		default:
			require.Fail(t, "unknown instruction", strings.Join(in.op, "."))
		}
	}
}

func floats(memory []byte, at, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(memory[at+4*i:]))
	}
	return out
}

func TestKernelsCompute(t *testing.T) {
	k := parsePTX(t, PTX)
	require.ElementsMatch(t, []string{"copy", "saxpy", "matmul", "spin"}, keys(k))

	const n, base = 600, 64 // not a multiple of the block
	memory := make([]byte, base+3*4*n+64)
	a, b, c := base, base+4*n, base+8*n
	put := func(at int, v float32) { binary.LittleEndian.PutUint32(memory[at:], math.Float32bits(v)) }
	for i := range n {
		put(a+4*i, float32(i)/8)
		put(b+4*i, float32(-i)/16)
	}
	before := floats(memory, b, n)
	k["copy"].launch(t, memory, [2]uint32{3, 1}, [2]uint32{threads, 1}, uint64(c), uint64(a), n)
	require.Equal(t, floats(memory, a, n), floats(memory, c, n))
	require.Equal(t, make([]byte, 64), memory[base+3*4*n:], "nothing behind the end is written")
	k["saxpy"].launch(t, memory, [2]uint32{3, 1}, [2]uint32{threads, 1}, uint64(b), uint64(a),
		uint64(math.Float32bits(0.75)), n)
	for i, v := range floats(memory, b, n) {
		require.Equal(t, 0.75*float32(i)/8+before[i], v)
	}
}

func TestMatmulKernelComputes(t *testing.T) {
	k := parsePTX(t, PTX)["matmul"]
	require.EqualValues(t, 2048, k.size)
	for _, n := range []int{16, 48} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			memory := make([]byte, 3*4*n*n)
			a, b, c := 0, 4*n*n, 8*n*n
			for i := range n * n {
				binary.LittleEndian.PutUint32(memory[a+4*i:], math.Float32bits(float32(i%13-6)/8))
				binary.LittleEndian.PutUint32(memory[b+4*i:], math.Float32bits(float32(i%17-8)/16))
			}
			blocks := uint32(n / Tile)
			k.launch(t, memory, [2]uint32{blocks, blocks}, [2]uint32{Tile, Tile}, uint64(c), uint64(a), uint64(b), uint64(n))
			va, vb := floats(memory, a, n*n), floats(memory, b, n*n)
			for i, v := range floats(memory, c, n*n) {
				var want float64 // exact: all products are small multiples of 1/128
				for j := range n {
					want += float64(va[i/n*n+j]) * float64(vb[j*n+i%n])
				}
				require.Equal(t, want, float64(v), "element %d", i)
			}
		})
	}
}

func TestPTXIsASCIIAndNamesItsTarget(t *testing.T) {
	for i, c := range []byte(PTX) {
		require.Less(t, c, byte(128), "byte %d", i)
	}
	require.Contains(t, PTX, "\n.version 6.0\n.target sm_70\n.address_size 64\n")
}

func keys[V any](m map[string]V) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// fused returns a x + y as fma.rn.f32 does: the product of two float32 is exact in float64.
func fused(a, x, y float32) float32 { return float32(math.FMA(float64(a), float64(x), float64(y))) }
