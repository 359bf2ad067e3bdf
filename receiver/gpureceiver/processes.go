// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processes"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processmeter"
)

// processReader measures what each process uses, in its own goroutine: a driver that hangs must
// not stop the samples.
type processReader struct {
	meter  *processmeter.Meter
	source gpudata.ProcessSource // nil: only the processes that the source of the values lists
	set    ProcessesConfig
	retry  time.Duration
	log    *zap.Logger
	faults *operationalEvents
	done   chan struct{}

	// Of its goroutine only.
	opened   bool
	tried    time.Time
	reported map[string]bool // what was logged
	listed   time.Time
	used     time.Time // when uses was called

	// uses receives the processes that have a context, if the source of the values does not list
	// them.
	uses func([]devicesamples.DeviceUse)
}

const (
	// listEvery is the time between two lists of the processes that have a context.
	listEvery = time.Second
	// usesEvery is the time between two lists of them in gpu_samples.
	usesEvery = 10 * time.Second
)

func newProcessReader(
	cfg *Config, host *processes.Host, source gpudata.ProcessSource, shares devicesamples.ShareWriter,
	faults *operationalEvents, log *zap.Logger,
) *processReader {
	return &processReader{
		meter: processmeter.New(host, cfg.Processes.MaxPerDevice, shares), source: source, set: cfg.Processes,
		retry: cfg.RetryInterval, log: log, faults: faults, done: make(chan struct{}), reported: map[string]bool{},
	}
}

// run reads until the context ends.
func (p *processReader) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(p.set.Interval)
	defer ticker.Stop()
	for {
		p.read(time.Now())
		select {
		case <-ctx.Done():
			p.close()
			return
		case <-ticker.C:
		}
	}
}

func (p *processReader) close() {
	if p.opened {
		_ = p.source.Close()
		p.opened = false
	}
}

// wait waits for the end of run, unless a call of the driver hangs.
func (p *processReader) wait() {
	select {
	case <-p.done:
	case <-time.After(pendingTimeout):
	}
}

func (p *processReader) read(now time.Time) {
	if p.open(now) {
		list := now.Sub(p.listed) >= listEvery || p.meter.Unlisted()
		uses, err := p.source.Read(p.meter.Since, list)
		if err != nil {
			p.close()
		}
		if list {
			p.listed = now
		}
		for i := range uses {
			u := &uses[i]
			if list {
				p.meter.Running(u.Time, u.Running, u.Device)
			}
			if !u.Reported {
				p.once("equal", "The driver does not report the utilization of each process on some GPUs (with MIG, or in virtual "+
					"machines), so that processes that share one of them or an instance get equal parts of its energy")
			}
			p.meter.Use(u)
			p.faults.put(u)
		}
		if list && err == nil && p.uses != nil && now.Sub(p.used) >= usesEvery {
			p.used = now
			p.uses(p.meter.Uses())
		}
	}
	p.meter.Divide(now.UnixNano())
}

// open opens the source if it is time for it, and reports whether it is open.
func (p *processReader) open(now time.Time) bool {
	if p.opened || p.source == nil || now.Sub(p.tried) < p.retry {
		return p.opened
	}
	p.tried = now
	err := p.source.Open()
	if p.opened = err == nil; !p.opened {
		p.faults.set(false)
	}
	if !p.opened && !errors.Is(err, gpudata.ErrUnavailable) {
		p.once("open", "Processes that share a GPU get equal parts of its energy (give the Collector access to the NVIDIA "+
			"driver's library libnvidia-ml.so.1)", zap.Error(err))
	}
	return p.opened
}

// once logs a message once.
func (p *processReader) once(key, message string, fields ...zap.Field) {
	if !p.reported[key] {
		p.reported[key] = true
		p.log.Info(message, fields...)
	}
}

// list passes the processes that the source of the values lists.
func (p *processReader) list(devices []devicesamples.Device, b *gpudata.Batch) {
	if b.Listed == 0 || len(devices) == 0 {
		return
	}
	var boards []string
	for i := range devices {
		if devices[i].Parent == "" {
			boards = append(boards, devices[i].ID)
		}
	}
	p.meter.Running(b.Listed, b.Processes, boards...)
}
