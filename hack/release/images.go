package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// images takes the archives that hack/image.sh wrote, under names that tell the version.
func (r *release) images() error {
	for _, program := range programsOf(r.builds, true) {
		builds := of(r.builds, program)
		name := program + ".tar"
		if len(builds) == 1 {
			name = fmt.Sprintf("%s-%s-%s.tar", program, builds[0].os, builds[0].arch)
		}
		content, err := os.ReadFile(filepath.Join(r.root, "bin/images", name))
		if err != nil {
			return err
		}
		if err := r.write(r.imageFile(program), content); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) imageFile(program string) string { return program + "-" + r.tag + ".tar" }
