// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func field(n protowire.Number, v ...[]byte) (b []byte) {
	for _, x := range v {
		b = protowire.AppendTag(b, n, protowire.BytesType)
		b = protowire.AppendBytes(b, x)
	}
	return b
}

func join(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// pod returns a PodResources message with one container that has devices of one resource.
func pod(namespace, name, container, resource string, ids ...string) []byte {
	devices := field(1, []byte(resource))
	for _, id := range ids {
		devices = append(devices, field(2, []byte(id))...)
	}
	devices = append(devices, field(3, field(1, nil))...) // topology
	cpus := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 7)
	return field(1, join(field(1, []byte(name)), field(2, []byte(namespace)),
		field(3, join(field(1, []byte(container)), field(2, devices), cpus))))
}

// serve runs a kubelet that responds with b, and returns its socket.
func serve(t *testing.T, b func() []byte) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "k.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "v1.PodResourcesLister", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "List", Handler: func(_ any, _ context.Context, decode func(any) error,
			_ grpc.UnaryServerInterceptor,
		) (any, error) {
			var answer emptypb.Empty
			answer.ProtoReflect().SetUnknown(b())
			return &answer, decode(&emptypb.Empty{})
		}}},
	}, nil)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return socket
}

func list(t *testing.T, socket string) (*Devices, error) {
	t.Helper()
	c, err := New(socket)
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.List(ctx)
}

func TestOwnersAreFoundByEverySpellingOfADevice(t *testing.T) {
	socket := serve(t, func() []byte {
		return join(
			pod("ml", "train-0", "trainer", "nvidia.com/gpu", "GPU-AA", "GPU-bb"),
			pod("ml", "serve-0", "server", "nvidia.com/mig-1g.10gb", "MIG-cc"),
			pod("gke", "a", "main", "nvidia.com/gpu", "nvidia3"),
			pod("gke", "b", "main", "nvidia.com/gpu", "nvidia4/gi7"),
			pod("x", "shared-0", "s", "nvidia.com/gpu", "GPU-dd::0", "GPU-dd::1"),
			pod("x", "shared-1", "s", "nvidia.com/gpu", "GPU-ee::0"),
			pod("x", "shared-2", "s", "nvidia.com/gpu", "GPU-ee::1"),
			pod("x", "nic", "s", "rdma/hca", "GPU-ff"),
		)
	})
	d, err := list(t, socket)
	require.NoError(t, err)
	for _, tc := range []struct {
		dev  gpusamplesextension.Device
		want Pod
	}{
		{gpusamplesextension.Device{ID: "GPU-aa", Name: "gpu0"}, Pod{"ml", "train-0", "trainer"}},
		{gpusamplesextension.Device{ID: "GPU-bb"}, Pod{"ml", "train-0", "trainer"}},
		{gpusamplesextension.Device{ID: "MIG-cc"}, Pod{"ml", "serve-0", "server"}},
		{gpusamplesextension.Device{ID: "GPU-x", Name: "gpu3"}, Pod{"gke", "a", "main"}},
		{gpusamplesextension.Device{ID: "MIG-x", Name: "gpu4:7/0"}, Pod{"gke", "b", "main"}},
		{gpusamplesextension.Device{ID: "GPU-dd"}, Pod{"x", "shared-0", "s"}},
	} {
		got, ok := d.Owner(&tc.dev)
		assert.True(t, ok, tc.dev.ID)
		assert.Equal(t, tc.want, got)
	}
	for _, id := range []string{"GPU-ee", "GPU-ff", "GPU-unknown"} {
		_, ok := d.Owner(&gpusamplesextension.Device{ID: id})
		assert.False(t, ok, "%s is shared or not in use", id)
	}
	_, ok := (*Devices)(nil).Owner(&gpusamplesextension.Device{ID: "GPU-aa"})
	assert.False(t, ok)
}

func TestErrorsNameTheirSource(t *testing.T) {
	_, err := list(t, filepath.Join(t.TempDir(), "absent.sock"))
	require.ErrorContains(t, err, "cannot list pods at the kubelet: ")
	require.ErrorContains(t, err, "no such file or directory")
	_, err = list(t, serve(t, func() []byte { return []byte{0x0a, 0xff} }))
	require.ErrorContains(t, err, "cannot list pods at the kubelet: ")
	require.ErrorContains(t, err, "cannot parse invalid wire-format data")
	_, err = list(t, serve(t, func() []byte { return field(1, []byte{0x0a, 0xff}) }))
	require.ErrorContains(t, err, "cannot read the kubelet's response: ")
}

func FuzzParse(f *testing.F) {
	f.Add(pod("ml", "train-0", "trainer", "nvidia.com/gpu", "GPU-AA", "nvidia4/gi7"))
	f.Add([]byte{0x0a, 0xff})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := parse(b); err == nil {
			_, _ = d.Owner(&gpusamplesextension.Device{ID: "GPU-aa", Name: "gpu4:7/0"})
		}
	})
}
