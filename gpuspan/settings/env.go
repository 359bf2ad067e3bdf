// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

// FromEnv returns [Default] overridden by the environment variables GPUSPAN_*, one for each of
// [Keys]. Empty variables are ignored, and invalid values keep their defaults. The error names
// every invalid and every unknown variable.
func FromEnv() (Settings, error) {
	s := Default()
	byEnv := map[string]Key{}
	var known []string
	for _, k := range s.keys() {
		byEnv[k.Env()] = k
		known = append(known, k.Env())
	}
	known = append(known, subpackageVariables...)
	var errs []error
	for _, kv := range slices.Sorted(slices.Values(os.Environ())) {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, EnvPrefix) || value == "" || slices.Contains(subpackageVariables, name) ||
			strings.HasPrefix(name, EnvPrefix+"TEST_") { // of this module's tests
			continue
		}
		k, ok := byEnv[name]
		if !ok {
			errs = append(errs, fmt.Errorf("environment: %w", unknownKey(name, known)))
			continue
		}
		if err := k.set(strings.TrimSpace(value)); err != nil {
			errs = append(errs, fmt.Errorf("environment: `%s` %w", name, err))
		}
	}
	return s, errors.Join(errs...)
}

// subpackageVariables name the driver libraries, for packages cuda and hip.
var subpackageVariables = []string{EnvPrefix + "CUDA_LIBRARY", EnvPrefix + "HIP_LIBRARY"}

// Bind defines a flag for each setting, such as -gpuspan.stack-depth, which changes s. The current
// values of s are the defaults. After parsing, call Validate, or assign s in a function of
// gpuspan.WithSettings.
func (s *Settings) Bind(fs *flag.FlagSet) {
	for _, k := range s.keys() {
		fs.Var(settingFlag(k), k.Flag(), fmt.Sprintf("%s (%s)", k.Help, k.Kind))
	}
}

// settingFlag is a flag.Value. Package flag uses its zero value for the default, too.
type settingFlag Key

func (f settingFlag) String() string     { return Key(f).Default() }
func (f settingFlag) Set(v string) error { return f.set(v) }

// IsBoolFlag lets boolean settings be given without a value.
func (f settingFlag) IsBoolFlag() bool { return f.Kind == "bool" }
