// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// newHealthCommand returns the command with which an image without a shell checks itself.
func newHealthCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "health [HOST:PORT]",
		Short: "Check that a Collector on this machine is ready (exit code 0)",
		Long: "Query the health_check extension of a running Collector, by default at OTELGPU_HEALTH or 127.0.0.1:13133.\n" +
			"The exit code is 0 if the Collector is ready, otherwise 1.",
		Args: takes(0, 1, "health takes one address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			address := cmp.Or(os.Getenv("OTELGPU_HEALTH"), "127.0.0.1:13133")
			if len(args) == 1 {
				address = args[0]
			}
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return fmt.Errorf("address %q must be HOST:PORT: %w", address, err)
			}
			// All interfaces is an address to listen at. An image need not have /etc/hosts, which
			// defines localhost.
			switch ip := net.ParseIP(host); {
			case host == "" || host == "0.0.0.0":
				host = "127.0.0.1"
			case ip != nil && ip.IsUnspecified():
				host = "::1"
			}
			url := "http://" + net.JoinHostPort(host, port)
			req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			resp, err := (&http.Client{Timeout: 3 * time.Second}).Do(req)
			if err != nil {
				return fmt.Errorf("not ready: %w", err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("not ready: %s answers %s", url, resp.Status)
			}
			return nil
		},
	}
}
