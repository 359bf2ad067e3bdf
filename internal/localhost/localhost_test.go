// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
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
		assert.Equal(t, want, Allowed(at(loopback), []string{"gpu.example.com"}), host)
		assert.True(t, Allowed(at(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}), nil), "%s, not at a loopback address", host)
	}
}
