// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// tty is a pseudoterminal with a program in it.
type tty struct {
	*process
	master *os.File
	size   func(columns, lines uint16)
	screen buffer
	closed chan struct{}
}

// inTerminal starts the binary in a terminal of the given size.
func inTerminal(t *testing.T, columns, lines uint16, env []string, args ...string) *tty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	p := &tty{process: &process{done: make(chan struct{})}, master: master, closed: make(chan struct{})}
	p.size = func(columns, lines uint16) {
		require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}))
	}
	p.size(columns, lines)
	path, err := binary()
	require.NoError(t, err)
	p.cmd = exec.Command(path, args...)
	p.cmd.Env, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = env, slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, p.cmd.Start())
	require.NoError(t, slave.Close())
	go func() {
		defer close(p.closed)
		_, _ = io.Copy(&p.screen, master)
	}()
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		_ = master.Close()
		<-p.closed
	})
	return p
}

func (p *tty) waitFor(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.screen.String(), text) }, time.Minute,
		10*time.Millisecond, "%q", &p.screen)
}

// frames returns the frames that were drawn on the alternate screen, without colors.
func (p *tty) frames() []string {
	_, drawn, _ := strings.Cut(p.screen.String(), "\x1b[?1049h")
	drawn, _, _ = strings.Cut(drawn, "\x1b[?25h\x1b[?1049l")
	drawn = regexp.MustCompile("\x1b\\[(?:\\d*m|K|J|\\?25l)").ReplaceAllString(drawn, "")
	return strings.Split(drawn, "\x1b[H")[1:]
}

// fits compares a frame with the size of a screen, in which a long line takes several lines.
func fits(t *testing.T, frame string, columns, lines int) {
	t.Helper()
	used := 0
	for l := range strings.SplitSeq(frame, "\r\n") {
		used += 1 + len([]rune(l))/(columns+1)
		if strings.Contains(l, "section") || strings.HasPrefix(l, "OPERATION") {
			require.Less(t, len([]rune(l)), columns+1, l)
		}
	}
	require.LessOrEqual(t, used, lines, frame)
	require.NotContains(t, frame, "\x1b")
}

func demoIn(t *testing.T, columns, lines uint16, env ...string) *tty {
	p := inTerminal(t, columns, lines, append(append(os.Environ(), "TERM=xterm-256color", "NO_COLOR="), env...),
		"demo", "--duration", "5m", "--out", filepath.Join(t.TempDir(), "out"))
	p.waitFor(t, "OPERATION")
	p.waitFor(t, "train ")
	return p
}

func TestTheDemoFitsItsTerminalAndFollowsItsSize(t *testing.T) {
	p := demoIn(t, 80, 24)
	require.Eventually(t, func() bool { return len(p.frames()) > 1 }, time.Minute, 10*time.Millisecond)
	drawn := p.frames()
	for _, f := range drawn[:len(drawn)-1] { // the last one may be incomplete
		fits(t, f, 80, 24)
	}
	require.Contains(t, p.screen.String(), "\x1b[1mOPERATION", "colours")
	before := len(p.frames())
	p.size(200, 50)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGWINCH))
	require.Eventually(t, func() bool {
		f := p.frames()
		return len(f) > before+1 && strings.Contains(f[len(f)-2], "TFLOP/s") && strings.Contains(f[len(f)-2], "TYPE")
	}, time.Minute, 10*time.Millisecond)
	f := p.frames()
	fits(t, f[len(f)-2], 200, 50)

	// Ctrl-C as the terminal sends it: the screen is restored, the table stays, and the files are
	// complete.
	_, err := p.master.Write([]byte{3})
	require.NoError(t, err)
	require.Zero(t, p.exit(t, time.Minute))
	var after string
	require.Eventually(t, func() bool { // output arrives shortly after the process has ended
		_, after, _ = strings.Cut(p.screen.String(), "\x1b[?25h\x1b[?1049l")
		return strings.Contains(after, "trace.json")
	}, time.Minute, 10*time.Millisecond)
	require.Contains(t, after, "OPERATION")
}

func TestTextsOfConvertFitTheTerminal(t *testing.T) {
	file := recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz")
	p := inTerminal(t, 90, 24, append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=1"), "convert", "--out",
		filepath.Join(t.TempDir(), "out"), file)
	require.Zero(t, p.exit(t, time.Minute))
	p.waitFor(t, "\nvolta_scudnn_128x128_stridedB_splitK_small_nn_v1 ") // names of kernels are complete
	lines := strings.Split(strings.ReplaceAll(p.screen.String(), "\r", ""), "\n")
	for _, l := range lines[1:slices.Index(lines, "")] { // the first has the path of the file
		require.Less(t, utf8.RuneCountInString(l), 90, l)
	}
	require.Equal(t, "    loader, GPU 0: the host waited for data in", lines[1])
	require.Equal(t, "      enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ -> nothing was launched", lines[2])
}

func TestNoColoursWhereNoneAreWanted(t *testing.T) {
	p := demoIn(t, 80, 24, "NO_COLOR=1")
	require.NotRegexp(t, "\x1b\\[\\d+m", p.screen.String())
}

func TestADumbTerminalGetsNoControlSequences(t *testing.T) {
	p := inTerminal(t, 80, 24, append(os.Environ(), "TERM=dumb"), "demo", "--duration", "1s", "--out",
		t.TempDir())
	require.Zero(t, p.exit(t, time.Minute))
	require.False(t, bytes.ContainsRune([]byte(p.screen.String()), '\x1b'))
}

func TestSecondInterruptReportsUnfinishedWork(t *testing.T) {
	p := demoIn(t, 80, 24)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP)) // so that the second one arrives before the end
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, 130, p.exit(t, time.Minute))
	p.waitFor(t, "otelcol-gpu: stopped immediately: the files in ")
	require.Contains(t, p.screen.String(), "are not complete")
}
