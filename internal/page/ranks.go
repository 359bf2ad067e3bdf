// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import "time"

// Job is what the profiles of several ranks of one job say together.
type Job struct {
	ID     string    `json:"id,omitempty"`
	World  int64     `json:"world,omitempty"` // ranks of the job; 0: not stated
	Says   string    `json:"says"`            // all of it in a few sentences
	Method JobMethod `json:"method"`
	Start  int64     `json:"start_unix_ns"` // of the rank that was recorded longest
	End    int64     `json:"end_unix_ns"`
	Ranks  []Rank    `json:"ranks"`
	// Late are ranks that hold the others up for more than a hundredth of the time, the worst first, at most 3; of the
	// last two methods one at most.
	Late []LateRank `json:"late,omitempty"`
	// of the communication of the ranks but the worst, what is waiting for a late one, 0 to 1
	WaitingShare float64 `json:"waiting_share,omitzero"`
}

// JobMethod is how a job's late ranks were found.
type JobMethod string

// Methods, the first that a job's profiles allow.
const (
	ByArrival       JobMethod = "arrival"       // when each rank came to collectives, clocks aligned by their ends
	ByLength        JobMethod = "length"        // clocks cannot be aligned: who comes last to a collective runs shortest
	ByCommunication JobMethod = "communication" // no collectives match: who comes last communicates least
	ByOwnTime       JobMethod = "own_time"      // no collectives: steps without exposed communication
)

// Rank is one rank of a job.
type Rank struct {
	Rank          int64         `json:"rank"`
	File          string        `json:"file"`
	Step          time.Duration `json:"step_ns,omitzero"` // mean; 0: no steps
	Own           time.Duration `json:"own_ns,omitzero"`  // mean step without communication that nothing hides
	Computing     time.Duration `json:"computing_ns"`
	Communicating time.Duration `json:"communicating_ns"`
	Collectives   int           `json:"collectives"` // that match
	Last          int           `json:"last"`        // of those, at which it came last
	Waited        time.Duration `json:"waited_ns"`
	HeldUp        time.Duration `json:"held_up_ns"` // how long the others together waited for it
	// Caused is how long the others waited because of it, at whatever collective: where it came last because it had to
	// wait itself, for a rank that the others do not meet, that rank caused it.
	Caused time.Duration `json:"caused_ns"`
}

// LateRank is a rank that holds the others up.
type LateRank struct {
	Rank int64         `json:"rank"`
	Each time.Duration `json:"each_ns"` // how long each of the others waits for it in the mean
	// At are the collectives at which it came last, most often first; First and Last are when, since its window began.
	At    []LateAt      `json:"at,omitempty"`
	First time.Duration `json:"first_ns,omitzero"`
	Last  time.Duration `json:"last_ns,omitzero"`
	// What it did longer than the others' median before those: kernels, copies, and nothing on its device, while its host
	// was mostly in In.
	Computing time.Duration `json:"more_computing_ns"`
	Copying   time.Duration `json:"more_copying_ns"`
	Idle      time.Duration `json:"more_idle_ns"`
	In        string        `json:"in,omitempty"`
	InTime    time.Duration `json:"in_ns,omitzero"`
}

// LateAt counts collectives of one name.
type LateAt struct {
	Collective string `json:"collective"`
	Group      string `json:"group,omitempty"`
	Count      int    `json:"count"`
}
