// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	_ "embed" // of the catalogue
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Quantity is what a metric measures.
type Quantity uint8

// The quantities. From Input on they are counters.
const (
	Running  Quantity = iota // requests that run now
	Waiting                  // requests in the queue
	KVCache                  // ratio of the key-value cache that is in use
	Input                    // prompt tokens, with tokens from the cache
	Cached                   // prompt tokens from the cache
	Output                   // generated tokens
	Requests                 // requests that have ended
	Preempted
	Prefill  // s that requests spent in prefill
	Decode   // s that requests spent in decoding
	BusyTime // µs that requests took, counted when they end

	NumQuantities = int(BusyTime) + 1
)

// quantities are their names in the catalogue.
var quantities = [NumQuantities]string{
	"running", "waiting", "kv_cache", "input", "cached", "output", "requests", "preempted", "prefill", "decode",
	"busy_time",
}

// server is an entry of the catalogue; docs has what only documents have.
type server struct {
	Name    string
	Metrics map[string][]string
	Docs    map[string]string `yaml:",inline"`
}

// metric is a metric of a server.
type metric struct {
	server   string
	quantity Quantity
	rank     int // among the server's metrics of the quantity; the least one counts
	// label and value select the series with this label, if they are set.
	label, value string
}

//go:embed catalogue.yaml
var catalogue []byte

func servers() (list []server, err error) {
	return list, yaml.Unmarshal(catalogue, &list)
}

// metrics returns the known metrics by name. A test ensures that the catalogue can be read.
var metrics = sync.OnceValue(func() map[string][]metric {
	all := map[string][]metric{}
	list, _ := servers()
	for _, s := range list {
		for q, quantity := range quantities {
			for rank, sum := range s.Metrics[quantity] {
				for text := range strings.SplitSeq(sum, " + ") {
					name, selection, _ := strings.Cut(strings.TrimSuffix(text, "}"), "{")
					label, value, _ := strings.Cut(selection, "=")
					all[name] = append(all[name], metric{s.Name, Quantity(q), rank, label, value})
				}
			}
		}
	}
	return all
})

// shards are the labels of ranks that hold the same requests.
var shards = map[string]bool{
	"tp_rank": true, "pp_rank": true, "moe_ep_rank": true, "cp_rank": true, "attn_cp_rank": true,
}

// priority is a label of SGLang. The series in which it is empty is the total of the others.
const priority = "priority"

// startTime is the time at which the process of a server started, in Unix seconds.
const startTime = "process_start_time_seconds"

// normal returns a metric's name as the catalogue spells it. Ray exports the metrics of vLLM with a
// prefix, and some stores replace the colon.
func normal(name string) string {
	return strings.TrimPrefix(strings.ReplaceAll(name, ":", "_"), "ray_")
}

// Known reports whether a name is a metric of the catalogue.
func Known(name string) bool {
	name = normal(name)
	return name == startTime || metrics()[name] != nil
}

// modelLabels are the labels that name the model.
var modelLabels = [...]string{"model_name", "model"}
