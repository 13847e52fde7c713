// Package race makes tests with random histories play fewer of them under the race detector. It makes each about ten times slower, and most
// histories run in one goroutine. `make test-unit` plays all of them without it.
package race

// Part returns how many of n random histories a test makes by default.
func Part[N int | uint64](n N) N { return max(1, n/slower) }
