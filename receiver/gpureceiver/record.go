// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/recording"
)

// RecordSettings configure [Record].
type RecordSettings struct {
	// Config selects the source, as for the receiver; metrics and samples are ignored. Required.
	Config *Config
	// Logger receives the log records of the source. Default: none.
	Logger *zap.Logger
}

// RecordSummary is the result of [Record].
type RecordSummary struct {
	Source  string // first source that answered
	Devices int    // number of its devices at that time
	Lines   int64  // samples and events written
}

// Record writes every sample of a source to w, in the format of the `replay` source, until ctx is
// done. It returns an error if the configuration is invalid, if the source cannot be opened
// initially, and if w fails; a source that fails later is reopened.
func Record(ctx context.Context, set RecordSettings, w io.Writer) (RecordSummary, error) {
	if err := set.Config.Validate(); err != nil {
		return RecordSummary{}, err
	}
	set.Logger = cmp.Or(set.Logger, zap.NewNop())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &recorder{out: w, logger: set.Logger, interval: set.Config.SamplingInterval, stop: cancel}
	_ = newEngine(set.Config, newSources(set.Config, nil), r).run(ctx)
	if r.w != nil {
		r.fail(r.w.Close())
		r.summary.Lines = r.w.Lines
	}
	return r.summary, r.err
}

// recorder is the handler that writes.
type recorder struct {
	out      io.Writer
	w        *recording.Writer
	logger   *zap.Logger
	interval time.Duration
	stop     context.CancelCauseFunc
	summary  RecordSummary
	err      error
}

func (r *recorder) fail(err error) {
	if err != nil && r.err == nil {
		r.err = err
		r.stop(err)
	}
}

func (r *recorder) opened(source string, devices []devicesamples.Device, _ error) {
	r.logger.Info("GPU source opened", zap.String("source", source), zap.Int("devices", len(devices)))
	if r.w == nil {
		name, _ := os.Hostname()
		w, err := recording.NewWriter(r.out, recording.Header{
			Source: source, Host: name, Start: time.Now().UnixNano(), Interval: int64(r.interval),
		})
		r.w, r.summary.Source, r.summary.Devices = w, source, len(devices)
		r.fail(err)
	}
	if r.w != nil {
		r.fail(r.w.Devices(devices))
	}
}

func (r *recorder) read(_ string, devices []devicesamples.Device, b *gpudata.Batch, _ time.Duration) {
	if r.err != nil {
		return
	}
	if b.Changed {
		r.fail(r.w.Devices(devices))
	}
	r.fail(r.w.Batch(b))
}

func (r *recorder) late(source, op string) {
	r.logger.Warn("GPU source does not respond", zap.String("source", source), zap.String("call", op))
}

func (r *recorder) lost(source string, err error) {
	r.logger.Warn("GPU source lost", zap.String("source", source), zap.Error(err))
}

func (r *recorder) unavailable(err error, _ time.Duration) {
	if r.w == nil {
		r.fail(errors.Join(errors.New("nothing to record"), err))
		return
	}
	r.logger.Warn("cannot reopen GPU source yet", zap.Error(err))
}

func (r *recorder) finished(string) {}
