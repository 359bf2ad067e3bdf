// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"fmt"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// environment reads variables and collects what is wrong with them.
type environment struct {
	getenv func(string) string
	errs   []error
}

// variable is a number of the environment; without a name it is not set or makes no sense.
type variable struct {
	name  string
	value int64
}

func (v variable) set() bool { return v.name != "" }

// process is what one launcher says of this process.
type process struct{ rank, local, size variable }

func (e *environment) value(name string) string { return strings.TrimSpace(e.getenv(name)) }

func (e *environment) wrong(format string, args ...any) {
	e.errs = append(e.errs, fmt.Errorf(format, args...))
}

// number reads the first of the variables that is set.
func (e *environment) number(names []string, least int64) variable {
	for _, name := range names {
		value := e.value(name)
		if value == "" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n < least {
			e.wrong("%s must be a number from %d, found %q", name, least, value)
			return variable{}
		}
		return variable{name, n}
	}
	return variable{}
}

// process reads what a launcher says, without what contradicts itself; false when the launcher gives no rank.
func (e *environment) process(l launcher) (process, bool) {
	given := false
	for _, name := range l.rank {
		given = given || e.value(name) != ""
	}
	if !given {
		return process{}, false
	}
	p := process{rank: e.number(l.rank, 0), local: e.number(l.local, 0), size: e.number(l.size, 1)}
	for _, v := range []*variable{&p.rank, &p.local} {
		if v.set() && p.size.set() && v.value >= p.size.value {
			e.wrong("%s is %d of a world size of %d", v.name, v.value, p.size.value)
			*v = variable{}
		}
	}
	if p.rank.set() && p.local.set() && p.local.value > p.rank.value {
		e.wrong("%s is %d and %s is %d: a node cannot have more processes of lower rank than the job", p.local.name,
			p.local.value, p.rank.name, p.rank.value)
		p.local = variable{}
	}
	return p, true
}

// compare holds a second launcher against the one that is used. Where both count the same number of processes they must
// agree, unless torchrun's rendezvous assigned ranks anew; else the second counts something else, such as torchruns.
func (e *environment) compare(used, other process) {
	same := used.size.set() && other.size.set() && used.size.value == other.size.value
	if same && used.rank.set() && other.rank.set() && used.rank.value != other.rank.value &&
		e.value("TORCHELASTIC_RUN_ID") == "" {
		e.wrong("%s is %d and %s is %d, both of a world size of %d (%s is used)",
			used.rank.name, used.rank.value, other.rank.name, other.rank.value, used.size.value, used.rank.name)
	}
}

func (p process) attributes() []attribute.KeyValue {
	var out []attribute.KeyValue
	for _, a := range []struct {
		key attribute.Key
		v   variable
	}{
		{semconv.GPUJobRankKey, p.rank},
		{semconv.GPUJobLocalRankKey, p.local},
		{semconv.GPUJobWorldSizeKey, p.size},
	} {
		if a.v.set() {
			out = append(out, a.key.Int64(a.v.value))
		}
	}
	return out
}
