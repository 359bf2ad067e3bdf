// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// version is what tells one state of a file from another.
type version struct {
	Size     int64 `json:"size"`
	Modified int64 `json:"modified"` // unix ns
}

func versionOf(i os.FileInfo) version { return version{i.Size(), i.ModTime().UnixNano()} }

// state remembers what was read. Format in storage: key "files", JSON object of path to version; key "current", the file
// that is being read and how many of its batches were taken.
type state struct {
	client storage.Client
	files  map[string]version
	now    current
}

type current struct {
	Path    string  `json:"path"`
	Version version `json:"version"`
	Batches int     `json:"batches"`
}

const (
	keyFiles   = "files"
	keyCurrent = "current"
)

func openState(ctx context.Context, host component.Host, id *component.ID, owner component.ID) (*state, error) {
	s := &state{client: storage.NewNopClient(), files: map[string]version{}}
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
	for key, to := range map[string]any{keyFiles: &s.files, keyCurrent: &s.now} {
		b, err := s.client.Get(ctx, key)
		if err != nil {
			return err
		}
		if len(b) == 0 {
			continue
		}
		if err := json.Unmarshal(b, to); err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
	}
	if s.files == nil {
		s.files = map[string]version{}
	}
	return nil
}

func (s *state) known(path string, v version) bool { return s.files[path] == v }

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
	s.files[path] = v
	s.now = current{}
	if err := s.set(ctx, keyFiles, s.files); err != nil {
		return err
	}
	return s.client.Delete(ctx, keyCurrent)
}

// forget drops files that are gone, so that the state is no longer than the folder.
func (s *state) forget(there map[string]bool) {
	for path := range s.files {
		if !there[path] {
			delete(s.files, path)
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
