// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Value is one value of a page. Series of shards are one value, and replicas are different values of
// a model, by key.
type Value struct {
	Quantity Quantity
	Model    string
	Instance string // the label that Prometheus adds to each series of a server
	Key      string
	Value    float64
}

// Page is what a server reported at one time. The zero value is empty.
type Page struct {
	// Server is the name of the server in the catalogue; empty if no metric is known.
	Server string
	// Started is when the server's process started, in Unix seconds; 0 if it is unknown, or if the
	// page has several processes.
	Started float64

	series  []series
	several bool // processes
}

// series is one series of the catalogue, before shards are united.
type series struct {
	name   string
	metric metric
	model  string
	labels map[string]string
	value  float64
}

// maxSeries bounds the series of a page, and maxValue what a series can be: integers below are exact.
const maxSeries, maxValue = 1 << 12, 1 << 53

// Add adds one series. Series that the catalogue lacks are ignored. The page keeps labels.
func (p *Page) Add(name string, labels map[string]string, v float64) {
	name = normal(name)
	if name == startTime {
		if p.several = p.several || p.Started != 0 && p.Started != v; p.several {
			v = 0
		}
		p.Started = v
		return
	}
	if !(v >= 0 && v <= maxValue) || len(p.series) >= maxSeries {
		return
	}
	for _, m := range metrics()[name] {
		if m.label != "" && labels[m.label] != m.value {
			continue
		}
		s := series{name: name, metric: m, labels: labels, value: v}
		for _, key := range modelLabels {
			if s.model == "" {
				s.model = labels[key]
			}
		}
		p.series = append(p.series, s)
	}
}

// Values returns the values in a fixed order. An engine's own metrics win over metrics of a front end
// on the same page.
func (p *Page) Values() (list []Value) {
	type group struct {
		server string
		q      Quantity
	}
	best := map[group]int{}   // the least rank that is there
	total := map[group]bool{} // a series with an empty priority is there
	engine := false           // the page is an engine's
	for _, s := range p.series {
		g := group{s.metric.server, s.metric.quantity}
		if rank, ok := best[g]; !ok || s.metric.rank < rank {
			best[g] = s.metric.rank
		}
		if x, ok := s.labels[priority]; ok && x == "" {
			total[g] = true
		}
		engine = engine || s.metric.server != "Dynamo"
	}
	type place struct {
		q                    Quantity
		model, instance, key string
	}
	found := map[place]float64{}
	for _, s := range p.series {
		g := group{s.metric.server, s.metric.quantity}
		if s.metric.rank > best[g] || engine && s.metric.server == "Dynamo" {
			continue
		}
		if x, ok := s.labels[priority]; ok && x != "" && total[g] {
			continue
		}
		p.Server = s.metric.server
		at := place{s.metric.quantity, s.model, s.labels["instance"], s.key()}
		found[at] = max(found[at], s.value)
	}
	for at, v := range found {
		list = append(list, Value{at.q, at.model, at.instance, at.key, v})
	}
	slices.SortFunc(list, func(a, b Value) int {
		return strings.Compare(fmt.Sprint(a.Quantity, a.Model, a.Key), fmt.Sprint(b.Quantity, b.Model, b.Key))
	})
	return list
}

// key returns the labels of a series without labels of shards.
func (s *series) key() string {
	var b strings.Builder
	b.WriteString(s.name)
	for _, k := range slices.Sorted(maps.Keys(s.labels)) {
		if !shards[k] {
			b.WriteString("," + k + "=" + s.labels[k])
		}
	}
	return b.String()
}

// Running returns how many requests the server runs; false if no metric states it.
func (p *Page) Running() (n float64, ok bool) {
	for _, v := range p.Values() {
		if v.Quantity == Running {
			n, ok = n+v.Value, true
		}
	}
	return n, ok
}

// Read reads the metrics of the catalogue from the Prometheus text format. A full parser would put
// its modules into the graph of everybody who uses the extension.
func Read(r io.Reader) (*Page, error) {
	p := &Page{}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for lines.Scan() {
		line := strings.TrimLeft(lines.Text(), " \t")
		end := strings.IndexAny(line, "{ \t")
		if end <= 0 || line[0] == '#' || !Known(line[:end]) {
			continue
		}
		labels, rest := map[string]string{}, strings.TrimLeft(line[end:], " \t")
		if list, ok := strings.CutPrefix(rest, "{"); ok {
			if labels, rest, ok = readLabels(list); !ok {
				return nil, fmt.Errorf("labels of %s have no end", line[:end])
			}
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return nil, fmt.Errorf("value %q of %s is not a number", fields[0], line[:end])
		}
		p.Add(line[:end], labels, v)
	}
	return p, lines.Err()
}

// readLabels reads labels up to the closing brace.
func readLabels(s string) (labels map[string]string, rest string, ok bool) {
	labels = map[string]string{}
	for {
		s = strings.TrimLeft(s, ", \t")
		if strings.HasPrefix(s, "}") {
			return labels, s[1:], true
		}
		key, after, found := strings.Cut(s, "=")
		after = strings.TrimLeft(after, " \t")
		if !found || !strings.HasPrefix(after, `"`) {
			return nil, "", false
		}
		end := 1
		for end < len(after) && after[end] != '"' {
			if after[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(after) {
			return nil, "", false
		}
		value := after[1:end]
		if strings.Contains(value, `\`) {
			value = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(value)
		}
		labels[strings.TrimSpace(key)], s = value, after[end+1:]
	}
}
