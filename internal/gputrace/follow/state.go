// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// version is what tells one state of a file from another.
type version struct {
	Size     int64 `json:"size"`
	Modified int64 `json:"modified"` // unix ns
}

func versionOf(i os.FileInfo) version { return version{i.Size(), i.ModTime().UnixNano()} }

// state remembers what was read. Format in storage: keys "files/0" to "files/63", each a JSON object of path to version of
// the paths whose FNV-1a hash modulo 64 is that number, so that one file more costs a small write, also in a folder of
// thousands; key "current", the file that is being read and how many of its batches were taken.
type state struct {
	client storage.Client
	files  [shards]map[string]version
	gone   map[string]time.Time // since when a file that was read is not there
	now    current
}

const (
	shards = 64
	// forgetAfter is how long a file must be gone to be forgotten. A network file system that is away for a while must
	// not make all of its files new.
	forgetAfter = time.Hour
)

func shard(path string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(path))
	return int(h.Sum32() % shards)
}

func keyFiles(i int) string { return "files/" + strconv.Itoa(i) }

type current struct {
	Path    string  `json:"path"`
	Version version `json:"version"`
	Batches int     `json:"batches"`
}

const keyCurrent = "current"

func openState(ctx context.Context, host component.Host, id *component.ID, owner component.ID) (*state, error) {
	s := &state{client: storage.NewNopClient(), gone: map[string]time.Time{}}
	for i := range s.files {
		s.files[i] = map[string]version{}
	}
	if id == nil {
		return s, nil
	}
	e, ok := host.GetExtensions()[*id]
	if !ok {
		return nil, fmt.Errorf("cannot find storage extension %q (make sure it is listed under `service::extensions`)", id)
	}
	x, ok := e.(storage.Extension)
	if !ok {
		return nil, fmt.Errorf("extension %q is not a storage extension", id)
	}
	c, err := x.GetClient(ctx, component.KindReceiver, owner, "")
	if err != nil {
		return nil, fmt.Errorf("cannot open storage %q: %w", id, err)
	}
	s.client = c
	if err := s.load(ctx); err != nil {
		_ = c.Close(ctx)
		return nil, fmt.Errorf("cannot read storage %q: %w", id, err)
	}
	return s, nil
}

func (s *state) load(ctx context.Context) error {
	for i := range s.files {
		if err := s.get(ctx, keyFiles(i), &s.files[i]); err != nil {
			return err
		}
		if s.files[i] == nil { // "null"
			s.files[i] = map[string]version{}
		}
	}
	return s.get(ctx, keyCurrent, &s.now)
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

func (s *state) known(path string, v version) bool { return s.files[shard(path)][path] == v }

// begin returns how many batches of the file were taken before.
func (s *state) begin(path string, v version) int {
	if s.now.Path == path && s.now.Version == v {
		return s.now.Batches
	}
	s.now = current{path, v, 0}
	return 0
}

func (s *state) took(ctx context.Context) error {
	s.now.Batches++
	return s.set(ctx, keyCurrent, s.now)
}

func (s *state) done(ctx context.Context, path string, v version) error {
	i := shard(path)
	s.files[i][path] = v
	s.now = current{}
	if err := s.set(ctx, keyFiles(i), s.files[i]); err != nil {
		return err
	}
	return s.client.Delete(ctx, keyCurrent)
}

// forget drops files that are gone for long, so that the state is no longer than the folder.
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

func (s *state) close(ctx context.Context) error { return s.client.Close(ctx) }
