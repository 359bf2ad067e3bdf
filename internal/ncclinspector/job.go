// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ncclinspector

import (
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// Limits of a job's memory: about 200 MB if all are reached.
const (
	maxMembers  = 1 << 17 // ranks of all communicators
	maxWindow   = 1 << 12 // collectives of a ring
	minWindow   = 1 << 6
	maxRing     = 1 << 20 // collectives times ranks of a ring
	maxPending  = 1 << 24 // of all rings
	maxRows     = 256     // of a communicator, see [comm]
	maxRowSize  = 1 << 17 // rows times ranks
	maxSizes    = 16      // distinct sizes of an operation of a communicator whose transfers are compared
	leastShare  = 0.8     // of the ranks that must have recorded a collective
	bucketRatio = 1.05
)

// Counts are how many lines and collectives a job took and could not use.
type Counts struct {
	Records    int64 // taken
	Matched    int64 // collectives that enough ranks recorded
	Incomplete int64 // collectives that too few ranks recorded; gaps are normal
	Late       int64 // lines that arrived after their collective was matched
	Repeated   int64 // lines of a rank and collective that it had written before
	HostTimed  int64 // collectives timed by the host, by which no rank is judged
	Overflow   int64 // lines of communicators beyond the limit
}

// Job matches the collectives of all ranks. It is not safe for concurrent use.
type Job struct {
	Counts

	merge   bool // add rows up once there are many
	comms   map[CommID]*comm
	order   []*comm
	streams map[streamKey]*stream
	members int
	pending int
}

// NewJob returns an empty job: a recorded one for [Job.Findings], or a live one for [Job.Report].
func NewJob(recorded bool) *Job {
	return &Job{merge: recorded, comms: map[CommID]*comm{}, streams: map[streamKey]*stream{}}
}

type streamKey struct {
	comm      CommID
	rank      int
	operation string
	peer      int
}

// stream is what one rank did in one operation of a communicator.
type stream struct {
	key    streamKey
	source *Source
	comm   *comm
	ring   *ring // nil: not judged
	// Sums over all lines.
	Count, Micros, Bytes uint64
	reported             struct{ Count, Micros, Bytes uint64 }
}

// comm is a communicator.
type comm struct {
	CommID
	name      string // as reports name it
	label     string // as its user named it; empty: not stated
	nodes     int
	processes []Process // by rank; zero: none seen
	rings     map[string]*ring

	// Each row of arrivals has how many µs after the first rank each rank arrived, summed over a
	// number of collectives; lengths has how long these took, in µs. A recorded job adds pairs of rows
	// up when there are too many.
	arrivals [][]float64
	lengths  []float64
	counts   []int
	perRow   int
	waited   []float64 // µs by rank: in kernels before the last rank arrived
	matched  int64
	// Of a live job.
	active   bool  // since the last report
	seen     int64 // time of the last report with a line
	history  straggler.History
	reported map[int]int64 // when a rank was last reported as late
	slowAt   int64         // when the communicator was last reported as slow
}

// ring has the collectives of one operation that not all ranks have recorded yet, by their number.
type ring struct {
	window int
	ranks  int
	seqs   []uint64 // sequence + 1; 0: free
	have   []int32
	bytes  []uint64
	exec   []uint32 // µs + 1 by rank; 0: not recorded
	next   uint64   // sequences below are matched

	transfers map[uint64]*transfers // by bytes
}

// transfers are the times from the last arrival to the end, in buckets of equal ratio.
type transfers struct {
	count   int64
	buckets [480]uint32
}

// judged are operations that no rank leaves before all have arrived.
var judged = map[string]bool{
	semconv.GPUCollectiveNameAllReduce: true, semconv.GPUCollectiveNameAllGather: true,
	semconv.GPUCollectiveNameReduceScatter: true, semconv.GPUCollectiveNameAllToAll: true,
}

// Add takes a line.
func (j *Job) Add(r *Record) {
	s := r.stream
	if s == nil || s.comm == nil {
		if s = j.find(r.Source); s == nil {
			j.Overflow++
			return
		}
		r.Source.stream = s
	}
	j.Records++
	s.Count++
	s.Micros += r.Micros
	s.Bytes += r.Bytes
	s.comm.active = true
	switch {
	case s.ring == nil:
	case !r.Device:
		j.HostTimed++
	default:
		j.put(s, r)
	}
}

func (j *Job) find(src *Source) *stream {
	key := streamKey{src.Comm, src.Rank, src.Operation, src.Peer}
	if s := j.streams[key]; s != nil {
		return s
	}
	c := j.comms[src.Comm]
	if c == nil {
		if j.members+src.Comm.Ranks > maxMembers {
			return nil
		}
		j.members += src.Comm.Ranks
		n := src.Comm.Ranks
		c = &comm{
			CommID: src.Comm, name: src.Name(), label: src.CommName, nodes: src.Nodes,
			processes: make([]Process, n), waited: make([]float64, n),
			rings: map[string]*ring{}, perRow: 1,
		}
		j.comms[src.Comm] = c
		j.order = append(j.order, c)
	}
	c.processes[src.Rank] = src.Process
	s := &stream{key: key, source: src, comm: c}
	if n := src.Comm.Ranks; src.Peer < 0 && judged[src.Operation] && n > 1 {
		s.ring = c.rings[src.Operation]
		if s.ring == nil {
			window := max(minWindow, min(maxWindow, maxRing/n))
			if j.pending+window*n <= maxPending {
				j.pending += window * n
				s.ring = &ring{
					window: window, ranks: n, seqs: make([]uint64, window), have: make([]int32, window),
					bytes: make([]uint64, window), exec: make([]uint32, window*n), transfers: map[uint64]*transfers{},
				}
				c.rings[src.Operation] = s.ring
			}
		}
	}
	if len(j.streams) >= maxMembers {
		return nil
	}
	j.streams[key] = s
	return s
}

func (j *Job) put(s *stream, r *Record) {
	g := s.ring
	at := int(r.Sequence % uint64(g.window))
	if r.Sequence < g.next && g.seqs[at] != r.Sequence+1 {
		j.Late++
		return
	}
	for old := g.seqs[at]; old != r.Sequence+1; old = g.seqs[at] {
		if old == 0 {
			g.seqs[at], g.bytes[at] = r.Sequence+1, r.Bytes
			break
		}
		j.close(s.comm, g, at)
	}
	own := &g.exec[at*g.ranks+s.source.Rank]
	if *own != 0 {
		j.Repeated++
		return
	}
	*own = uint32(min(r.Micros, math.MaxUint32-1)) + 1
	if g.have[at]++; int(g.have[at]) == g.ranks {
		j.close(s.comm, g, at)
	}
}

// close matches the collective in a place of a ring, and frees the place.
func (j *Job) close(c *comm, g *ring, at int) {
	exec := g.exec[at*g.ranks : (at+1)*g.ranks]
	least, most := uint32(math.MaxUint32), uint32(0)
	for _, v := range exec {
		if v != 0 {
			least, most = min(least, v), max(most, v)
		}
	}
	if float64(g.have[at]) < leastShare*float64(g.ranks) {
		j.Incomplete++
	} else {
		j.Matched++
		c.matched++
		row := c.row()
		for i, v := range exec {
			if v == 0 {
				v = most // no evidence against the rank
			}
			row[i] += float64(most - v)
			c.waited[i] += float64(v - least)
		}
		c.lengths[len(c.lengths)-1] += float64(most - 1)
		c.counts[len(c.counts)-1]++
		g.transfer(g.bytes[at], least-1)
		if j.merge && c.counts[len(c.counts)-1] >= c.perRow {
			c.next()
		}
	}
	g.next = max(g.next, g.seqs[at])
	clear(exec)
	g.seqs[at], g.have[at] = 0, 0
}

// row returns the row that is being filled.
func (c *comm) row() []float64 {
	if len(c.arrivals) == 0 {
		c.next()
	}
	return c.arrivals[len(c.arrivals)-1]
}

// next begins a row.
func (c *comm) next() {
	if len(c.arrivals) >= max(8, min(maxRows, maxRowSize/c.Ranks)) {
		n := len(c.arrivals) / 2
		for i := range n {
			a, b := c.arrivals[2*i], c.arrivals[2*i+1]
			for k, v := range b {
				a[k] += v
			}
			c.arrivals[i], c.lengths[i], c.counts[i] = a, c.lengths[2*i]+c.lengths[2*i+1], c.counts[2*i]+c.counts[2*i+1]
		}
		c.arrivals, c.lengths, c.counts, c.perRow = c.arrivals[:n], c.lengths[:n], c.counts[:n], 2*c.perRow
	}
	c.arrivals = append(c.arrivals, make([]float64, c.Ranks))
	c.lengths, c.counts = append(c.lengths, 0), append(c.counts, 0)
}

func (g *ring) transfer(bytes uint64, micros uint32) {
	t := g.transfers[bytes]
	if t == nil {
		if len(g.transfers) >= maxSizes {
			return
		}
		t = &transfers{}
		g.transfers[bytes] = t
	}
	t.count++
	t.buckets[min(len(t.buckets)-1, int(math.Log(float64(max(1, micros)))/math.Log(bucketRatio)))]++
}

// quantile returns a time in µs, with an error of half a bucket.
func (t *transfers) quantile(q float64) float64 {
	rank := int64(math.Ceil(q * float64(t.count)))
	for i, n := range t.buckets {
		if rank -= int64(n); rank <= 0 {
			return math.Pow(bucketRatio, float64(i)+0.5)
		}
	}
	return 0
}

// Flush matches all collectives, whether or not all ranks recorded them.
func (j *Job) Flush() {
	for _, c := range j.order {
		for _, g := range c.rings {
			var open []int
			for at, seq := range g.seqs {
				if seq != 0 {
					open = append(open, at)
				}
			}
			slices.SortFunc(open, func(a, b int) int { return int(int64(g.seqs[a]) - int64(g.seqs[b])) })
			for _, at := range open {
				j.close(c, g, at)
			}
		}
	}
}

// complete returns the rows that are full.
func (c *comm) complete() (arrivals [][]float64, lengths []float64, counts []int) {
	n := len(c.arrivals)
	if n > 0 && c.counts[n-1] < c.perRow {
		n--
	}
	return c.arrivals[:n], c.lengths[:n], c.counts[:n]
}
