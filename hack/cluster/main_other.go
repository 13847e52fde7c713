//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "cluster: needs Linux: its machines are made of Linux namespaces")
	os.Exit(1)
}
