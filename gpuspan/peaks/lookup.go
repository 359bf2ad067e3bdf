// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

import (
	"slices"
	"strings"
	"sync"
)

// Lookup finds the row of a model by the string that the driver gives ("NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB",
// "AMD Instinct MI300X"). Vendor words, case and separators do not matter; everything else does: a name that the table
// does not know in full ("NVIDIA H100", "… Laptop GPU") is not guessed at. A MIG suffix, as CUDA appends it ("NVIDIA
// A100-SXM4-40GB MIG 1g.5gb"), gives the instance's part; an unknown profile is not found.
//
// It allocates; callers on hot paths keep the answer.
func Lookup(model string) (Device, bool) {
	base, profile := SplitMIG(model)
	i, ok := index()[normalise(strings.ToLower(base))]
	if !ok {
		return Device{}, false
	}
	if profile == "" {
		return rows()[i], true
	}
	return rows()[i].Profile(profile)
}

// All returns the table in its own order: by vendor, then by generation.
func All() []Device { return slices.Clone(rows()) }

var index = sync.OnceValue(func() map[string]int {
	m := make(map[string]int)
	for i, row := range rows() {
		for _, n := range row.names {
			m[normalise(strings.ToLower(n))] = i
		}
	}
	return m
})

// SplitMIG cuts the MIG suffix off a model as CUDA writes it: "NVIDIA L4 MIG 1g.5gb" is "NVIDIA L4" and "1g.5gb".
// The profile is empty for a whole device.
func SplitMIG(model string) (base, profile string) {
	for i := 0; i+5 <= len(model); i++ {
		if strings.EqualFold(model[i:i+5], " mig ") {
			return model[:i], strings.ToLower(strings.TrimSpace(model[i+5:]))
		}
	}
	return model, ""
}

// normalise leaves the words of a lower-case model that tell devices apart, joined by one hyphen.
func normalise(model string) string {
	var b strings.Builder
	for _, w := range strings.FieldsFunc(model, func(r rune) bool {
		return r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}) {
		switch w {
		case "nvidia", "tesla", "amd", "instinct", "geforce", "corporation", "inc.", "gpu", "oam", "vf":
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('-')
		}
		b.WriteString(w)
	}
	return b.String()
}
