// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hostcheckextension

import (
	"context"
	"fmt"
	"net/http"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/extensionmiddleware"

	"github.com/otelgpu/otelgpu/extension/hostcheckextension/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/localhost"
)

// hostCheck wraps the handlers of HTTP servers.
type hostCheck struct {
	component.StartFunc
	component.ShutdownFunc

	hosts localhost.Hosts
	tel   *metadata.TelemetryBuilder
}

var _ extensionmiddleware.HTTPServer = (*hostCheck)(nil)

func newHostCheck(cfg *Config, set component.TelemetrySettings) (*hostCheck, error) {
	tel, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return nil, fmt.Errorf("cannot create the extension's metrics: %w", err)
	}
	return &hostCheck{hosts: localhost.NewHosts(cfg.Hosts...), tel: tel}, nil
}

// GetHTTPHandler implements extensionmiddleware.HTTPServer. Rejected requests do not reach the
// server's own handlers.
func (h *hostCheck) GetHTTPHandler(context.Context) (extensionmiddleware.WrapHTTPHandlerFunc, error) {
	return func(_ context.Context, base http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !h.hosts.Allow(r) {
				h.tel.ExtensionHostCheckRejected.Add(r.Context(), 1)
				http.Error(w, fmt.Sprintf("host %q is not this machine (use localhost or an address, or add it to `hosts` "+
					"of host_check)", r.Host), http.StatusForbidden)
				return
			}
			base.ServeHTTP(w, r)
		}), nil
	}, nil
}
