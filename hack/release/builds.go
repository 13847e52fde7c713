package main

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// build is one program for one platform.
type build struct {
	program  string
	os, arch string
	path     string
	image    bool // released in an image, and not as a command
	info     *debug.BuildInfo
}

func (b build) platform() string { return b.os + "/" + b.arch }

// setting is what the Go linker noted, such as vcs.revision.
func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// readBuilds finds what hack/release.sh has built, in the order of names.
func readBuilds(root string) ([]build, error) {
	var builds []build
	for dir, image := range map[string]bool{"images": true, "commands": false} {
		paths, err := filepath.Glob(filepath.Join(root, "bin", dir, "*-*", "*"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			info, err := buildinfo.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			os, arch, _ := strings.Cut(filepath.Base(filepath.Dir(path)), "-")
			builds = append(builds, build{
				program: strings.TrimSuffix(filepath.Base(path), ".exe"), os: os, arch: arch, path: path, image: image, info: info,
			})
		}
	}
	slices.SortFunc(builds, func(a, b build) int { return cmp.Compare(a.program+" "+a.platform(), b.program+" "+b.platform()) })
	return builds, checkBuilds(root, builds)
}

// checkBuilds sees that all programs are of one commit without changes, and say nothing of the machine that they were built on.
func checkBuilds(root string, builds []build) error {
	if len(builds) == 0 {
		return fmt.Errorf("there are no programs in %s: hack/release.sh builds them", filepath.Join(root, "bin"))
	}
	revision := setting(builds[0].info, "vcs.revision")
	for _, b := range builds {
		if got := setting(b.info, "vcs.revision"); got == "" || got != revision || setting(b.info, "vcs.modified") != "false" {
			return fmt.Errorf("%s is of commit %q with changes %q, want commit %q without changes", b.path, got, setting(b.info, "vcs.modified"), revision)
		}
		if setting(b.info, "-trimpath") != "true" {
			return fmt.Errorf("%s was built without -trimpath", b.path)
		}
	}
	return nil
}

// programsOf are the programs in images, or the commands, each once.
func programsOf(builds []build, image bool) []string {
	var programs []string
	for _, b := range builds {
		if b.image == image && !slices.Contains(programs, b.program) {
			programs = append(programs, b.program)
		}
	}
	return programs
}

// of are the builds of a program.
func of(builds []build, program string) []build {
	var found []build
	for _, b := range builds {
		if b.program == program {
			found = append(found, b)
		}
	}
	return found
}

func (r *release) commit() string { return setting(r.builds[0].info, "vcs.revision") }

// time is that of the commit, the only one in a release.
func (r *release) time() (time.Time, error) {
	return time.Parse(time.RFC3339, setting(r.builds[0].info, "vcs.time"))
}

// read is the program itself.
func (b build) read() ([]byte, error) { return os.ReadFile(b.path) }
