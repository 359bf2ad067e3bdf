// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// host writes a /proc file system.
func host(t *testing.T, namespace string) string {
	t.Helper()
	root := t.TempDir()
	write := func(pid int, status, cgroup string) {
		dir := filepath.Join(root, fmt.Sprint(pid))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "self/ns"), 0o755))
	require.NoError(t, os.Symlink(namespace, filepath.Join(root, "self/ns/pid")))
	write(1, "Name:\tsystemd\nPPid:\t0\nNSpid:\t1\n", "0::/init.scope\n")
	write(80, "Name:\tshim\nPPid:\t1\nNSpid:\t80\n", "0::/system.slice\n")
	write(500, "Name:\tvllm\nUmask:\t0022\nPPid:\t80\nNSpid:\t500\t1\n", "0::/kubepods.slice/kubepods-burstable.slice/"+
		"kubepods-burstable-pod1b2c3d4e_0000_4000_8000_0123456789ab.slice/cri-containerd-"+id+".scope\n")
	write(501, "PPid:\t500\nNSpid:\t501\t42\n", "12:pids:/kubepods/besteffort/pod1b2c3d4e-0000-4000-8000-0123456789ab/"+id+
		"\n")
	write(600, "PPid:\t80\nNSpid:\t600\n", "0::/user.slice/user-1000.slice/session-3.scope\n")
	return root
}

func TestAProcessIsDescribedAsItSeesItself(t *testing.T) {
	h := New(host(t, hostNamespace))
	require.NotNil(t, h)
	const pod = "1b2c3d4e-0000-4000-8000-0123456789ab"
	assert.Equal(t, Facts{LocalPID: 1, ContainerID: id, PodUID: pod, Parents: []int64{80}}, h.Of(500))
	assert.Equal(t, Facts{LocalPID: 42, ContainerID: id, PodUID: pod, Parents: []int64{500, 80}}, h.Of(501))
	assert.Equal(t, Facts{Parents: []int64{80}}, h.Of(600), "a process of the host")
	assert.Equal(t, Facts{}, h.Of(7), "one that is gone")
}

func TestAContainerDoesNotSeeTheHostsProcesses(t *testing.T) {
	h := New(host(t, "pid:[4026532222]"))
	assert.Nil(t, h)
	assert.Equal(t, Facts{}, h.Of(500))
	assert.Nil(t, New(t.TempDir()), "no /proc")
}

func TestControlGroupsOfOtherRuntimes(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/docker-" + id + ".scope\n":                     id,
		"5:devices:/docker/" + id + "\n0::/\n":                           id,
		"0::/../../crio-" + id + ".scope\n":                              id,
		"0::/machine.slice/libpod-" + id + ".scope/container\n":          id,
		"0::/docker/" + strings.Repeat("f", 64) + "/docker/" + id + "\n": id,
		"0::/\n": "",
	} {
		got, pod := fromControlGroup(text)
		assert.Equal(t, want, got, text)
		assert.Empty(t, pod)
	}
}

// TestThisProcess reads a real /proc.
func TestThisProcess(t *testing.T) {
	f := (&Host{root: "/proc"}).Of(int64(os.Getpid()))
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc here")
	}
	assert.Contains(t, append(f.Parents, 1), int64(os.Getppid()))
}
