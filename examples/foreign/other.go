// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !(cgo && linux)

package main

import "fmt"

func main() { fmt.Println("this example needs cgo and Linux") }
