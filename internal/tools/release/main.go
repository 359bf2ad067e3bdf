// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command release prepares a release of all modules of the repository, and tags it.
//
//	release prepare -version v0.2.0            sets the version in every file that states it
//	release tags -version v0.2.0               prints the tags of the release, one for each module that users get
//	release apidiff -base COMMIT               prints incompatible changes of the Go API since a commit or the last tag
//
// It is run in the root of the repository. RELEASE.md describes the order.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/mod/semver"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("no command (prepare, tags or apidiff)")
	}
	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	version := flags.String("version", "", "version, as v0.2.0")
	root := flags.String("root", ".", "root of the repository")
	base := flags.String("base", "", "commit that apidiff compares the working tree with")
	date := flags.String("date", time.Now().UTC().Format(time.DateOnly), "date of the release in the changelog")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "apidiff" {
		return compareAPI(os.Stdout, *root, *base, libraries())
	}
	if !semver.IsValid(*version) || semver.Canonical(*version) != *version {
		return fmt.Errorf("version %q is not a semantic version (such as v0.2.0 or v0.2.0-rc.1)", *version)
	}
	if major := semver.Major(*version); major != "v0" && major != "v1" {
		return fmt.Errorf("version %q needs module paths that end in /%s (change these first)", *version, major)
	}
	switch args[0] {
	case "prepare":
		return prepare(*root, *version, *date)
	case "tags":
		for _, dir := range published {
			fmt.Println(tag(dir, *version))
		}
		return nil
	default:
		return fmt.Errorf("unknown command %q (prepare, tags or apidiff)", args[0])
	}
}
