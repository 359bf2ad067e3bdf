// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// Slices of NVIDIA's and AMD's drivers, in the form of v1 and, with `basic`, of v1beta1.
const (
	slicesV1 = `{"kind":"ResourceSliceList","items":[
		{"spec":{"driver":"gpu.nvidia.com","nodeName":"node-a","pool":{"name":"node-a","generation":1},"devices":[
			{"name":"gpu-2","attributes":{"type":{"string":"gpu"},"uuid":{"string":"GPU-aa"},"minor":{"int":2},
				"resource.kubernetes.io/pcieRoot":{"string":"pci0000:00"}}},
			{"name":"gpu-3-mig-1g10gb-19-4","attributes":{"type":{"string":"mig"},"gpu.nvidia.com/uuid":{"string":"MIG-bb"},
				"gpu.nvidia.com/parentUUID":{"string":"GPU-cc"},"driverVersion":{"version":"580.95.5"}}}]}},
		{"spec":{"driver":"gpu.amd.com","pool":{"name":"node-a"},"devices":[
			{"name":"gpu-1-129","attributes":{"pciBusID":{"string":"0000:83:00.0"},"cardIndex":{"int":1}}},
			{"name":"gpu-2-130","attributes":{"cardIndex":{"int":2}}}]}}]}`
	slicesV1beta1 = `{"items":[{"spec":{"driver":"gpu.nvidia.com","pool":{"name":"node-a"},"devices":[
		{"name":"gpu-2","basic":{"attributes":{"uuid":{"string":"GPU-aa"}}}}]}}]}`
)

// cluster returns a reader of an API that has one version.
func cluster(t *testing.T, version, answer string, status *int) (*sliceReader, *int) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		assert.Equal(t, "spec.nodeName=node-a", r.URL.Query().Get("fieldSelector"))
		if !strings.HasSuffix(r.URL.Path, "/resource.k8s.io/"+version+"/resourceslices") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(*status)
		_, _ = io.WriteString(w, answer)
	}))
	account := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(account, "token"), []byte("secret\n"), 0o600))
	client := server.Client()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		server.Close()
	})
	return &sliceReader{server: server.URL, node: "node-a", account: account, client: client}, &requests
}

func TestClaimsAreResolvedByResourceSlices(t *testing.T) {
	status := http.StatusOK
	s, requests := cluster(t, "v1", slicesV1, &status)
	of := func(d sliceDevice) []string { return s.of(t.Context(), d) }
	d, err := parse(join(
		claim("ml", "full-0", "c", "gpu.nvidia.com", "gpu-2"),
		claim("ml", "mig-0", "c", "gpu.nvidia.com", "gpu-3-mig-1g10gb-19-4"),
		claim("ml", "amd-0", "c", "gpu.amd.com", "gpu-1-129"),
		claim("ml", "amd-1", "c", "gpu.amd.com", "gpu-2-130"),
	), none, of)
	require.NoError(t, err)
	for id, want := range map[string]string{"GPU-aa": "full-0", "MIG-bb": "mig-0", "GPU-cc": "", "amd": "amd-0"} {
		dev := devicesamples.Device{ID: id, Name: "gpu2"} // not the device with minor number 2
		if id == "amd" {
			dev.PCIBDF = "0000:83:00.0"
		}
		var got string
		for _, p := range d.Owners(&dev, alone) {
			got += p.Name
		}
		assert.Equal(t, want, got, id)
	}
	assert.Len(t, d.Claimants(), 4)
	assert.Equal(t, 1, *requests, "they are kept")

	beta, _ := cluster(t, "v1beta1", slicesV1beta1, &status)
	assert.Equal(t, []string{devicesamples.NormalizeID("GPU-aa")}, beta.of(t.Context(), sliceDevice{"gpu.nvidia.com", "node-a", "gpu-2"}))
}

func TestWithoutTheRightToListSlicesTheLastOnesAreUsed(t *testing.T) {
	status := http.StatusForbidden
	s, requests := cluster(t, "v1", slicesV1, &status)
	full := sliceDevice{"gpu.nvidia.com", "node-a", "gpu-2"}
	assert.Empty(t, s.of(t.Context(), full))
	assert.Empty(t, s.of(t.Context(), full))
	assert.Equal(t, 1, *requests, "it is not asked at once again")
	require.ErrorContains(t, (&Client{slices: s}).SlicesError(), "let the service account list resourceslices")
	status = http.StatusOK
	s.read = time.Time{}
	assert.NotEmpty(t, s.of(t.Context(), full))
	require.NoError(t, (&Client{slices: s}).SlicesError())
	status = http.StatusInternalServerError
	s.read = time.Time{}
	assert.NotEmpty(t, s.of(t.Context(), full))
	require.Error(t, (&Client{slices: s}).SlicesError())
}
