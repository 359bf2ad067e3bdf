// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// cdi resolves claims by the specifications of the Container Device Interface (CDI), which DRA
// drivers write for each claim: they list the device files that a container gets. No right in the
// cluster is needed, only the folder.
type cdi struct {
	folder string
	minors string // the driver's list of the capability files of MIG instances
	drm    string // the kernel's list of render nodes
}

const (
	cdiFolder = "/var/run/cdi"
	migMinors = "/proc/driver/nvidia-caps/mig-minors"
	drmFolder = "/sys/class/drm"
)

// Limits of what is read: one file for each claim, of a few kB.
const maxSpecs, maxSpec = 4096, 1 << 20

// spec is the part of a specification that is needed. JSON is valid YAML.
type spec struct {
	Kind    string
	Devices []struct {
		Name           string
		ContainerEdits struct {
			DeviceNodes []struct{ Path, HostPath string } `yaml:"deviceNodes"`
		} `yaml:"containerEdits"`
	}
}

// devices returns the keys of the devices in the folder by their qualified name.
func (c cdi) devices() map[string][]string {
	entries, err := os.ReadDir(c.folder)
	if err != nil {
		return nil
	}
	instances := c.instances()
	found := map[string][]string{}
	for _, e := range entries[:min(len(entries), maxSpecs)] {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxSpec {
			continue
		}
		b, err := os.ReadFile(filepath.Join(c.folder, e.Name()))
		var s spec
		if err != nil || yaml.Unmarshal(b, &s) != nil {
			continue // of another format, or being written
		}
		for _, d := range s.Devices {
			var board, instance string
			for _, n := range d.ContainerEdits.DeviceNodes {
				path := n.HostPath
				if path == "" {
					path = n.Path
				}
				if capability, ok := strings.CutPrefix(path, "/dev/nvidia-caps/nvidia-cap"); ok {
					if i := instances[capability]; i != "" {
						instance = i
					}
				} else if minor, ok := strings.CutPrefix(path, "/dev/nvidia"); ok && number(minor) {
					board = "nvidia" + minor
				} else if node, ok := strings.CutPrefix(path, "/dev/dri/"); ok && board == "" {
					// Of AMD and Intel. Its device is a link to the PCI address.
					if link, err := os.Readlink(filepath.Join(c.drm, filepath.Base(node), "device")); err == nil {
						board = pciKey(filepath.Base(link))
					}
				}
			}
			switch name := s.Kind + "=" + d.Name; {
			case instance != "":
				found[name] = append(found[name], instance)
			case board != "":
				found[name] = append(found[name], board)
			}
		}
	}
	return found
}

func number(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// instances returns the MIG instances by the minor number of the file that gives access to them, from
// lines such as "gpu0/gi3/access 30".
func (c cdi) instances() map[string]string {
	b, err := os.ReadFile(c.minors)
	if err != nil {
		return nil
	}
	found := map[string]string{}
	for line := range strings.Lines(string(b)) {
		var gpu, instance, minor int
		if n, _ := fmt.Sscanf(line, "gpu%d/gi%d/access %d", &gpu, &instance, &minor); n == 3 {
			found[fmt.Sprint(minor)] = fmt.Sprintf("nvidia%d/gi%d", gpu, instance)
		}
	}
	return found
}
