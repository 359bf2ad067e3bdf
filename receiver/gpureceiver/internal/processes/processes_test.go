// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// host writes a /proc file system.
func host(t *testing.T, namespace string) string {
	t.Helper()
	root := t.TempDir()
	write := func(pid int, status, cgroup string, others ...string) {
		dir := filepath.Join(root, fmt.Sprint(pid))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o600))
		for i := 0; i < len(others); i += 2 {
			require.NoError(t, os.WriteFile(filepath.Join(dir, others[i]), []byte(others[i+1]), 0o600))
		}
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "self/ns"), 0o755))
	require.NoError(t, os.Symlink(namespace, filepath.Join(root, "self/ns/pid")))
	write(1, "Name:\tsystemd\nPPid:\t0\nNSpid:\t1\n", "0::/init.scope\n")
	write(80, "Name:\tshim\nPPid:\t1\nNSpid:\t80\n", "0::/system.slice\n")
	write(500, "Name:\tvllm\nUmask:\t0022\nPPid:\t80\nUid:\t4123456789\t0\t0\t0\nNSpid:\t500\t1\n", "0::/kubepods.slice/kubepods-burstable.slice/"+
		"kubepods-burstable-pod1b2c3d4e_0000_4000_8000_0123456789ab.slice/cri-containerd-"+id+".scope\n",
		"stat", "500 (VLLM::Engine) (x) S 80 500 500 0 -1 4194304 1 0 0 0 9 2 0 0 20 0 1 0 8123456 1 2 3\n",
		"cmdline", "/opt/venv/bin/VLLM::EngineCore\x00--api-key\x00secret\x00")
	write(501, "PPid:\t500\nNSpid:\t501\t42\n", "12:pids:/kubepods/besteffort/pod1b2c3d4e-0000-4000-8000-0123456789ab/"+id+
		"\n", "stat", "501 (python3) R 500\n", "cmdline", "")
	write(600, "PPid:\t80\nNSpid:\t600\n", "0::/user.slice/user-1000.slice/session-3.scope\n")
	return root
}

func TestAProcessIsDescribedAsItSeesItself(t *testing.T) {
	h := New(host(t, hostNamespace))
	require.NotNil(t, h)
	const pod = "1b2c3d4e-0000-4000-8000-0123456789ab"
	assert.Equal(t, Facts{
		LocalPID: 1, ContainerID: id, PodUID: pod, Parents: []int64{80}, Start: 8123456, Executable: "VLLM::EngineCore", Owner: "4123456789",
	}, h.Of(500))
	assert.Equal(t, int64(8123456), h.Start(500))
	assert.Equal(t, Facts{LocalPID: 42, ContainerID: id, PodUID: pod, Parents: []int64{500, 80}, Executable: "python3"}, h.Of(501))
	assert.Equal(t, Facts{Parents: []int64{80}}, h.Of(600), "a process of the host")
	assert.Equal(t, Facts{}, h.Of(7), "one that is gone")
}

func TestAContainerDoesNotSeeTheHostsProcesses(t *testing.T) {
	h := New(host(t, "pid:[4026532222]"))
	assert.Nil(t, h)
	assert.Equal(t, Facts{}, h.Of(500))
	assert.Nil(t, New(t.TempDir()), "no /proc")
}

func TestMissingRightsAreDistinguishedFromTheEndOfAProcess(t *testing.T) {
	assert.False(t, (*Host)(nil).Hides(500))
	root := host(t, hostNamespace)
	h := New(root)
	assert.False(t, h.Hides(500))
	assert.False(t, h.Hides(7), "it has ended")
	h.readFile = func(name string) ([]byte, error) { // as hidepid=1, or a security module
		if strings.Contains(name, "/500/") {
			return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EPERM}
		}
		return os.ReadFile(name)
	}
	assert.True(t, h.Hides(500))
	assert.False(t, h.Hides(501))
	h = New(root)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "1"))) // as hidepid=2 hides others
	assert.True(t, h.Hides(7))
	assert.False(t, h.Hides(501), "of the same user")
}

func TestControlGroupsOfOtherRuntimes(t *testing.T) {
	const none = ""
	for text, want := range map[string][3]string{
		"0::/system.slice/docker-" + id + ".scope\n":                     {id},
		"5:devices:/docker/" + id + "\n0::/\n":                           {id},
		"0::/../../crio-" + id + ".scope\n":                              {id},
		"0::/machine.slice/libpod-" + id + ".scope/container\n":          {id},
		"0::/docker/" + strings.Repeat("f", 64) + "/docker/" + id + "\n": {id},
		"0::/k8s.io/" + id + "\n":                                        {id}, // containerd without the kubelet
		"0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_3\n":  {none, none, "77"},
		"9:memory:/slurm/uid_1001/job_78/step_batch/task_0\n0::/\n":      {none, none, "78"},
		"9:memory:/slurm_node1/uid_1001/job_79\n":                        {none, none, "79"},
		"0::/system.slice/job_80/step_0\n":                               {}, // of another scheduler
		"0::/\n":                                                         {},
	} {
		container, pod, job := fromControlGroup(text)
		assert.Equal(t, want, [3]string{container, pod, job}, text)
	}
}

// TestRecordedControlGroups reads what runtimes of every kind write.
func TestRecordedControlGroups(t *testing.T) {
	b, err := os.ReadFile(recorded.Path(t, "per-process/cgroups.json"))
	require.NoError(t, err)
	var cases []struct {
		Case      string
		Text      string `json:"proc_cgroup"`
		PodUID    string `json:"pod_uid"`
		Container string `json:"container_id"`
	}
	require.NoError(t, json.Unmarshal(b, &cases))
	for _, c := range cases {
		container, pod, job := fromControlGroup(c.Text)
		assert.Equal(t, c.Container, container, c.Case)
		assert.Equal(t, c.PodUID, pod, c.Case)
		assert.Equal(t, strings.HasPrefix(c.Case, "slurm"), job == "771234", c.Case)
	}
}

func TestContainersAreNamedByTheLinksToTheirLogs(t *testing.T) {
	folder := t.TempDir()
	other := strings.Repeat("f", 64)
	for _, name := range []string{
		"train-0_ml_main-" + id + ".log", "a.b-c_kube-system_side-car-" + other + ".log", "x.log", "a_b-" + id + ".log", "a_b_c-12.log", "README",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	got, err := Containers(folder)
	require.NoError(t, err)
	assert.Equal(t, map[string]Container{id: {"ml", "train-0", "main"}, other: {"kube-system", "a.b-c", "side-car"}}, got)
	got, err = Containers(t.TempDir())
	require.NoError(t, err)
	assert.Empty(t, got)
	_, err = Containers(filepath.Join(folder, "absent"))
	require.Error(t, err)
}

// TestThisProcess reads a real /proc.
func TestThisProcess(t *testing.T) {
	f := (&Host{"/proc", os.ReadFile}).Of(int64(os.Getpid()))
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc here")
	}
	assert.Contains(t, append(f.Parents, 1), int64(os.Getppid()))
}
