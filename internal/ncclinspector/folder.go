// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ncclinspector

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/otelgpu/otelgpu/internal/regularfile"
)

const (
	// MaxLine is the longest line that is read, in bytes. Verbose lines have up to about 10,000.
	MaxLine = 256 << 10
	// bufferMemory is divided among the files that are read together.
	bufferMemory = 64 << 20
	leastBuffer  = 16 << 10
	// linesPerTurn is how many lines of a file are read before another file is chosen.
	linesPerTurn = 256
	headSize     = 1024
	maxRASFile   = 64 << 20
)

// IsFile reports whether a file has lines of Inspector.
func IsFile(path string) bool {
	file, err := regularfile.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	head := make([]byte, headSize)
	n, _ := io.ReadFull(file, head)
	return Sniff(head[:n])
}

// FilesIn returns the files of Inspector in a folder.
func FilesIn(folder string) (files []string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		if !e.IsDir() && e.Type()&^fs.ModeSymlink == 0 && IsFile(path) {
			files = append(files, path)
		}
	}
	return files
}

// DevicesIn returns the devices by a folder's ras.json; nil if it has none.
func DevicesIn(folder string) (Devices, error) {
	file, err := regularfile.Open(filepath.Join(folder, "ras.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxRASFile))
	if err != nil {
		return nil, err
	}
	return ReadRAS(text)
}

// source is a file that is being read.
type input struct {
	path   string
	file   *os.File
	r      *bufio.Reader
	parser Parser
	at     uint64 // when the last line was written
	lines  int64
}

// Problem is a line that cannot be read.
type Problem struct {
	Path string
	Line int64
	Err  error
	More int64 // further lines of the file that cannot be read
}

// Error returns the problem of the first line, and the number of the others.
func (p *Problem) Error() string {
	s := fmt.Sprintf("%s, line %d: %v", p.Path, p.Line, p.Err)
	if p.More > 0 {
		s += fmt.Sprintf(" (and %d further lines)", p.More)
	}
	return s
}

// ReadFiles reads all files together, line by line in the order in which they were written, so that
// the memory does not depend on their size. Lines that cannot be read are skipped and returned as
// problems, one for each file. The last line of a file may be incomplete.
func ReadFiles(ctx context.Context, paths []string) (*Job, []*Problem, error) {
	job := NewJob(true)
	var open []*input
	defer func() {
		for _, in := range open {
			in.file.Close()
		}
	}()
	size := max(leastBuffer, min(MaxLine, bufferMemory/max(1, len(paths))))
	for _, path := range paths {
		file, err := regularfile.Open(path)
		if err != nil {
			return nil, nil, err
		}
		open = append(open, &input{path: path, file: file, r: bufio.NewReaderSize(file, size)})
	}
	problems := map[string]*Problem{}
	for len(open) > 0 && ctx.Err() == nil {
		first, at := 0, uint64(math.MaxUint64)
		for i, in := range open {
			if in.at < at {
				first, at = i, in.at
			}
		}
		in := open[first]
		done, err := in.turn(job, problems)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read %q: %w", in.path, err)
		}
		if done {
			in.file.Close()
			open[first] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	job.Flush()
	var list []*Problem
	for _, path := range paths {
		if p := problems[path]; p != nil {
			list = append(list, p)
		}
	}
	return job, list, ctx.Err()
}

func (in *input) turn(job *Job, problems map[string]*Problem) (done bool, err error) {
	for range linesPerTurn {
		text, err := in.r.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.r.ReadSlice('\n')
		}
		switch {
		case errors.Is(err, io.EOF):
			return true, nil // the process was still writing the last line
		case err != nil:
			return true, err
		}
		in.lines++
		var r Record
		if tooLong {
			err = fmt.Errorf("longer than %d bytes", in.r.Size())
		} else if text = bytes.TrimRight(text, "\r\n"); len(text) == 0 {
			continue
		} else {
			r, err = in.parser.Parse(text)
		}
		if err == nil {
			if r.Source != nil {
				in.at = r.Written
				job.Add(&r)
			}
			continue
		}
		if p := problems[in.path]; p != nil {
			p.More++
		} else {
			problems[in.path] = &Problem{Path: in.path, Line: in.lines, Err: err}
		}
	}
	return false, nil
}
