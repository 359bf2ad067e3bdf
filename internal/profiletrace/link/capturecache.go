// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"os"
	"sync"
	"time"
)

// CaptureCache keeps the captures of graphs of files, for several profiles that launch the same
// graphs. It holds the captures of unchanged files, up to [maxCaptured] nodes and maxCachedFiles
// files; others are read each time. The zero value is empty, and nil keeps nothing. It may be used
// by several goroutines.
type CaptureCache struct {
	mu    sync.Mutex
	files map[string]cachedCaptures
	nodes int
}

type cachedCaptures struct {
	size     int64
	modified time.Time
	captures Captures
}

const maxCachedFiles = 1 << 10

// Of returns what read finds in the file of the path, now or at an earlier call.
func (c *CaptureCache) Of(path string, read func() (Captures, error)) (Captures, error) {
	info, err := os.Stat(path)
	if c == nil || err != nil {
		return read()
	}
	c.mu.Lock()
	old, ok := c.files[path]
	c.mu.Unlock()
	if ok && old.size == info.Size() && old.modified.Equal(info.ModTime()) {
		return old.captures, nil
	}
	found, err := read()
	if err != nil {
		return found, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok = c.files[path]; ok { // another reader may have been faster
		delete(c.files, path)
		c.nodes -= old.captures.nodes
	}
	if len(c.files) < maxCachedFiles && c.nodes+found.nodes <= maxCaptured {
		if c.files == nil {
			c.files = map[string]cachedCaptures{}
		}
		c.files[path] = cachedCaptures{info.Size(), info.ModTime(), found}
		c.nodes += found.nodes
	}
	return found, nil
}
