// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/otelgpu/otelgpu/config"
)

// noCommand returns an error for a first argument that is not a command, with the command that was
// probably meant.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := cmp.Or(whatItIs(args[0]), `"otelcol-gpu --help" lists them`)
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		meant = fmt.Sprintf("did you mean %q?", similar[0])
	}
	return fmt.Errorf("unknown command %q (%s)", args[0], meant)
}

// noArguments refuses arguments of a command that takes flags only. A configuration and a ready
// pipeline go behind --config.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf(`"%s --help" lists its flags`, cmd.CommandPath())
	if is := whatItIs(args[0]); cmd.Flags().Lookup("config") != nil && is != "" {
		hint = fmt.Sprintf("%s --config %s", cmd.CommandPath(), args[0])
	}
	return fmt.Errorf("%s takes no arguments, found %q (%s)", cmd.Name(), args[0], hint)
}

// whatItIs returns how to pass a ready pipeline, a configuration or a profile to otelcol-gpu; empty
// for anything else.
func whatItIs(arg string) string {
	switch filepath.Ext(arg) {
	case ".yaml", ".yml":
		return "otelcol-gpu --config " + arg
	}
	if slices.Contains(config.Names(), arg) {
		return "otelcol-gpu --config " + arg
	}
	if _, err := os.Stat(arg); err == nil {
		return "otelcol-gpu convert --html " + arg
	}
	return ""
}

// takes accepts n to most arguments; otherwise the error names what is missing and shows how to
// pass it.
func takes(n, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n || len(args) > most {
			return fmt.Errorf("%s, found %d", what, len(args))
		}
		return nil
	}
}

// unknownFlag reports where the flags are listed.
func unknownFlag(cmd *cobra.Command, err error) error {
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		return fmt.Errorf(`%w ("%s --help" lists the flags)`, err, cmd.CommandPath())
	}
	return err
}

// byFlag replaces the configuration keys in an error of Validate with the flags that set them.
func byFlag(err error, keysAndFlags ...string) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.NewReplacer(keysAndFlags...).Replace(err.Error()))
}
