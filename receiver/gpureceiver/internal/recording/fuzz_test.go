// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"errors"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// FuzzReader reads any text as the lines of a recording, and any bytes as a file. Nothing may panic
// or hang, and results refer to existing devices.
func FuzzReader(f *testing.F) {
	head := `{"format":"otelgpu-recording","version":1}` + "\n"
	f.Add(head + `{"devices":[{"id":"GPU-1","ordinal":0}]}` + "\n" + `{"d":0,"t":1,"v":{"power":1e3}}` + "\n" +
		`{"d":0,"t":2,"e":"xid","code":79}`)
	f.Add(head + `{"d":0,"t":1}` + "\n" + `{"devices":[]}` + "\n" + `{"devices":[{}]}`)
	f.Add(head + `{"devices":[{"id":"a"}],"d":-1,"t":1e99}` + "\n\n{\n")
	f.Add(`{"format":"otelgpu-recording","version":1e9}`)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		read(t, []byte(text))
		var b bytes.Buffer
		z, err := zstd.NewWriter(&b, zstd.WithEncoderLevel(zstd.SpeedFastest))
		require.NoError(t, err)
		_, _ = z.Write([]byte(text))
		require.NoError(t, z.Close())
		read(t, b.Bytes())
		read(t, b.Bytes()[:b.Len()/2])
	})
}

func read(t *testing.T, file []byte) {
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		return
	}
	defer r.Close()
	devices := 0
	for {
		rec, err := r.Next()
		if _, ok := errors.AsType[*LineError](err); ok {
			continue
		}
		if err != nil {
			return
		}
		if rec.Devices != nil {
			devices = len(rec.Devices)
			continue
		}
		require.Less(t, rec.Device, devices)
		require.Positive(t, rec.Time)
	}
}
