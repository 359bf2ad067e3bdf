// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"errors"
	"fmt"
	"slices"
)

// finished is a complete file under its temporary name.
type finished struct {
	temp, path string
	existing   Existing
	stats      Stats
}

// name gives the file its name, which it returns. After an error it may be called again.
func (t *finished) name() (string, error) {
	name, err := publish(t.temp, t.path, t.existing)
	if err != nil {
		return "", fmt.Errorf("cannot name trace file %q: %w (the complete trace stays in %q)", t.path, err, t.temp)
	}
	return name, nil
}

// maxUnnamed bounds the files that wait for their names.
const maxUnnamed = 1000

// tryNames names complete files, and says once that it cannot, as in a folder that went away or was made read-only. It
// is called again with the next file and, where files are completed by time, at every look at them.
func (r *Rotator) tryNames() {
	err := r.names()
	if err != nil && !r.nameless && r.cfg.OnError != nil {
		r.cfg.OnError(err)
	}
	r.nameless = err != nil
}

func (r *Rotator) names() error {
	var errs error
	r.unnamed = slices.DeleteFunc(r.unnamed, func(f finished) bool {
		path, err := f.name()
		if err != nil {
			errs = errors.Join(errs, err)
			return false
		}
		if r.cfg.OnComplete != nil {
			r.cfg.OnComplete(path, f.stats)
		}
		return true
	})
	r.unnamed = r.unnamed[max(0, len(r.unnamed)-maxUnnamed):]
	return errs
}
