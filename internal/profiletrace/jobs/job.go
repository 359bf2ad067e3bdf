// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

// Job is the result of comparing the profiles of several ranks of one job.
type Job struct {
	ID     string    `json:"id,omitempty"`
	World  int64     `json:"world,omitempty"` // ranks of the job; 0: not stated
	Says   string    `json:"says"`            // a summary in a few sentences
	Method JobMethod `json:"method"`
	Start  int64     `json:"start_unix_ns"` // of the rank that was recorded longest
	End    int64     `json:"end_unix_ns"`
	Ranks  []Rank    `json:"ranks"`
	// Late are ranks that delay the others for more than a hundredth of the time, the worst first,
	// at most 3; of the last two methods one at most.
	Late []LateRank `json:"late,omitempty"`
	// share of the communication of all ranks except the worst that is waiting for a late one, 0 to
	// 1
	WaitingShare float64 `json:"waiting_share,omitzero"`
	// mean share of the time in which stages of a pipeline that compute equally long do not
	// compute, 0 to 1; no rank is late then
	Bubbles float64 `json:"bubbles,omitzero"`
	// Missing are ranks without a profile, and Absent how long all others wait for them; 0: not
	// beyond chance, or not as long as for a rank with one. AbsentHits of AbsentSteps steps show
	// it. If AbsentOrLink names a group, a slow link of it explains that equally well.
	Missing      []int64       `json:"missing,omitempty"`
	Absent       time.Duration `json:"absent_ns,omitzero"`
	AbsentHits   int           `json:"absent_hits,omitzero"`
	AbsentSteps  int           `json:"absent_steps,omitzero"`
	AbsentOrLink string        `json:"absent_or_link,omitempty"`
	// SlowGroups are process groups whose transfers take long, the worst first; no rank is the
	// cause.
	SlowGroups []SlowGroup `json:"slow_groups,omitempty"`
	// Carried are ranks that were late when their profiles began.
	Carried []Carried `json:"carried,omitempty"`
	// Unrecorded are ranks whose profiles lack records of work: they are not judged.
	Unrecorded []int64 `json:"unrecorded,omitempty"`
	// Observed is what was seen if no rank is named; nil: steps cannot be compared.
	Observed *Observation `json:"observed,omitempty"`
	// Path is the critical path across the ranks; nil: clocks cannot be aligned.
	Path *Path `json:"path,omitempty"`
	// Transfers are the collectives whose messages are stated, each run as long as its shortest
	// rank.
	Transfers     []Transfer `json:"transfers,omitempty"`
	MoreTransfers int        `json:"moreTransfers,omitempty"` // messages with less time
}

// Transfer is the runs of all collectives of a job with one message. The bandwidth is of the mean
// run.
type Transfer struct {
	facts.Transfer
	Recorded int `json:"recorded"` // ranks whose profiles have a run, of the run with the fewest
}

// JobMethod is how a job's late ranks were found.
type JobMethod string

// Methods, the first that a job's profiles allow.
const (
	ByArrival       JobMethod = "arrival"       // when each rank arrived at collectives, clocks aligned by their ends
	ByLength        JobMethod = "length"        // clocks cannot be aligned: the last rank at a collective runs it shortest
	ByCommunication JobMethod = "communication" // no collectives match: time without communication
	ByOwnTime       JobMethod = "own_time"      // no collectives: steps without exposed communication
)

// Rank is one rank of a job.
type Rank struct {
	Rank          int64  `json:"rank"`
	File          string `json:"file"`
	path          string
	devices       map[int64]bool // see profile
	Step          time.Duration  `json:"step_ns,omitzero"` // mean; 0: no steps
	Own           time.Duration  `json:"own_ns,omitzero"`  // mean step without exposed communication
	Computing     time.Duration  `json:"computing_ns"`
	Communicating time.Duration  `json:"communicating_ns"`
	Collectives   int            `json:"collectives"` // that match
	Last          int            `json:"last"`        // of those, at which it came last
	Waited        time.Duration  `json:"waited_ns"`
	HeldUp        time.Duration  `json:"held_up_ns"` // how long the others together waited for it
	// Caused is how long the others waited because of it, at any collective: if it arrived last
	// because it had to wait itself, for a rank that the others do not meet, that rank caused it.
	Caused time.Duration `json:"caused_ns"`
}

// LateRank is a rank that delays the others.
type LateRank struct {
	Rank int64         `json:"rank"`
	Each time.Duration `json:"each_ns"` // how long each of the others waits for it on average
	// Excess is by how much a step's own time exceeds the median of its peers', in the mean; Hits
	// of Steps steps show the rank as the slowest, and P is the probability of that by chance.
	// Steps 0: not judged by steps. If single steps decide nothing, collectives do: of the Rounds
	// before which a rank clearly worked longest, RoundHits show this one.
	Excess    time.Duration `json:"excess_ns,omitzero"`
	InHits    time.Duration `json:"excess_in_hits_ns,omitzero"` // likewise, of the steps with hits
	Hits      int           `json:"hits,omitzero"`
	Steps     int           `json:"steps,omitzero"`
	Rounds    int           `json:"rounds,omitzero"`
	RoundHits int           `json:"round_hits,omitzero"`
	P         float64       `json:"p,omitzero"` // 0: judged by magnitude
	// Certainty is how sure that is.
	Certainty finding.Certainty `json:"certainty"`
	// At are the collectives at which it arrived last, most frequent first; First and Last are
	// when, since its window began.
	At    []LateAt      `json:"at,omitempty"`
	First time.Duration `json:"first_ns,omitzero"`
	Last  time.Duration `json:"last_ns,omitzero"`
	// What took longer than the others' median before those: kernels, copies, and nothing on its
	// device, while its host was mostly in In.
	Computing time.Duration `json:"more_computing_ns"`
	Copying   time.Duration `json:"more_copying_ns"`
	Idle      time.Duration `json:"more_idle_ns"`
	Kernels   string        `json:"kernels,omitempty"` // whether it runs more kernels, or the same take longer there
	In        string        `json:"in,omitempty"`
	InTime    time.Duration `json:"in_ns,omitzero"`
}

// LateAt counts collectives of one name.
type LateAt struct {
	Collective string `json:"collective"`
	Group      string `json:"group,omitempty"`
	Count      int    `json:"count"`
}
