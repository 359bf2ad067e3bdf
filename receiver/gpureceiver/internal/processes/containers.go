// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"errors"
	"io"
	"os"
	"strings"
)

// Container is a container of a pod.
type Container struct{ Namespace, Pod, Name string }

// DefaultContainerLogs is the kubelet's folder of links to the logs of containers.
const DefaultContainerLogs = "/var/log/containers"

// maxContainers bounds the containers of a node, terminated ones included.
const maxContainers = 16384

// Containers returns the containers of this node by ID. The kubelet links the log of each container
// as <pod>_<namespace>_<container>-<ID>.log in a folder, whose names suffice: neither the logs nor
// the API of the cluster are read.
func Containers(folder string) (map[string]Container, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(maxContainers)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	found := make(map[string]Container, len(names))
	for _, name := range names {
		name, isLog := strings.CutSuffix(name, ".log")
		dash := strings.LastIndexByte(name, '-')
		if !isLog || dash < 0 {
			continue
		}
		// Names of pods, namespaces and containers have no underscore.
		if parts := strings.Split(name[:dash], "_"); len(parts) == 3 && containerID.MatchString(name[dash+1:]) {
			found[name[dash+1:]] = Container{Pod: parts[0], Namespace: parts[1], Name: parts[2]}
		}
	}
	return found, nil
}
