// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpugoodputconnector

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/goodput"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// busy is the utilization from which on a device works: a kernel that waits for another rank has 1.
const busy = 0.5

// user is a job, or what has no job, that uses a device.
type user struct {
	id         string // empty: no job
	from, seen int64  // unix ns
}

func (u *user) overlaps(from, to int64) bool { return u.from < to && u.seen > from }

// claim is the newest job with spans on a device.
type claim struct {
	id    string
	end   int64 // unix ns: of its newest span there
	ranks []int64
}

// devices adds what the devices did since the last output to the accounts of the jobs that use
// them. c.mu is held.
func (c *gpuGoodput) devices(now time.Time) {
	view := c.reader.Acquire()
	defer view.Release()
	lister, _ := c.reader.(devicesamples.UseLister)
	claims, newest := map[string]claim{}, map[string]int64{}
	for id, j := range c.jobs {
		j.Devices(func(rank int64, device string, end int64) {
			newest[id] = max(newest[id], end)
			switch of := claims[device]; {
			case of.id == id:
				claims[device] = claim{id, max(of.end, end), append(of.ranks, rank)}
			case end > of.end:
				claims[device] = claim{id, end, []int64{rank}}
			}
		})
	}
	for _, d := range view.Devices(nil) {
		device := devicesamples.NormalizeID(d.Device().ID)
		of := claims[device]
		var users []user
		if lister != nil {
			c.uses = lister.Uses(c.uses[:0], device)
			users = usersOf(c.uses)
		}
		unnamed := true // the job with spans, by the uses
		for _, u := range users {
			if u.id == "" {
				continue
			}
			id := c.identify(u, of, newest, len(users) == 1)
			j := c.jobs[id]
			if j == nil {
				if len(c.jobs) >= c.cfg.MaxJobs {
					c.tel.ConnectorGpuGoodputDropped.Add(context.Background(), 1, sharedcomponent.Label("reason", "max_jobs"))
					continue
				}
				j = &job{}
				c.jobs[id] = j
			}
			j.seen = now
			unnamed = unnamed && id != of.id
			c.use(j, d, device, u, users, now)
		}
		if j := c.jobs[of.id]; j != nil {
			if a := j.Active(device); a != nil && unnamed {
				c.read(a, d, max(a.Until(), j.Start), math.MaxInt64, alone)
			}
			for _, rank := range of.ranks {
				c.spin(j, d, rank)
			}
		}
	}
}

// identify returns the job to which the time of a user belongs: with the same identity, or with
// spans and in the same allocation, or with spans on a device that nobody else uses.
func (c *gpuGoodput) identify(u user, of claim, newest map[string]int64, alone bool) string {
	if j := c.jobs[u.id]; j != nil && j.spans {
		return u.id
	}
	known := c.aliases[u.id]
	if of.id == "" || of.end < u.from || newest[of.id] <= newest[known] || !alone && !strings.HasPrefix(of.id, u.id+"/") {
		return cmp.Or(known, u.id)
	}
	if len(c.aliases) >= maxAliases {
		return u.id
	}
	j := c.jobs[of.id]
	if before := c.jobs[known]; before != nil && before != j {
		j.floor = before.End // several runs in one allocation: each has its own time
	} else if own := c.jobs[u.id]; own != nil {
		j.Absorb(&own.Job)
		delete(c.jobs, u.id)
	}
	c.aliases[u.id] = of.id
	return of.id
}

// maxAliases bounds the identities of jobs that have spans, too.
const maxAliases = 1 << 16

// use adds the time of a user to the account of its job.
func (c *gpuGoodput) use(j *job, d devicesamples.DeviceView, device string, u user, users []user, now time.Time) {
	a := j.Active(device)
	if a == nil {
		return
	}
	others := func(from, to int64) bool {
		return slices.ContainsFunc(users, func(x user) bool { return x.id != u.id && x.overlaps(from, to) })
	}
	if until := a.Until(); until > 0 && u.from > until && !others(until, u.from) {
		a.Add(until, u.from, 0) // between two processes of the job
	}
	from := max(u.from, j.floor, a.Until())
	if oldest, _ := d.Range(quantity(d)); from < oldest {
		from = max(from, oldest-int64(d.Interval()))
	}
	if from <= 0 {
		from = u.seen
	}
	j.Present(from, u.seen)
	if !others(from, u.seen) {
		c.read(a, d, from, u.seen, alone)
		return
	}
	// On a device that others use, too, the processes of the job have their own time.
	windows, _ := c.reader.(devicesamples.ShareReader)
	if windows == nil {
		return
	}
	board := device
	if b, ok := d.Board(); ok {
		board = b.Device().ID
	}
	c.read(a, d, from, min(u.seen, now.Add(-divided).UnixNano()), func(from, to int64, v float64) (float64, bool) {
		if v == 0 {
			return 0, true
		}
		var busy, known float64
		c.windows = windows.Shares(board, from, to, c.windows[:0])
		for _, w := range c.windows {
			part := float64(min(w.To, to)-max(w.From, from)) / float64(to-from)
			known += part
			for _, x := range w.Users {
				if jobOf(x.DeviceUse) == u.id && devicesamples.NormalizeID(cmp.Or(x.Device, device)) == device {
					busy += part * x.Resident
				}
			}
		}
		return min(busy, v), known > 0.5
	})
}

// divided is the time after which it is known how processes divided a device.
const divided = 5 * time.Second

// alone is the share of the only user of a device.
func alone(_, _ int64, v float64) (float64, bool) { return v, true }

// quantity returns the field with the activity of a device. The activity of multiprocessors is at
// most the share of the time in which kernels ran.
func quantity(d devicesamples.DeviceView) devicesamples.Field {
	if d.Has(devicesamples.Utilization) {
		return devicesamples.Utilization
	}
	return devicesamples.SMUtilization
}

// read adds the values of a device in an interval to an activity. A value applies to the time since
// the one before. share returns the part of it that counts, and false if that is unknown.
func (c *gpuGoodput) read(
	a *goodput.Activity, d devicesamples.DeviceView, from, to int64, share func(from, to int64, v float64) (float64, bool),
) {
	interval := int64(d.Interval())
	if interval <= 0 {
		return
	}
	c.values = d.Values(quantity(d), from, c.values[:0])
	for _, v := range c.values {
		if v.Time > to {
			return
		}
		if v.Time-from > 3*interval {
			from = v.Time - interval
		}
		if s, ok := share(from, v.Time, v.Value); ok {
			a.Add(from, v.Time, s)
		}
		from = v.Time
	}
}

// spin notes how long the device of a rank has been busy since the rank's last span. c.mu is held.
func (c *gpuGoodput) spin(j *job, d devicesamples.DeviceView, rank int64) {
	until, gap := j.Busy(rank), 3*int64(d.Interval())
	c.values = d.Values(devicesamples.Utilization, until, c.values[:0])
	for _, v := range c.values {
		if v.Value < busy || v.Time-until > gap {
			break
		}
		until = v.Time
	}
	j.Spin(rank, until)
}

// usersOf returns the jobs that use a device, oldest first.
func usersOf(uses []devicesamples.TimedUse) []user {
	inPod := slices.ContainsFunc(uses, func(u devicesamples.TimedUse) bool { return u.Job != "" && u.PodUID != "" })
	named := slices.ContainsFunc(uses, func(u devicesamples.TimedUse) bool { return u.Pod != "" })
	var users []user
	for _, u := range uses {
		id := jobOf(u.DeviceUse)
		if inPod && u.Job == "" && u.PID == 0 || named && id == "" && (u.PodUID != "" || u.ContainerID != "") {
			continue // another listing of the same process
		}
		if i := slices.IndexFunc(users, func(x user) bool { return x.id == id }); i >= 0 {
			users[i].from, users[i].seen = min(users[i].from, u.From), max(users[i].seen, u.Seen)
			continue
		}
		users = append(users, user{id, u.From, u.Seen})
	}
	slices.SortFunc(users, func(a, b user) int { return cmp.Compare(a.from, b.from) })
	return users
}

// jobOf returns the identity of the job that uses a device: its own, or its pod's.
func jobOf(u *devicesamples.DeviceUse) string {
	switch {
	case u.Job != "":
		return u.Job
	case u.Pod != "" && u.Namespace != "":
		return u.Namespace + "/" + u.Pod
	default:
		return u.Pod
	}
}
