// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// version identifies one state of a file.
type version struct {
	Size     int64 `json:"size"`
	Modified int64 `json:"modified"` // unix ns
}

func versionOf(i os.FileInfo) version { return version{i.Size(), i.ModTime().UnixNano()} }

// entry is the recorded state of a file.
type entry struct {
	version
	Content uint64 `json:"content,omitempty"` // see contentOf; 0: it was never read whole
}

// state records which files were read. Format in storage: keys "files/0" to "files/63", each a JSON
// object from path to entry for the paths whose FNV-1a hash modulo 64 is that number, so that one
// more file costs a small write even in a folder of thousands; key "begun", a JSON array of the
// files of which some batches were delivered and others not; key "recent", the same for files
// delivered completely not long ago; key "running", present while a Collector runs.
type state struct {
	client   storage.Client
	files    [shards]map[string]entry
	contents map[uint64]int       // files by content
	gone     map[string]time.Time // since when a file that was read is not there
	begun    []progress           // the latest last
	recent   []progress           // taken whole, the latest last: at least the last replay batches
	replay   int
}

// progress is how much of a file was delivered. It is kept by content: the file may have another
// name when it is read again.
type progress struct {
	Content uint64 `json:"content"`
	Batches int    `json:"batches"`
}

const (
	shards = 64
	// forgetAfter is how long a file must be missing to be forgotten. A network file system that is
	// unavailable for a while must not make all of its files new.
	forgetAfter = time.Hour
	// maxBegun bounds the files that are partly delivered. Each stop of the Collector leaves at
	// most one, which is removed when it has been read to its end.
	maxBegun = 16
)

func shard(path string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(path))
	return int(h.Sum32() % shards)
}

func keyFiles(i int) string { return "files/" + strconv.Itoa(i) }

const (
	keyBegun   = "begun"
	keyRecent  = "recent"
	keyRunning = "running"
)

// contentOf identifies the content of a file: the FNV-1a hash of its first batch, as OTLP.
// Identifiers are functions of the content, so that other content gives another batch.
func contentOf(td ptrace.Traces) uint64 {
	m := ptrace.ProtoMarshaler{}
	b, err := m.MarshalTraces(td)
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(b)
	return max(h.Sum64(), 1)
}

func newState(c storage.Client) *state {
	s := &state{client: c, contents: map[uint64]int{}, gone: map[string]time.Time{}}
	for i := range s.files {
		s.files[i] = map[string]entry{}
	}
	return s
}

// openState reads the recorded state. If the previous Collector was killed, the last replay batches
// count as not delivered, because they may have been lost from memory. again is the number of those
// batches.
func openState(ctx context.Context, host component.Host, id *component.ID, owner component.ID, replay int) (s *state,
	again int, err error,
) {
	s = newState(storage.NewNopClient())
	s.replay = replay
	if id == nil {
		return s, 0, nil
	}
	e, ok := host.GetExtensions()[*id]
	if !ok {
		return nil, 0, fmt.Errorf("cannot find storage extension %q (make sure it is listed under `service::extensions`)", id)
	}
	x, ok := e.(storage.Extension)
	if !ok {
		return nil, 0, fmt.Errorf("extension %q is not a storage extension", id)
	}
	c, err := x.GetClient(ctx, component.KindReceiver, owner, "")
	if err != nil {
		return nil, 0, fmt.Errorf("cannot open storage %q: %w", id, err)
	}
	s.client = c
	if again, err = s.load(ctx); err != nil {
		_ = c.Close(ctx)
		return nil, 0, fmt.Errorf("cannot read storage %q: %w", id, err)
	}
	return s, again, nil
}

func (s *state) load(ctx context.Context) (again int, err error) {
	for i := range s.files {
		if err := s.get(ctx, keyFiles(i), &s.files[i]); err != nil {
			return 0, err
		}
		if s.files[i] == nil { // "null"
			s.files[i] = map[string]entry{}
		}
		for _, e := range s.files[i] {
			s.count(e, 1)
		}
	}
	if err := errors.Join(s.get(ctx, keyBegun, &s.begun), s.get(ctx, keyRecent, &s.recent)); err != nil {
		return 0, err
	}
	killed, err := s.client.Get(ctx, keyRunning)
	if err != nil {
		return 0, err
	}
	if len(killed) > 0 {
		if again, err = s.back(ctx); err != nil {
			return 0, err
		}
	}
	return again, s.client.Set(ctx, keyRunning, []byte("true"))
}

// back marks the last replay batches as not delivered.
func (s *state) back(ctx context.Context) (again int, err error) {
	take := func(p *progress) {
		n := min(p.Batches, s.replay-again)
		p.Batches -= n
		again += n
	}
	for i := len(s.begun) - 1; i >= 0; i-- {
		take(&s.begun[i])
	}
	unread := map[uint64]bool{}
	for len(s.recent) > 0 && again < s.replay {
		p := s.recent[len(s.recent)-1]
		s.recent = s.recent[:len(s.recent)-1]
		unread[p.Content] = true
		if take(&p); p.Batches > 0 {
			s.begun = append(s.begun, p)
		}
	}
	s.begun = slices.DeleteFunc(s.begun, func(p progress) bool { return p.Batches == 0 })
	err = errors.Join(s.set(ctx, keyBegun, s.begun), s.set(ctx, keyRecent, s.recent))
	for i := range s.files {
		n := len(s.files[i])
		for path, e := range s.files[i] {
			if unread[e.Content] {
				s.count(e, -1)
				delete(s.files[i], path)
			}
		}
		if len(s.files[i]) < n {
			err = errors.Join(err, s.set(ctx, keyFiles(i), s.files[i]))
		}
	}
	return again, err
}

func (s *state) get(ctx context.Context, key string, to any) error {
	b, err := s.client.Get(ctx, key)
	if err != nil || len(b) == 0 {
		return err
	}
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("key %q: %w", key, err)
	}
	return nil
}

func (s *state) known(path string, v version) bool { return s.files[shard(path)][path].version == v }

// repeats reports whether a file with this content was read whole.
func (s *state) repeats(content uint64) bool { return s.contents[content] > 0 }

func (s *state) count(e entry, n int) {
	if e.Content == 0 {
		return
	}
	if s.contents[e.Content] += n; s.contents[e.Content] <= 0 {
		delete(s.contents, e.Content)
	}
}

// taken returns how many batches of the content were taken.
func (s *state) taken(content uint64) int {
	for _, p := range s.begun {
		if p.Content == content {
			return p.Batches
		}
	}
	return 0
}

// took counts one more batch.
func (s *state) took(ctx context.Context, content uint64) error {
	n := s.taken(content) + 1
	s.end(content)
	s.begun = append(s.begun, progress{content, n})
	if len(s.begun) > maxBegun {
		s.begun = s.begun[1:]
	}
	return s.set(ctx, keyBegun, s.begun)
}

// end drops the progress of the content, and reports whether there was any.
func (s *state) end(content uint64) bool {
	n := len(s.begun)
	s.begun = slices.DeleteFunc(s.begun, func(p progress) bool { return p.Content == content })
	return len(s.begun) < n
}

// done records a file, with its content if it was read completely. A rejected file keeps its
// earlier content: it may be valid again, as when it is overwritten.
func (s *state) done(ctx context.Context, path string, e entry) error {
	i := shard(path)
	if e.Content == 0 {
		e.Content = s.files[i][path].Content
	}
	s.count(s.files[i][path], -1)
	s.files[i][path] = e
	s.count(e, 1)
	if err := s.set(ctx, keyFiles(i), s.files[i]); err != nil {
		return err
	}
	n := s.taken(e.Content)
	if !s.end(e.Content) {
		return nil
	}
	s.recent = append(s.recent, progress{e.Content, n})
	for sum := s.batches() - s.recent[0].Batches; sum >= s.replay; sum -= s.recent[0].Batches {
		if s.recent = s.recent[1:]; len(s.recent) == 0 {
			break
		}
	}
	return errors.Join(s.set(ctx, keyBegun, s.begun), s.set(ctx, keyRecent, s.recent))
}

// batches returns how many batches the recent files have.
func (s *state) batches() (n int) {
	for _, p := range s.recent {
		n += p.Batches
	}
	return n
}

// forget drops files that have been missing for long, so that the state is not longer than the
// folder.
func (s *state) forget(there map[string]bool, now time.Time) {
	for path := range s.gone {
		if there[path] {
			delete(s.gone, path)
		}
	}
	for i := range s.files {
		for path := range s.files[i] {
			if there[path] {
				continue
			}
			since, known := s.gone[path]
			if !known {
				s.gone[path] = now
			} else if now.Sub(since) >= forgetAfter {
				s.count(s.files[i][path], -1)
				delete(s.files[i], path)
				delete(s.gone, path)
			}
		}
	}
}

func (s *state) set(ctx context.Context, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.client.Set(ctx, key, b)
}

// close reports that the Collector ends by itself: exporters drain their queues after receivers
// have ended.
func (s *state) close(ctx context.Context) error {
	return errors.Join(s.client.Delete(ctx, keyRunning), s.client.Close(ctx))
}
