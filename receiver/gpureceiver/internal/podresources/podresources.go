// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package podresources queries the kubelet for the pods that use devices, by its pod-resources API (v1, stable since
// Kubernetes 1.28) on a unix socket of the node.
//
// The API is one call with an empty request; four names of the response are needed. They are read with protowire,
// because the generated types would add the kubelet's module.
package podresources

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
)

// DefaultSocket is the kubelet's default socket.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

const (
	method = "/v1.PodResourcesLister/List"
	// maxAnswer bounds the size of a response: some hundred bytes for each device.
	maxAnswer = 16 << 20
)

// Client queries one kubelet.
type Client struct{ conn *grpc.ClientConn }

// New returns a client of the socket; it connects with the first call.
func New(socket string) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("cannot use kubelet socket %q: %w", socket, err)
	}
	return &Client{conn}, nil
}

// List returns the devices that are in use.
func (c *Client) List(ctx context.Context) (*Devices, error) {
	var answer emptypb.Empty // which keeps fields that it does not know
	if err := c.conn.Invoke(ctx, method, &emptypb.Empty{}, &answer); err != nil {
		return nil, fmt.Errorf("cannot list pods at the kubelet: %w", err)
	}
	d, err := parse(answer.ProtoReflect().GetUnknown())
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubelet's response: %w", err)
	}
	return d, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Pod is a container of a pod that uses a device.
type Pod struct{ Namespace, Name, Container string }

// Devices maps devices to containers. Nil is empty.
type Devices struct {
	owners     map[string][]Pod // by key
	containers []Pod
}

// NewDevices returns one owner for each device plugin's ID.
func NewDevices(owners map[string]Pod) *Devices {
	d := &Devices{owners: map[string][]Pod{}}
	for id, p := range owners {
		d.add(key(id), p)
		d.containers = append(d.containers, p)
	}
	return d
}

// Owner returns the container that uses a device; false if none does, or several share it.
func (d *Devices) Owner(dev *gpusamplesextension.Device) (Pod, bool) {
	if pods := d.Owners(dev); len(pods) == 1 {
		return pods[0], true
	}
	return Pod{}, false
}

// Owners returns the containers that use a device: several if it is shared. The slice is not changed later.
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

// Containers returns all that the kubelet lists, including containers without a device.
func (d *Devices) Containers() []Pod {
	if d == nil {
		return nil
	}
	return d.containers
}

// key returns the device of a device plugin's ID: a UUID, with the number of the replica where the device is shared
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

// parse reads an answer: its pods (field 1), each with its name (1), namespace (2) and containers (3); of a container
// its name (1) and devices (2), and of these the resource (1) and the IDs (2).
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

// add notes an owner once: a container can use several replicas of one device.
func (d *Devices) add(key string, p Pod) {
	if !slices.Contains(d.owners[key], p) {
		d.owners[key] = append(d.owners[key], p)
	}
}

// fields are the fields of a message that have a length, strings and messages, by number.
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
