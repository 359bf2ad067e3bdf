// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package localhost protects HTTP servers on a loopback address from DNS rebinding: a web site that
// resolves its own name to 127.0.0.1 makes the browser of a local user send requests to them, and
// may read what they return.
package localhost

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
)

// Hosts are the names of this machine besides localhost and addresses.
type Hosts []string

// NewHosts returns the hosts of these names, which are compared in any case and with or without the
// final dot.
func NewHosts(names ...string) Hosts {
	h := make(Hosts, len(names))
	for i, name := range names {
		h[i] = normalize(name)
	}
	return h
}

// Validate reports each name of a configuration that no Host header can equal.
func Validate(key string, names []string) error {
	var bad configvalidate.List
	for i, name := range names {
		bad.If(!isName(normalize(name)),
			"`%s::%d` must be a host name such as gpu.example.com, without port or wildcard, found %q", key, i, name)
	}
	return bad.Err()
}

func isName(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.ContainsFunc(label, func(c rune) bool {
			// Browsers send names of other alphabets as Punycode.
			return c <= ' ' || c >= 0x7f || strings.ContainsRune(":/*[]?#@,;<>\"\\", c)
		}) {
			return false
		}
	}
	return true
}

func normalize(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// Allow reports whether the Host header of a request names this machine. It is localhost or a name
// below it, an address, or one of the hosts. Requests that did not arrive at a loopback address are
// always allowed: a machine does not know its names in a network.
func (h Hosts) Allow(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !at.IP.IsLoopback() {
		return true
	}
	u := url.URL{Host: r.Host}
	name := normalize(u.Hostname())
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || net.ParseIP(name) != nil ||
		slices.Contains(h, name)
}
