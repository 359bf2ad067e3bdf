// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package localhost protects HTTP servers on a loopback address from DNS rebinding: a web site that resolves its own
// name to 127.0.0.1 makes the browser of a local user send requests to them, and may read what they return.
package localhost

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Allowed reports whether the Host header of a request names this machine. It is localhost or a name below it, an
// address, or one of hosts, which are in lower case. Requests that did not arrive at a loopback address are always
// allowed: a machine does not know its names in a network.
func Allowed(r *http.Request, hosts []string) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !at.IP.IsLoopback() {
		return true
	}
	u := url.URL{Host: r.Host}
	name := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || net.ParseIP(name) != nil ||
		slices.Contains(hosts, name)
}
