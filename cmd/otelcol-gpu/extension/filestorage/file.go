// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package filestorage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
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
	config *filestorage.Config
	log    *zap.Logger
}

// GetClient opens the file of a component.
func (x files) GetClient(ctx context.Context, kind component.Kind, id component.ID, name string,
) (c storage.Client, err error) {
	damaged := x.checkSize(kind, id, name)
	if damaged == nil {
		damaged = recovered(func() { c, err = x.Extension.GetClient(ctx, kind, id, name) })
	}
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
	return nil, fmt.Errorf("cannot open the queue of %s in %s: %w%s", id, x.config.Directory, err, remedy)
}

// checkSize returns an error for a file that lost its end: a read of the missing pages would end the
// process. With `recreate`, it renames the damaged file instead, as contrib does.
func (x files) checkSize(kind component.Kind, id component.ID, name string) error {
	parts := []string{strings.ToLower(kind.String()), id.Type().String(), id.Name()}
	if name != "" {
		parts = append(parts, name)
	}
	path := filepath.Join(x.config.Directory, strings.Join(parts, "_"))
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return nil //nolint:nilerr // nothing to read
	}
	err = read(path, func(tx *bbolt.Tx) error {
		if info.Size() < tx.Size() {
			return fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size())
		}
		return nil
	})
	if errors.Is(err, bolterrors.ErrTimeout) || errors.Is(err, os.ErrPermission) {
		return nil // the queue reports it, too
	}
	if err == nil || !x.config.Recreate {
		return err
	}
	backup := path + time.Now().UTC().Format(".20060102T150405.000Z0700.backup")
	x.log.Warn("the queue's file is damaged and was renamed; a new one is begun", zap.String("file", path),
		zap.String("renamed", backup), zap.Error(err))
	return os.Rename(path, backup)
}

// read calls f with a file that is not in use. A page that a truncated file lacks is an error.
func read(path string, f func(*bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	damaged := recovered(func() {
		var db *bbolt.DB
		if db, err = bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, Timeout: time.Nanosecond}); err == nil {
			defer db.Close()
			err = db.View(f)
		}
	})
	return cmp.Or(damaged, err)
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
	entries, err := os.ReadDir(x.config.Directory)
	if err != nil {
		return nil //nolint:nilerr // the queues are open, and this is a check
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(x.config.Directory, e.Name())
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
	_ = read(path, func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte("default")); b != nil {
			n = queuestorage.Waiting(b.Get([]byte(queuestorage.PositionKey)))
		}
		return nil
	})
	return n
}
