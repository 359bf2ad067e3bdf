// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

// Info describes an operation.
type Info struct {
	Name        string `json:"name"`                       // gpu.operation.name
	Category    string `json:"category,omitempty"`         // gpu.operation.category; empty when not stated
	Type        string `json:"type,omitempty"`             // gpu.operation.type; empty means section
	Description string `json:"description,omitempty"`      // for people; may be empty
	ItemType    string `json:"item_type,omitempty"`        // unit of items: token, row, image
	Direction   string `json:"copy_direction,omitempty"`   // gpu.copy.direction of a copy
	HostMemory  string `json:"copy_host_memory,omitempty"` // gpu.copy.host_memory of a copy: pinned, pageable
	Synchronous bool   `json:"-"`                          // host times equal the work's times, as of blocking calls
	Level       string `json:"level,omitempty"`            // macro, midi or micro for tiles, which never become spans
}

// ZeroCopy states whether kernels accessed host memory directly (gpu.zero_copy). Zero means not
// stated.
type ZeroCopy uint8

// Values of ZeroCopy.
const (
	ZeroCopyUnset ZeroCopy = iota // not stated
	NoZeroCopy                    // no kernel accessed host memory
	UsesZeroCopy                  // a kernel accessed host memory
)

// String returns "yes", "no", or the empty string if not stated.
func (z ZeroCopy) String() string {
	switch z {
	case NoZeroCopy:
		return "no"
	case UsesZeroCopy:
		return "yes"
	}
	return ""
}

// MarshalText returns the text of String. The error is always nil.
func (z ZeroCopy) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// IO is a number of bytes moved over device memory.
type IO struct {
	Read    int64 `json:"read,omitempty"`    // bytes read
	Written int64 `json:"written,omitempty"` // bytes written
	Unsplit int64 `json:"unsplit,omitempty"` // bytes whose direction was not stated
}

// Total returns the sum of the bytes of all directions.
func (b IO) Total() int64 { return b.Read + b.Written + b.Unsplit }

func (b IO) negative() IO { return IO{-b.Read, -b.Written, -b.Unsplit} }

func (b *IO) add(o IO) {
	b.Read += o.Read
	b.Written += o.Written
	b.Unsplit += o.Unsplit
}

// Transfer is a number of bytes moved over PCIe, by direction.
type Transfer struct {
	ToDevice   int64 `json:"to_device,omitempty"`   // bytes from host to device
	FromDevice int64 `json:"from_device,omitempty"` // bytes from device to host
	Unsplit    int64 `json:"unsplit,omitempty"`     // bytes whose direction was not stated
}

// Total returns the sum of the bytes of all directions.
func (b Transfer) Total() int64 { return b.ToDevice + b.FromDevice + b.Unsplit }

func (b Transfer) negative() Transfer { return Transfer{-b.ToDevice, -b.FromDevice, -b.Unsplit} }

func (b *Transfer) add(o Transfer) {
	b.ToDevice += o.ToDevice
	b.FromDevice += o.FromDevice
	b.Unsplit += o.Unsplit
}

// Peaks are the limits of a device. Zero means unknown.
type Peaks struct {
	Memory float64            `json:"memory_bytes_per_second,omitempty"` // device memory, bytes per second
	PCIe   float64            `json:"pcie_bytes_per_second,omitempty"`   // one direction of the link, bytes per second
	FLOPs  map[string]float64 `json:"flops_per_second,omitempty"`        // dense FLOP per second, by precision
	Source string             `json:"source,omitempty"`                  // source of the peaks: config, table or device
}

func (p Peaks) known() bool { return p.Memory > 0 || p.PCIe > 0 || len(p.FLOPs) > 0 }

// Sketch summarizes a stream of durations in bounded memory.
type Sketch interface {
	// Add adds one duration in seconds, greater than or equal to 0.
	Add(seconds float64)
	// Quantile returns the value at q in [0, 1] in seconds; false if nothing was added.
	Quantile(q float64) (float64, bool)
}
