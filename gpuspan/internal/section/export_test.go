// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

func (p *Core) Idle() *atomic.Bool    { return &p.idle }
func (p *Core) Passed() *atomic.Int64 { return &p.passed }

func (x *Slot) End() *backend.Call         { return &x.end }
func (x *Poller) Waiting() *[]*Slot        { return &x.waiting }
func (x *Poller) Longest() *time.Duration  { return &x.longest }
func (x *ring) Size() *int                 { return &x.size }
func (x *Poller) CrowdedAt() *int64        { return &x.crowdedAt }
func (x *Nest) Own() *Record               { return &x.own }
func (x *Section) ID() *uint64             { return &x.id }
func (x *Poller) Sleep() *time.Duration    { return &x.sleep }
func (x *Device) UsualHalf() *atomic.Int64 { return &x.usualHalf }
func (x *Poller) HeldNow() *int            { return &x.heldNow }
func (x *Stream) Crowd() *int              { return &x.crowd }
func (x *Position) Untimed() *work.Tally   { return &x.untimed }
func (x *Slot) State() *slotState          { return &x.state }
func (x *Stream) Read() *uint64            { return &x.read }
func (x *Stream) Pending() *ring           { return &x.pending }
func (x *Stream) Bound() *bool             { return &x.bound }
