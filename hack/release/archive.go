package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// file is one in an archive. Archives have no times, owners or directories of this machine.
type file struct {
	name    string
	mode    int64
	content []byte
}

func tarOf(files ...file) ([]byte, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Format: tar.FormatPAX, ModTime: time.Unix(0, 0)}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return content.Bytes(), err
}

func tarGzOf(files ...file) ([]byte, error) {
	archive, err := tarOf(files...)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	w := gzip.NewWriter(&content)
	if _, err := w.Write(archive); err != nil {
		return nil, err
	}
	err = w.Close()
	return content.Bytes(), err
}

func zipOf(files ...file) ([]byte, error) {
	var content bytes.Buffer
	w := zip.NewWriter(&content)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		header.SetMode(fs.FileMode(f.mode))
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return content.Bytes(), err
}

// tarDirectory has the files of a directory, in the order of their names.
func tarDirectory(dir string) ([]byte, error) {
	var files []file
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		files = append(files, file{filepath.ToSlash(name), 0o644, content})
		return err
	})
	if err != nil {
		return nil, err
	}
	return tarOf(files...)
}
