package main

import "fmt"

// commands packs each command line tool with its licence: as a zip for Windows, which can open that, and else as a tar.gz.
func (r *release) commands() error {
	license, err := r.source("LICENSE")
	if err != nil {
		return err
	}
	for _, b := range r.builds {
		if b.image {
			continue
		}
		program, err := b.read()
		if err != nil {
			return err
		}
		name, pack, suffix := b.program, tarGzOf, "tar.gz"
		if b.os == "windows" {
			name, pack, suffix = b.program+".exe", zipOf, "zip"
		}
		archive, err := pack(file{name, 0o755, program}, file{"LICENSE", 0o644, license})
		if err != nil {
			return err
		}
		if err := r.write(fmt.Sprintf("%s-%s-%s-%s.%s", b.program, r.version, b.os, b.arch, suffix), archive); err != nil {
			return err
		}
	}
	return nil
}
