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
		pack := tarGzOf
		if b.os == "windows" {
			pack = zipOf
		}
		archive, err := pack(file{b.file(), 0o755, program}, file{"LICENSE", 0o644, license})
		if err != nil {
			return err
		}
		if err := r.write(b.archive(r.version), archive); err != nil {
			return err
		}
	}
	return nil
}

// file is the name of a command's program in its archive.
func (b build) file() string {
	if b.os == "windows" {
		return b.program + ".exe"
	}
	return b.program
}

// archive is the name of a command's archive.
func (b build) archive(version string) string {
	suffix := "tar.gz"
	if b.os == "windows" {
		suffix = "zip"
	}
	return fmt.Sprintf("%s-%s-%s-%s.%s", b.program, version, b.os, b.arch, suffix)
}
