// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/optable"
)

// Control sequences of a terminal (ECMA-48, and xterm's alternate screen, so that tables do not stay in what can be
// scrolled back).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
)

// watchTable shows the table until the workload or the pipeline ends: each second, and when its size changes, on the
// screen of a terminal; elsewhere every 10 s, because nothing can be taken back.
func watchTable(ctx context.Context, done <-chan struct{}, out io.Writer, intro string, table *optable.Table,
	terminal *os.File,
) {
	period := 10 * time.Second
	var resized <-chan os.Signal
	if terminal != nil {
		period = time.Second
		var stop func()
		resized, stop = resizes()
		defer stop()
		fmt.Fprint(out, enterScreen)
		defer fmt.Fprint(out, leaveScreen)
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		if terminal != nil {
			fmt.Fprint(out, frame(intro, table, format(terminal)))
		}
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-resized:
		case <-tick.C:
			if terminal == nil {
				_ = table.Render(out, optable.Format{Rows: 12})
			}
		}
	}
}

// format is what a terminal has room for now; a table of any size where it does not say.
func format(terminal *os.File) optable.Format {
	f := optable.Format{Colour: os.Getenv("NO_COLOR") == ""}
	if terminal == nil {
		return optable.Format{}
	}
	if width, height, err := term.GetSize(int(terminal.Fd())); err == nil && width > 0 && height > 0 {
		f.Width, f.Height = width, height
	}
	return f
}

// last is the format of the table that stays: all operations, at the width of the terminal.
func last(terminal *os.File) optable.Format {
	f := format(terminal)
	f.Height = 0
	return f
}

// frame is one picture of the screen: as much of the introduction as there is room for beside a table of some lines.
func frame(intro string, table *optable.Table, f optable.Format) string {
	lines := strings.Split(strings.TrimSpace(intro), "\n")
	above := 0
	if f.Height > 0 {
		for _, l := range lines {
			above += 1 + len([]rune(l))/max(f.Width, 1)
		}
		if above+1 > f.Height/3 {
			lines = nil
		} else {
			f.Height -= above + 1
		}
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	if lines != nil {
		b.WriteString("\n")
	}
	_ = table.Render(&b, f)
	return home + strings.ReplaceAll(b.String(), "\n", eraseLine+"\r\n") + eraseBelow
}
