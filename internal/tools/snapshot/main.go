// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command snapshot builds the files that a release publishes. The same commit makes the same bytes.
//
//	snapshot build -root DIR -out DIR    archives, deb, rpm, OCI images, chart, SBOMs and checksums
//	snapshot push -out DIR -to REGISTRY  pushes the images of DIR/oci
//	snapshot base -root DIR              sets the image's base packages to Debian's newest (deploy/container/base.json)
//
// make snapshot runs build after the Python package and the capture library, which it takes from
// OUT.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "snapshot:", err)
		os.Exit(1)
	}
}

// platforms are the systems of the core build. Devices are read on Linux only; elsewhere the
// Collector receives spans and converts profiles.
const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64"

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("no command (build, push or base)")
	}
	flags := flag.NewFlagSet("snapshot "+args[0], flag.ContinueOnError)
	r := &release{}
	flags.StringVar(&r.root, "root", ".", "root of the repository")
	flags.StringVar(&r.out, "out", "dist", "directory to write to")
	flags.StringVar(&r.version, "version", "",
		"version without v (default: the repository's, with the commit unless it is tagged)")
	builds := flags.String("builds", "core,full", "builds of the Collector: core, full")
	systems := flags.String("platforms", platforms, "platforms of the core build; the full build uses the Linux ones")
	to := flags.String("to", "", "registry and namespace that push writes to, as ghcr.io/otelgpu")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "build":
		if err := r.describe(ctx); err != nil {
			return err
		}
		return r.build(ctx, strings.Split(*builds, ","), strings.Split(*systems, ","))
	case "push":
		if *to == "" {
			return errors.New("push needs -to (the registry and namespace)")
		}
		return push(ctx, filepath.Join(r.out, "oci"), *to)
	case "base":
		return updateBase(ctx, r.root)
	default:
		return fmt.Errorf("unknown command %q (build, push or base)", args[0])
	}
}

// release is the input of a snapshot.
type release struct {
	root, out, version string

	commit string
	epoch  time.Time // of every file: the commit's time, or SOURCE_DATE_EPOCH
}

var stated = regexp.MustCompile(`(?m)^const Version = "([^"]+)"`)

// describe reads version, commit and time from the repository.
func (r *release) describe(ctx context.Context) (err error) {
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if r.commit, err = output(ctx, r.root, nil, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = output(ctx, r.root, nil, "git", "log", "-1", "--format=%ct"); err != nil {
			return err
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.epoch = time.Unix(n, 0).UTC()
	if r.version != "" {
		return nil
	}
	text, err := output(ctx, r.root, nil, "git", "grep", "-h", "-E", `^const Version = "`, "--", "gpuspan/*.go")
	if err != nil {
		return err
	}
	m := stated.FindStringSubmatch(text)
	if m == nil {
		return errors.New("no file of gpuspan states the version")
	}
	r.version = m[1]
	if tagged, err := output(ctx, r.root, nil, "git", "tag", "--points-at", "HEAD", "--list", "v"+r.version); err != nil {
		return err
	} else if tagged == "" {
		r.version += "-dev." + r.commit[:12]
	}
	return nil
}

// output runs a command in a directory, with variables added to the environment, and returns its standard output.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return strings.TrimSpace(string(b)), nil
}
