// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/busbandwidth"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// Message identifies collectives that move as many bytes within one process group.
type Message struct {
	Collective  string `json:"collective"`
	Group       string `json:"group,omitempty"` // description of the process group
	ID          string `json:"id,omitempty"`    // its unique name and, where they are stated, its ranks
	Ranks       int64  `json:"ranks,omitzero"`  // of the group
	ElementType string `json:"element_type,omitempty"`
	Bytes       int64  `json:"bytes,omitzero"` // by the convention of NCCL's tests; 0: of OtherMessages
}

// OtherMessages is the collective of the row that sums messages beyond the number that a device
// distinguishes.
const OtherMessages = "others"

// Transfer is the runs of all collectives with one message, and the bandwidth of the shortest: a
// longer one waited for another rank, or for the device.
type Transfer struct {
	Message
	Members   string        `json:"members,omitempty"` // the process group for people
	Count     int64         `json:"count"`
	Time      time.Duration `json:"time_ns"`
	Shortest  time.Duration `json:"shortest_ns,omitzero"`          // 0: of several messages
	Rate      float64       `json:"bytes_per_second,omitzero"`     // algorithm bandwidth
	BusRate   float64       `json:"bus_bytes_per_second,omitzero"` // see package busbandwidth
	Link      string        `json:"link,omitempty"`                // that the bus bandwidth is compared with
	LinkRate  float64       `json:"link_bytes_per_second,omitzero"`
	LinkShare float64       `json:"link_share,omitzero"` // bus bandwidth ÷ link rate
}

// NewTransfer returns the sum of the runs of a message, without any yet.
func NewTransfer(m Message) Transfer { return Transfer{Message: m, Members: m.members()} }

// members returns the process group for people: its description, unless that is empty or
// "undefined", and its ranks.
func (m *Message) members() string {
	name, ranks, listed := strings.Cut(m.ID, "[")
	if m.Group != "" && m.Group != "undefined" {
		name = m.Group
	}
	if name = strings.TrimSpace(name); listed {
		return strings.TrimSpace(name + " [" + ranks)
	}
	return name
}

// transferKey is a Message with names by their numbers.
type transferKey struct {
	collective, group, element string
	id                         uint32
	ranks, bytes               int64
}

func (d *Device) transferred(a *timeline.Activity) {
	if a.Bytes <= 0 || a.Collective == "" {
		return
	}
	key := transferKey{a.Collective, a.GroupName, a.ElementType, a.GroupID, a.Group, a.Bytes}
	t := boundedmap.Bounded(d.sent, key, transferKey{}, maxClasses)
	t.Add(a.Length())
}

// Add adds a run.
func (t *Transfer) Add(length time.Duration) {
	t.Count++
	t.Time += length
	if t.Count == 1 || length < t.Shortest {
		t.Shortest = length
	}
}

func (d *Device) transfers(r *Report, f *Context) {
	for k, t := range d.sent {
		if k.bytes == 0 { // beyond the limit
			t.Collective, t.Shortest = OtherMessages, 0
			r.Transfers = append(r.Transfers, *t)
			continue
		}
		t.Message = Message{k.collective, k.group, f.Name(k.id), k.ranks, k.element, k.bytes}
		t.Members = t.members()
		t.Compare(t.Shortest, f.Peak, f.World)
		r.Transfers = append(r.Transfers, *t)
	}
	slices.SortFunc(r.Transfers, func(a, b Transfer) int { return LongerTransfer(&a, &b) })
}

// LongerTransfer compares transfers by time, the longest first, and equal ones by their messages.
func LongerTransfer(a, b *Transfer) int {
	return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Collective, b.Collective), cmp.Compare(a.ID, b.ID),
		cmp.Compare(a.Group, b.Group), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.ElementType, b.ElementType),
		cmp.Compare(a.Ranks, b.Ranks))
}

// Compare sets the bandwidth of a run of this length, and compares it with the link between devices
// of this kind; world is the number of ranks of the job, 0 if it is unknown.
func (t *Transfer) Compare(length time.Duration, p Peak, world int64) {
	if length <= 0 {
		return
	}
	t.Rate = float64(t.Bytes) / length.Seconds()
	t.BusRate = t.Rate * busbandwidth.Factor(t.Collective, float64(t.Ranks))
	if t.Link, t.LinkRate = t.link(p, world); t.LinkRate > 0 && t.BusRate > 0 {
		t.LinkShare = t.BusRate / t.LinkRate
	}
}

// link returns the link that limits the bus bandwidth, and the rate of one direction. It is unknown
// if the group may reach beyond the devices that NVLink or Infinity Fabric joins: the rate of the
// network is in no profile. Ranks are taken to fill one domain after the other.
func (t *Transfer) link(p Peak, world int64) (name string, rate float64) {
	switch domain := int64(p.Domain); {
	case !p.Known:
		return "", 0
	case p.Interconnect == 0: // every path to another device begins at the bus
		if p.Host.Generation == 0 {
			return "", 0
		}
		return fmt.Sprintf("PCIe %d.0 x%d", p.Host.Generation, p.Host.Lanes), p.Host.Rate()
	case domain < t.Ranks || !within(t.ID, domain) && (world == 0 || world > domain):
		return "", 0
	case p.Vendor == "AMD":
		return "Infinity Fabric", p.Interconnect
	}
	return "NVLink", p.Interconnect
}

// within reports whether the ranks that the identity of a group lists, as "[0, 1]", are known to be
// in one domain.
func within(id string, domain int64) bool {
	_, list, ok := strings.Cut(id, "[")
	if !ok || domain <= 0 {
		return false
	}
	list, _, _ = strings.Cut(list, "]")
	first := int64(-1)
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word == "..." { // in the middle of long lists
			continue
		}
		rank, err := strconv.ParseInt(word, 10, 64)
		if err != nil || rank < 0 {
			return false
		}
		if first < 0 {
			first = rank / domain
		}
		if rank/domain != first {
			return false
		}
	}
	return first >= 0
}
