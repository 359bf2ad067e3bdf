// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
)

// podsTimeout is how long the kubelet may take for an answer.
const podsTimeout = 5 * time.Second

// followPods queries the kubelet for the users of devices, at every collection interval. While it does not respond, no
// pod is known to use any.
func (r *gpuReceiver) followPods(ctx context.Context, socket string) {
	client, err := podresources.New(socket)
	if err != nil {
		r.set.Logger.Warn("Devices are not attributed to pods", zap.Error(err))
		return
	}
	defer func() { _ = client.Close() }()
	warned := false
	for {
		call, cancel := context.WithTimeout(ctx, podsTimeout)
		pods, err := client.List(call)
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.pods.Store(pods)
		if err == nil {
			r.usesOfPods(pods)
		} else if !warned {
			r.set.Logger.Warn("Devices are not attributed to pods", zap.Error(err))
		}
		warned = err != nil
		if !sleep(ctx, r.cfg.CollectionInterval) {
			return
		}
	}
}

// origin identifies this receiver as a reader of device uses of a kind.
func (r *gpuReceiver) origin(kind gpusamplesextension.UseKind) gpusamplesextension.UseOrigin {
	return gpusamplesextension.UseOrigin{Owner: r.id, Kind: kind, HostID: r.host.id, HostName: r.host.name}
}

// usesOfPods writes to gpu_samples which container uses which devices.
func (r *gpuReceiver) usesOfPods(pods *podresources.Devices) {
	if r.samples == nil {
		return
	}
	uses := []gpusamplesextension.DeviceUse{}
	r.mu.Lock()
	for id, d := range r.devices {
		for _, p := range pods.Owners(&d.desc) {
			uses = append(uses, gpusamplesextension.DeviceUse{
				Device: id, Namespace: p.Namespace, Pod: p.Name, Container: p.Container,
			})
		}
	}
	r.mu.Unlock()
	r.samples.SetUses(r.origin(gpusamplesextension.UsesOfPods), uses, r.cfg.CollectionInterval)
}

// usesOfProcesses writes to gpu_samples which process uses which devices. A physical GPU divided into MIG instances
// lists the processes of all of them, which identify their instance themselves.
func (r *gpuReceiver) usesOfProcesses(devices []gpusamplesextension.Device, b *gpudata.Batch) {
	if r.samples == nil || !b.Listed {
		return
	}
	cut := map[string]bool{}
	for i := range devices {
		cut[devices[i].Parent] = true
	}
	uses := make([]gpusamplesextension.DeviceUse, 0, len(b.Processes))
	for _, p := range b.Processes {
		if int(p.Device) >= len(devices) || cut[devices[p.Device].ID] {
			continue
		}
		f := r.processes.Of(p.PID)
		uses = append(uses, gpusamplesextension.DeviceUse{
			Device: devices[p.Device].ID, PID: p.PID, LocalPID: f.LocalPID, PodUID: f.PodUID, ContainerID: f.ContainerID,
			Parents: f.Parents,
		})
	}
	r.samples.SetUses(r.origin(gpusamplesextension.UsesOfProcesses), uses, max(r.cfg.CollectionInterval, 10*time.Second))
}

// forgetUses removes what this receiver wrote.
func (r *gpuReceiver) forgetUses() {
	if r.samples != nil {
		r.samples.SetUses(r.origin(gpusamplesextension.UsesOfPods), nil, 0)
		r.samples.SetUses(r.origin(gpusamplesextension.UsesOfProcesses), nil, 0)
	}
}
