// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAllowedNamesThisMachineOnly(t *testing.T) {
	loopback := &net.TCPAddr{IP: net.IPv6loopback, Port: 9464}
	for host, want := range map[string]bool{
		"localhost": true, "localhost:9464": true, "LOCALHOST.": true, "page.localhost:1": true, "127.0.0.1:9464": true,
		"[::1]:9464": true, "[::1]": true, "10.1.2.3": true, "gpu.example.com:80": true, "GPU.example.com.": true,
		"": false, "example.com": false, "localhost.example.com": false, "notlocalhost": false, "127.0.0.1.example.com": false,
		"sub.gpu.example.com": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		at := func(a net.Addr) *http.Request {
			return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, a))
		}
		assert.Equal(t, want, NewHosts("GPU.example.COM.").Allow(at(loopback)), host)
		assert.True(t, NewHosts().Allow(at(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)})), "%s, not at a loopback address", host)
	}
}

func TestValidateAcceptsHostNamesOnly(t *testing.T) {
	require.NoError(t, Validate("hosts", []string{"gpu", "gpu.example.com", "GPU.Example.com."}))
	err := Validate("hosts", []string{
		"gpu", "", "gpu:80", "*.example.com", "http://gpu", "gpu/", "[::1]", "a b", "gpu..com", ".", "gpu,b", "gpü",
	})
	for i, name := range []string{"", "gpu:80", "*.example.com", "http://gpu", "gpu/", "[::1]", "a b", "gpu..com", ".", "gpu,b", "gpü"} {
		assert.ErrorContains(t, err, fmt.Sprintf(
			"`hosts::%d` must be a host name such as gpu.example.com, without port or wildcard, found %q", i+1, name))
	}
	assert.NotContains(t, err.Error(), "hosts::0")
}
