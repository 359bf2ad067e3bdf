// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/recorded"
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
	c, err := New(socket, false)
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
		dev  devicesamples.Device
		want Pod
	}{
		{devicesamples.Device{ID: "GPU-aa", Name: "gpu0"}, Pod{"ml", "train-0", "trainer"}},
		{devicesamples.Device{ID: "GPU-bb"}, Pod{"ml", "train-0", "trainer"}},
		{devicesamples.Device{ID: "MIG-cc"}, Pod{"ml", "serve-0", "server"}},
		{devicesamples.Device{ID: "GPU-x", Name: "gpu3"}, Pod{"gke", "a", "main"}},
		{devicesamples.Device{ID: "MIG-x", Name: "gpu4:7/0"}, Pod{"gke", "b", "main"}},
		{devicesamples.Device{ID: "GPU-dd"}, Pod{"x", "shared-0", "s"}},
	} {
		assert.Equal(t, []Pod{tc.want}, d.Owners(&tc.dev, alone), tc.dev.ID)
	}
	assert.Len(t, d.Owners(&devicesamples.Device{ID: "GPU-ee"}, alone), 2, "shared")
	for _, id := range []string{"GPU-ff", "GPU-unknown"} {
		assert.Empty(t, d.Owners(&devicesamples.Device{ID: id}, alone), id)
	}
	assert.Empty(t, (*Devices)(nil).Owners(&devicesamples.Device{ID: "GPU-aa"}, alone))
	assert.Empty(t, (*Devices)(nil).Claimants())
}

func alone() int { return 1 }

// none is a node without the specifications of claims.
func none() map[string][]string { return nil }

func noSlices(sliceDevice) []string { return nil }

// TestClaimsAreResolvedByTheirDeviceFiles reads specifications as NVIDIA's driver writes them: two
// instances of one profile on a physical GPU have the files of their capabilities.
func TestClaimsAreResolvedByTheirDeviceFiles(t *testing.T) {
	folder := t.TempDir()
	minors := filepath.Join(folder, "mig-minors")
	for name, content := range map[string]string{
		"mig-minors":    "config 1\ngpu3/gi9/access 84\ngpu3/gi9/ci0/access 85\ngpu3/gi11/access 102\ngpu3/gi11/ci0/access 103\n",
		"cdi/a.json":    claimSpec("gpu-3-mig-1g10gb-19-4", "/dev/nvidiactl", "/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap102", "/dev/nvidia-caps/nvidia-cap103"),
		"cdi/b.yaml":    claimSpec("gpu-2", "/dev/nvidia5", "/dev/nvidia-uvm"),
		"cdi/amd.json":  claimSpec("gpu-1-129", "/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD129"),
		"cdi/bad.json":  "{",
		"cdi/none.yaml": "kind: vendor.com/nic\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, "cdi"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	for _, node := range []string{"card1", "renderD129"} {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, "drm", node), 0o755))
		require.NoError(t, os.Symlink("../../../0000:83:00.0", filepath.Join(folder, "drm", node, "device")))
	}
	d, err := parse(join(
		claim("ml", "amd-0", "c", "gpu.amd.com", "gpu-1-129"),
		claim("ml", "mig-0", "c", "gpu.nvidia.com", "gpu-3-mig-1g10gb-19-4"),
		claim("ml", "full-0", "c", "gpu.nvidia.com", "gpu-2"),
	), cdi{filepath.Join(folder, "cdi"), minors, filepath.Join(folder, "drm")}.devices, noSlices)
	require.NoError(t, err)
	for _, tc := range []struct {
		file, want string
	}{{"nvidia3/gi11", "mig-0"}, {"nvidia3/gi9", ""}, {"nvidia5", "full-0"}, {"nvidia2", ""}, {"nvidia3", ""}} {
		dev := devicesamples.Device{ID: "x", DeviceFile: tc.file, MIG: devicesamples.MIG{Profile: "1g.10gb"}}
		var got string
		for _, p := range d.Owners(&dev, func() int { return 2 }) {
			got += p.Name
		}
		assert.Equal(t, tc.want, got, tc.file)
	}
	assert.Len(t, d.Owners(&devicesamples.Device{ID: "y", PCIBDF: "0000:83:00.0"}, alone), 1, "of AMD, by its PCI address")
	assert.Empty(t, cdi{filepath.Join(folder, "absent"), minors, ""}.devices())
}

// claimSpec returns the specification of a claim with device files.
func claimSpec(device string, files ...string) string {
	nodes := make([]string, len(files))
	for i, f := range files {
		nodes[i] = `{"path": "` + f + `"}`
	}
	return `{"cdiVersion": "0.5.0", "kind": "k8s.gpu.nvidia.com/claim", "devices": [{"name": "x-` + device +
		`", "containerEdits": {"deviceNodes": [` + strings.Join(nodes, ", ") + `]}}]}`
}

// claim returns a PodResources message with one container that has a claim, allocated by DRA. The
// numbers of the fields are from k8s.io/kubelet/pkg/apis/podresources/v1 (v0.37.2).
func claim(namespace, name, container, driver, device string) []byte {
	resource := join(field(1, field(1, []byte("k8s.gpu.nvidia.com/claim=x-"+device))), field(2, []byte(driver)),
		field(3, []byte("node-a")), field(4, []byte(device)))
	dynamic := join(field(2, []byte("claim")), field(3, []byte(namespace)), field(4, resource))
	return field(1, join(field(1, []byte(name)), field(2, []byte(namespace)),
		field(3, join(field(1, []byte(container)), field(5, dynamic)))))
}

// TestClaimsAreResolved reads claims of every form of name of the DRA drivers. The driver numbers
// devices by minor number.
func TestClaimsAreResolved(t *testing.T) {
	d, err := parse(join(
		claim("ml", "train-0", "trainer", "gpu.nvidia.com", "gpu-2"),
		claim("ml", "shares-0", "trainer", "gpu.nvidia.com", "gpu-2"),
		claim("ml", "mig-0", "c", "gpu.nvidia.com", "gpu-3-mig-1g10gb-19-4"),
		claim("ml", "mig-1", "c", "gpu.nvidia.com", "gpu-3-mig-3g40gb-9-0"),
		claim("ml", "uuid-0", "c", "gpu.nvidia.com", "gpu-18db0e85-99e9-c746-8531-ffeb86328b39"),
		claim("ml", "vfio-0", "c", "gpu.nvidia.com", "gpu-vfio-0"),
		claim("ml", "amd-0", "c", "gpu.amd.com", "gpu-0"),
		claim("net", "nic-0", "c", "dra.net", "gpu-7"),
		claim("ml", "domain-0", "c", "compute-domain.nvidia.com", "channel-0"),
		pod("ml", "amd-1", "c", "amd.com/gpu", "0000:83:00.0"),
	), none, noSlices)
	require.NoError(t, err)
	owners := func(dev devicesamples.Device, alike int) (names []string) {
		for _, p := range d.Owners(&dev, func() int { return alike }) {
			names = append(names, p.Name)
		}
		return names
	}
	assert.Equal(t, []string{"train-0", "shares-0"}, owners(devicesamples.Device{ID: "GPU-a", Name: "gpu0", DeviceFile: "nvidia2"}, 0))
	assert.Empty(t, owners(devicesamples.Device{ID: "GPU-a", Name: "gpu2", DeviceFile: "nvidia0"}, 0), "its index, not its minor number")
	assert.Equal(t, []string{"train-0", "shares-0"}, owners(devicesamples.Device{ID: "GPU-a", Name: "gpu2"}, 0))
	mig := devicesamples.Device{ID: "MIG-a", Parent: "GPU-d", DeviceFile: "nvidia3/gi9", MIG: devicesamples.MIG{Profile: "1g.10gb"}}
	assert.Equal(t, []string{"mig-0"}, owners(mig, 1))
	assert.Empty(t, owners(mig, 2), "which of two instances of the profile it is needs the ResourceSlice")
	assert.Equal(t, []string{"uuid-0"}, owners(devicesamples.Device{ID: "GPU-18DB0E85-99e9-c746-8531-ffeb86328b39"}, 0))
	for _, file := range []string{"nvidia0", "nvidia7"} {
		assert.Empty(t, owners(devicesamples.Device{ID: "GPU-x", DeviceFile: file}, 0))
	}
	var claimants []string
	for _, p := range d.Claimants() {
		claimants = append(claimants, p.Name)
	}
	assert.Equal(t, []string{"train-0", "shares-0", "mig-0", "mig-1", "uuid-0", "vfio-0", "amd-0"}, claimants)
}

// TestDevicesOfOtherVendors reads the names of the plugins and drivers of AMD and Intel.
func TestDevicesOfOtherVendors(t *testing.T) {
	d, err := parse(join(
		pod("ml", "amd-0", "c", "amd.com/gpu", "0000:83:00.0"),
		pod("ml", "amd-1", "c", "amd.com/gpu", "amdgpu_xcp_1"), // a partition, whose board is unknown
		pod("ml", "intel-0", "c", "gpu.intel.com/i915", "card1-0"),
		pod("ml", "intel-1", "c", "gpu.intel.com/xe", "card1-1"),
		pod("ml", "monitor", "c", "gpu.intel.com/i915_monitoring", "card1-0"),
		claim("ml", "intel-2", "c", "gpu.intel.com", "0000-03-00-0-0x56a0"),
		claim("ml", "amd-2", "c", "gpu.amd.com", "gpu-1-129"),
	), none, noSlices)
	require.NoError(t, err)
	for _, tc := range []struct {
		dev  devicesamples.Device
		want []string
	}{
		{devicesamples.Device{ID: "a", PCIBDF: "00000000:83:00.0"}, []string{"amd-0"}},
		{devicesamples.Device{ID: "a", Parent: "b", PCIBDF: "00000000:83:00.0"}, nil},
		{devicesamples.Device{ID: "c", DeviceFile: "card1"}, []string{"intel-0", "intel-1"}},
		{devicesamples.Device{ID: "d", PCIBDF: "0000:03:00.0"}, []string{"intel-2"}},
		{devicesamples.Device{ID: "e", Name: "gpu1"}, nil},
	} {
		var got []string
		for _, p := range d.Owners(&tc.dev, alone) {
			got = append(got, p.Name)
		}
		assert.Equal(t, tc.want, got, tc.dev.ID)
	}
}

// TestRecordedPodResources reads an answer with device plugins, replicas and claims.
func TestRecordedPodResources(t *testing.T) {
	b, err := os.ReadFile(recorded.Path(t, "per-process/podresources.json"))
	require.NoError(t, err)
	var answer struct {
		Pods []struct {
			Name, Namespace string
			Containers      []struct {
				Name    string
				Devices []struct {
					Resource string   `json:"resource_name"`
					IDs      []string `json:"device_ids"`
				}
				Dynamic []struct {
					Resources []struct {
						Driver string `json:"driver_name"`
						Device string `json:"device_name"`
					} `json:"claim_resources"`
				} `json:"dynamic_resources"`
			}
		} `json:"pod_resources"`
	}
	require.NoError(t, json.Unmarshal(b, &answer))
	var message []byte
	for _, p := range answer.Pods {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				message = append(message, pod(p.Namespace, p.Name, c.Name, d.Resource, d.IDs...)...)
			}
			for _, claims := range c.Dynamic {
				for _, r := range claims.Resources {
					message = append(message, claim(p.Namespace, p.Name, c.Name, r.Driver, r.Device)...)
				}
			}
		}
	}
	d, err := parse(message, none, noSlices)
	require.NoError(t, err)
	for _, tc := range []struct {
		dev  devicesamples.Device
		want []string
	}{
		{devicesamples.Device{ID: "GPU-0c49ec12-1742-037e-5e5d-483549b87bfe", DeviceFile: "nvidia0"}, []string{"train-0"}},
		{devicesamples.Device{ID: "GPU-d0090727-b9e3-839f-fd85-30cea38e3171", DeviceFile: "nvidia1"}, []string{"infer-a", "infer-b"}},
		{devicesamples.Device{ID: "GPU-2", DeviceFile: "nvidia2"}, []string{"dra-full"}},
		{devicesamples.Device{ID: "MIG-3", DeviceFile: "nvidia3/gi11", MIG: devicesamples.MIG{Profile: "1g.10gb"}}, []string{"dra-mig"}},
	} {
		var got []string
		for _, p := range d.Owners(&tc.dev, alone) {
			got = append(got, p.Name)
		}
		assert.Equal(t, tc.want, got, tc.dev.ID)
	}
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
	f.Add(claim("ml", "mig-0", "c", "gpu.nvidia.com", "gpu-3-mig-1g10gb-19-4"))
	f.Add([]byte{0x0a, 0xff})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := parse(b, none, noSlices); err == nil {
			d.Owners(&devicesamples.Device{ID: "GPU-aa", Name: "gpu4:7/0"}, alone)
		}
	})
}
