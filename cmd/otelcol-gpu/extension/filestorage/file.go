// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package filestorage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/queuestorage"
)

// files is the extension of contrib, with remedies for files that cannot be opened, and a warning
// about requests of earlier configurations.
type files struct {
	storage.Extension
	directory string
	log       *zap.Logger
}

// GetClient opens the file of a component.
func (x files) GetClient(ctx context.Context, kind component.Kind, id component.ID, name string,
) (c storage.Client, err error) {
	damaged := recovered(func() { c, err = x.Extension.GetClient(ctx, kind, id, name) })
	remedy := ""
	switch err = errors.Join(damaged, err); {
	case err == nil:
		return c, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		remedy = " (another process uses it: give each Collector a directory of its own)"
	case damaged != nil, errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch):
		remedy = " (the file is damaged: move it away; `fsync: true` prevents damage when the machine loses power)"
	}
	return nil, fmt.Errorf("cannot open the queue of %s in %s: %w%s", id, x.directory, err, remedy)
}

// recovered returns what f panics with: the database panics on damaged files.
func recovered(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	f()
	return nil
}

// Ready warns about requests of an earlier configuration. All queues of this one are open, which
// locks their files.
func (x files) Ready() error {
	entries, err := os.ReadDir(x.directory)
	if err != nil {
		return nil //nolint:nilerr // the queues are open, and this is a check
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(x.directory, e.Name())
		if n := waiting(path); n > 0 {
			x.log.Warn("requests wait in a file that no queue of this configuration reads (start with the earlier name and "+
				"`storage` of its component until they are sent, or delete the file)",
				zap.String("file", path), zap.Uint64("requests", n))
		}
	}
	return nil
}

// waiting returns the number of requests in a file, 0 if it is in use or not a queue.
func waiting(path string) (n uint64) {
	// A page that a truncated file lacks is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	_ = recovered(func() {
		db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, Timeout: time.Nanosecond})
		if err != nil {
			return
		}
		defer db.Close()
		_ = db.View(func(tx *bbolt.Tx) error {
			if b := tx.Bucket([]byte("default")); b != nil {
				n = queuestorage.Waiting(b.Get([]byte(queuestorage.PositionKey)))
			}
			return nil
		})
	})
	return n
}
