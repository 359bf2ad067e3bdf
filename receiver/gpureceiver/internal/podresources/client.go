// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package podresources asks the kubelet which pods hold which devices, by its pod-resources API (v1, stable since
// Kubernetes 1.28) on a unix socket of the node.
//
// The API is one call with an empty request, of whose answer four names are of interest. They are read with protowire:
// the generated types would bring the kubelet's module for them.
package podresources

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// DefaultSocket is where the kubelet listens unless told otherwise.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

const (
	method = "/v1.PodResourcesLister/List"
	// maxAnswer bounds what an answer may take: some hundred bytes for each device.
	maxAnswer = 16 << 20
)

// Client asks one kubelet.
type Client struct{ conn *grpc.ClientConn }

// New returns a client of the socket; it connects with the first call.
func New(socket string) (*Client, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("cannot use kubelet socket %q: %w", socket, err)
	}
	return &Client{conn}, nil
}

// List is the devices that are held now.
func (c *Client) List(ctx context.Context) (*Devices, error) {
	var answer []byte
	if err := c.conn.Invoke(ctx, method, []byte(nil), &answer); err != nil {
		return nil, fmt.Errorf("cannot list pods at the kubelet: %w", err)
	}
	d, err := parse(answer)
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubelet's answer: %w", err)
	}
	return d, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// rawCodec passes messages as the bytes that they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("cannot receive a %T", v)
	}
	*b = data.Materialize()
	return nil
}
