// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package processes describes a process on this host as its spans may identify it: its number in
// its own PID namespace, its container, its pod, and the processes above it.
package processes

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Facts of a process. Empty and 0 mean unknown.
type Facts struct {
	LocalPID    int64  // as the process sees itself; 0 where it sees the host's number
	ContainerID string // 64 hexadecimal digits
	PodUID      string // with dashes; of static pods without
	Container   Container
	SlurmJob    string  // number of the job
	Parents     []int64 // nearest first, without the first process of the host

	// Start is when it started, in clock ticks since the host booted: a process number that is
	// reused has another one.
	Start      int64
	Executable string // name of the program, without its folder and arguments
	Owner      string // name of the user, or the number if it has no name on this host
}

// Job returns gpu.job.id of the process, as gpuspan makes it of the same job; empty: unknown.
func (f *Facts) Job() string {
	if f.SlurmJob == "" {
		return ""
	}
	return "slurm-" + f.SlurmJob
}

// Host is the /proc of this host.
type Host struct {
	root     string
	readFile func(string) ([]byte, error)
}

// hostNamespace is the number that Linux gives the first PID namespace (PROC_PID_INIT_INO).
const hostNamespace = "pid:[4026531836]"

// New returns the host's processes, or nil if this process does not see them: drivers use the
// host's process numbers, which are different or absent in a container without `hostPID: true`.
func New(root string) *Host {
	if ns, err := os.Readlink(filepath.Join(root, "self/ns/pid")); err != nil || ns != hostNamespace {
		return nil
	}
	return &Host{root, os.ReadFile}
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
	if b, err := h.readFile(h.path(pid, "cgroup")); err == nil {
		f.ContainerID, f.PodUID, f.SlurmJob = fromControlGroup(string(b))
	}
	f.Start, f.Executable = h.stat(pid)
	if b, err := h.readFile(h.path(pid, "cmdline")); err == nil {
		// Arguments may contain secrets. Programs that set their title write it here in full.
		if program, _, _ := strings.Cut(string(b), "\x00"); strings.TrimSpace(program) != "" {
			f.Executable = strings.TrimSpace(filepath.Base(program))
		}
	}
	f.Executable = spanfacts.Clip(f.Executable)
	f.Owner = owner(status.owner)
	for p := status.parent; p > 1 && len(f.Parents) < maxParents; p = h.status(p).parent {
		f.Parents = append(f.Parents, p)
	}
	return f
}

// Hides reports whether this process lacks the rights to read the control group of a process. With
// hidepid=2 it looks as if the process had ended, but the first process never does.
func (h *Host) Hides(pid int64) bool {
	if h == nil {
		return false
	}
	_, err := h.readFile(h.path(pid, "cgroup"))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = h.readFile(h.path(1, "cgroup"))
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)
}

// Start returns when a process started, 0 if it has ended.
func (h *Host) Start(pid int64) int64 {
	if h == nil {
		return 0
	}
	start, _ := h.stat(pid)
	return start
}

// stat reads the start time and the name of a process. The name is in parentheses and may contain
// any character.
func (h *Host) stat(pid int64) (start int64, name string) {
	b, err := h.readFile(h.path(pid, "stat"))
	if err != nil {
		return 0, ""
	}
	before, rest := string(b), ""
	if i := strings.LastIndexByte(before, ')'); i >= 0 {
		before, rest = before[:i], before[i+1:]
	}
	_, name, _ = strings.Cut(before, "(")
	const starttime = 22 - 3 // the first field after the name is number 3
	if fields := strings.Fields(rest); len(fields) > starttime {
		start, _ = strconv.ParseInt(fields[starttime], 10, 64)
	}
	return start, name
}

// owner returns the name of a user by its number.
func owner(id string) string {
	if id == "" {
		return ""
	}
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

func (h *Host) path(pid int64, name string) string {
	return filepath.Join(h.root, strconv.FormatInt(pid, 10), name)
}

// status holds the contents of /proc/<pid>/status.
type status struct {
	parent int64
	inner  int64 // the last number of NSpid: for the innermost namespace
	owner  string
}

func (h *Host) status(pid int64) (s status) {
	b, err := h.readFile(h.path(pid, "status"))
	if err != nil {
		return s
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		numbers := strings.Fields(value)
		if len(numbers) == 0 {
			continue
		}
		if key == "Uid" {
			s.owner = numbers[0] // the real one
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
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})`)
	slurmJob    = regexp.MustCompile(`/job_([0-9]+)(?:/|$)`)
)

// fromControlGroup reads /proc/<pid>/cgroup, in which container runtimes, the kubelet and Slurm
// name what they started ("…/kubepods-burstable-pod<uid>.slice/cri-containerd-<id>.scope").
func fromControlGroup(text string) (container, pod, job string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		// CRI-O's monitor is beside the container that it is named for.
		monitor := strings.Contains(line, "crio-conmon-")
		if ids := containerID.FindAllString(line, -1); len(ids) > 0 && container == "" && !monitor {
			container = ids[len(ids)-1] // the innermost
		}
		if m := podUID.FindStringSubmatch(line); m != nil && pod == "" {
			pod = strings.ReplaceAll(m[1], "_", "-")
		}
		if m := slurmJob.FindStringSubmatch(line); m != nil && job == "" && strings.Contains(line, "slurm") {
			job = m[1]
		}
	}
	return container, pod, job
}
