// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package processes describes a process on this host as its spans may identify it: its number in
// its own PID namespace, its container, its pod, and the processes above it.
package processes

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Facts of a process. Empty and 0 mean unknown.
type Facts struct {
	LocalPID    int64   // as the process sees itself; 0 where it sees the host's number
	ContainerID string  // 64 hexadecimal digits
	PodUID      string  // with dashes
	Parents     []int64 // nearest first, without the first process of the host
}

// Host is the /proc of this host.
type Host struct{ root string }

// hostNamespace is the number that Linux gives the first PID namespace (PROC_PID_INIT_INO).
const hostNamespace = "pid:[4026531836]"

// New returns the host's processes, or nil if this process does not see them: drivers use the
// host's process numbers, which are different or absent in a container without `hostPID: true`.
func New(root string) *Host {
	if ns, err := os.Readlink(filepath.Join(root, "self/ns/pid")); err != nil || ns != hostNamespace {
		return nil
	}
	return &Host{root: root}
}

// maxParents bounds the way up.
const maxParents = 16

// Of describes a process. A nil Host returns nothing.
func (h *Host) Of(pid int64) (f Facts) {
	if h == nil {
		return f
	}
	status := h.status(pid)
	if inner := status.inner; inner != pid {
		f.LocalPID = inner
	}
	if b, err := os.ReadFile(h.path(pid, "cgroup")); err == nil {
		f.ContainerID, f.PodUID = fromControlGroup(string(b))
	}
	for p := status.parent; p > 1 && len(f.Parents) < maxParents; p = h.status(p).parent {
		f.Parents = append(f.Parents, p)
	}
	return f
}

func (h *Host) path(pid int64, name string) string {
	return filepath.Join(h.root, strconv.FormatInt(pid, 10), name)
}

// status holds the contents of /proc/<pid>/status.
type status struct {
	parent int64
	inner  int64 // the last number of NSpid: for the innermost namespace
}

func (h *Host) status(pid int64) (s status) {
	b, err := os.ReadFile(h.path(pid, "status"))
	if err != nil {
		return s
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		numbers := strings.Fields(value)
		if len(numbers) == 0 {
			continue
		}
		switch n, err := strconv.ParseInt(numbers[len(numbers)-1], 10, 64); {
		case err != nil:
		case key == "PPid":
			s.parent = n
		case key == "NSpid":
			s.inner = n
		}
	}
	return s
}

var (
	containerID = regexp.MustCompile(`[0-9a-f]{64}`)
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})`)
)

// fromControlGroup reads /proc/<pid>/cgroup, in which container runtimes and the kubelet name what
// they started ("…/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope").
func fromControlGroup(text string) (container, pod string) {
	for line := range strings.Lines(text) {
		if ids := containerID.FindAllString(line, -1); len(ids) > 0 && container == "" {
			container = ids[len(ids)-1] // the innermost
		}
		if m := podUID.FindStringSubmatch(line); m != nil && pod == "" {
			pod = strings.ReplaceAll(m[1], "_", "-")
		}
	}
	return container, pod
}
