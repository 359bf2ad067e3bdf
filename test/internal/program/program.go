// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package program runs other programs for end-to-end tests: it builds them with the go command,
// once for all tests of a package, starts them, waits for a line of their output and stops them.
package program

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Program is a running process. Its methods may be called from any goroutine.
type Program struct {
	name string
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed when the process has ended
	err  error         // of Wait; read after done
}

// Start runs a program with arguments and additional environment (KEY=value). The process is killed
// when ctx ends.
func Start(ctx context.Context, path string, args, env []string) (*Program, error) {
	p := &Program{name: filepath.Base(path), out: &output{}, done: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, path, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// WaitFor returns when the output contains text. It fails if the program ends first, or after the
// given time.
func (p *Program) WaitFor(text string, limit time.Duration) error {
	deadline := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if strings.Contains(p.Output(), text) {
			return nil
		}
		select {
		case <-p.done:
			err := cmp.Or(p.err, errors.New("exit status 0"))
			return fmt.Errorf("%s ended (%w) before it said %q:\n%s", p.name, err, text, p.Output())
		case <-deadline:
			return fmt.Errorf("%s did not say %q within %s:\n%s", p.name, text, limit, p.Output())
		case <-tick.C:
		}
	}
}

// Wait returns when the program has ended; an exit status that is not 0 is an error, and so is
// running longer than the given time, after which it is killed.
func (p *Program) Wait(limit time.Duration) error {
	select {
	case <-p.done:
	case <-time.After(limit):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %s:\n%s", p.name, limit, p.Output())
	}
	if p.err != nil {
		return fmt.Errorf("%s ended with %w:\n%s", p.name, p.err, p.Output())
	}
	return nil
}

// Output returns what the program has written so far, standard output and errors together.
func (p *Program) Output() string { return p.out.String() }

// PID returns the number of the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Stop ends the program (SIGTERM), waits for it, and after the given time kills it, which is an
// error. So is an exit status that is not 0.
func (p *Program) Stop(limit time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.Wait(limit)
}

// Kill ends the program immediately (SIGKILL) and waits for that.
func (p *Program) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	<-p.done
	return nil
}

// output collects the output of a process.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

var (
	built  sync.Map // arguments of Build, and their sync.OnceValues
	folder = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "program") })
)

// Build compiles the main package in dir, with additional environment (KEY=value) and options of go
// build, and returns the path of the program. Equal calls build once. Linking is most of the work,
// so debug information is omitted.
func Build(dir string, env []string, options ...string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	once, _ := built.LoadOrStore(fmt.Sprintf("%q %q %q", path, env, options), sync.OnceValues(func() (string, error) {
		root, err := folder()
		if err != nil {
			return "", err
		}
		into, err := os.MkdirTemp(root, "")
		if err != nil {
			return "", err
		}
		into = filepath.Join(into, filepath.Base(path))
		_, err = Go(context.Background(), path, env,
			append(append([]string{"build", "-ldflags=-s -w"}, options...), "-o", into, ".")...)
		return into, err
	}))
	return once.(func() (string, error))()
}

// RemoveBuilt deletes the programs that Build created; for TestMain.
func RemoveBuilt() {
	if root, err := folder(); err == nil {
		_ = os.RemoveAll(root)
	}
}

// Go runs the go command in a directory with additional environment (KEY=value) and returns its
// standard output. An error contains the command's standard error.
func Go(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}
