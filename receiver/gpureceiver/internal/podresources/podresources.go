// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package podresources queries the kubelet for the pods that use devices, by its pod-resources API
// (v1, stable since Kubernetes 1.28) on a unix socket of the node.
//
// The API is one call with an empty request. The few fields of the response that are needed are
// read with protowire, because the generated types would add the kubelet's module. A device
// plugin's devices are in the field devices; devices that dynamic resource allocation (DRA) gave to
// a claim of the pod are in dynamic_resources.
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

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// DefaultSocket is the kubelet's default socket.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

const (
	method = "/v1.PodResourcesLister/List"
	// maxAnswer bounds the size of a response: some hundred bytes for each device.
	maxAnswer = 16 << 20
)

// Client queries one kubelet.
type Client struct {
	conn   *grpc.ClientConn
	cdi    cdi
	slices *sliceReader // nil: not read
	failed error        // why not
}

// New returns a client of the socket, which also reads the cluster's resource slices if withSlices is
// true; it connects with the first call.
func New(socket string, withSlices bool) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("cannot use kubelet socket %q: %w", socket, err)
	}
	c := &Client{conn: conn, cdi: cdi{cdiFolder, migMinors, drmFolder}}
	if withSlices {
		c.slices, c.failed = newSliceReader()
	}
	return c, nil
}

// List returns the devices that are in use.
func (c *Client) List(ctx context.Context) (*Devices, error) {
	var answer emptypb.Empty // which keeps fields that it does not know
	if err := c.conn.Invoke(ctx, method, &emptypb.Empty{}, &answer); err != nil {
		return nil, fmt.Errorf("cannot list pods at the kubelet: %w", err)
	}
	d, err := parse(answer.ProtoReflect().GetUnknown(), c.cdi.devices, func(d sliceDevice) []string {
		return c.slices.of(ctx, d)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubelet's response: %w", err)
	}
	return d, nil
}

// SlicesError returns why resource slices could not be read; nil if they were, or were not needed.
func (c *Client) SlicesError() error {
	if c.slices == nil {
		return c.failed
	}
	return c.slices.err
}

// Close ends the connection.
func (c *Client) Close() error {
	if c.slices != nil {
		c.slices.client.CloseIdleConnections()
	}
	return c.conn.Close()
}

// Pod is a container of a pod that uses a device.
type Pod struct{ Namespace, Name, Container string }

// Devices maps devices to containers. Nil is empty.
type Devices struct {
	owners     map[string][]Pod // by key
	containers []Pod            // that have a claim of a GPU driver
}

// NewDevices returns one owner for each device plugin's ID.
func NewDevices(owners map[string]Pod) *Devices {
	d := &Devices{owners: map[string][]Pod{}}
	for id, p := range owners {
		d.add(key(id), p)
	}
	return d
}

// Owners returns the containers that use a device: several if it is shared. alike returns how many
// instances of the same profile its physical GPU has; a claim names its instance by profile and
// position, of which only the profile is known without privileges. The slice is not changed later.
func (d *Devices) Owners(dev *devicesamples.Device, alike func() int) []Pod {
	if d == nil {
		return nil
	}
	file, pci := deviceFile(dev), ""
	if dev.Parent == "" {
		pci = pciKey(dev.PCIBDF)
	}
	for _, key := range [...]string{devicesamples.NormalizeID(dev.ID), file, pci} {
		if pods := d.owners[key]; len(pods) > 0 {
			return pods
		}
	}
	if board, _, ok := strings.Cut(file, "/"); ok && dev.Profile != "" {
		if pods := d.owners[board+"/mig/"+letters(dev.Profile)]; len(pods) > 0 && alike() == 1 {
			return pods
		}
	}
	return nil
}

// Claimants returns the containers that have a claim of a GPU driver.
func (d *Devices) Claimants() []Pod {
	if d == nil {
		return nil
	}
	return d.containers
}

// deviceFile returns the device's file without /dev/, followed by the number of a MIG instance. A
// source that does not know it numbers devices as the driver does, unless the driver skips minor
// numbers.
func deviceFile(dev *devicesamples.Device) string {
	if dev.DeviceFile != "" {
		return dev.DeviceFile
	}
	name, ok := strings.CutPrefix(dev.Name, "gpu")
	if !ok {
		return ""
	}
	board, instance, ok := strings.Cut(name, ":")
	if !ok {
		return "nvidia" + board
	}
	instance, _, _ = strings.Cut(instance, "/")
	return "nvidia" + board + "/gi" + instance
}

// key returns the device of a device plugin's ID: a UUID, with the number of the replica where the
// device is shared ("GPU-…::2"), or on GKE a device file ("nvidia0", "nvidia0/gi3") with the same
// for shared ones ("nvidia0/vgpu2").
func key(id string) string {
	id, _, _ = strings.Cut(id, "::")
	if !strings.HasPrefix(id, "nvidia") {
		return devicesamples.NormalizeID(id)
	}
	id, _, _ = strings.Cut(id, "/vgpu")
	return id
}

// pluginKey returns the device of a device plugin's resource and ID; empty for other resources. AMD's
// plugin names PCI addresses, Intel's names device files, with the number of the share ("card1-0").
// Intel's monitoring resources give access to all devices and use none.
func pluginKey(resource, id string) string {
	switch vendor, kind, _ := strings.Cut(resource, "/"); {
	case vendor == "nvidia.com":
		return key(id)
	case vendor == "amd.com":
		return pciKey(id)
	case vendor == "gpu.intel.com" && !strings.HasSuffix(kind, "_monitoring"):
		file, _, _ := strings.Cut(id, "-")
		return file
	}
	return ""
}

// pciKey returns the key of a PCI address; empty if it is none.
func pciKey(address string) string {
	if strings.Count(address, ":") != 2 {
		return ""
	}
	return "pci/" + devicesamples.NormalizePCI(address)
}

// intelClaimed returns the device that Intel's DRA driver names by its PCI address with dashes and its
// model ("0000-03-00-0-0x56a0").
func intelClaimed(name string) string {
	parts := strings.Split(name, "-")
	if len(parts) < 4 {
		return ""
	}
	return pciKey(parts[0] + ":" + parts[1] + ":" + parts[2] + "." + parts[3])
}

// claimed returns the device that NVIDIA's DRA driver names gpu-<minor number>, gpu-<minor
// number>-mig-<profile without punctuation>-<number of the profile>-<position>, or gpu-<UUID>;
// empty for other names.
func claimed(name string) string {
	rest, ok := strings.CutPrefix(name, "gpu-")
	if !ok {
		return ""
	}
	if len(rest) == len("00000000-0000-0000-0000-000000000000") {
		return devicesamples.NormalizeID(rest)
	}
	minor, instance, divided := strings.Cut(rest, "-mig-")
	if minor == "" || strings.Trim(minor, "0123456789") != "" {
		return ""
	}
	if !divided {
		return "nvidia" + minor
	}
	profile, _, _ := strings.Cut(instance, "-")
	return "nvidia" + minor + "/mig/" + letters(profile)
}

// letters returns the letters and digits of a MIG profile: "1g.10gb+me" and "1g10gbme" are the
// same.
func letters(profile string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(profile))
}

// parse reads an answer: its pods (field 1), each with its name (1), namespace (2) and containers
// (3); of a container its name (1), devices (2) and dynamic resources (5); of devices the resource
// (1) and the IDs (2), of dynamic resources the claims' resources (4), each with its CDI devices (1),
// driver (2), pool (3) and device (4). claims returns the keys of CDI devices by name, slice the keys
// of a driver's device.
func parse(b []byte, claims func() map[string][]string, slice func(sliceDevice) []string) (*Devices, error) {
	d := &Devices{owners: map[string][]Pod{}}
	var known map[string][]string // read only if there is a claim
	answer, err := read(b)
	if err != nil {
		return nil, err
	}
	err = answer.each(1, func(pod fields) error {
		return pod.each(3, func(container fields) error {
			p := Pod{Name: pod.text(1), Namespace: pod.text(2), Container: container.text(1)}
			err := container.each(2, func(device fields) error {
				for _, id := range device[2] {
					if key := pluginKey(device.text(1), string(id)); key != "" {
						d.add(key, p)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			return container.each(5, func(claim fields) error {
				return claim.each(4, func(resource fields) error {
					if known == nil {
						known = claims()
					}
					keys := slice(sliceDevice{resource.text(2), resource.text(3), resource.text(4)})
					if len(keys) > 0 {
						d.AddClaim(resource.text(2), resource.text(4), p, keys...)
						return nil
					}
					err := resource.each(1, func(device fields) error {
						keys = append(keys, known[device.text(1)]...)
						return nil
					})
					d.AddClaim(resource.text(2), resource.text(4), p, keys...)
					return err
				})
			})
		})
	})
	return d, err
}

// AddClaim notes a claim of a driver's device, with the keys of its device files if they are known.
// The DRA drivers of GPUs are named gpu.<vendor>; others allocate network cards or compute domains.
// AMD's driver numbers cards, whose device is known by their files or resource slices only.
func (d *Devices) AddClaim(driver, device string, p Pod, keys ...string) {
	vendor, ok := strings.CutPrefix(driver, "gpu.")
	if !ok {
		return
	}
	if !slices.Contains(d.containers, p) {
		d.containers = append(d.containers, p)
	}
	for _, key := range keys {
		d.add(key, p)
	}
	if len(keys) > 0 {
		return
	}
	key := ""
	switch vendor {
	case "nvidia.com":
		key = claimed(device)
	case "intel.com":
		key = intelClaimed(device)
	}
	if key != "" {
		d.add(key, p)
	}
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
