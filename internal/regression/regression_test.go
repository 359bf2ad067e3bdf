// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package regression

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Values from tables of Student's t.
func TestQuantilesEqualPublishedTables(t *testing.T) {
	for _, c := range []struct{ p, freedom, want float64 }{
		{0.975, 1, 12.7062},
		{0.975, 10, 2.2281},
		{0.9995, 7, 5.4079},
		{0.9995, 30, 3.6460},
		{0.995, 100, 2.6259},
		{0.9995, 1e6, 3.2905},
	} {
		assert.InDelta(t, c.want, quantile(c.p, c.freedom), 3e-3*c.want, c)
	}
}

// An example with unequal variances: two lists with manually computed difference and interval.
func TestTheIntervalIsWelchs(t *testing.T) {
	list := func(values ...float64) (out []block) {
		for _, v := range values {
			out = append(out, block{2 * v, 2})
		}
		return out
	}
	// means 2 and 5; variances 1 and 4 of 3 values each, so the error is sqrt(1/3+4/3) and freedom (5/3)²/(1/18+16/18).
	// Products of neighbors are -1 and -4 of squares 2 and 8, so r is -0.5, with bias and error -0.5-1/3+1/sqrt(6) < 0.
	diff, half, ok := interval(list(2, 1, 3), list(5, 3, 7))
	require.True(t, ok)
	assert.InDelta(t, 3, diff, 1e-12)
	r := -0.5 - 1.0/3 + 1/math.Sqrt(6)
	factor := 1 / (1 - r)
	assert.InDelta(t, quantile(0.99995, 25.0/9*18/17/factor)*math.Sqrt(5.0/3*factor), half, 1e-9)
	_, _, ok = interval(list(1), list(1, 2, 3))
	assert.False(t, ok)
}

// load is an operation whose runs have noise and, from block to block, drift.
type load struct {
	r            *rand.Rand
	noise, drift float64 // standard deviations of the logarithm
	persistence  float64 // of the drift, from second to second
	state        float64
}

// runs adds n seconds of runs, ten per second, with the given mean.
func (l *load) runs(s *Series, from time.Time, seconds int, mean float64) time.Time {
	for i := range seconds {
		l.state = l.persistence*l.state + math.Sqrt(1-l.persistence*l.persistence)*l.drift*l.r.NormFloat64()
		for k := range 3 {
			at := from.Add(time.Duration(i)*time.Second + time.Duration(k)*300*time.Millisecond)
			v := mean * math.Exp(l.state+l.noise*l.r.NormFloat64())
			run := Example{Start: uint64(at.UnixNano()) - 1000, End: uint64(at.UnixNano())}
			run.Trace[0], run.Span[0] = 1, byte(k+1)
			s.Add([2]float64{v, 300 * v}, run)
		}
	}
	return from.Add(time.Duration(seconds) * time.Second)
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func versions(t *testing.T, l *load, seconds int, rise float64) []*Finding {
	t.Helper()
	tr := New(0.1, 10)
	k := Key{Service: "llm", Operation: "decode", PerItem: true}
	at := l.runs(tr.Series(k, "1.4.1"), start, seconds, 0.02)
	l.runs(tr.Series(k, "1.4.2"), at, seconds, 0.02*rise)
	found, dropped := tr.Take()
	assert.Zero(t, dropped)
	return found
}

func TestAPlantedRegressionIsFound(t *testing.T) {
	for seed := range uint64(20) {
		l := &load{r: rand.New(rand.NewPCG(seed, 1)), noise: 0.3, drift: 0.05, persistence: 0.5}
		found := versions(t, l, 700, 1.25)
		require.Len(t, found, 2, "time and energy, each once")
		for q, f := range found {
			assert.EqualValues(t, q, f.Quantity)
			assert.Equal(t, []string{"1.4.1", "1.4.2"}, []string{f.Baseline, f.Version})
			assert.InDelta(t, 1.25, f.Ratio, 0.15)
			assert.Less(t, 1.1, f.Lower)
			assert.Less(t, f.Lower, f.Ratio)
			assert.Less(t, f.Ratio, f.Upper)
			assert.InDelta(t, f.Ratio, f.Now.Mean/f.Before.Mean, 1e-9)
			assert.Greater(t, f.Now.Count, int64(400))
			assert.Greater(t, f.Before.Count, f.Now.Count)
			assert.NotZero(t, f.Now.Example.Span)
			assert.Less(t, f.Before.Example.End, f.Now.Example.Start)
		}
	}
}

// Makes 1,000 comparisons for each kind of noise, of unchanged operations and of operations that increased by exactly
// the threshold; 1 may be wrong.
func TestFalseAlarmsAreBelowOneInAThousand(t *testing.T) {
	comparisons := 1000
	if testing.Short() {
		comparisons = 300
	}
	for i, c := range []struct {
		noise, drift, persistence, rise float64
	}{
		{0.3, 0, 0, 1}, {0.05, 0, 0, 1.1}, {1, 0.3, 0.5, 1}, {0.3, 0.3, 0.9, 1}, {0.3, 0.1, 0.8, 1.1},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			l := &load{
				r: rand.New(rand.NewPCG(uint64(i), 7)), noise: c.noise, drift: c.drift, persistence: c.persistence,
			}
			wrong := 0
			for range comparisons {
				for _, f := range versions(t, l, 360, c.rise) {
					if f.Quantity == Time {
						wrong++
					}
				}
			}
			t.Logf("%d of %d comparisons are false alarms", wrong, comparisons)
			assert.LessOrEqual(t, wrong*1000, comparisons)
		})
	}
}

func TestARiseSinceTheDayBeforeIsFound(t *testing.T) {
	for rise, want := range map[float64]int{1: 0, 1.3: 2} {
		l := &load{r: rand.New(rand.NewPCG(3, 3)), noise: 0.2, drift: 0.02, persistence: 0.9}
		tr := New(0.1, 10)
		s := tr.Series(Key{Service: "llm", Operation: "decode"}, "1")
		l.runs(s, start, 3600, 0.02)
		l.runs(s, start.Add(10*time.Hour), 3600, 0.04) // a different time of day has a different load
		end := l.runs(s, start.Add(24*time.Hour), 3600, 0.02*rise)
		l.runs(s, end, 1, 0.02)
		found, _ := tr.Take()
		require.Len(t, found, want, rise)
		if want > 0 {
			f := found[0]
			assert.Equal(t, []string{Yesterday, "1"}, []string{f.Baseline, f.Version})
			assert.InDelta(t, rise, f.Ratio, 0.1)
			assert.InDelta(t, 3*3600, f.Now.Count, 0)
			assert.Less(t, f.Before.Example.End, uint64(start.Add(2*time.Hour).UnixNano()))
		}
	}
}

func TestARegressionHoldsUntilAComparisonDoesNotFindIt(t *testing.T) {
	l := &load{r: rand.New(rand.NewPCG(5, 5)), noise: 0.1}
	tr := New(0.1, 10)
	k := Key{Service: "llm", Operation: "decode"}
	active := func() (n int) {
		tr.Active(func(*Finding) { n++ })
		return n
	}
	at := l.runs(tr.Series(k, "1"), start, 400, 1)
	at = l.runs(tr.Series(k, "2"), at, 400, 1.5)
	assert.Equal(t, 2, active())
	found, _ := tr.Take()
	assert.Len(t, found, 2)
	at = l.runs(tr.Series(k, "2"), at, 7000, 0.9)
	assert.Zero(t, active(), "its cause went away")
	at = l.runs(tr.Series(k, "3"), at, 400, 2)
	assert.Equal(t, 2, active(), "against the version before, not the first one")
	found, _ = tr.Take()
	require.Len(t, found, 2)
	assert.Equal(t, "2", found[0].Baseline)
	l.runs(tr.Series(k, "4"), at, 1, 2)
	assert.Zero(t, active(), "another version, which is not compared yet")
}

func TestFewRunsAndTheWarmUpAreNotCompared(t *testing.T) {
	l := &load{r: rand.New(rand.NewPCG(5, 5)), noise: 0.01}
	assert.Empty(t, versions(t, l, 100, 3), "too few blocks")
	tr := New(0.1, 10)
	k := Key{Service: "llm"}
	at := l.runs(tr.Series(k, "1"), start, 400, 1)
	at = l.runs(tr.Series(k, "2"), at, 10, 1e6)
	l.runs(tr.Series(k, "2"), at, 400, 1)
	found, _ := tr.Take()
	assert.Empty(t, found, "the first seconds compile and allocate")
}

func TestMemoryIsBounded(t *testing.T) {
	l := &load{r: rand.New(rand.NewPCG(5, 5))}
	tr := New(0.1, 5)
	for i := range 20 {
		s := tr.Series(Key{Operation: fmt.Sprint(i)}, "1")
		assert.Equal(t, i >= 5, s.Gone())
		if s != nil {
			l.runs(s, start, 1, 1)
		}
	}
	_, dropped := tr.Take()
	assert.EqualValues(t, 15, dropped)
	kept := tr.Series(Key{Operation: "4"}, "1")
	l.runs(kept, start.Add(3*time.Hour), 1, 1)
	require.NotNil(t, tr.Series(Key{Operation: "new"}, "1"), "one that is idle gives room")
	assert.False(t, kept.Gone())
	var all []*Series
	for i := range 10 {
		s := tr.Series(Key{Operation: "4"}, fmt.Sprint("v", i))
		l.runs(s, start.Add(time.Duration(4+i)*time.Hour), 1, 1)
		all = append(all, s)
	}
	assert.True(t, all[0].Gone())
	assert.False(t, all[9].Gone())
	assert.Len(t, tr.ops[Key{Operation: "4"}].versions, maxVersions)
}

func TestAddingARunAllocatesNothing(t *testing.T) {
	tr := New(0.1, 5)
	s := tr.Series(Key{}, "1")
	at := start
	add := func() {
		at = at.Add(time.Second)
		s.Add([2]float64{1, 2}, Example{End: uint64(at.UnixNano())})
	}
	for range 20 {
		add()
	}
	assert.Zero(t, testing.AllocsPerRun(100, add))
}

// First launches and compilation are not compared.
func TestTheFirstTenSecondsOfAVersionAreLeftOut(t *testing.T) {
	s := New(0.1, 10).Series(Key{Operation: "decode"}, "1")
	at := func(d time.Duration) Example { return Example{End: uint64(time.Hour + d)} }
	s.Add([2]float64{9, 0}, at(0))
	s.Add([2]float64{9, 0}, at(9999*time.Millisecond))
	assert.Zero(t, s.all[Time].count)
	s.Add([2]float64{1, 0}, at(10*time.Second))
	assert.EqualValues(t, 1, s.all[Time].count)
	assert.Zero(t, s.all[Time].mean())
}

// The example is the run nearest to the mean of the last ten minutes.
func TestAnExampleIsReplacedByANearerOrANewerRun(t *testing.T) {
	var e Example
	choose := func(name byte, distance float64, at time.Duration) {
		run := Example{End: 1}
		run.Span[0] = name
		e.choose(&run, distance, int64(at))
	}
	choose(1, 0.5, 0)
	choose(2, 0.6, time.Minute)
	assert.EqualValues(t, 1, e.Span[0])
	choose(3, 0.4, 2*time.Minute)
	assert.EqualValues(t, 3, e.Span[0])
	choose(4, 0.9, 12*time.Minute)
	assert.EqualValues(t, 3, e.Span[0])
	choose(5, 0.9, 12*time.Minute+1)
	assert.EqualValues(t, 5, e.Span[0])
}

func active(t *Tracker) (of []string) {
	t.Active(func(f *Finding) {
		if f.Quantity == Time {
			of = append(of, f.Baseline+" to "+f.Version)
		}
	})
	return of
}

func TestARegressionEndsWhenItsVersionIsRolledBack(t *testing.T) {
	l := &load{r: rand.New(rand.NewPCG(5, 5)), noise: 0.1}
	tr := New(0.1, 10)
	k := Key{Service: "llm", Operation: "decode"}
	at := l.runs(tr.Series(k, "1"), start, 400, 1)
	at = l.runs(tr.Series(k, "2"), at, 400, 1.5)
	require.Equal(t, []string{"1 to 2"}, active(tr))
	at = l.runs(tr.Series(k, "1"), at, 600, 1)
	assert.Equal(t, []string{"1 to 2"}, active(tr))
	at = l.runs(tr.Series(k, "1"), at, 400, 1)
	assert.Empty(t, active(tr))
	found, _ := tr.Take()
	assert.Len(t, found, 2, "the version that came back is not compared with the one that was withdrawn")
	l.runs(tr.Series(k, "2"), at, 400, 1.5)
	assert.Equal(t, []string{"1 to 2"}, active(tr), "rolled out again")
}

// Canaries: both versions run at the same time, in any order of arrival.
func TestOfVersionsThatStartTogetherTheHigherNumberIsTheNewer(t *testing.T) {
	for _, c := range []struct {
		slow, fast string
		want       []string
	}{
		{"1.4.10", "1.4.9", []string{"1.4.9 to 1.4.10"}},
		{"v2.0.0", "v2.0.0-rc.1", []string{"v2.0.0-rc.1 to v2.0.0"}},
		{"1.4.9", "1.4.10", nil},    // the newer one is faster
		{"4f9c2b1", "a81e77d", nil}, // hashes have no order
		{"20261127", "a81e77d", nil},
	} {
		for first := range 2 {
			t.Run(fmt.Sprint(c.slow, first), func(t *testing.T) {
				l := &load{r: rand.New(rand.NewPCG(5, 5)), noise: 0.1}
				tr := New(0.1, 10)
				k := Key{Service: "llm", Operation: "decode"}
				for i := range 400 {
					for side := range 2 {
						v, mean := c.slow, 1.5
						if side != first {
							v, mean = c.fast, 1.0
						}
						l.runs(tr.Series(k, v), start.Add(time.Duration(i)*time.Second), 1, mean)
					}
				}
				assert.Equal(t, c.want, active(tr))
				at := start.Add(400 * time.Second)
				l.runs(tr.Series(k, "0.1"), at, 400, 3)
				assert.Len(t, active(tr), 1, "a version that starts later is newer, whatever its name")
			})
		}
	}
}

// The load of the evening is not compared with the one before the deployment in the morning.
func TestHoursAfterAVersionStartedOnlyTheDayBeforeIsABaseline(t *testing.T) {
	tr := New(0.1, 10)
	at := start
	run := func(version string, length time.Duration, mean float64) {
		s := tr.Series(Key{Service: "llm"}, version)
		for i := range int(length / (10 * time.Second)) {
			at = at.Add(10 * time.Second)
			s.Add([2]float64{mean * (1 + 0.01*float64(i%7)), 0}, Example{End: uint64(at.UnixNano())})
		}
	}
	run("1", 12*time.Hour, 1)
	run("2", 7*time.Hour, 1)
	run("2", 20*time.Hour, 1.5) // the widest window has only these
	found, _ := tr.Take()
	for _, f := range found {
		assert.Equal(t, Yesterday, f.Baseline)
	}
	assert.NotEmpty(t, found)
}

func TestRunsWithoutAVersionAreNoVersion(t *testing.T) {
	l := &load{r: rand.New(rand.NewPCG(5, 5)), noise: 0.1}
	tr := New(0.1, 10)
	k := Key{Service: "llm", Operation: "decode"}
	at := l.runs(tr.Series(k, ""), start, 400, 1)
	at = l.runs(tr.Series(k, "1"), at, 400, 2)
	assert.Empty(t, active(tr))
	at = l.runs(tr.Series(k, "2"), at, 400, 4)
	require.Equal(t, []string{"1 to 2"}, active(tr))
	at = l.runs(tr.Series(k, ""), at, 400, 8)
	assert.Equal(t, []string{"1 to 2"}, active(tr), "of the versions that run")
	k.Environment = "staging"
	l.runs(tr.Series(k, "3"), at, 400, 16)
	assert.Equal(t, []string{"1 to 2"}, active(tr), "another environment has its own load")
}

// slow is load that changes slowly: an Ornstein-Uhlenbeck process of the logarithm, or the time of day.
type slow struct {
	name  string
	every time.Duration // between runs
	of    time.Duration // each version
	noise func(r *rand.Rand) func(at time.Time) float64
}

func wanders(deviation float64, over time.Duration) func(*rand.Rand) func(time.Time) float64 {
	return func(r *rand.Rand) func(time.Time) float64 {
		state, last := deviation*r.NormFloat64(), start
		return func(at time.Time) float64 {
			p := math.Exp(-float64(at.Sub(last)) / float64(over))
			state, last = p*state+math.Sqrt(1-p*p)*deviation*r.NormFloat64(), at
			return state
		}
	}
}

func modes(share, times float64) func(*rand.Rand) func(time.Time) float64 {
	return func(r *rand.Rand) func(time.Time) float64 {
		return func(time.Time) float64 {
			if r.Float64() < share {
				return math.Log(times) + 0.02*r.NormFloat64()
			}
			return 0.02 * r.NormFloat64()
		}
	}
}

func daily(amplitude float64) func(*rand.Rand) func(time.Time) float64 {
	return func(r *rand.Rand) func(time.Time) float64 {
		phase := 2 * math.Pi * r.Float64()
		return func(at time.Time) float64 {
			return amplitude*math.Sin(2*math.Pi*at.Sub(start).Hours()/24+phase) + 0.1*r.NormFloat64()
		}
	}
}

var realistic = []slow{
	{"lognormal", time.Second / 2, 6 * time.Minute, wanders(0.3, 1)},
	{"two modes", time.Second, 6 * time.Minute, modes(0.1, 5)},
	{"a rare mode", 3 * time.Second, 6 * time.Minute, modes(0.02, 20)},
	{"heavy tail", time.Second, 6 * time.Minute, func(r *rand.Rand) func(time.Time) float64 {
		return func(time.Time) float64 { return r.ExpFloat64() / 1.2 } // Pareto
	}},
	{"wanders in 1 min, for hours", 10 * time.Second, 7 * time.Hour, wanders(0.3, time.Minute)},
	{"few runs for hours", 30 * time.Second, 7 * time.Hour, wanders(0.3, 1)},
	{"few runs", 30 * time.Second, 30 * time.Minute, wanders(0.3, 1)},
	{"wanders in 10 s", 2 * time.Second, 6 * time.Minute, wanders(0.3, 10*time.Second)},
	{"wanders in 1 min", 2 * time.Second, 6 * time.Minute, wanders(0.3, time.Minute)},
	{"wanders in 5 min", 10 * time.Second, 2 * time.Hour, wanders(0.2, 5*time.Minute)},
	{"a day of 0.2", time.Minute, 36 * time.Hour, daily(0.2)},
	{"a day of 0.5", time.Minute, 36 * time.Hour, daily(0.5)},
}

// lives returns how many of n pairs of versions have a finding of the second one's time.
func (c *slow) lives(seed uint64, n int, rise float64) (found int) {
	r := rand.New(rand.NewPCG(seed, 9))
	for range n {
		noise, at := c.noise(r), start
		tr := New(0.1, 10)
		for i, mean := range []float64{1, rise} {
			s := tr.Series(Key{Service: "llm"}, fmt.Sprint(i+1))
			for end := at.Add(c.of); at.Before(end); at = at.Add(c.every) {
				s.Add([2]float64{mean * math.Exp(noise(at)), 0}, Example{End: uint64(at.UnixNano())})
			}
		}
		if all, _ := tr.Take(); len(all) > 0 {
			found++
		}
	}
	return found
}

// OTELGPU_COMPARISONS sets how many comparisons are made of each kind of load, and logs which rises are found.
func TestLoadThatChangesSlowlyIsNoRegression(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("OTELGPU_COMPARISONS"))
	for i, c := range realistic {
		if err != nil {
			assert.Zero(t, c.lives(uint64(i), 100, 1), c.name)
			continue
		}
		wrong := c.lives(uint64(i), n, 1)
		t.Logf("%s: %d of %d are false alarms; found of 100 rises by 5 %%: %d, 10 %%: %d, 20 %%: %d, 30 %%: %d", c.name, wrong, n,
			c.lives(7, 100, 1.05), c.lives(7, 100, 1.1), c.lives(7, 100, 1.2), c.lives(7, 100, 1.3))
		assert.LessOrEqual(t, wrong*1000, n, c.name)
	}
}

func TestPlantedRisesAreFoundUnderRealisticLoad(t *testing.T) {
	for i, c := range realistic {
		if c.name == "lognormal" || c.of == 36*time.Hour {
			assert.GreaterOrEqual(t, c.lives(uint64(i), 20, 1.3), 14, c.name)
			assert.Zero(t, c.lives(uint64(i), 20, 1.05), c.name)
		}
	}
}
