// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/servermetrics"
)

// identityOf returns the server of an entry.
func identityOf(s *ServerConfig) servermetrics.Identity {
	id := servermetrics.Identity{Devices: s.Devices}
	id.Namespace, id.Pod, _ = strings.Cut(s.Pod, "/")
	id.Workload = devicesamples.Workload{Namespace: id.Namespace, Pod: id.Pod}
	u, err := url.Parse(s.Endpoint)
	if err != nil {
		return id
	}
	id.Address = u.Host
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil && s.Pod == "" && local(u.Hostname()) {
		id.PID = func() int64 { return listener("/proc", uint16(port)) }
	}
	return id
}

// local reports whether a host is this machine.
func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// listener returns the process that listens on a TCP port; 0 if it is unknown, as on systems without
// /proc and for processes of other users.
func listener(proc string, port uint16) int64 {
	inode := ""
	for _, file := range []string{"net/tcp", "net/tcp6"} {
		text, err := os.ReadFile(filepath.Join(proc, file))
		if err != nil {
			continue
		}
		const listening, fields = "0A", 10
		suffix := fmt.Sprintf(":%04X", port)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) >= fields && strings.HasSuffix(f[1], suffix) && f[3] == listening {
				inode = f[9]
			}
		}
	}
	if inode == "" {
		return 0
	}
	links, _ := filepath.Glob(filepath.Join(proc, "[0-9]*/fd/*"))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == "socket:["+inode+"]" {
			pid, _ := strconv.ParseInt(strings.Split(strings.TrimPrefix(link, proc+"/"), "/")[0], 10, 64)
			return pid
		}
	}
	return 0
}
