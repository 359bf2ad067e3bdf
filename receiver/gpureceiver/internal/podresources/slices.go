// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// sliceReader reads the ResourceSlices in which DRA drivers describe their devices, from the cluster's
// API. It needs the right to list resourceslices.
type sliceReader struct {
	server, node string
	account      string // folder of the service account
	client       *http.Client

	read  time.Time
	known map[sliceDevice][]string
	err   error
}

// sliceDevice identifies a device of a driver.
type sliceDevice struct{ driver, pool, device string }

const (
	serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"
	// slicesFor is the time for which slices are used, and slicesRetry the time between two attempts.
	slicesFor, slicesRetry = 5 * time.Minute, 10 * time.Second
	slicesTimeout          = 3 * time.Second
)

// newSliceReader reads the slices of the node that OTELGPU_NODE_NAME names, or of all nodes.
func newSliceReader() (*sliceReader, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" {
		return nil, errors.New("cannot read resource slices outside of a cluster (disable `resource_slices`)")
	}
	ca, err := os.ReadFile(filepath.Join(serviceAccount, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("cannot read resource slices without a service account: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &sliceReader{
		server: "https://" + net.JoinHostPort(host, cmp.Or(port, "443")), node: os.Getenv("OTELGPU_NODE_NAME"),
		account: serviceAccount,
		client: &http.Client{Timeout: slicesTimeout, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 1,
		}},
	}, nil
}

// of returns the keys of a device; none if it is unknown.
func (s *sliceReader) of(ctx context.Context, d sliceDevice) []string {
	if s == nil {
		return nil
	}
	age := time.Since(s.read)
	if keys, ok := s.known[d]; ok && age < slicesFor || age < slicesRetry {
		return keys
	}
	s.read = time.Now()
	if known, err := s.list(ctx); err == nil {
		s.known, s.err = known, nil
	} else {
		s.err = err
	}
	return s.known[d]
}

// attributes are a device's, whose names may be prefixed by a domain.
type attributes map[string]struct {
	String string `json:"string"`
}

// list lists the devices in the newest version of the API that the cluster has.
func (s *sliceReader) list(ctx context.Context) (map[sliceDevice][]string, error) {
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		known, err := s.listVersion(ctx, version)
		if !errors.Is(err, errNoVersion) {
			return known, err
		}
	}
	return nil, errNoVersion
}

var errNoVersion = errors.New("the cluster has no resource.k8s.io API")

func (s *sliceReader) listVersion(ctx context.Context, version string) (map[sliceDevice][]string, error) {
	address := s.server + "/apis/resource.k8s.io/" + version + "/resourceslices"
	if s.node != "" {
		address += "?fieldSelector=" + url.QueryEscape("spec.nodeName="+s.node)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	// The token is replaced before it expires.
	token, err := os.ReadFile(filepath.Join(s.account, "token"))
	if err != nil {
		return nil, fmt.Errorf("cannot read resource slices: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot read resource slices: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, errNoVersion
	case http.StatusForbidden, http.StatusUnauthorized:
		return nil, errors.New("cannot read resource slices: forbidden (let the service account list resourceslices of " +
			"resource.k8s.io)")
	default:
		return nil, fmt.Errorf("cannot read resource slices: %s", response.Status)
	}
	var answer struct {
		Items []struct {
			Spec struct {
				Driver  string
				Pool    struct{ Name string }
				Devices []struct {
					Name       string
					Attributes attributes
					Basic      struct{ Attributes attributes } // v1beta1
				}
			}
		}
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("cannot read resource slices: %w", err)
	}
	known := map[sliceDevice][]string{}
	for _, i := range answer.Items {
		for _, d := range i.Spec.Devices {
			all := d.Attributes
			if len(all) == 0 {
				all = d.Basic.Attributes
			}
			if key := all.key(); key != "" {
				known[sliceDevice{i.Spec.Driver, i.Spec.Pool.Name, d.Name}] = []string{key}
			}
		}
	}
	return known, nil
}

// key returns the device of attributes, by its UUID, or its PCI address.
func (a attributes) key() string {
	pci := ""
	for name, v := range a {
		switch name[strings.LastIndexByte(name, '/')+1:] {
		case "uuid":
			if v.String != "" {
				return devicesamples.NormalizeID(v.String)
			}
		case "pciBusID", "pcieBusID", "pciAddr":
			pci = pciKey(v.String)
		}
	}
	return pci
}
