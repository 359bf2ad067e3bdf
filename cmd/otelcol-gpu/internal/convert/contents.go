// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bufio"
	"crypto/sha256"
	"io"
	"os"

	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

// contents are the files that were seen, by the hash of what they hold when unpacked: a.json and a.json.gz are one
// profile, so are a file and a link to it.
type contents map[[sha256.Size]byte]string

// repeats returns the first file with this content, if there is one. A single file is not looked at; errors are left to
// the reader of the file.
func (c contents) repeats(path string, files int) (first string, err error) {
	if files < 2 {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	plain, done, err := kinetoreceiver.Unpack(bufio.NewReaderSize(f, 1<<16))
	if err != nil {
		return "", err
	}
	defer done()
	h := sha256.New()
	if _, err := io.Copy(h, plain); err != nil {
		return "", err
	}
	sum := [sha256.Size]byte(h.Sum(nil))
	if first, ok := c[sum]; ok {
		return first, nil
	}
	c[sum] = path
	return "", nil
}
