// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
)

// Pod is a container of a pod that holds a device.
type Pod struct{ Namespace, Name, Container string }

// Devices is who holds what. Nil holds nothing.
type Devices struct {
	owners     map[string][]Pod // by key
	containers []Pod
}

// NewDevices is one owner for each device plugin's ID.
func NewDevices(owners map[string]Pod) *Devices {
	d := &Devices{owners: map[string][]Pod{}}
	for id, p := range owners {
		d.add(key(id), p)
		d.containers = append(d.containers, p)
	}
	return d
}

// Owner is the container that holds a device; false when none does, or several share it.
func (d *Devices) Owner(dev *gpusamplesextension.Device) (Pod, bool) {
	if pods := d.Owners(dev); len(pods) == 1 {
		return pods[0], true
	}
	return Pod{}, false
}

// Owners are the containers that hold a device: several where it is shared. The slice is not changed later.
func (d *Devices) Owners(dev *gpusamplesextension.Device) []Pod {
	if d == nil {
		return nil
	}
	for _, key := range [...]string{gpusamplesextension.NormalizeID(dev.ID), dev.Name} {
		if pods := d.owners[key]; len(pods) > 0 {
			return pods
		}
	}
	return nil
}

// Containers are all that the kubelet lists, also those without a device.
func (d *Devices) Containers() []Pod {
	if d == nil {
		return nil
	}
	return d.containers
}

// key is the device of a device plugin's ID: a UUID, with the number of the replica where the device is shared
// ("GPU-…::2"), or on GKE a device file ("nvidia0", "nvidia0/gi3") with the same for shared ones ("nvidia0/vgpu2").
func key(id string) string {
	id, _, _ = strings.Cut(id, "::")
	rest, ok := strings.CutPrefix(id, "nvidia")
	if !ok {
		return gpusamplesextension.NormalizeID(id)
	}
	board, part, _ := strings.Cut(rest, "/")
	if instance, ok := strings.CutPrefix(part, "gi"); ok {
		instance, _, _ = strings.Cut(instance, "/")
		return "gpu" + board + ":" + instance + "/0"
	}
	return "gpu" + board
}

// Field numbers of the API.
const (
	answerPods         = 1
	podName            = 1
	podNamespace       = 2
	podContainers      = 3
	containerName      = 1
	containerDevices   = 2
	devicesResource    = 1
	devicesIDs         = 2
	nvidiaResourceHead = "nvidia.com/"
)

func parse(b []byte) (*Devices, error) {
	d := &Devices{owners: map[string][]Pod{}}
	err := each(b, func(field protowire.Number, pod []byte) error {
		if field != answerPods {
			return nil
		}
		return d.pod(pod)
	})
	return d, err
}

func (d *Devices) pod(b []byte) error {
	var p Pod
	var containers [][]byte
	err := each(b, func(field protowire.Number, v []byte) error {
		switch field {
		case podName:
			p.Name = string(v)
		case podNamespace:
			p.Namespace = string(v)
		case podContainers:
			containers = append(containers, v)
		}
		return nil
	})
	for _, c := range containers {
		if err == nil {
			err = d.container(p, c)
		}
	}
	return err
}

func (d *Devices) container(p Pod, b []byte) error {
	var devices [][]byte
	err := each(b, func(field protowire.Number, v []byte) error {
		switch field {
		case containerName:
			p.Container = string(v)
		case containerDevices:
			devices = append(devices, v)
		}
		return nil
	})
	if err == nil {
		d.containers = append(d.containers, p)
	}
	for _, x := range devices {
		if err != nil {
			return err
		}
		var resource string
		var ids []string
		err = each(x, func(field protowire.Number, v []byte) error {
			switch field {
			case devicesResource:
				resource = string(v)
			case devicesIDs:
				ids = append(ids, string(v))
			}
			return nil
		})
		if !strings.HasPrefix(resource, nvidiaResourceHead) {
			continue
		}
		for _, id := range ids {
			d.add(key(id), p)
		}
	}
	return err
}

// add notes an owner once: a container can hold several replicas of one device.
func (d *Devices) add(key string, p Pod) {
	if !slices.Contains(d.owners[key], p) {
		d.owners[key] = append(d.owners[key], p)
	}
}

// each calls fn for every field of a message that has a length: strings and messages.
func each(b []byte, fn func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := fn(field, v); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
