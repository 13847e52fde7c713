//go:build !race

package race

const slower = 1
