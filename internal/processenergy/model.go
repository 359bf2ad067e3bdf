// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processenergy

import "math"

// The power that processes draw while they are resident may differ, since residency is time: a
// kernel that multiplies matrices draws more than one that waits for memory.
const (
	// unknownPower is the relative uncertainty of that power while nothing is known about it, so
	// that it may differ between two processes by a factor of 3. A factor of 2 does not hold the
	// recorded processes, which differ by 2.5.
	unknownPower = 0.5
	// uncertain is the largest relative uncertainty that a fit may have.
	uncertain = 0.9
	// memory is the time constant in seconds with which old windows lose weight in the fit.
	memory = 300
	// ridge is the strength with which the fit draws each power towards the common mean, relative to
	// the mean square of the residencies. It decides what saturated processes, which never vary,
	// get.
	ridge = 0.02
	// overlapping is the sum of residencies above which kernels ran at the same time. Their powers do
	// not add up, so that nothing is learned from them.
	overlapping = 1.15
	// contention is the least uncertainty of the power of a process then: it holds if others slow each
	// down by up to 30 %.
	contention = 0.1
	// leastWindows is how many more windows than processes a fit needs.
	leastWindows = 8
	// maxFitted bounds the processes of a fit, whose cost grows with the cube. Others have the mean.
	maxFitted = 16
)

// model fits active power = Σ weight · residency by weighted ridge regression, with exponential
// forgetting.
type model struct {
	slots []Key
	a     [][maxFitted]float64 // Σ w r rᵀ
	b     []float64            // Σ w r y
	yy    float64              // Σ w y²
	n     float64              // windows
	fit   []weight             // by slot
	mean  float64              // W, of all processes
}

// weight is the power of a process while it is resident, in watts, and its relative uncertainty.
type weight struct{ watts, uncertainty float64 }

// slotOf returns the position of a process in the fit, or -1.
func (m *model) slotOf(k Key) int {
	for i := range m.slots {
		if m.slots[i] == k {
			return i
		}
	}
	return -1
}

// of returns the weight of a process.
func (m *model) of(k Key) weight {
	if i := m.slotOf(k); i >= 0 && i < len(m.fit) {
		return m.fit[i]
	}
	return weight{m.mean, unknownPower}
}

// known reports whether there is a fit.
func (m *model) known() bool { return len(m.fit) > 0 && m.mean > 0 }

func (m *model) forget(k Key) {
	i := m.slotOf(k)
	if i < 0 {
		return
	}
	last := len(m.slots) - 1
	m.slots[i], m.b[i], m.a[i] = m.slots[last], m.b[last], m.a[last]
	for j := range m.a {
		m.a[j][i] = m.a[j][last]
		m.a[j][last] = 0
	}
	m.slots, m.b, m.a = m.slots[:last], m.b[:last], m.a[:last]
	m.fit = nil
	m.solve()
}

// learn adds a window of a length in seconds and an active power in watts.
func (m *model) learn(samples []Sample, seconds, watts float64) {
	var sum float64
	for i := range samples {
		sum += samples[i].Share
	}
	if sum > overlapping || sum <= 0 {
		return
	}
	keep := math.Exp(-seconds / memory)
	for i := range m.a {
		for j := range m.a[i] {
			m.a[i][j] *= keep
		}
		m.b[i] *= keep
	}
	m.yy *= keep
	m.n = m.n*keep + 1
	var r [maxFitted]float64
	for i := range samples {
		s := m.slotOf(samples[i].Process)
		if s < 0 && len(m.slots) < maxFitted {
			s = len(m.slots)
			m.slots = append(m.slots, samples[i].Process)
			m.a, m.b = append(m.a, [maxFitted]float64{}), append(m.b, 0)
		}
		if s < 0 {
			watts -= m.mean * samples[i].Share
			continue
		}
		r[s] += samples[i].Share
	}
	for i := range m.slots {
		for j := range m.slots {
			m.a[i][j] += seconds * r[i] * r[j]
		}
		m.b[i] += seconds * r[i] * watts
	}
	m.yy += seconds * watts * watts
	m.solve()
}

// solve computes the fit and the uncertainty of each weight: two standard errors, and for the share
// of the prior in it the uncertainty of an unknown power.
func (m *model) solve() {
	k := len(m.slots)
	var square, slope float64
	for i := range k {
		square += m.a[i][i]
		slope += m.b[i]
	}
	var all float64
	for i := range k {
		for j := range k {
			all += m.a[i][j]
		}
	}
	if m.fit = m.fit[:0]; all <= 0 {
		return
	}
	m.mean = slope / all
	if m.n-float64(k) < leastWindows || m.mean <= 0 {
		return
	}
	penalty := ridge * square / float64(k)
	inverse, ok := m.inverse(penalty)
	if !ok {
		return
	}
	watts := make([]float64, k)
	residual := m.yy
	for i := range k {
		for j := range k {
			watts[i] += inverse[i][j] * (m.b[j] + penalty*m.mean)
		}
	}
	for i := range k {
		residual -= 2 * watts[i] * m.b[i]
		for j := range k {
			residual += watts[i] * m.a[i][j] * watts[j]
		}
	}
	variance := max(residual, 0) / (m.n - float64(k))
	for i := range k {
		var spread float64 // of (A+λ)⁻¹ A (A+λ)⁻¹
		for j := range k {
			for l := range k {
				spread += inverse[i][j] * m.a[j][l] * inverse[l][i]
			}
		}
		w := weight{watts: min(max(watts[i], m.mean/4), 4*m.mean), uncertainty: uncertain}
		if w.watts == watts[i] {
			prior := min(penalty*inverse[i][i], 1)
			w.uncertainty = min(2*math.Sqrt(variance*spread)/w.watts+prior*unknownPower, uncertain)
		}
		m.fit = append(m.fit, w)
	}
}

// inverse returns (A + penalty)⁻¹ by elimination; the matrix is positive definite.
func (m *model) inverse(penalty float64) (inv [maxFitted][maxFitted]float64, ok bool) {
	k := len(m.slots)
	var a [maxFitted][maxFitted]float64
	for i := range k {
		a[i] = m.a[i]
		a[i][i] += penalty
		inv[i][i] = 1
	}
	for c := range k {
		pivot := a[c][c]
		if pivot <= 0 || math.IsNaN(pivot) {
			return inv, false
		}
		for j := range k {
			a[c][j] /= pivot
			inv[c][j] /= pivot
		}
		for i := range k {
			if f := a[i][c]; i != c && f != 0 {
				for j := range k {
					a[i][j] -= f * a[c][j]
					inv[i][j] -= f * inv[c][j]
				}
			}
		}
	}
	return inv, true
}
