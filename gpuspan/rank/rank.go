// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package rank detects the rank of a process in a distributed job, from the environment variables
// of launchers, as an OpenTelemetry resource:
//
//	attribute            torchrun            Open MPI                     MPICH, Intel MPI   Slurm
//	gpu.job.rank         RANK                OMPI_COMM_WORLD_RANK         PMI_RANK           SLURM_PROCID
//	gpu.job.local_rank   LOCAL_RANK          OMPI_COMM_WORLD_LOCAL_RANK   MPI_LOCALRANKID    SLURM_LOCALID
//	gpu.job.world_size   WORLD_SIZE          OMPI_COMM_WORLD_SIZE         PMI_SIZE           SLURM_STEP_NUM_TASKS,
//	                                                                                           SLURM_NTASKS
//
// The first launcher, from the left, that sets a rank decides all three: a torchrun within an srun
// has both, and Slurm's number then counts launchers, not workers. The error names contradictory
// values: a rank that is not below the world size or is below the local rank, and different ranks
// of two launchers with the same number of processes (then the first is used; ranks that torchrun's
// rendezvous reassigns are not compared).
//
// gpu.job.id is the job of the batch system (SLURM_JOB_ID, PBS_JOBID or LSB_JOBID) and, after a
// slash, the run in it, because several runs can share an allocation: TORCHELASTIC_RUN_ID (unless
// it is torchrun's placeholder "none"), otherwise MASTER_ADDR:MASTER_PORT, otherwise
// PMIX_NAMESPACE, otherwise SLURM_STEP_ID if Slurm sets the rank.
//
//	res, err := resource.New(ctx, resource.WithFromEnv(), resource.WithDetectors(rank.Detector{}))
package rank

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/otelgpu/otelgpu/semconv"
)

// Detector is a resource.Detector. The zero Detector reads the environment of the process.
type Detector struct {
	// Getenv replaces os.Getenv, for tests and for launchers with other variables. Default:
	// os.Getenv.
	Getenv func(string) string
}

var _ resource.Detector = Detector{}

// launcher names variables; of several, the first that is set counts.
type launcher struct{ rank, local, size []string }

var launchers = []launcher{
	{[]string{"RANK"}, []string{"LOCAL_RANK"}, []string{"WORLD_SIZE"}},
	{[]string{"OMPI_COMM_WORLD_RANK"}, []string{"OMPI_COMM_WORLD_LOCAL_RANK"}, []string{"OMPI_COMM_WORLD_SIZE"}},
	{[]string{"PMI_RANK"}, []string{"MPI_LOCALRANKID"}, []string{"PMI_SIZE"}},
	{[]string{"SLURM_PROCID"}, []string{"SLURM_LOCALID"}, []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}},
}

// allocations are jobs of batch systems. Several runs can share one.
var allocations = []string{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}

// Detect implements resource.Detector. Outside of a job the resource is empty. Invalid or
// contradictory values are omitted, and the error, which wraps resource.ErrPartialResource, names
// them; the other attributes are valid.
func (d Detector) Detect(context.Context) (*resource.Resource, error) {
	getenv := d.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	e := environment{getenv: getenv}
	var attributes []attribute.KeyValue
	if id := e.job(); id != "" {
		attributes = append(attributes, semconv.GPUJobIDKey.String(id))
	}
	var used *process
	for _, l := range launchers {
		switch p, ok := e.process(l); {
		case !ok:
		case used == nil:
			used = &p
			attributes = append(attributes, p.attributes()...)
		default:
			e.compare(*used, p)
		}
	}
	res := resource.Empty()
	if len(attributes) > 0 {
		// Without schema: resources of two schemas, this one's and the SDK's, do not merge.
		res = resource.NewSchemaless(attributes...)
	}
	if len(e.errs) > 0 {
		return res, fmt.Errorf("%w: %w", resource.ErrPartialResource, errors.Join(e.errs...))
	}
	return res, nil
}

// environment reads variables and collects their errors.
type environment struct {
	getenv func(string) string
	errs   []error
}

// variable is a number of the environment; without a name it is not set or invalid.
type variable struct {
	name  string
	value int64
}

func (v variable) set() bool { return v.name != "" }

// process is one launcher's description of this process.
type process struct{ rank, local, size variable }

func (e *environment) value(name string) string { return strings.TrimSpace(e.getenv(name)) }

// first returns the value of the first of the variables that is set.
func (e *environment) first(names []string) string {
	for _, name := range names {
		if v := e.value(name); v != "" {
			return v
		}
	}
	return ""
}

// job returns the job of the batch system and the run in it.
func (e *environment) job() string {
	return strings.Trim(e.first(allocations)+"/"+e.run(), "/")
}

// run returns what distinguishes this run from others in the same allocation of a batch system.
func (e *environment) run() string {
	if id := e.value("TORCHELASTIC_RUN_ID"); id != "" && id != "none" {
		return id
	}
	if host, port := e.value("MASTER_ADDR"), e.value("MASTER_PORT"); host != "" && port != "" {
		switch host {
		case "localhost", "127.0.0.1", "::1":
			if name, err := os.Hostname(); err == nil {
				host = name
			}
		}
		return host + ":" + port
	}
	if namespace := e.value("PMIX_NAMESPACE"); namespace != "" {
		return namespace
	}
	for i, l := range launchers {
		// An mpirun starts its processes on each node by a separate Slurm step.
		if e.first(l.rank) != "" {
			if i == len(launchers)-1 {
				return e.value("SLURM_STEP_ID")
			}
			break
		}
	}
	return ""
}

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

// process reads a launcher's variables, without contradictory ones; false if the launcher gives no
// rank.
func (e *environment) process(l launcher) (process, bool) {
	if e.first(l.rank) == "" {
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

// compare checks a second launcher against the one in use. If both count the same number of
// processes they must agree, unless torchrun's rendezvous reassigned ranks; otherwise the second
// counts something else, such as torchruns.
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
