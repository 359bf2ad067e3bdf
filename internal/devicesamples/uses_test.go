// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
)

// useRig is a store with its own clock, in which one host reports every 10 s.
type useRig struct {
	*Store
	t     *testing.T
	clock time.Time
}

func newUseRig(t *testing.T) *useRig {
	r := &useRig{t: t, clock: time.Unix(1_800_000_000, 0)}
	r.Store = NewStore(NewDefaultConfig(), func() time.Time { return r.clock })
	return r
}

var gpuID = component.MustNewID("gpu")

func (r *useRig) say(kind UseKind, uses ...DeviceUse) {
	if uses == nil {
		uses = []DeviceUse{}
	}
	r.SetUses(UseOrigin{gpuID, kind, "id-a", "a"}, uses, 10*time.Second)
}

func (r *useRig) device(id, parent, host string) {
	_, err := r.Register(gpuID, Device{ID: id, Parent: parent, HostName: host, HostID: "id-" + host})
	require.NoError(r.t, err)
}

// now returns the result for a span at the current time, as "by: devices".
func (r *useRig) now(w Workload) string {
	ids, by := r.DevicesOf(nil, &w, r.clock.UnixNano(), r.clock.UnixNano())
	return fmt.Sprint(by, ": ", ids)
}

func TestThePodOfTheKubeletDecides(t *testing.T) {
	r := newUseRig(t)
	r.device("GPU-0", "", "a")
	r.say(UsesOfPods,
		DeviceUse{Device: "GPU-1", Namespace: "ml", Pod: "vllm-0", Container: "server"},
		DeviceUse{Device: "GPU-0", Namespace: "ml", Pod: "vllm-0", Container: "server"},
		DeviceUse{Device: "GPU-2", Namespace: "ml", Pod: "vllm-0", Container: "encoder"},
		DeviceUse{Device: "GPU-3", Namespace: "other", Pod: "vllm-0", Container: "server"})
	assert.Equal(t, "pod: [GPU-0 GPU-1 GPU-2]", r.now(Workload{Namespace: "ml", Pod: "vllm-0"}))
	assert.Equal(t, "pod: [GPU-0 GPU-1]", r.now(Workload{Namespace: "ml", Pod: "vllm-0", Container: "server"}))
	assert.Equal(t, "pod: [GPU-3]", r.now(Workload{Namespace: "other", Pod: "vllm-0", PID: 1}))
	assert.Equal(t, "none: []", r.now(Workload{Namespace: "web", Pod: "front-0", HostName: "a"}), "another pod has it")
	assert.Equal(t, "none: []", r.now(Workload{Namespace: "ml", Pod: "vllm-0", Container: "proxy"}), "another container has it")
	assert.Equal(t, "host: [GPU-0]", r.now(Workload{HostName: "a"}))
}

// A pod that the kubelet lists without a device can have one by a claim, or by a privileged
// container.
func TestPodWithoutAListedDeviceHasTheHostsOnlyOneIfNobodyElseHasIt(t *testing.T) {
	r := newUseRig(t)
	r.device("GPU-0", "", "a")
	r.say(UsesOfPods, DeviceUse{Device: "GPU-9", Namespace: "ml", Pod: "other"})
	w := Workload{Namespace: "ml", Pod: "train-0", HostName: "a"}
	assert.Equal(t, "host: [GPU-0]", r.now(w))
	r.say(UsesOfPods, DeviceUse{Device: "gpu-0", Namespace: "ml", Pod: "other"})
	assert.Equal(t, "none: []", r.now(w))
	r.clock = r.clock.Add(time.Minute)
	assert.Equal(t, "host: [GPU-0]", r.now(w), "the other pod has ended")
}

// A process in a pod counts its processes itself, unless the pod shares the host's process
// namespace.
func TestProcessNumbersOfPodsAreNotTheHosts(t *testing.T) {
	r := newUseRig(t)
	r.device("GPU-0", "", "a")
	r.device("GPU-1", "", "a")
	r.say(UsesOfProcesses, DeviceUse{Device: "GPU-0", PID: 7}, DeviceUse{Device: "GPU-1", PID: 8, PodUID: "u"})
	assert.Equal(t, "none: []", r.now(Workload{Namespace: "ml", Pod: "p", PID: 7, HostName: "a"}))
	assert.Equal(t, "process: [GPU-1]", r.now(Workload{Namespace: "ml", Pod: "p", PID: 8, HostName: "a"}))
	assert.Equal(t, "process: [GPU-0]", r.now(Workload{PID: 7, HostName: "a"}))
}

func TestProcessHasItsOwnDevicesOrItsChildrens(t *testing.T) {
	r := newUseRig(t)
	r.device("GPU-0", "", "a")
	r.device("GPU-1", "", "a")
	r.say(UsesOfProcesses,
		DeviceUse{Device: "GPU-0", PID: 100, Parents: []int64{90, 80}},
		DeviceUse{Device: "GPU-1", PID: 101, Parents: []int64{90, 80}},
		DeviceUse{Device: "GPU-1", PID: 90},
		DeviceUse{Device: "GPU-0", PID: 500, LocalPID: 1, ContainerID: "c0", PodUID: "u", Parents: []int64{80}},
		DeviceUse{Device: "GPU-1", PID: 501, LocalPID: 7, ContainerID: "c0", PodUID: "u"})
	assert.Equal(t, "process: [GPU-0]", r.now(Workload{HostName: "a", PID: 100}))
	assert.Equal(t, "process: [GPU-1]", r.now(Workload{HostID: "id-a", PID: 90}), "its own comes before its children's")
	assert.Equal(t, "process: [GPU-0 GPU-1]", r.now(Workload{PID: 80}), "only what has the host's numbers has parents")
	assert.Equal(t, "none: []", r.now(Workload{HostName: "b", PID: 100}), "a process of that number on another host")
	assert.Equal(t, "none: []", r.now(Workload{HostName: "a", PID: 1}), "process 1 of some container")
	assert.Equal(t, "process: [GPU-0]", r.now(Workload{ContainerID: "c0", PID: 1}))
	assert.Equal(t, "process: [GPU-1]", r.now(Workload{PodUID: "u", PID: 7}))
	assert.Equal(t, "container: [GPU-0 GPU-1]", r.now(Workload{ContainerID: "c0", PID: 3}), "a front end in the container")
	assert.Equal(t, "none: []", r.now(Workload{ContainerID: "c9", PID: 100}))
}

func TestTheOnlyDeviceOfTheHostIsTheLastResort(t *testing.T) {
	r := newUseRig(t)
	assert.Equal(t, "none: []", r.now(Workload{}))
	r.device("GPU-0", "", "a")
	assert.Equal(t, "host: [GPU-0]", r.now(Workload{}))
	assert.Equal(t, "host: [GPU-0]", r.now(Workload{PID: 3, Pod: "p"}), "pods are unknown")
	assert.Equal(t, "none: []", r.now(Workload{HostName: "b"}))
	r.device("MIG-0", "GPU-0", "a")
	assert.Equal(t, "host: [MIG-0]", r.now(Workload{}), "the board is divided into one instance")
	r.device("MIG-1", "GPU-0", "a")
	assert.Equal(t, "none: []", r.now(Workload{}))
	r.device("GPU-9", "", "b")
	assert.Equal(t, "none: []", r.now(Workload{}), "of which host?")
	assert.Equal(t, "host: [GPU-9]", r.now(Workload{HostName: "b"}))
	r.device("MIG-7", "GPU-8", "b")
	assert.Equal(t, "none: []", r.now(Workload{HostName: "b"}), "an instance of another board")
}

func TestAUseIsValidForItsTime(t *testing.T) {
	r := newUseRig(t)
	at := func(seconds float64) string {
		moment := time.Unix(1_800_000_000, 0).Add(time.Duration(seconds * 1e9)).UnixNano()
		ids, by := r.DevicesOf(nil, &Workload{PID: 7}, moment, moment)
		return fmt.Sprint(by, ": ", ids)
	}
	use := DeviceUse{Device: "GPU-0", PID: 7}
	r.say(UsesOfProcesses)
	assert.Equal(t, "none: []", at(0))
	r.clock = r.clock.Add(10 * time.Second)
	r.say(UsesOfProcesses, use)
	assert.Equal(t, "none: []", at(-1))
	assert.Equal(t, "process: [GPU-0]", at(1), "it began between two looks")
	r.clock = r.clock.Add(10 * time.Second)
	r.say(UsesOfProcesses, use)
	for range 4 {
		r.clock = r.clock.Add(10 * time.Second)
		r.say(UsesOfProcesses, DeviceUse{Device: "GPU-1", PID: 8})
	}
	assert.Equal(t, "process: [GPU-0]", at(25), "a late span of the time in which it ran")
	assert.Equal(t, "none: []", at(41), "and not of the time after")
	r.say(UsesOfProcesses, DeviceUse{Device: "GPU-1", PID: 7}) // the number is reused
	assert.Equal(t, "process: [GPU-0]", at(25))
	assert.Equal(t, "process: [GPU-1]", at(60))
	r.clock = r.clock.Add(6 * time.Minute)
	r.say(UsesOfProcesses)
	assert.Equal(t, "none: []", at(25), "forgotten after max_age")
}

// An exporter reads its labels of pods when it collects, and may be scraped 30 s later.
func TestAPodUsesItsDeviceBeforeItIsRead(t *testing.T) {
	r := newUseRig(t)
	r.say(UsesOfPods)
	r.clock = r.clock.Add(time.Hour)
	r.say(UsesOfPods, DeviceUse{Device: "GPU-0", Pod: "p"})
	for ago, want := range map[time.Duration]string{39 * time.Second: "pod: [GPU-0]", 41 * time.Second: "none: []"} {
		moment := r.clock.Add(-ago).UnixNano()
		ids, by := r.DevicesOf(nil, &Workload{Pod: "p"}, moment, moment)
		assert.Equal(t, want, fmt.Sprint(by, ": ", ids), ago)
	}
}

// A clock that is set back neither hides a current use nor extends one that has ended.
func TestUsesFollowAClockThatIsSetBack(t *testing.T) {
	r := newUseRig(t)
	r.say(UsesOfProcesses)
	r.clock = r.clock.Add(10 * time.Second)
	stays, ends := DeviceUse{Device: "GPU-0", PID: 7}, DeviceUse{Device: "GPU-1", PID: 8}
	r.say(UsesOfProcesses, stays, ends)
	r.clock = r.clock.Add(-time.Hour)
	for range 4 {
		r.say(UsesOfProcesses, stays)
		assert.Equal(t, "process: [GPU-0]", r.now(Workload{PID: 7}))
		r.clock = r.clock.Add(10 * time.Second)
	}
	assert.Equal(t, "none: []", r.now(Workload{PID: 8}))
	r.clock = r.clock.Add(time.Hour - 35*time.Second) // when the use was valid by the wrong clock
	assert.Equal(t, "none: []", r.now(Workload{PID: 8}))
}

func TestUsesKnownAtTheStartApplyEarlier(t *testing.T) {
	r := newUseRig(t)
	r.say(UsesOfProcesses, DeviceUse{Device: "GPU-0", PID: 7})
	moment := r.clock.Add(-time.Hour).UnixNano()
	ids, _ := r.DevicesOf(nil, &Workload{PID: 7}, moment, moment)
	assert.Equal(t, []string{"GPU-0"}, ids)
}

func TestUsesAreBounded(t *testing.T) {
	r := newUseRig(t)
	uses := make([]DeviceUse, MaxUses+3)
	for i := range uses {
		uses[i] = DeviceUse{Device: "GPU-0", PID: int64(i + 1)}
	}
	r.say(UsesOfProcesses, uses...)
	assert.Equal(t, int64(3), r.uses.dropped.Load())
	r.say(UsesOfProcesses, uses...)
	assert.Equal(t, int64(6), r.uses.dropped.Load(), "what was there goes on, the rest is refused again")
	r.SetUses(UseOrigin{gpuID, UsesOfPods, "id-a", "a"}, []DeviceUse{{Device: "GPU-0", Pod: "p"}}, time.Second)
	assert.Equal(t, int64(7), r.uses.dropped.Load(), "over all origins")
}

func TestLookingForDevicesAllocatesNothing(t *testing.T) {
	r := newUseRig(t)
	r.say(UsesOfProcesses, DeviceUse{Device: "GPU-0", PID: 7})
	dst := make([]string, 0, 8)
	w := Workload{PID: 7, HostName: "a"}
	now := r.clock.UnixNano()
	assert.Zero(t, testing.AllocsPerRun(100, func() { dst, _ = r.DevicesOf(dst[:0], &w, now, now) }))
	assert.Equal(t, []string{"GPU-0"}, dst)
}
