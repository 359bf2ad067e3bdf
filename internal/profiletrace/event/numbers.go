// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

// numbers is a set of correlations. A file's correlations count up, so a page covers many; numbers
// that are further apart than the pages reach share bits, which makes a number seem to be there
// that is not.
type numbers struct {
	pages [numberPages]*[pageWords]uint64
}

// The pages reach 2^24 correlations and take 2 MiB at most.
const (
	pageWords   = 1 << 10
	numberPages = 1 << 8
)

func (s *numbers) at(n int64) (page, word, bit uint64) {
	x := uint64(n + n>>CorrelationBits*0x9e3779b1)
	return x / (64 * pageWords) % numberPages, x / 64 % pageWords, 1 << (x % 64)
}

func (s *numbers) add(n int64) {
	page, word, bit := s.at(n)
	if s.pages[page] == nil {
		s.pages[page] = new([pageWords]uint64)
	}
	s.pages[page][word] |= bit
}

func (s *numbers) has(n int64) bool {
	page, word, bit := s.at(n)
	return s.pages[page] != nil && s.pages[page][word]&bit != 0
}
