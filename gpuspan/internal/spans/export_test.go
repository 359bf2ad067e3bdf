// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import "sync/atomic"

func (x *Farewell) Told() *atomic.Int32 { return &x.told }
