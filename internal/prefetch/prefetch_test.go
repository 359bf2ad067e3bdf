// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package prefetch

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunUsesBatchesInOrderAndReusesThem(t *testing.T) {
	var used []int
	batches := map[*[]int]bool{}
	err := Run(func(p *Pipe[*[]int]) {
		b := &[]int{}
		for i := range 1000 {
			if *b = append(*b, i); i%7 == 6 {
				p.Send(b)
				if b, _ = p.Take(); b == nil {
					b = &[]int{}
				}
				*b = (*b)[:0]
			}
			if i%100 == 0 { // no batch is in use here, so the others may be read
				all, ok := p.Wait(Batches - 1)
				assert.True(t, ok)
				for _, other := range all {
					p.Free(other)
				}
			}
		}
		p.Send(b)
	}, func(b *[]int) error {
		batches[b] = true
		used = append(used, *b...)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, used, 1000)
	assert.IsIncreasing(t, used)
	assert.Len(t, batches, Batches)
}

func TestAnErrorOfTheConsumerStopsFill(t *testing.T) {
	for at := range 5 {
		ended, uses := false, 0
		fill := func(p *Pipe[int]) {
			defer func() { ended = true }()
			for {
				p.Send(0)
				all, ok := p.Wait(1 + at%Batches)
				if !ok {
					return
				}
				for _, b := range all[1:] {
					p.Free(b)
				}
			}
		}
		err := errors.New("full")
		require.ErrorIs(t, Run(fill, func(int) error {
			if uses++; uses > at {
				return err
			}
			return nil
		}), err)
		assert.True(t, ended)
		ended, uses = false, 0
		assert.PanicsWithValue(t, "use", func() {
			_ = Run(fill, func(int) error {
				if uses++; uses > at {
					panic("use")
				}
				return nil
			})
		})
		assert.True(t, ended)
	}
}

func TestRunRepeatsAPanicOfFill(t *testing.T) {
	uses := 0
	assert.PanicsWithValue(t, "fill", func() {
		_ = Run(func(p *Pipe[int]) {
			p.Send(1)
			panic("fill")
		}, func(int) error { uses++; return nil })
	})
	assert.Equal(t, 1, uses)
}
