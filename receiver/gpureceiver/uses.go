// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
)

// podsTimeout is how long the kubelet may take for an answer.
const podsTimeout = 5 * time.Second

// followPods queries the kubelet for the users of devices, at every collection interval. While it
// does not respond, no pod is known to use any.
func (r *gpuReceiver) followPods(ctx context.Context, k *KubernetesConfig) {
	client, err := podresources.New(k.PodResources, k.ResourceSlices)
	if err != nil {
		r.set.Logger.Warn("Devices are not attributed to pods", zap.Error(err))
		return
	}
	defer func() { _ = client.Close() }()
	warned, slices := false, false
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
		if err := client.SlicesError(); err != nil && !slices {
			slices = true
			r.set.Logger.Warn("Devices of claims are resolved by files and names only", zap.Error(err))
		}
		if !sleep(ctx, r.cfg.CollectionInterval) {
			return
		}
	}
}

// origin identifies this receiver as a reader of device uses of a kind.
func (r *gpuReceiver) origin(kind devicesamples.UseKind) devicesamples.UseOrigin {
	return devicesamples.UseOrigin{Owner: r.id, Kind: kind, HostID: r.host.id, HostName: r.host.name}
}

// usesOfPods writes to gpu_samples which container uses which devices, and warns of claims whose
// device is unknown.
func (r *gpuReceiver) usesOfPods(pods *podresources.Devices) {
	uses := []devicesamples.DeviceUse{}
	resolved := map[podresources.Pod]bool{}
	r.mu.Lock()
	for id, d := range r.devices {
		for _, p := range pods.Owners(&d.desc, func() int { return r.alike(d) }) {
			resolved[p] = true
			uses = append(uses, devicesamples.DeviceUse{
				Device: id, Namespace: p.Namespace, Pod: p.Name, Container: p.Container,
			})
		}
	}
	r.mu.Unlock()
	for _, p := range pods.Claimants() {
		if !resolved[p] && !r.unresolved {
			r.unresolved = true
			r.set.Logger.Warn("The device of a claim is unknown, so that the pod is not known to use it (further ones are not "+
				"logged; mount the node's folder /var/run/cdi read-only, or spans find it by the process, or with hw.id)",
				zap.String("namespace", p.Namespace), zap.String("pod", p.Name), zap.String("container", p.Container))
		}
	}
	if r.samples != nil {
		r.samples.SetUses(r.origin(devicesamples.UsesOfPods), uses, r.cfg.CollectionInterval)
	}
}

// owner returns the container that uses a device; false if none does, or several share it. mu is
// held.
func (r *gpuReceiver) owner(pods *podresources.Devices, d *deviceState) (podresources.Pod, bool) {
	if list := pods.Owners(&d.desc, func() int { return r.alike(d) }); len(list) == 1 {
		return list[0], true
	}
	return podresources.Pod{}, false
}

// alike returns how many instances of a device's profile its physical GPU has; mu is held.
func (r *gpuReceiver) alike(d *deviceState) (n int) {
	for _, o := range r.devices {
		if o.desc.Parent == d.desc.Parent && o.desc.Profile == d.desc.Profile {
			n++
		}
	}
	return n
}

// usesOfProcesses writes to gpu_samples which process uses which devices. A physical GPU divided
// into MIG instances lists the processes of all of them, which identify their instance themselves.
func (r *gpuReceiver) usesOfProcesses(devices []devicesamples.Device, b *gpudata.Batch) {
	if r.samples == nil || b.Listed == 0 {
		return
	}
	cut := map[string]bool{}
	for i := range devices {
		cut[devices[i].Parent] = true
	}
	uses := make([]devicesamples.DeviceUse, 0, len(b.Processes))
	for _, p := range b.Processes {
		if cut[p.Device] {
			continue
		}
		f := r.processes.Of(p.PID)
		uses = append(uses, devicesamples.DeviceUse{
			Device: p.Device, PID: p.PID, LocalPID: f.LocalPID, PodUID: f.PodUID, ContainerID: f.ContainerID,
			Job: f.Job(), Parents: f.Parents,
		})
	}
	r.setProcessUses(uses)
}

func (r *gpuReceiver) setProcessUses(uses []devicesamples.DeviceUse) {
	r.samples.SetUses(r.origin(devicesamples.UsesOfProcesses), uses, max(r.cfg.CollectionInterval, usesEvery))
}

// forgetUses removes what this receiver wrote.
func (r *gpuReceiver) forgetUses() {
	if r.samples != nil {
		r.samples.SetUses(r.origin(devicesamples.UsesOfPods), nil, 0)
		r.samples.SetUses(r.origin(devicesamples.UsesOfProcesses), nil, 0)
	}
}
