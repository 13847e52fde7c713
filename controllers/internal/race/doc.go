// Package race tells tests whether the race detector runs. It makes them about ten times slower, and finds nothing more in the
// thousandth history of a simulation than in the hundredth. `make test-unit` plays all of them without it.
package race

// Part returns how many of n random histories a test makes by default.
func Part[N int | uint64](n N) N { return max(1, n/slower) }
