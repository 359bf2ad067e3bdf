// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// operationalEvent is an event with the XIDs of its contexts; 0 is a context of another type.
type operationalEvent struct {
	nvml.EventWait
	xids []uint32
}

// goe returns an operational event of GPU-1 as nvmlEventSetWait_v3 delivers it.
func goe(module string, category, code, severity uint32, xids ...uint32) operationalEvent {
	e := operationalEvent{xids: xids}
	e.DataType, e.CategoryID, e.ModuleEventCode, e.Severity = 1, category, code, severity
	copy(e.UUID[:], "GPU-1")
	copy(e.SourceModule[:], module)
	return e
}

// bit returns an XID as an event bit.
func bit(xid uint64) operationalEvent {
	var e operationalEvent
	e.EventType, e.EventData = nvml.EventTypeXidCriticalError, xid
	copy(e.UUID[:], "GPU-1")
	return e
}

func (e operationalEvent) in(group uint64, attributes uint32) operationalEvent {
	e.GroupCursor, e.GroupSize, e.Attributes = group, 2, attributes
	return e
}

func TestAFaultIsOneEvent(t *testing.T) {
	link := devicesamples.Fault{Module: "GPU-NVLINK", Category: 3, Code: 5, Severity: 40}
	for name, c := range map[string]struct {
		notified []operationalEvent
		xids     []int64 // 0: none
		faults   []devicesamples.Fault
	}{
		"an XID": {[]operationalEvent{bit(79)}, []int64{79}, []devicesamples.Fault{{}}},
		"an XID in both formats": {
			[]operationalEvent{bit(74), goe("GPU-NVLINK", 3, 5, 40, 0, 74)}, []int64{74}, []devicesamples.Fault{link},
		},
		"the operational event first": {
			[]operationalEvent{goe("GPU-NVLINK", 3, 5, 40, 74), bit(74)}, []int64{74}, []devicesamples.Fault{link},
		},
		"two of them": {
			[]operationalEvent{bit(74), bit(74), goe("GPU-NVLINK", 3, 5, 40, 74), goe("GPU-NVLINK", 3, 5, 40, 74)},
			[]int64{74, 74},
			[]devicesamples.Fault{link, link},
		},
		"none": {[]operationalEvent{goe("GPU-NVLINK", 3, 5, 40)}, []int64{0}, []devicesamples.Fault{link}},
		"a category, severity and module that are new": {
			[]operationalEvent{goe("A-MODULE-OF-16-B", 0x99, 0x1234, 77)},
			[]int64{0},
			[]devicesamples.Fault{{Module: "A-MODULE-OF-16-B", Category: 0x99, Code: 0x1234, Severity: 77}},
		},
		"a group, whose main event is the second": {
			[]operationalEvent{goe("GPU-RAS", 2, 0x17, 20).in(9, 0), goe("GPU-NVLINK", 3, 5, 40, 74).in(9, 1<<5), bit(74)},
			[]int64{74},
			[]devicesamples.Fault{link},
		},
		"two groups": {
			[]operationalEvent{goe("GPU-NVLINK", 3, 5, 40).in(9, 1<<5), goe("GPU-NVLINK", 3, 5, 40).in(10, 1<<5)},
			[]int64{0, 0},
			[]devicesamples.Fault{link, link},
		},
		"another event bit": {[]operationalEvent{{EventWait: nvml.EventWait{EventType: 0x100}}}, nil, nil},
	} {
		t.Run(name, inFakeTime(func(t *testing.T) {
			m := newMachine(2)
			m.operational = []operationalEvent{}
			s := open(t, m)
			read(t, s)
			m.operational = c.notified
			b := read(t, s)
			assert.Empty(t, b.Events, "each waits for a second notification")
			time.Sleep(time.Second)
			b = read(t, s)
			require.Len(t, b.Events, len(c.xids))
			xids := 0.
			for i, e := range b.Events {
				assert.Equal(t, uint16(1), e.Device)
				assert.Equal(t, c.faults[i], e.Fault)
				if c.xids[i] == 0 {
					assert.Equal(t, devicesamples.EventFault, e.Kind)
				} else {
					xids++
					assert.Equal(t, devicesamples.EventXID, e.Kind)
					assert.Equal(t, c.xids[i], e.Code)
				}
			}
			v, _ := value(b, 1, gpuquantity.XIDs)
			assert.Equal(t, xids, v.V)
			assert.Empty(t, read(t, s).Events)
			require.NotEmpty(t, m.config)
			assert.Equal(t, "GPU-0", nvml.Text(m.config[0].UUID[:]))
		}))
	}
}

// inFakeTime returns a test in which no time passes but by Sleep.
func inFakeTime(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// TestOperationalEventsBesideAnotherSource reads them together with the processes, without XIDs,
// which the other source reports.
func TestOperationalEventsBesideAnotherSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(2)
		m.operational = []operationalEvent{}
		m.missing = map[string]bool{processUtilization: true}
		p := newProcesses(m.lib())
		require.NoError(t, p.Open())
		m.operational = []operationalEvent{goe("GPU-NVLINK", 3, 5, 40, 74), goe("GPU-RAS", 2, 0x17, 20)}
		var got []devicesamples.Event
		for range 3 {
			uses, err := p.Read(func(string) int64 { return 0 }, false)
			require.NoError(t, err)
			require.Len(t, uses, 2)
			assert.True(t, uses[1].Operational)
			assert.Empty(t, uses[0].Faults)
			got = append(got, uses[1].Faults...)
			time.Sleep(time.Second)
		}
		require.Len(t, got, 2)
		assert.Equal(t, devicesamples.EventXID, got[0].Kind)
		assert.Equal(t, int64(74), got[0].Code)
		assert.Equal(t, devicesamples.EventFault, got[1].Kind)
		require.NoError(t, p.Close())
	})
}

func TestAnEventHasItsOwnTimeIfTheDriverReportsIt(t *testing.T) {
	synctest.Test(t, testEventTime)
}

func testEventTime(t *testing.T) {
	m := newMachine(2)
	m.operational = []operationalEvent{}
	s := open(t, m)
	at := time.Now().Add(-10 * time.Second).UnixMicro()
	e, lost := goe("GPU-RAS", 2, 0x17, 20), goe("GPU-RAS", 2, 0x17, 20)
	e.TimestampUsec, e.Attributes = uint64(at), 1<<6
	clear(lost.UUID[:])
	m.operational = []operationalEvent{e, lost}
	dropped := read(t, s).Dropped
	time.Sleep(time.Second)
	b := read(t, s)
	require.Len(t, b.Events, 1)
	assert.Equal(t, at*1000, b.Events[0].Time)
	assert.EqualValues(t, 1, dropped[gpudata.DropOverrun], "records were dropped at the source")
	assert.EqualValues(t, 1, b.Dropped[gpudata.DropUnknownEntity], "the GPU is unknown")
}
