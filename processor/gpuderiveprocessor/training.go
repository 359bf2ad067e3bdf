// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"slices"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// ResourceConfig copies one attribute of a resource.
type ResourceConfig struct {
	// From is the producer's attribute.
	From string `mapstructure:"from"`
	// To is one of otelgpu's attributes of resources; it decides the type. An existing one is kept.
	To string `mapstructure:"to"`
	// Group is an attribute whose value follows a copied text after a slash, if the resource has it: ranks
	// are numbered within groups of workers, which are compared separately. Default none.
	Group string `mapstructure:"group"`
	_     struct{}
}

func (r *ResourceConfig) validate(key string) error {
	var bad configvalidate.List
	target, ok := semconv.LookupAttribute(r.To)
	bad.If(!ok || !slices.Contains(target.On, "resource"),
		"`%s::to` must be a resource attribute of the registry (docs/semconv), found %q", key, r.To)
	bad.If(r.From == "", "`%s::from` must not be empty", key)
	return bad.Err()
}

// copy sets the target if the resource lacks it and has the source. A decimal text is a number, too:
// values that passed through OTEL_RESOURCE_ATTRIBUTES are texts.
func (r *ResourceConfig) copy(attrs pcommon.Map) {
	from, ok := attrs.Get(r.From)
	if _, exists := attrs.Get(r.To); !ok || exists {
		return
	}
	switch target, _ := semconv.LookupAttribute(r.To); target.Type {
	case semconv.TypeInt:
		if n, err := strconv.ParseInt(from.AsString(), 10, 64); err == nil && n >= 0 {
			attrs.PutInt(r.To, n)
		}
	case semconv.TypeString:
		if text := from.AsString(); text != "" {
			if group, ok := attrs.Get(r.Group); ok && r.Group != "" {
				text += "/" + group.AsString()
			}
			attrs.PutStr(r.To, spanfacts.Clip(text))
		}
	}
}

// megatron returns a mapping for spans of NVIDIA's trainers, which are timed on the host.
func megatron(span, kind, name, category string, attributes ...AttributeConfig) MappingConfig {
	attributes = append(attributes, hostTimed)
	if name != "" {
		attributes = append(attributes, constant(string(semconv.GPUOperationNameKey), name))
	}
	if category != "" {
		attributes = append(attributes, constant(string(semconv.GPUOperationCategoryKey), category))
	}
	return MappingConfig{Span: span, Type: kind, Attributes: attributes}
}

// training has the names of Megatron-LM, NeMo-RL and nvidia-resiliency-ext through NeMo Lens, of the
// documents of 2026-08, the code of that month, and the code since 2026-09. Spans whose descendants
// are mapped, such as a whole run, are not: their time counts once.
func training() (list []MappingConfig) {
	const step, section, host = semconv.GPUOperationTypeStep, semconv.GPUOperationTypeSection, semconv.GPUOperationTypeHost
	index := string(semconv.GPUStepIndexKey)
	add := func(kind, name, category string, spans ...string) {
		for _, s := range spans {
			list = append(list, megatron(s, kind, name, category))
		}
	}
	for _, s := range []string{"megatron.train_step", "megatron.train.iteration", "nv.dl.training.iteration"} {
		list = append(list, megatron(s, step, "train", "",
			from("megatron.iteration", index), from("nv.dl.training.step", index)))
	}
	list = append(list, megatron("rl.*.step", step, "", "", from("rl.step", index), from("rl.iteration", index)))
	add(section, "forward_backward", "", "megatron.forward_backward", "megatron.train.iteration.forward_backward",
		"nv.dl.training.iteration.forward_backward")
	add(section, "optimizer", semconv.GPUOperationCategoryOptimizer, "megatron.optimizer_step",
		"megatron.train.iteration.optimizer", "nv.dl.training.iteration.optimizer_step")
	add(section, "forward", semconv.GPUOperationCategoryForward, "megatron.microbatch.forward",
		"nv.mcore.microbatch.forward")
	add(section, "backward", semconv.GPUOperationCategoryBackward, "megatron.microbatch.backward",
		"nv.mcore.microbatch.backward")
	add(section, "", semconv.GPUOperationCategoryComm, "megatron.p2p.*", "nv.mcore.p2p.*", "megatron.grad_sync.*",
		"nv.mcore.grad_sync.*")
	add(section, "checkpoint", "", "megatron.save_checkpoint", "megatron.checkpoint.exposed_save",
		"nv.dl.training.checkpoint.exposed_save", "megatron.checkpoint.save.finalize",
		"nv.dl.training.checkpoint.save.finalize",
		"megatron.load_checkpoint", "megatron.checkpoint.load", "nv.dl.training.checkpoint.load", "rl.*.checkpointing",
		"rl.*.save_checkpoint")
	add(section, "evaluate", "", "megatron.evaluate", "nv.dl.training.evaluate", "rl.*.evaluate")
	add(section, "", "", "rl.*.generation", "rl.*.rollout", "rl.*.reward_calculation", "rl.*.policy_training",
		"rl.*.policy_update", "rl.*.value_training", "rl.*.policy_and_reference_logprobs")
	add(section, "data_processing", semconv.GPUOperationCategoryData, "rl.*.data_processing")
	add(host, "startup", "", "megatron.startup", "megatron.model_init", "nv.dl.training.startup", "pre_startup",
		"rl.startup")
	add(host, "", "", "nv.nvrx.ftl.rendezvous", "nv.nvrx.ftl.health_check", "nv.nvrx.ftl.worker_launch",
		"nv.nvrx.ftl.teardown",
		"nv.nvrx.ftl.await_round")
	return list
}

// trainingResource are the resource attributes of NeMo Lens, the newest names first. The run is what
// is compared: a job's restarts have other processes.
func trainingResource() (list []ResourceConfig) {
	add := func(to string, names ...string) {
		for _, name := range names {
			r := ResourceConfig{From: name, To: to}
			if to == string(semconv.GPUJobIDKey) {
				r.Group = "rl.worker_group"
			}
			list = append(list, r)
		}
	}
	add(string(semconv.GPUJobIDKey), "nv.dl.job.uuid", "nemo.lens.job_uuid", "slurm.job.id", "nemo.run.id")
	add(string(semconv.GPUJobRankKey), "nv.dl.rank", "dl.rank")
	add(string(semconv.GPUJobLocalRankKey), "nv.dl.local_rank", "dl.local_rank")
	add(string(semconv.GPUJobWorldSizeKey), "nv.dl.world_size", "dl.world_size")
	add(string(semconv.HWIDKey), "nv.gpu.uuid", "dl.gpu.uuid")
	return list
}
