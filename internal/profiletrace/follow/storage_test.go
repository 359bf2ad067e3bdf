// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// onDisk returns a host with the file_storage extension on a folder, as in a starting Collector.
func onDisk(t *testing.T, dir string) (host, func()) {
	factory := filestorage.NewFactory()
	cfg := factory.CreateDefaultConfig().(*filestorage.Config)
	cfg.Directory = dir
	x, err := factory.Create(t.Context(), extensiontest.NewNopSettings(factory.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, x.Start(t.Context(), componenttest.NewNopHost()))
	return host{map[component.ID]component.Component{storageID: x}},
		func() { require.NoError(t, x.Shutdown(context.WithoutCancel(t.Context()))) }
}

// A restart in the middle of a file and between many files, with files that were renamed, replaced,
// truncated and deleted in between.
func TestRestartsOverFileStorage(t *testing.T) {
	dir, db := t.TempDir(), t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name+".txt") }
	c := config(dir)
	c.Storage = &storageID
	const many = 300
	for i := range many {
		write(t, path(fmt.Sprintf("m/%03d", i)), string([]byte{'x', byte(i >> 8), byte(i)})) // one line
	}
	for _, name := range []string{"keep", "replaced", "truncated", "deleted"} {
		write(t, path(name), name[:1]+"\n"+name[:1]+"\n")
	}
	run := func(s *sink, length int) string {
		h, closed := onDisk(t, db)
		defer closed()
		f := start(t, c, h, s)
		defer stop(t, f)
		require.Eventually(t, func() bool { return len(s.got()) >= length }, time.Minute, time.Millisecond)
		time.Sleep(30 * time.Millisecond)
		return s.got()
	}
	first := run(&sink{}, many+8)
	require.Len(t, first, many+8)
	require.Empty(t, run(&sink{}, 0), "nothing is read again")

	// The new file has the same path and, often, the same inode.
	require.NoError(t, os.Remove(path("deleted")))
	write(t, path("part"), "R\n")
	require.NoError(t, os.Rename(path("part"), path("replaced")))
	require.NoError(t, os.Truncate(path("truncated"), 2))
	assert.ElementsMatch(t, []byte("Rt"), []byte(run(&sink{}, 2)), "the replaced and the truncated one, as they are now")
	require.Empty(t, run(&sink{}, 0))
}

// Files of a temporarily unavailable file system are not new.
func TestFilesThatReturnAreKnown(t *testing.T) {
	s := newState(storage.NewNopClient())
	v := version{Size: 1, Modified: 2}
	require.NoError(t, s.done(t.Context(), "a", entry{v, 3}))
	now := time.Unix(1000, 0)
	s.forget(map[string]bool{}, now)
	s.forget(map[string]bool{}, now.Add(forgetAfter-1))
	assert.True(t, s.known("a", v))
	s.forget(map[string]bool{"a": true}, now.Add(forgetAfter))
	s.forget(map[string]bool{}, now.Add(forgetAfter+1))
	assert.True(t, s.known("a", v), "it was back in between")
	assert.True(t, s.repeats(3))
	s.forget(map[string]bool{}, now.Add(2*forgetAfter+1))
	assert.False(t, s.known("a", v))
	assert.False(t, s.repeats(3))
}

// A kill loses data in the memory of exporters: the last accepted batches may not have been passed
// on.
func TestTheLastBatchesComeAgainAfterAKill(t *testing.T) {
	dir := t.TempDir()
	c := config(dir)
	c.Storage, c.ReplayBatches = &storageID, 5
	m := &memory{}
	h := host{map[component.ID]component.Component{storageID: m}}
	for _, name := range []string{"a", "b", "c"} {
		write(t, filepath.Join(dir, name+".txt"), name+"\n"+strings.ToUpper(name)+"\n"+name+"\n")
	}
	// killed leaves the storage of a run that has recorded all its batches and was killed.
	killed := func(s *sink, want string) {
		f := start(t, c, h, s)
		eventually(t, s, want)
		stop(t, f)
		m.data[keyRunning] = []byte("true")
	}
	killed(&sink{}, "aAabBbcCc")
	killed(&sink{}, "BbcCc")
	killed(&sink{}, "BbcCc")
	s := &sink{}
	stop(t, start(t, c, h, s)) // before or after reading; both must work
	f := start(t, c, h, s)
	eventually(t, s, "BbcCc")
	stop(t, f)
	last := &sink{}
	f = start(t, c, h, last)
	eventually(t, last, "")
	stop(t, f)

	refuses := &sink{fail: func(name string) error {
		if name == "D" {
			return errors.New("not now")
		}
		return nil
	}}
	write(t, filepath.Join(dir, "d.txt"), "d\nD\n")
	killed(refuses, "d")
	c.ReplayBatches = 2
	killed(&sink{}, "cdD")
	c.ReplayBatches = 0
	killed(&sink{}, "")
}
