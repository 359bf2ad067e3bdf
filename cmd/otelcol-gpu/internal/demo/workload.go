// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// The model that the demo serves and trains: a decoder-only transformer of 1.3 billion parameters
// in bf16.
const (
	parameters    = 1.3e9
	weightBytes   = int64(2 * parameters)
	layers        = 24
	width         = 2048
	maxBatch      = 8
	promptTokens  = 512
	decodeSteps   = 12
	trainTokens   = 4096
	requestPeriod = 25 * time.Millisecond

	// One request is unusual: a prompt of many tokens, whose dense products reach the power limit,
	// and a long answer.
	longPrompt = 32768
	longAnswer = 240

	// A token of a request occupies keys and values of each layer in the device's memory, in bf16.
	cacheBytes = 2 * 2 * layers * width
)

// Operations are registered once; a section of one is a run of it.
type operations struct {
	h2d, prefill, long, attention, mlp, decode, d2h *gpuspan.Operation
	loadBatch, optimizer, allReduce                 *gpuspan.Operation
}

func newOperations() operations {
	token := gpuspan.ItemType("token")
	return operations{
		h2d:       gpuspan.NewOperation("h2d.tokens", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned)),
		prefill:   gpuspan.NewOperation("prefill", gpuspan.Category("prefill"), token),
		long:      gpuspan.NewOperation("prefill.long", gpuspan.Category("prefill"), token),
		attention: gpuspan.NewOperation("attention", gpuspan.Category("attention")),
		mlp:       gpuspan.NewOperation("mlp", gpuspan.Category("mlp")),
		decode:    gpuspan.NewOperation("decode", gpuspan.Category("decode"), token),
		d2h:       gpuspan.NewOperation("d2h.logits", gpuspan.Copy(gpuspan.DeviceToHost, gpuspan.Pageable)),
		loadBatch: gpuspan.NewOperation("h2d.batch", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pageable)),
		optimizer: gpuspan.NewOperation("adamw", gpuspan.Category("optimizer")),
		allReduce: gpuspan.NewOperation("all_reduce", gpuspan.Collective("all_reduce", devices),
			gpuspan.Category("comm")),
	}
}

// service answers requests as an inference server does, with continuous batching: each iteration
// accepts waiting requests, processes their prompts, and generates one token for each active
// request.
type service struct {
	gpu    queue
	stream *gpuspan.Stream
	tracer trace.Tracer
	ops    operations
	queue  chan *request
}

type request struct {
	ctx    context.Context // its span is what iterations link to
	prompt int64           // tokens
	tokens int             // still to be generated
	cache  int64           // bytes on the device while it is served
	done   chan struct{}
}

// arrive sends requests at random times until the context ends, the long one after a while, and
// waits for their answers.
func (s *service) arrive(ctx context.Context, long time.Duration) {
	rng := rand.New(rand.NewPCG(7, 11))
	var open sync.WaitGroup
	defer open.Wait()
	due := time.After(long)
	for {
		wait := time.Duration(rng.ExpFloat64() * float64(requestPeriod))
		prompt, tokens := int64(promptTokens), decodeSteps/2+rng.IntN(decodeSteps)
		select {
		case <-ctx.Done():
			return
		case <-due:
			prompt, tokens = longPrompt, longAnswer
		case <-time.After(wait):
		}
		open.Go(func() {
			rctx, span := s.tracer.Start(context.WithoutCancel(ctx), "POST /v1/generate",
				trace.WithSpanKind(trace.SpanKindServer))
			defer span.End()
			r := &request{
				ctx: rctx, prompt: prompt, tokens: tokens, cache: cacheBytes * (prompt + int64(tokens)),
				done: make(chan struct{}),
			}
			s.queue <- r // also after the end: accepted requests are processed
			<-r.done
		})
	}
}

// work runs iterations until the queue is closed and all requests are done.
func (s *service) work() {
	var active []*request
	for {
		admitted := s.admit(maxBatch-len(active), len(active) == 0)
		for _, r := range admitted {
			s.gpu.allocate(r.cache)
		}
		long := slices.IndexFunc(admitted, func(r *request) bool { return r.prompt == longPrompt })
		if long >= 0 {
			s.prefill(s.ops.long, admitted[long:long+1], 0.97)
			active = append(active, admitted[long])
			admitted = slices.Delete(admitted, long, long+1)
		}
		if len(admitted) > 0 {
			s.prefill(s.ops.prefill, admitted, 0.6)
			active = append(active, admitted...)
		}
		if len(active) == 0 {
			return
		}
		s.decode(active)
		s.gpu.wait()
		active = slices.DeleteFunc(active, func(r *request) bool {
			if r.tokens--; r.tokens > 0 {
				return false
			}
			s.gpu.allocate(-r.cache)
			close(r.done)
			return true
		})
	}
}

// admit accepts up to n waiting requests; with wait it blocks for the first one. None: the queue is
// empty or closed.
func (s *service) admit(n int, wait bool) (admitted []*request) {
	if wait {
		r, ok := <-s.queue
		if !ok {
			return nil
		}
		admitted = append(admitted, r)
	}
	for len(admitted) < n {
		select {
		case r, ok := <-s.queue:
			if !ok {
				return admitted
			}
			admitted = append(admitted, r)
		default:
			return admitted
		}
	}
	return admitted
}

// link adds a link for each request that a section serves, with its number of tokens; a copy has
// bytes, not tokens, so
// 0. Iterations have no parent.
func link(x gpuspan.Section, requests []*request, tokens int64) {
	for _, r := range requests {
		x.LinkItems(r.ctx, tokens)
	}
}

// prefill processes the prompts of requests of one length; efficiency is the efficiency of the
// dense products.
func (s *service) prefill(op *gpuspan.Operation, requests []*request, efficiency float64) {
	ctx := context.Background()
	tokens := int64(len(requests)) * requests[0].prompt

	x := s.ops.h2d.Start(ctx, s.stream)
	link(x, requests, 0)
	x.EndWith(s.gpu.copy(tokens*4*256, gpuspan.HostToDevice, gpuspan.Pinned))

	x = op.Start(ctx, s.stream)
	link(x, requests, requests[0].prompt)
	total := gpuspan.Work{Items: tokens}
	for range 4 { // four groups of layers, to keep the trace readable
		a := x.Start(s.ops.attention)
		w := attentionWork(tokens, layers/4)
		s.gpu.compute(w, 0.76*efficiency, 0)
		a.EndWith(w)
		m := x.Start(s.ops.mlp)
		v := mlpWork(tokens, layers/4)
		s.gpu.compute(v, efficiency, 0)
		m.EndWith(v)
		total.FLOPs += w.FLOPs + v.FLOPs
		total.Precision = w.Precision
	}
	x.EndWith(total)
}

// decode generates one token for each request; every weight is read once, whatever their number.
func (s *service) decode(requests []*request) {
	ctx := context.Background()
	n := int64(len(requests))
	x := s.ops.decode.Start(ctx, s.stream)
	link(x, requests, 1)
	w := gpuspan.Work{Read: weightBytes, Items: n, FLOPs: 2 * parameters * float64(n), Precision: gpuspan.BF16}
	s.gpu.compute(w, 0.8, 0.3)
	x.EndWith(w)

	x = s.ops.d2h.Start(ctx, s.stream)
	link(x, requests, 0)
	x.EndWith(s.gpu.copy(n*64<<10, gpuspan.DeviceToHost, gpuspan.Pageable))
}

// attentionWork counts the projections (4 w² per token and layer) and the scores and sums (2 × 2 w
// per token pair, half of them by the causal mask), a multiply-add counting 2; bytes are weights
// and activations, once.
func attentionWork(tokens int64, layers float64) gpuspan.Work {
	t := float64(tokens)
	return gpuspan.Work{
		FLOPs:     layers * (2*4*width*width*t + 2*2*width*t*promptTokens/2),
		Precision: gpuspan.BF16,
		Read:      int64(layers * 2 * (4*width*width + 4*t*width)),
		Written:   int64(layers * 2 * t * width),
	}
}

// mlpWork counts two matrices of w × 4 w per layer.
func mlpWork(tokens int64, layers float64) gpuspan.Work {
	t := float64(tokens)
	return gpuspan.Work{
		FLOPs:     layers * 2 * 8 * width * width * t,
		Precision: gpuspan.BF16,
		Read:      int64(layers * 2 * (8*width*width + 5*t*width)),
		Written:   int64(layers * 2 * 5 * t * width),
	}
}

// trainer is a rank of a training job: it runs steps of a loop on a separate stream.
type trainer struct {
	gpu    queue
	stream *gpuspan.Stream
	loop   *train.Loop
	ops    operations
	rank   int
	ranks  *meeting
}

func (t *trainer) run(ctx context.Context) {
	rng := rand.New(rand.NewPCG(3, uint64(t.rank)))
	for _, step := range t.loop.Steps(ctx) {
		if ctx.Err() != nil {
			break
		}
		read := time.Now()
		pause(ctx, time.Duration((4+2*rng.Float64())*float64(time.Millisecond))) // the loader reads and decodes
		step.AddPhaseAt(train.Data, read, time.Since(read))                      // on the host: the GPU idles
		data := step.Phase(train.Data)
		x := data.Start(t.ops.loadBatch)
		x.EndWith(t.gpu.copy(32<<20, gpuspan.HostToDevice, gpuspan.Pageable))
		data.End()

		// 2 FLOPs per parameter and token forward, 4 backward (Kaplan et al., 2020, section 2.1).
		forward := gpuspan.Work{FLOPs: 2 * parameters * trainTokens, Precision: gpuspan.BF16, Read: weightBytes}
		backward := gpuspan.Work{
			FLOPs: 2 * forward.FLOPs, Precision: gpuspan.BF16, Read: 2 * weightBytes,
			Written: weightBytes,
		}
		f := step.Phase(train.Forward)
		t.launch(layers, forward, 0.62)
		f.End()
		b := step.Phase(train.Backward)
		t.launch(2*layers, backward, 0.58)
		b.End()
		if !t.reduce(ctx, step) {
			step.Cancel() // the others have stopped
			return
		}

		o := step.Phase(train.Optimizer)
		a := o.Start(t.ops.optimizer)
		w := gpuspan.Work{
			Read: int64(12 * parameters), Written: int64(8 * parameters), FLOPs: 12 * parameters, Precision: gpuspan.FP32,
		}
		t.gpu.compute(w, 0.82, 0)
		a.EndWith(w)
		o.End()

		step.SetItems(trainTokens)
		step.SetModelFLOPs(forward.FLOPs + backward.FLOPs)
		t.gpu.wait()
		pause(ctx, 20*time.Millisecond)
	}
}

// reduce sums the gradients of all ranks. The phase starts when the rank's own gradients are ready
// and includes its wait for the other ranks. It returns false if the all-reduce did not run.
func (t *trainer) reduce(ctx context.Context, step *train.Step) bool {
	c := step.Phase(train.Comm)
	defer c.End()
	t.gpu.wait()
	if !t.ranks.arrive(ctx) {
		return false
	}
	x := c.Start(t.ops.allReduce)
	x.EndWith(t.gpu.reduce(weightBytes))
	return true
}

// meeting is a barrier of the ranks.
type meeting struct {
	mu   sync.Mutex
	here int
	all  chan struct{} // closed when all ranks of a round have arrived
}

// arrive returns when all ranks have arrived; false if the context ended before.
func (m *meeting) arrive(ctx context.Context) bool {
	m.mu.Lock()
	all := m.all
	if m.here++; m.here == devices {
		m.here, m.all = 0, make(chan struct{})
		close(all)
	}
	m.mu.Unlock()
	select {
	case <-all:
		return true
	case <-ctx.Done():
		return false
	}
}

// launch splits work into n kernels, so that kernels of the other service run in between.
func (t *trainer) launch(n int, w gpuspan.Work, efficiency float64) {
	w.FLOPs /= float64(n)
	w.Read /= int64(n)
	w.Written /= int64(n)
	for range n {
		t.gpu.compute(w, efficiency, 0)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
