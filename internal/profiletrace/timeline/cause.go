// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Cause is why a device was idle at a moment. Every idle nanosecond has exactly one.
type Cause uint8

// Causes.
const (
	CauseUnknown  Cause = iota // unknown: the next activity's launch is not in the file
	CauseLoader                // the host waited for data
	CauseHost                  // the host did something else, named or not
	CauseDispatch              // the host launched one operation after another, slower than the device worked
	// the host was in a slow call of the runtime: start-up, module loading, a first launch
	CauseCall
	CauseAllocation      // the host allocated or freed memory of the device or pinned memory
	CauseSynchronization // the host waited for the device, and had nothing queued when the wait ended
	CauseAfterWait       // the host had waited for the device, and then worked for long without a named range
	CausePeer            // the host waited for another rank
	CauseLatency         // the work was launched and had not started yet
	CauseDependency      // the work was launched long ago and waited for something else
	CauseProfiler        // the profiler itself worked
	CauseNoLoad          // the program waited for work from outside, as a server for requests
	CauseCapture         // the host captured a graph, which launches nothing
	CauseWarmUp          // whatever it was, before a program that replays graphs began to
	// the device may have worked: launched work, or work that the host waited for, has no record.
	// It is no idle time
	CauseNotRecorded
	causeCount
)

var causes = [causeCount]string{
	"unknown", "loader", "host", "dispatch", "call", "allocation", "synchronization", "after_wait", "peer", "latency",
	"dependency", "profiler", "no_load", "capture", "warm_up", "not_recorded",
}

// causesForPeople are the causes with another name in sentences.
var causesForPeople = map[Cause]string{
	CauseHost: "other work of the host", CauseDispatch: "launch-bound", CauseCall: "slow runtime calls",
	CauseAfterWait: "work without a name after waits", CausePeer: "waiting for another rank",
	CauseLatency: "launch latency", CauseNoLoad: "no load", CauseCapture: "capture of graphs", CauseWarmUp: "warm-up",
	CauseNotRecorded: "not recorded",
}

// ForPeople returns the name of the cause in sentences.
func (c Cause) ForPeople() string { return cmp.Or(causesForPeople[c], c.String()) }

// String returns the value for the cause in attributes and JSON.
func (c Cause) String() string { return causes[c] }

// MarshalText writes the cause as String.
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (c *Cause) UnmarshalText(text []byte) error {
	i := slices.Index(causes[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is not a cause of idle time", text)
	}
	*c = Cause(i)
	return nil
}

// Causes is how many there are; all are below it.
const Causes = causeCount

// Limits of the rules, in ns.
const (
	// from launch to begin; a queued kernel follows the one before after 1 to 20 µs
	LatencyLimit = int64(50 * time.Microsecond)
	// between two launches; an eager framework needs 5 to 100 µs for an operator
	quietLimit = int64(200 * time.Microsecond)
	PauseLimit = int64(2 * time.Millisecond) // up to which small operators between two launches are dispatch, too
	// without a record after a wait: too long to only return and launch. PauseLimit applies to a wait in
	// a named range, as an operator that reads a number
	AfterWait = int64(700 * time.Microsecond)
	longPiece = int64(100 * time.Microsecond) // too long for a small operator
	slowCall  = int64(200 * time.Microsecond) // a launch takes 2 to 20 µs; one that loads a module takes milliseconds
	// for which the host waits longer than the recorded work runs; then other work ran. Waking a
	// thread takes 10 to 100 µs
	UnrecordedWait = int64(time.Millisecond)
	tinyCall       = int64(20 * time.Microsecond) // calls that query a property are part of the dispatch
	clockSlack     = int64(10 * time.Microsecond) // a wait may seem to end before the work that it waited for
)
