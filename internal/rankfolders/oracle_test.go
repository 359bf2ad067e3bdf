// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rankfolders

import (
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// An oracle knows what no rule can know of a recording: the distribution of the noise, its size,
// and how often which lateness occurs. What it does not find cannot be found.

// logDensity tabulates the logarithm of a density.
type logDensity struct {
	from, by float64
	values   []float64
}

func (d *logDensity) at(x float64) float64 {
	i := int((x - d.from) / d.by)
	return d.values[min(max(i, 0), len(d.values)-1)]
}

// hostQuantile returns the quantile of the time for which a rank's device is idle before a
// collective.
func (j *job) hostQuantile(p float64) float64 {
	u := j.jitter / math.Sqrt(float64(len(j.rounds)))
	normal := math.Sqrt2 * math.Erfinv(2*p-1)
	switch j.noise {
	case "normal":
		return max(0, u*(2+normal))
	case "lognormal":
		return u / 2.16 * math.Exp(normal)
	case "exponential":
		return -u * math.Log1p(-p)
	}
	return max(0, u*(0.4+0.2*normal))
}

// density returns the density of a rank's own time before a collective, above what its kernels
// take on a device of this speed.
func (j *job) density(k int) *logDensity {
	const points, cells = 400, 4000
	spread := 0.005
	if j.rounds[k].group == "ep" {
		spread = math.Hypot(spread, 0.04)
	}
	spread *= j.rounds[k].own * j.stepTime
	longest := j.hostQuantile(1-0.25/points) + 6*spread
	d := &logDensity{from: -6 * spread, values: make([]float64, cells)}
	d.by = (longest + 6*spread) / cells
	for i := range points {
		middle := j.hostQuantile((float64(i) + 0.5) / points)
		around := j.hostQuantile((float64(i)+0.98)/points) - j.hostQuantile((float64(i)+0.02)/points)
		sigma := math.Hypot(math.Hypot(spread, around), d.by)
		for c := range cells {
			z := (d.from + (float64(c)+0.5)*d.by - middle) / sigma
			d.values[c] += math.Exp(-z*z/2) / (sigma * points)
		}
	}
	rare := 1e-9 / longest
	if j.noise == "pauses" && j.jitter > 0 { // a pause can be in each collective
		rare = 0.01 / float64(len(j.rounds)) / (6*spread + 1)
	}
	for c := range d.values {
		d.values[c] = math.Log(max(rare, d.values[c]))
	}
	return d
}

func logSum(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	return a + math.Log1p(math.Exp(b-a))
}

// own returns the own time of a rank before a collective.
func (j *job) own(s, k, r int) float64 {
	return j.host[s][k][r] + j.late[s][k][r] + j.work[s][k][r] + j.slower[s][k][r]
}

// lateness returns the logarithm of how much more likely a rank's own times are if it is late, with
// the probabilities of the simulation. With repeated, its latest step is no evidence.
func (j *job) lateness(densities []*logDensity, r int, repeated bool) float64 {
	rounds, own := len(j.rounds), 0.0
	for _, k := range j.rounds {
		own += k.own
	}
	amount := func(s int, percent float64, pattern string) float64 {
		a := percent / 100 * j.stepTime
		switch pattern {
		case "intermittent":
			a /= 0.3
		case "drifting":
			a *= 2 * float64(s) / float64(max(1, j.steps-1))
		}
		return a
	}
	latest, most := -1, 0.0
	for s := range j.steps {
		sum := 0.0
		for k := range j.rounds {
			sum += j.own(s, k, r)
		}
		if repeated && sum > most {
			latest, most = s, sum
		}
	}
	late, even := math.Inf(-1), math.Inf(-1)
	for _, v := range []float64{-2, -4.0 / 3, -2.0 / 3, 0, 2.0 / 3, 4.0 / 3, 2} { // of the speed
		weight := -v * v / 2
		likelihood := func(s, first, after int, more float64) (sum float64) { // after 0: a slow device
			if s == latest {
				return 0
			}
			for k := range j.rounds {
				x := j.own(s, k, r) - j.rounds[k].own*j.stepTime*(1+0.003*v)
				switch {
				case after == 0:
					x -= more * j.rounds[k].own / own
				case k >= first && k < after:
					x -= more / float64(after-first)
				}
				sum += densities[k].at(x)
			}
			return sum
		}
		steps, all := make([]float64, j.steps), 0.0
		for s := range steps {
			steps[s] = likelihood(s, 0, 1, 0)
			all += steps[s]
		}
		even = logSum(even, weight+all)
		for _, percent := range []float64{2, 5, 10, 20} {
			for _, place := range [][2]int{{0, 1}, {0, (rounds + 1) / 2}, {rounds / 2, rounds}, {0, 0}} {
				for pattern, probability := range map[string]float64{"constant": 0.5, "intermittent": 0.25, "drifting": 0.25} {
					sum := 0.0
					for s := range steps {
						x := likelihood(s, place[0], place[1], amount(s, percent, pattern))
						if pattern == "intermittent" {
							x = logSum(math.Log(0.3)+x, math.Log(0.7)+steps[s])
						}
						sum += x
					}
					late = logSum(late, weight+sum+math.Log(probability/16))
				}
			}
		}
	}
	return late - even
}

// oracle names the rank that is late with a probability of at least sure; -1: none.
func (j *job) oracle(ranks []int, sure float64, repeated bool) int {
	densities := make([]*logDensity, len(j.rounds))
	for k := range densities {
		densities[k] = j.density(k)
	}
	list, total := make([]float64, len(ranks)), 0.0 // half of the jobs are healthy
	for i, r := range ranks {
		list[i] = j.lateness(densities, r, repeated) - math.Log(float64(j.ranks))
		total = logSum(total, list[i])
	}
	best := slices.Index(list, slices.Max(list))
	if list[best]-total < math.Log(sure) {
		return -1
	}
	return ranks[best]
}

// OTELGPU_RANK_FOLDERS is the number of jobs.
func TestWhatAnOracleFinds(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("OTELGPU_RANK_FOLDERS"))
	if err != nil {
		t.Skip("without OTELGPU_RANK_FOLDERS")
	}
	scores := map[string]*score{}
	for seed := range n {
		j, out := planted(uint64(seed) + firstSeed())
		if out == nil || j.fault == "slow_link" {
			continue
		}
		for _, absence := range []string{"complete", "without an innocent rank"} {
			if absence != "complete" && (j.ranks < 4 || j.ranks > 16) {
				continue
			}
			for _, repeated := range []bool{false, true} {
				named := j.oracle(j.present(absence), 0.9, repeated)
				key := absence
				if repeated {
					key += ", one step is no evidence"
				}
				if scores[key] == nil {
					scores[key] = &score{}
				}
				healthy := j.fault == "none"
				scores[key].add(healthy, healthy && named < 0 || !healthy && named == j.culprit, named < 0)
			}
		}
	}
	for key, s := range scores {
		t.Logf("%-52s %s", key, s)
		require.LessOrEqual(t, s.wrong+s.alarms, n/50, "the oracle knows the distributions")
	}
}
