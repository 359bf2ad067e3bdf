// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor"
)

// load is the load that a Collector is sized for.
type load struct {
	spans   float64 // GPU spans per second
	bytes   float64 // OTLP bytes per span
	devices int
	settle  time.Duration
}

// size is the size that a load requires. docs/operating.md has the formula and the sources of the constants.
type size struct {
	queue, maxSpans     int64
	held, samples, heap int64 // bytes
	cores               float64
}

const (
	onTheWay   = time.Second // from a span's end to its arrival, because requests are exported when they are full
	bursts     = 1.25
	cpuPerSpan = 18e-6      // core seconds
	deviceHeap = 17e6 / 8.0 // samples of a device, 16 fields at 10 Hz
	baseHeap   = 40e6
)

func (l load) size() size {
	waiting := l.spans * (l.settle + onTheWay).Seconds() * bursts
	s := size{
		queue:    int64(math.Ceil(waiting * l.bytes)),
		maxSpans: int64(math.Ceil(waiting)),
		held:     int64(math.Ceil(waiting / bursts * gpujoinprocessor.HeldSpanBytes)),
		samples:  int64(deviceHeap * float64(l.devices)),
		cores:    l.spans * cpuPerSpan,
	}
	s.heap = s.held + s.samples + baseHeap
	return s
}

// limit returns the heap that the garbage collector needs for a live heap at an acceptable cost.
func (s size) limit() int64 { return s.heap / 2 * 3 }

func (l load) print(w io.Writer) error {
	const mib = 1 << 20
	up := func(bytes int64) int64 { return (bytes + mib - 1) / mib }
	s := l.size()
	_, err := fmt.Fprintf(w, `gpu_join:
  queue:
    size: %d    # %d MiB
  max_spans: %d
  settle: %s

memory: %d MiB live heap (%d MiB of held spans, %d MiB of device samples)
memory_limiter: limit_mib: %d, spike_limit_mib: 128
CPU: %.1f cores (measure on your machine; 18 µs per span, OTLP in to OTLP out)
`, up(s.queue)*mib, up(s.queue), s.maxSpans, l.settle, up(s.heap), up(s.held), up(s.samples),
		up(s.limit())+128, s.cores)
	return err
}

func newSizeCommand() *cobra.Command {
	join := gpujoinprocessor.NewFactory().CreateDefaultConfig().(*gpujoinprocessor.Config)
	l := load{bytes: 375, devices: 1, settle: join.Settle}
	cmd := &cobra.Command{
		Use:   "size --spans RATE",
		Short: "Compute the queue, memory and CPU for a rate of GPU spans",
		Long: "Compute the gpu_join settings, memory and CPU for a rate of GPU spans. docs/operating.md explains the\n" +
			"formula.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !(l.spans > 0) || math.IsInf(l.spans, 0):
				return fmt.Errorf("--spans must be a positive number of GPU spans per second, found %g", l.spans)
			case !(l.bytes > 0) || math.IsInf(l.bytes, 0):
				return fmt.Errorf("--span-bytes must be a positive number, found %g", l.bytes)
			case l.devices < 0:
				return fmt.Errorf("--devices must not be negative, found %d", l.devices)
			case l.settle < 0:
				return fmt.Errorf("--settle must not be negative, found %s", l.settle)
			case l.spans*l.bytes*(l.settle+onTheWay).Seconds() > 1<<50:
				return errors.New("the load is too large for one Collector (lower --spans or --span-bytes)")
			}
			return l.print(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.Float64Var(&l.spans, "spans", 0, "GPU spans per second (required)")
	f.Float64Var(&l.bytes, "span-bytes", l.bytes, "mean size of a span as OTLP protobuf")
	f.IntVar(&l.devices, "devices", l.devices, "number of sampled devices")
	f.DurationVar(&l.settle, "settle", l.settle, "settle delay of gpu_join")
	return cmd
}
