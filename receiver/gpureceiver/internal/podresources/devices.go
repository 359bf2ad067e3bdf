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

// parse reads an answer: its pods (field 1), each with its name (1), namespace (2) and containers (3); of a container its
// name (1) and devices (2), and of these the resource (1) and the IDs (2).
func parse(b []byte) (*Devices, error) {
	d := &Devices{owners: map[string][]Pod{}}
	answer, err := read(b)
	if err != nil {
		return nil, err
	}
	err = answer.each(1, func(pod fields) error {
		return pod.each(3, func(container fields) error {
			p := Pod{Name: pod.text(1), Namespace: pod.text(2), Container: container.text(1)}
			d.containers = append(d.containers, p)
			return container.each(2, func(device fields) error {
				if strings.HasPrefix(device.text(1), "nvidia.com/") {
					for _, id := range device[2] {
						d.add(key(string(id)), p)
					}
				}
				return nil
			})
		})
	})
	return d, err
}

// add notes an owner once: a container can hold several replicas of one device.
func (d *Devices) add(key string, p Pod) {
	if !slices.Contains(d.owners[key], p) {
		d.owners[key] = append(d.owners[key], p)
	}
}

// fields are those of a message that have a length, strings and messages, by number.
type fields map[protowire.Number][][]byte

func (f fields) text(number protowire.Number) string {
	if values := f[number]; len(values) > 0 {
		return string(values[len(values)-1])
	}
	return ""
}

// each calls fn for every message of a number.
func (f fields) each(number protowire.Number, fn func(fields) error) error {
	for _, b := range f[number] {
		below, err := read(b)
		if err == nil {
			err = fn(below)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func read(b []byte) (fields, error) {
	f := fields{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return nil, protowire.ParseError(n)
		}
		if kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			f[number] = append(f[number], v)
		}
		b = b[n:]
	}
	return f, nil
}
